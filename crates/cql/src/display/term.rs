//! Terms and types.

use std::fmt::{self, Display, Formatter};

use super::{Name, bracketed, entries_of, fields_of, list};
use crate::ast::{
    ArithmeticOperator, BindMarker, FunctionCall, Literal, LiteralKind, NativeType, QualifiedName, Term, TypeName,
};
use crate::keyword::{Keyword, keyword};
use crate::quote::{quote_identifier, quote_string, quoted};

impl Display for Term {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Term::Literal(literal) => literal.fmt(f),
            Term::BindMarker(marker) => marker.fmt(f),
            Term::List(elements) => bracketed(f, "[]", |f| list(f, elements)),
            Term::Set(elements) => bracketed(f, "{}", |f| list(f, elements)),
            Term::Map(entries) => entries_of(f, entries),
            Term::UserType(fields) => fields_of(f, fields),
            Term::Tuple(elements) => bracketed(f, "()", |f| list(f, elements)),
            Term::FunctionCall(call) => call.fmt(f),
            Term::TypeCast { type_name, term } => write!(f, "({type_name}){term}"),
            Term::Arithmetic { operator, left, right } => write!(f, "{left} {operator} {right}"),
            // Two minus signs without a space would begin a comment.
            Term::Negation(term) => write!(f, "- {term}"),
        }
    }
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.kind {
            LiteralKind::String => f.write_str(&quote_string(&self.text)),
            _ => f.write_str(&self.text),
        }
    }
}

impl Display for BindMarker {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, ":{}", Name(name)),
            None => f.write_str("?"),
        }
    }
}

impl Display for FunctionCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", FunctionName(&self.name))?;
        list(f, &self.arguments)?;
        f.write_str(")")
    }
}

/// The name of a function: `token` stays bare although it is reserved.
pub(super) struct FunctionName<'a>(pub(super) &'a QualifiedName);

impl Display for FunctionName<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Bare, these would be CONTAINS KEY and the CAST of the grammar.
        let write = |f: &mut Formatter<'_>, name: &str| match name {
            "key" | "cast" => f.write_str(&quoted(name)),
            _ => SelectedName(name).fmt(f),
        };
        if let Some(keyspace) = &self.0.keyspace {
            write(f, keyspace)?;
            f.write_str(".")?;
        }
        match self.0.name.as_str() {
            "token" => f.write_str("token"),
            name => write(f, name),
        }
    }
}

/// A name at the beginning of a selector, where the words that may follow SELECT or a selector must be quoted.
pub(super) struct SelectedName<'a>(pub(super) &'a str);

impl Display for SelectedName<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            "json" | "distinct" | "as" | "per" | "bypass" => f.write_str(&quoted(self.0)),
            name => Name(name).fmt(f),
        }
    }
}

impl Display for ArithmeticOperator {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ArithmeticOperator::Add => "+",
            ArithmeticOperator::Subtract => "-",
            ArithmeticOperator::Multiply => "*",
            ArithmeticOperator::Divide => "/",
            ArithmeticOperator::Modulo => "%",
        })
    }
}

impl Display for TypeName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            TypeName::Native(native) => native.fmt(f),
            TypeName::List(element) => write!(f, "list<{element}>"),
            TypeName::Set(element) => write!(f, "set<{element}>"),
            TypeName::Map(key, value) => write!(f, "map<{key}, {value}>"),
            TypeName::Tuple(elements) => {
                f.write_str("tuple<")?;
                list(f, elements)?;
                f.write_str(">")
            }
            TypeName::Vector(element, dimension) => write!(f, "vector<{element}, {dimension}>"),
            TypeName::Frozen(inner) => write!(f, "frozen<{inner}>"),
            TypeName::UserType(name) => {
                if let Some(keyspace) = &name.keyspace {
                    write!(f, "{}.", Name(keyspace))?;
                }
                f.write_str(&if name_of_type(&name.name) {
                    quoted(&name.name)
                } else {
                    quote_identifier(&name.name).into_owned()
                })
            }
            TypeName::Custom(class) => f.write_str(&quote_string(class)),
        }
    }
}

/// Whether the name, written bare, is a type of the language.
pub(super) fn name_of_type(name: &str) -> bool {
    let keyword = keyword(name.as_bytes());
    crate::parser::native_type(keyword).is_some()
        || matches!(
            keyword,
            Keyword::List | Keyword::Map | Keyword::Tuple | Keyword::Vector | Keyword::Frozen
        )
}

impl Display for NativeType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NativeType::Ascii => "ascii",
            NativeType::BigInt => "bigint",
            NativeType::Blob => "blob",
            NativeType::Boolean => "boolean",
            NativeType::Counter => "counter",
            NativeType::Date => "date",
            NativeType::Decimal => "decimal",
            NativeType::Double => "double",
            NativeType::Duration => "duration",
            NativeType::Float => "float",
            NativeType::Inet => "inet",
            NativeType::Int => "int",
            NativeType::SmallInt => "smallint",
            NativeType::Text => "text",
            NativeType::Time => "time",
            NativeType::Timestamp => "timestamp",
            NativeType::TimeUuid => "timeuuid",
            NativeType::TinyInt => "tinyint",
            NativeType::Uuid => "uuid",
            NativeType::VarInt => "varint",
        })
    }
}
