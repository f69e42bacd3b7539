//! Lua values as serialised values: what the table of [`to_lua`](super::to_lua) says, read backwards, and where a Lua
//! programmer expects it a little more.
//!
//! - A number may be the text of one, and a text a number. An integer that is too large for its type wraps, as Lua's
//!   own do.
//! - A date, time, timestamp or duration may be the text that CQL has for it; a date may be a table with year, month
//!   and day.
//! - A table may have no other keys than its type asks for. Fields and elements of a tuple that are not there are null.

use std::borrow::Cow;

use mlua::{Table, Value};
use num_bigint::BigInt;
use num_traits::FromPrimitive;
use types::{CollectionBuilder, CqlType, Duration, LiteralKind, TupleBuilder, sorted};

use super::{failure, library, number};
use crate::budget::Budget;

/// The serialised result of a function.
pub(super) fn result(budget: &Budget, cql_type: &CqlType, value: &Value) -> mlua::Result<Vec<u8>> {
    let mut reader = Reader { budget, bytes: 0 };
    reader.value(cql_type, value)
}

struct Reader<'b> {
    budget: &'b Budget,
    /// Bytes so far: tables may refer to one table many times.
    bytes: usize,
}

fn mismatch<T>(cql_type: &CqlType, value: &Value) -> mlua::Result<T> {
    let found = value.type_name();
    Err(failure(format!("expected a value of type {cql_type}, found a {found}")))
}

fn unreadable<T>(cql_type: &CqlType, value: &Value) -> mlua::Result<T> {
    match value {
        Value::String(text) => Err(failure(format!(
            "expected a value of type {cql_type}, found '{}'",
            text.to_string_lossy()
        ))),
        other => mismatch(cql_type, other),
    }
}

