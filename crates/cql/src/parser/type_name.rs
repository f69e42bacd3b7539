//! Types.

use super::{Parse, Parser};
use crate::ast::{NativeType, TypeName};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn type_name(&mut self) -> Parse<TypeName> {
        self.nested(Self::type_name_within)
    }

    fn type_name_within(&mut self) -> Parse<TypeName> {
        if matches!(self.kind(), TokenKind::String | TokenKind::DollarString) {
            return Ok(TypeName::Custom(self.string()?));
        }
        let keyword = self.keyword();
        if let Some(native) = native_type(keyword)
            && self.ahead(1).kind != TokenKind::Dot
        {
            self.advance();
            return Ok(TypeName::Native(native));
        }
        let generic = keyword == Keyword::Set || self.ahead(1).kind == TokenKind::Less;
        match keyword {
            Keyword::List if generic => Ok(TypeName::List(self.type_parameter()?)),
            Keyword::Set if generic => Ok(TypeName::Set(self.type_parameter()?)),
            Keyword::Frozen if generic => Ok(TypeName::Frozen(self.type_parameter()?)),
            Keyword::Map if generic => {
                self.advance();
                self.expect(TokenKind::Less)?;
                let key = self.type_name()?;
                self.expect(TokenKind::Comma)?;
                let value = self.type_name()?;
                self.expect(TokenKind::Greater)?;
                Ok(TypeName::Map(Box::new(key), Box::new(value)))
            }
            Keyword::Tuple if generic => {
                self.advance();
                self.expect(TokenKind::Less)?;
                let elements = self.comma_separated(Self::type_name)?;
                self.expect(TokenKind::Greater)?;
                Ok(TypeName::Tuple(elements))
            }
            Keyword::Vector if generic => {
                self.advance();
                self.expect(TokenKind::Less)?;
                let element = self.type_name()?;
                self.expect(TokenKind::Comma)?;
                let dimension = self.dimension()?;
                self.expect(TokenKind::Greater)?;
                Ok(TypeName::Vector(Box::new(element), dimension))
            }
            _ => Ok(TypeName::UserType(self.qualified_name()?)),
        }
    }

    /// `name<type>` from its name on.
    fn type_parameter(&mut self) -> Parse<Box<TypeName>> {
        self.advance();
        self.expect(TokenKind::Less)?;
        let parameter = self.type_name()?;
        self.expect(TokenKind::Greater)?;
        Ok(Box::new(parameter))
    }

    fn dimension(&mut self) -> Parse<i32> {
        let position = self.position;
        let number = match self.kind() {
            TokenKind::Minus => self.ahead(1),
            _ => self.token(),
        };
        let literal = match number.kind {
            TokenKind::Integer => self.literal()?,
            _ => None,
        };
        let Some(literal) = literal else {
            return Err(self.mismatched("INTEGER"));
        };
        let is_none = |_| {
            let message = format!("{} is no vector dimension", literal.text);
            self.source().at(position, message)
        };
        literal.text.parse().map_err(is_none)
    }
}

pub(crate) fn native_type(keyword: Keyword) -> Option<NativeType> {
    Some(match keyword {
        Keyword::Ascii => NativeType::Ascii,
        Keyword::BigInt => NativeType::BigInt,
        Keyword::Blob => NativeType::Blob,
        Keyword::Boolean => NativeType::Boolean,
        Keyword::Counter => NativeType::Counter,
        Keyword::Date => NativeType::Date,
        Keyword::Decimal => NativeType::Decimal,
        Keyword::Double => NativeType::Double,
        Keyword::Duration => NativeType::Duration,
        Keyword::Float => NativeType::Float,
        Keyword::Inet => NativeType::Inet,
        Keyword::Int => NativeType::Int,
        Keyword::SmallInt => NativeType::SmallInt,
        Keyword::Text | Keyword::Varchar => NativeType::Text,
        Keyword::Time => NativeType::Time,
        Keyword::Timestamp => NativeType::Timestamp,
        Keyword::TimeUuid => NativeType::TimeUuid,
        Keyword::TinyInt => NativeType::TinyInt,
        Keyword::Uuid => NativeType::Uuid,
        Keyword::VarInt => NativeType::VarInt,
        _ => return None,
    })
}
