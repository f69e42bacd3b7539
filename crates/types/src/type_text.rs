//! Reads the CQL text of a type: `map<text, frozen<list<int>>>`.
//!
//! ```text
//! type  = native | "frozen" < type > | ("list" | "set") < type > | "map" < type , type >
//!       | "tuple" < type {, type} > | "vector" < type , dimension > | [keyspace .] name | 'Java class'
//! ```
//! Names of native types and of the constructors take any case; a user-defined type's name is lower case unless quoted.

use std::sync::Arc;

use crate::cql_type::{CqlType, DIMENSION_MAX, UdtType};
use crate::type_cursor::{NESTING_MAX, TypeCursor, TypeNameError, TypeNameProblem};

/// Finds a user-defined type by keyspace, when the text names one, and name.
type Resolver<'r> = dyn Fn(Option<&str>, &str) -> Option<Arc<UdtType>> + 'r;

impl CqlType {
    /// The type that `text` names, in canonical form. `resolve` finds user-defined types.
    ///
    /// # Errors
    /// When the text is not the name of a type, or `resolve` does not know the user-defined type it names.
    pub fn parse(text: &str, resolve: &Resolver<'_>) -> Result<Self, TypeNameError> {
        let mut parser = Parser {
            cursor: TypeCursor::new(text),
            resolve,
        };
        let parsed = parser.parse_type(0)?;
        parser.cursor.expect_end("the end of the type")?;
        Ok(parsed.canonical())
    }

    /// The type that `text` names when no user-defined type can be in it.
    ///
    /// # Errors
    /// When the text is not the name of such a type.
    pub fn parse_native(text: &str) -> Result<Self, TypeNameError> {
        Self::parse(text, &|_, _| None)
    }
}

struct Parser<'a, 'r> {
    cursor: TypeCursor<'a>,
    resolve: &'r Resolver<'r>,
}

/// An identifier, and whether it was in double quotes.
struct Word {
    text: String,
    is_quoted: bool,
}

impl Parser<'_, '_> {
    fn parse_type(&mut self, depth: usize) -> Result<CqlType, TypeNameError> {
        if depth > NESTING_MAX {
            return Err(self.cursor.error(TypeNameProblem::TooDeep));
        }
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        if self.cursor.take("'") {
            return self.parse_java_class();
        }
        let word = self.parse_word()?;
        if !word.is_quoted {
            if self.cursor.peeks("<") {
                return self.parse_constructor(&word.text, start, depth);
            }
            if let Some(native) = CqlType::from_native_name(&word.text) {
                return Ok(native);
            }
        }
        let (keyspace, name) = if self.cursor.take(".") {
            (Some(word.text), self.parse_word()?.text)
        } else {
            (None, word.text)
        };
        match (self.resolve)(keyspace.as_deref(), &name) {
            Some(udt) => Ok(CqlType::Udt(udt)),
            None => {
                let full_name = keyspace.map_or_else(|| name.clone(), |keyspace| format!("{keyspace}.{name}"));
                self.cursor.at = start;
                Err(self.cursor.error(TypeNameProblem::Unknown(full_name)))
            }
        }
    }

    fn parse_constructor(&mut self, word: &str, start: usize, depth: usize) -> Result<CqlType, TypeNameError> {
        if !matches!(word, "frozen" | "list" | "set" | "map" | "tuple" | "vector") {
            self.cursor.at = start;
            return Err(self.cursor.error(TypeNameProblem::Unknown(word.to_owned())));
        }
        self.cursor.expect("<", "'<'")?;
        let first = self.parse_type(depth + 1)?;
        let parsed = match word {
            "list" => CqlType::List(Arc::new(first)),
            "set" => CqlType::Set(Arc::new(first)),
            "map" => {
                self.cursor.expect(",", "','")?;
                CqlType::Map(Arc::new(first), Arc::new(self.parse_type(depth + 1)?))
            }
            "tuple" => {
                let mut elements = vec![first];
                while self.cursor.take(",") {
                    elements.push(self.parse_type(depth + 1)?);
                }
                CqlType::Tuple(elements.into())
            }
            "vector" => {
                self.cursor.expect(",", "','")?;
                CqlType::Vector(Arc::new(first), self.parse_dimension()?)
            }
            _ => {
                if first.native_name().is_some() {
                    self.cursor.at = start;
                    return Err(self.cursor.error(TypeNameProblem::NotFreezable(first)));
                }
                CqlType::Frozen(Arc::new(first))
            }
        };
        self.cursor.expect(">", "'>'")?;
        Ok(parsed)
    }

    fn parse_dimension(&mut self) -> Result<u32, TypeNameError> {
        self.cursor.skip_spaces();
        let rest = self.cursor.rest();
        let digits = &rest[..rest.bytes().take_while(u8::is_ascii_digit).count()];
        match digits.parse() {
            Ok(dimension @ 1..=DIMENSION_MAX) => {
                self.cursor.at += digits.len();
                Ok(dimension)
            }
            _ if digits.is_empty() => Err(self.cursor.expected("a dimension")),
            _ => Err(self.cursor.error(TypeNameProblem::Dimension(digits.to_owned()))),
        }
    }

    fn parse_java_class(&mut self) -> Result<CqlType, TypeNameError> {
        let rest = self.cursor.rest();
        let Some(end) = rest.find('\'') else {
            return Err(self.cursor.expected("a closing '"));
        };
        let class = &rest[..end];
        let (parsed, _) = CqlType::from_marshal_name(class).map_err(|error| TypeNameError {
            text: self.cursor.text.to_owned(),
            at: self.cursor.at + error.at,
            problem: error.problem,
        })?;
        self.cursor.at += end + 1;
        Ok(parsed)
    }

    fn parse_word(&mut self) -> Result<Word, TypeNameError> {
        self.cursor.skip_spaces();
        let rest = self.cursor.rest();
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut text = String::new();
            let mut chars = quoted.char_indices().peekable();
            while let Some((index, c)) = chars.next() {
                if c != '"' {
                    text.push(c);
                } else if chars.next_if(|&(_, next)| next == '"').is_some() {
                    text.push('"');
                } else if text.is_empty() {
                    break;
                } else {
                    self.cursor.at += index + 2;
                    return Ok(Word { text, is_quoted: true });
                }
            }
            return Err(self.cursor.expected("a name in double quotes"));
        }
        let len = rest
            .bytes()
            .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
            .count();
        if len == 0 || rest.as_bytes()[0].is_ascii_digit() {
            return Err(self.cursor.expected("a type"));
        }
        self.cursor.at += len;
        Ok(Word {
            text: rest[..len].to_ascii_lowercase(),
            is_quoted: false,
        })
    }
}