impl Reader<'_> {
    fn count(&mut self, bytes: &[u8]) -> mlua::Result<()> {
        self.bytes = self.bytes.saturating_add(bytes.len() + 4);
        library::take(self.budget, bytes.len() as u64 / 16 + 4)?;
        if self.bytes <= self.budget.limits().memory_bytes {
            Ok(())
        } else {
            Err(mlua::Error::external(self.budget.out_of_memory()))
        }
    }

    fn value(&mut self, cql_type: &CqlType, value: &Value) -> mlua::Result<Vec<u8>> {
        use CqlType as T;
        let cql_type = cql_type.unfrozen();
        let bytes = match cql_type {
            T::Ascii | T::Text | T::Blob => text(cql_type, value)?,
            T::Boolean => match value {
                Value::Boolean(value) => vec![u8::from(*value)],
                other => return mismatch(cql_type, other),
            },
            T::TinyInt => self.integer(cql_type, value)?.to_be_bytes()[7..].to_vec(),
            T::SmallInt => self.integer(cql_type, value)?.to_be_bytes()[6..].to_vec(),
            T::Int => self.integer(cql_type, value)?.to_be_bytes()[4..].to_vec(),
            T::BigInt | T::Counter => self.integer(cql_type, value)?.to_be_bytes().to_vec(),
            T::Float => {
                #[expect(clippy::cast_possible_truncation, reason = "a double is rounded to a float")]
                let float = self.float(cql_type, value)? as f32;
                float.to_be_bytes().to_vec()
            }
            T::Double => self.float(cql_type, value)?.to_be_bytes().to_vec(),
            T::VarInt => self.big_integer(cql_type, value)?.to_signed_bytes_be(),
            T::Decimal => match number::of_value(self.budget, value)? {
                Some(digits) => digits.decimal_bytes(),
                None => return unreadable(cql_type, value),
            },
            T::Date | T::Time | T::Timestamp => self.moment(cql_type, value)?,
            T::Duration => duration(cql_type, value)?,
            T::Inet | T::Uuid | T::TimeUuid => literal(cql_type, value)?,
            T::List(_) | T::Vector(..) | T::Set(_) | T::Map(..) | T::Tuple(_) | T::Udt(_) => match value {
                Value::Table(table) => self.table(cql_type, table)?,
                other => return mismatch(cql_type, other),
            },
            T::Empty | T::Frozen(_) => return mismatch(cql_type, value),
        };
        if let Err(error) = cql_type.validate(&bytes) {
            return Err(failure(format!("expected a value of type {cql_type}: {error}")));
        }
        self.count(&bytes)?;
        Ok(bytes)
    }

    fn big_integer(&self, cql_type: &CqlType, value: &Value) -> mlua::Result<BigInt> {
        // Exactly: its shortest text may be another integer.
        if let Value::Number(number) = value
            && number.fract() == 0.0
            && let Some(integer) = BigInt::from_f64(*number)
        {
            return Ok(integer);
        }
        let digits = number::of_value(self.budget, value)?;
        match digits.and_then(|digits| digits.to_integer()) {
            Some(integer) => Ok(integer),
            None => unreadable(cql_type, value),
        }
    }

    /// The last 64 bits of an integer.
    fn integer(&self, cql_type: &CqlType, value: &Value) -> mlua::Result<i64> {
        if let Value::Integer(integer) = value {
            return Ok(*integer);
        }
        let bytes = self.big_integer(cql_type, value)?.to_signed_bytes_be();
        let sign = if bytes.first().is_some_and(|first| *first >= 0x80) {
            0xff
        } else {
            0
        };
        let mut last = [sign; 8];
        for (to, from) in last.iter_mut().rev().zip(bytes.iter().rev()) {
            *to = *from;
        }
        Ok(i64::from_be_bytes(last))
    }

    fn float(&self, cql_type: &CqlType, value: &Value) -> mlua::Result<f64> {
        match value {
            Value::Number(number) => Ok(*number),
            #[expect(clippy::cast_precision_loss, reason = "a large integer is rounded")]
            Value::Integer(integer) => Ok(*integer as f64),
            other => match number::of_value(self.budget, other)? {
                Some(digits) => Ok(digits.to_f64()),
                None => unreadable(cql_type, other),
            },
        }
    }

    fn moment(&self, cql_type: &CqlType, value: &Value) -> mlua::Result<Vec<u8>> {
        let integer = match value {
            Value::Integer(integer) => *integer,
            Value::Number(_) | Value::UserData(_) => self.integer(cql_type, value)?,
            Value::Table(table) if *cql_type == CqlType::Date => {
                let part = |name: &str| table.raw_get::<i64>(name);
                let text = format!("{:04}-{:02}-{:02}", part("year")?, part("month")?, part("day")?);
                return read(cql_type, &text);
            }
            other => return literal(cql_type, other),
        };
        Ok(match cql_type {
            CqlType::Date => match u32::try_from(integer) {
                Ok(days) => days.to_be_bytes().to_vec(),
                Err(_) => return Err(failure(format!("{integer} is no date"))),
            },
            _ => integer.to_be_bytes().to_vec(),
        })
    }

    fn table(&mut self, cql_type: &CqlType, table: &Table) -> mlua::Result<Vec<u8>> {
        let mut out = Vec::new();
        match cql_type {
            CqlType::List(element) => {
                let elements = self.sequence(cql_type, element, table)?;
                let mut builder = CollectionBuilder::new(&mut out);
                elements.iter().for_each(|bytes| builder.push(bytes));
                builder.finish();
            }
            CqlType::Vector(element, dimension) => {
                let elements = self.sequence(cql_type, element, table)?;
                if elements.len() != *dimension as usize {
                    return Err(failure(format!(
                        "expected a value of type {cql_type}, found {} elements",
                        elements.len()
                    )));
                }
                for bytes in elements {
                    if element.fixed_len().is_none() {
                        stdx::vint::put_unsigned(&mut out, bytes.len() as u64);
                    }
                    out.extend_from_slice(&bytes);
                }
            }
            CqlType::Set(element) => {
                let mut elements = Vec::new();
                for pair in table.pairs::<Value, Value>() {
                    let (key, is_in) = pair?;
                    if is_in != Value::Boolean(true) {
                        return Err(failure(format!(
                            "expected a value of type {cql_type}: the values of the table must be true"
                        )));
                    }
                    elements.push(Cow::Owned(self.value(element, &key)?));
                }
                out = sorted::set(elements, &element.comparator());
            }
            CqlType::Map(key_type, value_type) => {
                let mut pairs = Vec::new();
                for pair in table.pairs::<Value, Value>() {
                    let (key, value) = pair?;
                    pairs.push((
                        Cow::Owned(self.value(key_type, &key)?),
                        Cow::Owned(self.value(value_type, &value)?),
                    ));
                }
                out = sorted::map(pairs, &key_type.comparator());
            }
            CqlType::Tuple(elements) => {
                let mut builder = TupleBuilder::new(&mut out);
                let mut count = 0;
                for (place, element) in (1_i64..).zip(elements.iter()) {
                    let value = table.raw_get::<Value>(place)?;
                    count += usize::from(!value.is_nil());
                    builder.push(self.part(element, &value)?.as_deref());
                }
                self.check_count(cql_type, table, count)?;
            }
            CqlType::Udt(udt) => {
                let mut builder = TupleBuilder::new(&mut out);
                let mut count = 0;
                for (name, field) in &udt.fields {
                    let value = table.raw_get::<Value>(name.as_str())?;
                    count += usize::from(!value.is_nil());
                    builder.push(self.part(field, &value)?.as_deref());
                }
                self.check_count(cql_type, table, count)?;
            }
            _ => return Err(failure(format!("expected a value of type {cql_type}, found a table"))),
        }
        Ok(out)
    }

    fn part(&mut self, cql_type: &CqlType, value: &Value) -> mlua::Result<Option<Vec<u8>>> {
        match value {
            Value::Nil => Ok(None),
            value => self.value(cql_type, value).map(Some),
        }
    }

    fn sequence(&mut self, cql_type: &CqlType, element: &CqlType, table: &Table) -> mlua::Result<Vec<Vec<u8>>> {
        let mut elements = Vec::new();
        loop {
            let place = i64::try_from(elements.len()).unwrap_or(i64::MAX - 1) + 1;
            let value = table.raw_get::<Value>(place)?;
            if value.is_nil() {
                break;
            }
            elements.push(self.value(element, &value)?);
        }
        self.check_count(cql_type, table, elements.len())?;
        Ok(elements)
    }

    /// Refuses a table that has more keys than were asked for.
    fn check_count(&self, cql_type: &CqlType, table: &Table, count: usize) -> mlua::Result<()> {
        let mut pairs = table.pairs::<Value, Value>();
        let found = pairs.by_ref().take(count + 1).filter(Result::is_ok).count();
        if found == count {
            Ok(())
        } else {
            Err(failure(format!(
                "expected a value of type {cql_type}, found a table with other keys"
            )))
        }
    }
}

