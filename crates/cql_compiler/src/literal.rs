//! Constants: their values, and the types that they may be given to.

use cql::ast::{Literal, LiteralKind};
use plan::function::Assignment;
use types::CqlType;

use crate::error::CompileError;

/// The serialised value of a constant that is not null.
pub(crate) fn constant(literal: &Literal, receiver: &str, cql_type: &CqlType) -> Result<Vec<u8>, CompileError> {
    let Some(kind) = lexical_kind(literal.kind) else {
        return Err(CompileError::Internal("null has no serialised value".to_owned()));
    };
    cql_type
        .parse_literal(kind, &literal.text)
        .map_err(|error| CompileError::Invalid(error.message_for(receiver)))
}

const fn lexical_kind(kind: LiteralKind) -> Option<types::LiteralKind> {
    Some(match kind {
        LiteralKind::String => types::LiteralKind::String,
        LiteralKind::Integer => types::LiteralKind::Integer,
        LiteralKind::Float => types::LiteralKind::Float,
        LiteralKind::Boolean => types::LiteralKind::Boolean,
        LiteralKind::Uuid => types::LiteralKind::Uuid,
        LiteralKind::Blob => types::LiteralKind::Hex,
        LiteralKind::Duration => types::LiteralKind::Duration,
        LiteralKind::Null => return None,
    })
}

/// The type that a constant has when nothing else says one.
pub(crate) fn preferred_type(literal: &Literal) -> Option<CqlType> {
    let text = literal.text.as_str();
    Some(match literal.kind {
        LiteralKind::String if text.is_ascii() => CqlType::Ascii,
        LiteralKind::String => CqlType::Text,
        LiteralKind::Integer if text.parse::<i32>().is_ok() => CqlType::Int,
        LiteralKind::Integer if text.parse::<i64>().is_ok() => CqlType::BigInt,
        LiteralKind::Integer => CqlType::VarInt,
        LiteralKind::Float => match text.parse::<f64>() {
            Ok(value) if is_exact(text, value) => CqlType::Double,
            _ => CqlType::Decimal,
        },
        LiteralKind::Boolean => CqlType::Boolean,
        LiteralKind::Blob => CqlType::Blob,
        LiteralKind::Duration => CqlType::Duration,
        LiteralKind::Uuid | LiteralKind::Null => return None,
    })
}

/// The type of a constant that is selected by itself; Cassandra asks for a type hint there.
pub(crate) fn selected_type(literal: &Literal) -> Option<CqlType> {
    match literal.kind {
        LiteralKind::String => Some(CqlType::Text),
        LiteralKind::Float => Some(CqlType::Double),
        LiteralKind::Uuid => Some(CqlType::Uuid),
        _ => preferred_type(literal),
    }
}

/// Whether the number that was written is the nearest double as Java writes it: in as few digits as distinguish it from
/// other doubles, and at least in two.
fn is_exact(text: &str, value: f64) -> bool {
    if !value.is_finite() {
        return !text.contains(|c: char| c.is_ascii_digit());
    }
    let read = |text: &str| CqlType::Decimal.parse_literal(types::LiteralKind::Float, text);
    let shortest = format!("{value:e}");
    let in_java = if shortest.contains('.') {
        shortest
    } else {
        format!("{value:.1e}")
    };
    match (read(text), read(&in_java)) {
        (Ok(written), Ok(nearest)) => CqlType::Decimal.compare(&written, &nearest).is_eq(),
        _ => false,
    }
}

/// Whether a constant may be given to a type, which is not frozen.
pub(crate) fn test_constant(literal: &Literal, receiver: &CqlType) -> Assignment {
    use CqlType as T;
    if literal.kind == LiteralKind::Null {
        return Assignment::Weak;
    }
    if preferred_type(literal).as_ref() == Some(receiver) {
        return Assignment::Exact;
    }
    Assignment::weak_if(match literal.kind {
        LiteralKind::String => {
            matches!(
                receiver,
                T::Ascii | T::Text | T::Inet | T::Date | T::Time | T::Timestamp | T::Tuple(_)
            )
        }
        LiteralKind::Integer => matches!(
            receiver,
            T::TinyInt
                | T::SmallInt
                | T::Int
                | T::BigInt
                | T::Counter
                | T::VarInt
                | T::Float
                | T::Double
                | T::Decimal
                | T::Date
                | T::Time
                | T::Timestamp
                | T::Duration
        ),
        LiteralKind::Float => matches!(receiver, T::Float | T::Double | T::Decimal),
        LiteralKind::Boolean => matches!(receiver, T::Boolean),
        LiteralKind::Uuid => matches!(receiver, T::Uuid | T::TimeUuid),
        LiteralKind::Blob => matches!(receiver, T::Blob),
        LiteralKind::Duration => matches!(receiver, T::Duration),
        LiteralKind::Null => true,
    })
}
