//! Terms: what yields a value without a row.

use stdx::LongVec;

use super::{Parse, Parser, undollar, unquote};
use crate::Variables;
use crate::ast::{ArithmeticOperator, BindMarker, FunctionCall, Literal, LiteralKind, QualifiedName, Term, TypeName};
use crate::keyword::Keyword;
use crate::lexer::{Token, TokenKind};

impl Parser<'_> {
    /// A term with `+` and `-`. Stops before `+ column`, which only an assignment knows what to do with.
    pub(super) fn term(&mut self) -> Parse<Term> {
        // Most terms are a marker or a constant and nothing else: they need none of the calls below.
        let token = self.token();
        if !continues_term(self.ahead(1).kind) {
            if token.kind == TokenKind::Question {
                self.height = 0;
                return Ok(Term::BindMarker(self.bind_marker()?));
            }
            if let Some(kind) = literal_kind(token) {
                self.height = 0;
                return Ok(Term::Literal(self.literal_of(kind, token)));
            }
        }
        self.compound_term()
    }

    fn compound_term(&mut self) -> Parse<Term> {
        let mut left = self.term_product()?;
        loop {
            let operator = match self.kind() {
                TokenKind::Plus if !self.is_column_reference(1) => ArithmeticOperator::Add,
                TokenKind::Minus => ArithmeticOperator::Subtract,
                _ => return Ok(left),
            };
            self.advance();
            let height = self.height;
            let right = self.term_product()?;
            self.grow_above(height.max(self.height))?;
            left = Term::Arithmetic {
                operator,
                left: Box::new(left),
                right: Box::new(right),
            };
        }
    }

    fn term_product(&mut self) -> Parse<Term> {
        let mut left = self.term_operand()?;
        while let Some(operator) = product_operator(self.kind()) {
            self.advance();
            let height = self.height;
            let right = self.term_operand()?;
            self.grow_above(height.max(self.height))?;
            left = Term::Arithmetic {
                operator,
                left: Box::new(left),
                right: Box::new(right),
            };
        }
        Ok(left)
    }

    /// One operand: everything but binary arithmetic.
    fn term_operand(&mut self) -> Parse<Term> {
        self.height = 0;
        if let Some(literal) = self.literal()? {
            return Ok(Term::Literal(literal));
        }
        match self.kind() {
            TokenKind::Question | TokenKind::Colon => Ok(Term::BindMarker(self.bind_marker()?)),
            _ => self.nested(Self::term_within),
        }
    }

    fn term_within(&mut self) -> Parse<Term> {
        let start = self.position;
        match self.kind() {
            TokenKind::Minus => {
                self.advance();
                let operand = self.term_operand()?;
                self.grow_above(self.height)?;
                Ok(Term::Negation(Box::new(operand)))
            }
            TokenKind::LeftParenthesis if self.is_type_cast() => {
                self.advance();
                let type_name = self.type_name()?;
                self.expect(TokenKind::RightParenthesis)?;
                let term = self.term_operand()?;
                self.grow_above(self.height)?;
                Ok(Term::TypeCast {
                    type_name: Box::new(type_name),
                    term: Box::new(term),
                })
            }
            TokenKind::LeftParenthesis => {
                self.advance();
                Ok(Term::Tuple(self.terms_until(TokenKind::RightParenthesis)?.into()))
            }
            TokenKind::LeftBracket => {
                self.advance();
                if self.accept(TokenKind::RightBracket) {
                    return Ok(Term::List(LongVec::new()));
                }
                Ok(Term::List(self.terms_until(TokenKind::RightBracket)?.into()))
            }
            TokenKind::LeftBrace => self.term_in_braces(),
            _ if self.is_function_call() => Ok(Term::FunctionCall(Box::new(self.function_call()?))),
            TokenKind::Word | TokenKind::QuotedName if self.is_name(self.token()) => {
                // There is a column where only a value is allowed; Cassandra notices at the next token.
                self.advance();
                Err(self.no_viable_from(start))
            }
            _ => Err(self.no_viable_here()),
        }
    }

    /// `term, …` and the closing token.
    pub(super) fn terms_until(&mut self, close: TokenKind) -> Parse<Vec<Term>> {
        let mut height = 0;
        let terms = self.comma_separated(|parser| {
            let term = parser.term()?;
            height = height.max(parser.height);
            Ok(term)
        })?;
        self.expect(close)?;
        self.grow_above(height)?;
        Ok(terms)
    }

    /// A set, map or user-defined type literal.
    fn term_in_braces(&mut self) -> Parse<Term> {
        self.advance();
        if self.accept(TokenKind::RightBrace) {
            return Ok(Term::Set(LongVec::new()));
        }
        let mut height = 0;
        if self.is_name(self.token()) && self.ahead(1).kind == TokenKind::Colon {
            let fields = self.comma_separated(|parser| {
                let field = parser.name()?;
                parser.expect(TokenKind::Colon)?;
                let term = parser.term()?;
                height = height.max(parser.height);
                Ok((field, term))
            })?;
            self.expect(TokenKind::RightBrace)?;
            self.grow_above(height)?;
            return Ok(Term::UserType(fields));
        }
        let first = self.term()?;
        height = self.height;
        if !self.accept(TokenKind::Colon) {
            let mut elements = LongVec::from(vec![first]);
            while self.accept(TokenKind::Comma) {
                elements.push(self.term()?);
                height = height.max(self.height);
            }
            self.expect(TokenKind::RightBrace)?;
            self.grow_above(height)?;
            return Ok(Term::Set(elements));
        }
        let value = self.term()?;
        height = height.max(self.height);
        let mut entries = LongVec::from(vec![(first, value)]);
        while self.accept(TokenKind::Comma) {
            let key = self.term()?;
            height = height.max(self.height);
            self.expect(TokenKind::Colon)?;
            let value = self.term()?;
            height = height.max(self.height);
            entries.push((key, value));
        }
        self.expect(TokenKind::RightBrace)?;
        self.grow_above(height)?;
        Ok(Term::Map(entries))
    }

    /// `[keyspace.]name(terms)`
    pub(super) fn function_call(&mut self) -> Parse<FunctionCall> {
        if self.is_cast() {
            return self.cast();
        }
        let name = self.function_name()?;
        self.expect(TokenKind::LeftParenthesis)?;
        if self.accept(TokenKind::RightParenthesis) {
            self.height = 1;
            return Ok(FunctionCall {
                name,
                arguments: Vec::new(),
            });
        }
        Ok(FunctionCall {
            name,
            arguments: self.terms_until(TokenKind::RightParenthesis)?,
        })
    }

    /// Whether `cast(value AS` comes next, and not a call of a function of that name.
    fn is_cast(&self) -> bool {
        if self.keyword() != Keyword::Cast {
            return false;
        }
        let mut depth = 0;
        for ahead in 1.. {
            let token = self.ahead(ahead);
            match token.kind {
                TokenKind::LeftParenthesis => depth += 1,
                TokenKind::RightParenthesis => depth -= 1,
                TokenKind::End => return false,
                _ if depth == 1 && token.keyword == Keyword::As => return true,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        false
    }

    /// The function call that `cast(value AS type)` means, as in Cassandra.
    fn cast(&mut self) -> Parse<FunctionCall> {
        self.advance();
        self.expect(TokenKind::LeftParenthesis)?;
        let value = self.term()?;
        self.expect_word(Keyword::As)?;
        let place = self.position;
        let TypeName::Native(to) = self.type_name()? else {
            return Err(self.no_viable_from(place));
        };
        self.expect(TokenKind::RightParenthesis)?;
        self.grow_above(self.height)?;
        Ok(FunctionCall {
            name: QualifiedName {
                keyspace: Some("system".to_owned()),
                name: format!("cast_as_{to}"),
            },
            arguments: vec![value],
        })
    }

    /// As a qualified name, and `token` too.
    pub(super) fn function_name(&mut self) -> Parse<QualifiedName> {
        if self.ahead(1).kind == TokenKind::Dot {
            let keyspace = self.name()?;
            self.advance();
            return Ok(QualifiedName {
                keyspace: Some(keyspace),
                name: self.bare_function_name()?,
            });
        }
        Ok(QualifiedName {
            keyspace: None,
            name: self.bare_function_name()?,
        })
    }

    fn bare_function_name(&mut self) -> Parse<String> {
        if self.accept_word(Keyword::Token) {
            return Ok("token".to_owned());
        }
        self.name()
    }

    /// Whether `name(` or `keyspace.name(` comes next.
    pub(super) fn is_function_call(&self) -> bool {
        self.is_function_call_at(0)
    }

    fn is_function_call_at(&self, distance: usize) -> bool {
        let first = self.ahead(distance);
        if !self.is_name(first) && first.keyword != Keyword::Token {
            return false;
        }
        match self.ahead(distance + 1).kind {
            TokenKind::LeftParenthesis => true,
            TokenKind::Dot => self.ahead(distance + 3).kind == TokenKind::LeftParenthesis,
            _ => false,
        }
    }

    /// Whether a column's name, rather than a value, is at this distance ahead.
    pub(super) fn is_column_reference(&self, distance: usize) -> bool {
        self.is_name(self.ahead(distance)) && !self.is_function_call_at(distance)
    }

    /// Whether the parenthesis here opens a type: a name inside it that calls nothing can be nothing else.
    fn is_type_cast(&self) -> bool {
        let inner = self.ahead(1);
        match inner.kind {
            TokenKind::String | TokenKind::DollarString => {
                let next = self.ahead(3).kind;
                // A colon makes it the key of a map: `{('a'): 1}`.
                self.ahead(2).kind == TokenKind::RightParenthesis && next != TokenKind::Colon && begins_value(next)
            }
            _ => (self.is_name(inner) || inner.keyword == Keyword::Set) && !self.is_function_call_at(1),
        }
    }

    /// `?` or `:name`
    pub(super) fn bind_marker(&mut self) -> Parse<BindMarker> {
        let name = match self.kind() {
            TokenKind::Question => {
                self.advance();
                None
            }
            _ => {
                self.expect(TokenKind::Colon)?;
                Some(self.name()?)
            }
        };
        let new = self.bind_markers.len();
        let index = match &name {
            Some(name) if self.variables == Variables::ByName => *self.names.entry(name.clone()).or_insert(new),
            _ => new,
        };
        if index == new {
            if new == 0 {
                self.bind_markers.reserve(8);
            }
            self.bind_markers.push(name.clone());
        }
        Ok(BindMarker { index, name })
    }

    /// A constant, with its sign; `None` if none comes next.
    pub(super) fn literal(&mut self) -> Parse<Option<Literal>> {
        let token = self.token();
        if token.kind == TokenKind::Minus {
            let number = self.ahead(1);
            let Some(kind) = literal_kind(number).filter(|&kind| is_signed(kind)) else {
                return Ok(None);
            };
            self.advance();
            self.advance();
            return Ok(Some(Literal {
                kind,
                text: format!("-{}", self.written(number)),
            }));
        }
        Ok(literal_kind(token).map(|kind| self.literal_of(kind, token)))
    }

    /// The constant that the present token is.
    fn literal_of(&mut self, kind: LiteralKind, token: Token) -> Literal {
        let written = self.written(token);
        let text = match token.kind {
            TokenKind::String => unquote(written, '\''),
            TokenKind::DollarString => undollar(written).to_owned(),
            _ => written.to_owned(),
        };
        self.advance();
        Literal { kind, text }
    }

    /// A constant, which is required here.
    pub(super) fn expect_literal(&mut self) -> Parse<Literal> {
        self.literal()?.ok_or_else(|| self.no_viable_here())
    }
}

pub(super) fn product_operator(kind: TokenKind) -> Option<ArithmeticOperator> {
    match kind {
        TokenKind::Star => Some(ArithmeticOperator::Multiply),
        TokenKind::Slash => Some(ArithmeticOperator::Divide),
        TokenKind::Percent => Some(ArithmeticOperator::Modulo),
        _ => None,
    }
}

/// Whether the token after a term continues it.
fn continues_term(kind: TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::Plus | TokenKind::Minus | TokenKind::Star | TokenKind::Slash | TokenKind::Percent
    )
}