fn text(cql_type: &CqlType, value: &Value) -> mlua::Result<Vec<u8>> {
    Ok(match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(integer) => integer.to_string().into_bytes(),
        Value::Number(number) => format!("{number:?}").into_bytes(),
        other => return mismatch(cql_type, other),
    })
}

fn read(cql_type: &CqlType, text: &str) -> mlua::Result<Vec<u8>> {
    let kind = match cql_type {
        CqlType::Uuid | CqlType::TimeUuid => LiteralKind::Uuid,
        CqlType::Duration => LiteralKind::Duration,
        _ => LiteralKind::String,
    };
    let read = cql_type.parse_literal(kind, text);
    read.map_err(|error| failure(format!("expected a value of type {cql_type}: {error}")))
}

/// The value of a text.
fn literal(cql_type: &CqlType, value: &Value) -> mlua::Result<Vec<u8>> {
    match value {
        Value::String(text) => match text.to_str() {
            Ok(text) => read(cql_type, &text),
            Err(_) => unreadable(cql_type, value),
        },
        other => mismatch(cql_type, other),
    }
}

fn duration(cql_type: &CqlType, value: &Value) -> mlua::Result<Vec<u8>> {
    let Value::Table(table) = value else {
        return literal(cql_type, value);
    };
    let duration = Duration {
        months: table.raw_get::<Option<i32>>("months")?.unwrap_or(0),
        days: table.raw_get::<Option<i32>>("days")?.unwrap_or(0),
        nanoseconds: table.raw_get::<Option<i64>>("nanoseconds")?.unwrap_or(0),
    };
    let mut out = Vec::new();
    duration.serialize_into(&mut out);
    Ok(out)
}
