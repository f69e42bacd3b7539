//! Reads the CQL text of a type: `map<text, frozen<list<int>>>`.
//!
//! ```text
//! type  = native | "frozen" < type > | ("list" | "set") < type > | "map" < type , type >
//!       | "tuple" < type {, type} > | "vector" < type , dimension > | [keyspace .] name | 'Java class'
//! ```
//! Names of native types and of the constructors take any case; a user-defined type's name is lower case unless quoted.

use std::fmt;
use std::sync::Arc;

use crate::cql_type::{CqlType, UdtType};

/// How deep types may be inside each other. Each level costs stack when a type is read, compared or dropped.
pub const NESTING_MAX: usize = 64;

/// A text that names no type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeNameError {
    /// The whole text.
    pub text: String,
    /// Byte offset in it where reading stopped.
    pub at: usize,
    /// What is wrong there.
    pub problem: TypeNameProblem,
}

/// What is wrong with the name of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeNameProblem {
    /// Something else should stand here.
    Expected(&'static str),
    /// Neither a native type nor a user-defined one that the resolver knows.
    Unknown(String),
    /// `frozen<>` around a type that is one cell by nature.
    NotFreezable(CqlType),
    /// More than [`NESTING_MAX`] levels.
    TooDeep,
    /// A vector's dimension outside 1 to 65,535.
    Dimension(String),
}

impl fmt::Display for TypeNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            TypeNameProblem::Expected(what) => write!(f, "expected {what}")?,
            TypeNameProblem::Unknown(name) => write!(f, "Unknown type {name}")?,
            TypeNameProblem::NotFreezable(inner) => {
                write!(
                    f,
                    "frozen<> is only allowed on collections, tuples, and user-defined types (got {inner})"
                )?;
            }
            TypeNameProblem::TooDeep => write!(f, "types are nested more than {NESTING_MAX} deep")?,
            TypeNameProblem::Dimension(dimension) => {
                write!(f, "a vector has 1 to {} dimensions, not {dimension}", u16::MAX)?;
            }
        }
        write!(f, " at offset {} of type name '{}'", self.at, self.text)
    }
}

impl std::error::Error for TypeNameError {}

/// Finds a user-defined type by keyspace, when the text names one, and name.
type Resolver<'r> = dyn Fn(Option<&str>, &str) -> Option<Arc<UdtType>> + 'r;

impl CqlType {
    /// The type that `text` names, in canonical form. `resolve` finds user-defined types.
    ///
    /// # Errors
    /// When the text is not the name of a type, or `resolve` does not know the user-defined type it names.
    pub fn parse(text: &str, resolve: &Resolver<'_>) -> Result<Self, TypeNameError> {
        let mut parser = Parser { text, at: 0, resolve };
        let parsed = parser.parse_type(0)?;
        parser.skip_spaces();
        if parser.at < text.len() {
            return Err(parser.expected("the end of the type"));
        }
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
    text: &'a str,
    at: usize,
    resolve: &'r Resolver<'r>,
}

/// An identifier, and whether it stood in double quotes.
struct Word {
    text: String,
    is_quoted: bool,
}

impl Parser<'_, '_> {
    fn parse_type(&mut self, depth: usize) -> Result<CqlType, TypeNameError> {
        if depth > NESTING_MAX {
            return Err(self.error(TypeNameProblem::TooDeep));
        }
        self.skip_spaces();
        let start = self.at;
        if self.take("'") {
            return self.parse_java_class();
        }
        let word = self.parse_word()?;
        if !word.is_quoted {
            if self.peeks("<") {
                return self.parse_constructor(&word.text, start, depth);
            }
            if let Some(native) = CqlType::from_native_name(&word.text) {
                return Ok(native);
            }
        }
        let (keyspace, name) = if self.take(".") {
            (Some(word.text), self.parse_word()?.text)
        } else {
            (None, word.text)
        };
        match (self.resolve)(keyspace.as_deref(), &name) {
            Some(udt) => Ok(CqlType::Udt(udt)),
            None => {
                let full_name = keyspace.map_or_else(|| name.clone(), |keyspace| format!("{keyspace}.{name}"));
                self.at = start;
                Err(self.error(TypeNameProblem::Unknown(full_name)))
            }
        }
    }

