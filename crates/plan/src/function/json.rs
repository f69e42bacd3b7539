//! Values as JSON.

use std::fmt::Write as _;

use stdx::preempt;
use types::{CqlType, MapIter, TupleIter, Value, VectorIter};

use super::collection::elements_of;
use super::number::{decimal_in_java, double_text, float_text};
use super::time;

/// A value as JSON; `None` is null.
pub(crate) fn write_text(cql_type: &CqlType, value: Option<&[u8]>) -> String {
    let mut out = String::new();
    write(&mut out, cql_type, value);
    out
}

/// Whether a function that is given a value of no bytes of this type sees a null.
pub(crate) fn is_null_of_no_bytes(cql_type: &CqlType) -> bool {
    use CqlType as T;
    matches!(
        cql_type,
        T::Int
            | T::BigInt
            | T::Counter
            | T::Float
            | T::Double
            | T::Decimal
            | T::VarInt
            | T::Uuid
            | T::TimeUuid
            | T::Inet
            | T::Timestamp
            | T::Boolean
    )
}

/// Appends a value as JSON.
pub(crate) fn write(out: &mut String, cql_type: &CqlType, value: Option<&[u8]>) {
    let Some(bytes) = value else {
        return out.push_str("null");
    };
    match cql_type {
        CqlType::Frozen(inner) => write(out, inner, value),
        CqlType::List(element) | CqlType::Set(element) => {
            write_array(out, elements_of(bytes).map(|bytes| (&**element, bytes)));
        }
        CqlType::Vector(element, dimension) => {
            let elements = VectorIter::new(bytes, *dimension, element.fixed_len()).flatten();
            write_array(out, elements.map(|bytes| (&**element, Some(bytes))));
        }
        CqlType::Tuple(types) => {
            let mut items = TupleIter::new(bytes);
            write_array(
                out,
                types.iter().map(|t| (t, items.next().and_then(Result::ok).flatten())),
            );
        }
        CqlType::Map(key, value) => {
            out.push('{');
            let pairs = MapIter::new(bytes).into_iter().flatten().flatten();
            for (index, (k, v)) in pairs.enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                let text = write_text(key, Some(k));
                // Keys of JSON are strings: what is none is written into one.
                if text.starts_with('"') {
                    out.push_str(&text)
                } else {
                    write_string(out, &text)
                }
                out.push_str(": ");
                write(out, value, Some(v));
            }
            out.push('}');
        }
        CqlType::Udt(udt) => {
            let mut items = TupleIter::new(bytes);
            out.push('{');
            for (index, (name, field)) in udt.fields.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_name(out, name);
                out.push_str(": ");
                write(out, field, items.next().and_then(Result::ok).flatten());
            }
            out.push('}');
        }
        native => write_native(out, native, bytes),
    }
}

fn write_native(out: &mut String, cql_type: &CqlType, bytes: &[u8]) {
    match cql_type.deserialize(bytes) {
        Ok(Value::Double(x)) if x.is_finite() => out.push_str(&double_text(x)),
        Ok(Value::Float(x)) if x.is_finite() => out.push_str(&float_text(x)),
        Ok(Value::Double(_) | Value::Float(_)) => out.push_str("null"),
        Ok(Value::Boolean(value)) => {
            let _ = write!(out, "{value}");
        }
        Ok(
            Value::TinyInt(_)
            | Value::SmallInt(_)
            | Value::Int(_)
            | Value::BigInt(_)
            | Value::Counter(_)
            | Value::VarInt(_),
        ) => out.push_str(&cql_type.format_unquoted(bytes)),
        Ok(Value::Decimal(d)) => out.push_str(&decimal_in_java(&d)),
        Ok(Value::Text(text) | Value::Ascii(text)) => write_string(out, &text),
        Ok(Value::Timestamp(millis)) => write_string(out, &time::timestamp_text(millis, ' ')),
        Ok(Value::Empty) => out.push_str("\"\""),
        _ => write_string(out, &cql_type.format_unquoted(bytes)),
    }
}

fn write_array<'a>(out: &mut String, elements: impl Iterator<Item = (&'a CqlType, Option<&'a [u8]>)>) {
    out.push('[');
    for (index, (cql_type, value)) in elements.enumerate() {
        out.push_str(if index == 0 { "" } else { ", " });
        write(out, cql_type, value);
    }
    out.push(']');
}

/// A name as a key: in double quotes of its own when it has capitals, so that it reads back as the same name.
pub(crate) fn write_name(out: &mut String, name: &str) {
    if name.chars().any(char::is_uppercase) {
        write_string(out, &format!("\"{name}\""));
    } else {
        write_string(out, name);
    }
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        preempt::point();
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
