//! Serialised values as Lua values.
//!
//! | CQL | Lua |
//! |---|---|
//! | ascii, text, blob | string |
//! | tinyint, smallint, int, bigint, counter | integer |
//! | boolean | boolean |
//! | float, double | float |
//! | varint, decimal | userdata, see [`number`](super::number) |
//! | date | integer: days, 1970-01-01 is 2^31 |
//! | time | integer: nanoseconds since midnight |
//! | timestamp | integer: milliseconds since 1970-01-01 |
//! | duration | table: months, days, nanoseconds |
//! | inet, uuid, timeuuid | string |
//! | list, vector, tuple | sequence; a null of a tuple is nil |
//! | set | table: its elements are the keys, the values are true |
//! | map | table |
//! | user-defined type | table by the names of the fields, without those that are null |

use std::rc::Rc;

use mlua::{Lua, Value};
use num_bigint::BigInt;
use types::{CollectionIter, CqlType, Duration, MapIter, TupleIter, VectorIter};

use super::number::{self, Digits};
use super::{failure, library};
use crate::budget::Budget;

fn fixed<const N: usize>(bytes: &[u8], value: impl FnOnce([u8; N]) -> Value) -> mlua::Result<Value> {
    match bytes.try_into() {
        Ok(bytes) => Ok(value(bytes)),
        // The empty value of a type whose values have a length.
        Err(_) if bytes.is_empty() => Ok(Value::Nil),
        Err(_) => Err(malformed()),
    }
}

fn malformed() -> mlua::Error {
    failure("an argument is no value of its type")
}

/// A value of that type.
pub(super) fn value(lua: &Lua, budget: &Rc<Budget>, cql_type: &CqlType, bytes: &[u8]) -> mlua::Result<Value> {
    use CqlType as T;
    library::take(budget, bytes.len() as u64 / 16 + 1)?;
    match cql_type.unfrozen() {
        T::Ascii | T::Text | T::Blob => lua.create_string(bytes).map(Value::String),
        T::TinyInt => fixed(bytes, |b| Value::Integer(i8::from_be_bytes(b).into())),
        T::SmallInt => fixed(bytes, |b| Value::Integer(i16::from_be_bytes(b).into())),
        T::Int => fixed(bytes, |b| Value::Integer(i32::from_be_bytes(b).into())),
        T::BigInt | T::Counter | T::Time | T::Timestamp => fixed(bytes, |b| Value::Integer(i64::from_be_bytes(b))),
        T::Date => fixed(bytes, |b| Value::Integer(u32::from_be_bytes(b).into())),
        T::Boolean => fixed(bytes, |[byte]: [u8; 1]| Value::Boolean(byte != 0)),
        T::Float => fixed(bytes, |b| Value::Number(f32::from_be_bytes(b).into())),
        T::Double => fixed(bytes, |b| Value::Number(f64::from_be_bytes(b))),
        T::VarInt | T::Decimal | T::Duration | T::Inet | T::Uuid | T::TimeUuid if bytes.is_empty() => Ok(Value::Nil),
        T::VarInt => {
            let unscaled = BigInt::from_signed_bytes_be(bytes);
            number::value(lua, budget, Digits { unscaled, scale: 0 })
        }
        T::Decimal => number::value(lua, budget, number::of_decimal(bytes).ok_or_else(malformed)?),
        T::Duration => {
            let duration = Duration::deserialize(bytes).map_err(|error| failure(error.to_string()))?;
            let table = lua.create_table()?;
            table.raw_set("months", duration.months)?;
            table.raw_set("days", duration.days)?;
            table.raw_set("nanoseconds", duration.nanoseconds)?;
            Ok(Value::Table(table))
        }
        T::Inet | T::Uuid | T::TimeUuid => lua
            .create_string(cql_type.unfrozen().format_unquoted(bytes))
            .map(Value::String),
        T::List(element) => {
            let elements = CollectionIter::new(bytes).map_err(|_| malformed())?;
            sequence(lua, budget, elements.map(|bytes| Some((&**element, bytes.ok()?))))
        }
        T::Vector(element, dimension) => {
            let elements = VectorIter::new(bytes, *dimension, element.fixed_len());
            sequence(lua, budget, elements.map(|bytes| Some((&**element, bytes.ok()?))))
        }
        T::Set(element) => {
            let table = lua.create_table()?;
            for bytes in CollectionIter::new(bytes).map_err(|_| malformed())? {
                let bytes = bytes.map_err(|_| malformed())?;
                table.raw_set(value(lua, budget, element, bytes)?, true)?;
            }
            Ok(Value::Table(table))
        }
        T::Map(key, of) => {
            let table = lua.create_table()?;
            for pair in MapIter::new(bytes).map_err(|_| malformed())? {
                let (k, v) = pair.map_err(|_| malformed())?;
                table.raw_set(value(lua, budget, key, k)?, value(lua, budget, of, v)?)?;
            }
            Ok(Value::Table(table))
        }
        T::Tuple(elements) => {
            let table = lua.create_table()?;
            for (place, (cql_type, bytes)) in (1_i64..).zip(elements.iter().zip(TupleIter::new(bytes))) {
                if let Some(bytes) = bytes.map_err(|_| malformed())? {
                    table.raw_set(place, value(lua, budget, cql_type, bytes)?)?;
                }
            }
            Ok(Value::Table(table))
        }
        T::Udt(udt) => {
            let table = lua.create_table()?;
            for ((name, field), bytes) in udt.fields.iter().zip(TupleIter::new(bytes)) {
                if let Some(bytes) = bytes.map_err(|_| malformed())? {
                    table.raw_set(name.as_str(), value(lua, budget, field, bytes)?)?;
                }
            }
            Ok(Value::Table(table))
        }
        T::Empty | T::Frozen(_) => Ok(Value::Nil),
    }
}

fn sequence<'b>(
    lua: &Lua,
    budget: &Rc<Budget>,
    elements: impl Iterator<Item = Option<(&'b CqlType, &'b [u8])>>,
) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    for (place, element) in (1_i64..).zip(elements) {
        let (cql_type, bytes) = element.ok_or_else(malformed)?;
        table.raw_set(place, value(lua, budget, cql_type, bytes)?)?;
    }
    Ok(Value::Table(table))
}