    fn parse_constructor(&mut self, word: &str, start: usize, depth: usize) -> Result<CqlType, TypeNameError> {
        if !matches!(word, "frozen" | "list" | "set" | "map" | "tuple" | "vector") {
            self.at = start;
            return Err(self.error(TypeNameProblem::Unknown(word.to_owned())));
        }
        self.expect("<", "'<'")?;
        let first = self.parse_type(depth + 1)?;
        let parsed = match word {
            "list" => CqlType::List(Arc::new(first)),
            "set" => CqlType::Set(Arc::new(first)),
            "map" => {
                self.expect(",", "','")?;
                CqlType::Map(Arc::new(first), Arc::new(self.parse_type(depth + 1)?))
            }
            "tuple" => {
                let mut elements = vec![first];
                while self.take(",") {
                    elements.push(self.parse_type(depth + 1)?);
                }
                CqlType::Tuple(elements.into())
            }
            "vector" => {
                self.expect(",", "','")?;
                CqlType::Vector(Arc::new(first), self.parse_dimension()?)
            }
            _ => {
                if first.native_name().is_some() {
                    self.at = start;
                    return Err(self.error(TypeNameProblem::NotFreezable(first)));
                }
                CqlType::Frozen(Arc::new(first))
            }
        };
        self.expect(">", "'>'")?;
        Ok(parsed)
    }

    fn parse_dimension(&mut self) -> Result<u16, TypeNameError> {
        self.skip_spaces();
        let rest = &self.text[self.at..];
        let digits = &rest[..rest.bytes().take_while(u8::is_ascii_digit).count()];
        match digits.parse::<u16>() {
            Ok(dimension) if dimension > 0 => {
                self.at += digits.len();
                Ok(dimension)
            }
            _ if digits.is_empty() => Err(self.expected("a dimension")),
            _ => Err(self.error(TypeNameProblem::Dimension(digits.to_owned()))),
        }
    }

    fn parse_java_class(&mut self) -> Result<CqlType, TypeNameError> {
        let rest = &self.text[self.at..];
        let Some(end) = rest.find('\'') else {
            return Err(self.expected("a closing '"));
        };
        let class = &rest[..end];
        let (parsed, _) = CqlType::from_marshal_name(class).map_err(|error| TypeNameError {
            text: self.text.to_owned(),
            at: self.at + error.at,
            problem: error.problem,
        })?;
        self.at += end + 1;
        Ok(parsed)
    }

    fn parse_word(&mut self) -> Result<Word, TypeNameError> {
        self.skip_spaces();
        let rest = &self.text[self.at..];
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
                    self.at += index + 2;
                    return Ok(Word { text, is_quoted: true });
                }
            }
            return Err(self.expected("a name in double quotes"));
        }
        let len = rest
            .bytes()
            .take_while(|b| b.is_ascii_alphanumeric() || *b == b'_')
            .count();
        if len == 0 || rest.as_bytes()[0].is_ascii_digit() {
            return Err(self.expected("a type"));
        }
        self.at += len;
        Ok(Word {
            text: rest[..len].to_ascii_lowercase(),
            is_quoted: false,
        })
    }

    fn skip_spaces(&mut self) {
        self.at += self.text[self.at..].bytes().take_while(u8::is_ascii_whitespace).count();
    }

    fn peeks(&mut self, token: &str) -> bool {
        self.skip_spaces();
        self.text[self.at..].starts_with(token)
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.peeks(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str, what: &'static str) -> Result<(), TypeNameError> {
        if self.take(token) {
            Ok(())
        } else {
            Err(self.expected(what))
        }
    }

    fn expected(&self, what: &'static str) -> TypeNameError {
        self.error(TypeNameProblem::Expected(what))
    }

    fn error(&self, problem: TypeNameProblem) -> TypeNameError {
        TypeNameError {
            text: self.text.to_owned(),
            at: self.at,
            problem,
        }
    }
}