/// Whether the token begins a value and nothing else.
pub(super) fn begins_value(kind: TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::String
            | TokenKind::DollarString
            | TokenKind::Integer
            | TokenKind::Float
            | TokenKind::Uuid
            | TokenKind::Blob
            | TokenKind::Duration
            | TokenKind::Question
            | TokenKind::Colon
            | TokenKind::LeftBracket
            | TokenKind::LeftBrace
            | TokenKind::LeftParenthesis
    )
}

fn literal_kind(token: Token) -> Option<LiteralKind> {
    match token.kind {
        TokenKind::String | TokenKind::DollarString => Some(LiteralKind::String),
        TokenKind::Integer => Some(LiteralKind::Integer),
        TokenKind::Float => Some(LiteralKind::Float),
        TokenKind::Uuid => Some(LiteralKind::Uuid),
        TokenKind::Blob => Some(LiteralKind::Blob),
        TokenKind::Duration => Some(LiteralKind::Duration),
        TokenKind::Word => match token.keyword {
            Keyword::True | Keyword::False => Some(LiteralKind::Boolean),
            Keyword::Null => Some(LiteralKind::Null),
            Keyword::Nan | Keyword::Infinity => Some(LiteralKind::Float),
            _ => None,
        },
        _ => None,
    }
}

fn is_signed(kind: LiteralKind) -> bool {
    matches!(kind, LiteralKind::Integer | LiteralKind::Float | LiteralKind::Duration)
}
