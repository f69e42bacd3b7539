//! Values in memory, for code that computes with them: functions, aggregates, tests. The request path moves serialised
//! values and never builds these.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use num_bigint::BigInt;
use uuid::Uuid;

use crate::collection::{
    CollectionBuilder, CollectionIter, MapIter, TupleBuilder, TupleIter, VectorIter, put_vector_element,
};
use crate::cql_type::CqlType;
use crate::duration::Duration;
use crate::error::TypeError;
use crate::numeric::split_decimal;

/// A decimal number as CQL stores it: `unscaled * 10^-scale`.
///
/// Equality is that of the parts: 1.0 and 1.00 differ, as their bytes do. Any scale may come from a client, so compute
/// with it only after looking at the scale; [`CqlType::compare`] orders decimals of any scale safely.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    /// The digits.
    pub unscaled: BigInt,
    /// How many of the digits are after the decimal point.
    pub scale: i32,
}

/// A value of a CQL type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No bytes, of a type whose values otherwise have some.
    Empty,
    /// `ascii`
    Ascii(String),
    /// `bigint`
    BigInt(i64),
    /// `blob`
    Blob(Vec<u8>),
    /// `boolean`
    Boolean(bool),
    /// `counter`
    Counter(i64),
    /// `date`: days, 1970-01-01 is 2^31.
    Date(u32),
    /// `decimal`
    Decimal(Decimal),
    /// `double`
    Double(f64),
    /// `duration`
    Duration(Duration),
    /// `float`
    Float(f32),
    /// `inet`
    Inet(IpAddr),
    /// `int`
    Int(i32),
    /// `smallint`
    SmallInt(i16),
    /// `text`
    Text(String),
    /// `time`: nanoseconds since midnight.
    Time(i64),
    /// `timestamp`: milliseconds since 1970-01-01 UTC.
    Timestamp(i64),
    /// `timeuuid`
    TimeUuid(Uuid),
    /// `tinyint`
    TinyInt(i8),
    /// `uuid`
    Uuid(Uuid),
    /// `varint`
    VarInt(BigInt),
    /// `list`
    List(Vec<Value>),
    /// `set`, in the order it was serialised in.
    Set(Vec<Value>),
    /// `map`, in the order it was serialised in.
    Map(Vec<(Value, Value)>),
    /// `tuple`; `None` is a null.
    Tuple(Vec<Option<Value>>),
    /// A user-defined type, in the order of its fields; `None` is a null.
    Udt(Vec<Option<Value>>),
    /// `vector`
    Vector(Vec<Value>),
}

impl Value {
    /// The serialised form.
    #[must_use]
    pub fn serialize(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.serialize_into(&mut out);
        out
    }

    /// Appends the serialised form.
    pub fn serialize_into(&self, out: &mut Vec<u8>) {
        match self {
            Self::Empty => {}
            Self::Ascii(text) | Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Blob(bytes) => out.extend_from_slice(bytes),
            Self::BigInt(value) | Self::Counter(value) | Self::Time(value) | Self::Timestamp(value) => {
                out.extend_from_slice(&value.to_be_bytes());
            }
            Self::Boolean(value) => out.push(u8::from(*value)),
            Self::Date(days) => out.extend_from_slice(&days.to_be_bytes()),
            Self::Decimal(decimal) => {
                out.extend_from_slice(&decimal.scale.to_be_bytes());
                out.extend_from_slice(&decimal.unscaled.to_signed_bytes_be());
            }
            Self::Double(value) => out.extend_from_slice(&value.to_be_bytes()),
            Self::Duration(duration) => duration.serialize_into(out),
            Self::Float(value) => out.extend_from_slice(&value.to_be_bytes()),
            Self::Inet(IpAddr::V4(address)) => out.extend_from_slice(&address.octets()),
            Self::Inet(IpAddr::V6(address)) => out.extend_from_slice(&address.octets()),
            Self::Int(value) => out.extend_from_slice(&value.to_be_bytes()),
            Self::SmallInt(value) => out.extend_from_slice(&value.to_be_bytes()),
            Self::TinyInt(value) => out.extend_from_slice(&value.to_be_bytes()),
            Self::TimeUuid(uuid) | Self::Uuid(uuid) => out.extend_from_slice(uuid.as_bytes()),
            Self::VarInt(value) => out.extend_from_slice(&value.to_signed_bytes_be()),
            Self::List(elements) | Self::Set(elements) => {
                let mut builder = CollectionBuilder::new(out);
                elements.iter().for_each(|element| builder.push(&element.serialize()));
                builder.finish();
            }
            Self::Map(pairs) => {
                let mut builder = CollectionBuilder::new(out);
                pairs
                    .iter()
                    .for_each(|(key, value)| builder.push_pair(&key.serialize(), &value.serialize()));
                builder.finish();
            }
            Self::Tuple(elements) | Self::Udt(elements) => {
                let mut builder = TupleBuilder::new(out);
                elements
                    .iter()
                    .for_each(|element| builder.push(element.as_ref().map(Self::serialize).as_deref()));
            }
            Self::Vector(elements) => {
                for element in elements {
                    put_vector_element(out, &element.serialize(), element.has_fixed_len());
                }
            }
        }
    }

    /// True for the values of types whose [`CqlType::fixed_len`] is some.
    fn has_fixed_len(&self) -> bool {
        match self {
            Self::BigInt(_)
            | Self::Boolean(_)
            | Self::Double(_)
            | Self::Float(_)
            | Self::Int(_)
            | Self::Timestamp(_)
            | Self::TimeUuid(_)
            | Self::Uuid(_) => true,
            Self::Vector(elements) => elements.iter().all(Self::has_fixed_len),
            _ => false,
        }
    }
}

impl CqlType {
    /// The value that these bytes are.
    ///
    /// # Errors
    /// [`TypeError::Malformed`] when they are no value of this type.
    pub fn deserialize(&self, bytes: &[u8]) -> Result<Value, TypeError> {
        self.validate(bytes)?;
        Ok(self.decode(bytes))
    }

    /// The value of validated bytes. What validation lets through and is nothing else is the empty value.
    fn decode(&self, bytes: &[u8]) -> Value {
        let text = || String::from_utf8_lossy(bytes).into_owned();
        match self {
            Self::Ascii => Value::Ascii(text()),
            Self::Text => Value::Text(text()),
            Self::Blob => Value::Blob(bytes.to_vec()),
            Self::BigInt => fixed(bytes, |bytes| Value::BigInt(i64::from_be_bytes(bytes))),
            Self::Counter => fixed(bytes, |bytes| Value::Counter(i64::from_be_bytes(bytes))),
            Self::Time => fixed(bytes, |bytes| Value::Time(i64::from_be_bytes(bytes))),
            Self::Timestamp => fixed(bytes, |bytes| Value::Timestamp(i64::from_be_bytes(bytes))),
            Self::Boolean => fixed(bytes, |[byte]: [u8; 1]| Value::Boolean(byte != 0)),
            Self::Date => fixed(bytes, |bytes| Value::Date(u32::from_be_bytes(bytes))),
            Self::Double => fixed(bytes, |bytes| Value::Double(f64::from_be_bytes(bytes))),
            Self::Float => fixed(bytes, |bytes| Value::Float(f32::from_be_bytes(bytes))),
            Self::Int => fixed(bytes, |bytes| Value::Int(i32::from_be_bytes(bytes))),
            Self::SmallInt => fixed(bytes, |bytes| Value::SmallInt(i16::from_be_bytes(bytes))),
            Self::TinyInt => fixed(bytes, |bytes| Value::TinyInt(i8::from_be_bytes(bytes))),
            Self::TimeUuid => fixed(bytes, |bytes| Value::TimeUuid(Uuid::from_bytes(bytes))),
            Self::Uuid => fixed(bytes, |bytes| Value::Uuid(Uuid::from_bytes(bytes))),
            Self::Inet => match bytes.len() {
                4 => fixed(bytes, |octets: [u8; 4]| Value::Inet(IpAddr::V4(Ipv4Addr::from(octets)))),
                _ => fixed(bytes, |octets: [u8; 16]| {
                    Value::Inet(IpAddr::V6(Ipv6Addr::from(octets)))
                }),
            },
            Self::VarInt if bytes.is_empty() => Value::Empty,
            Self::VarInt => Value::VarInt(BigInt::from_signed_bytes_be(bytes)),
            Self::Decimal => split_decimal(bytes).map_or(Value::Empty, |(scale, digits)| {
                Value::Decimal(Decimal {
                    unscaled: BigInt::from_signed_bytes_be(digits),
                    scale,
                })
            }),
            Self::Duration => Duration::deserialize(bytes).map_or(Value::Empty, Value::Duration),
            Self::Empty => Value::Empty,
            Self::List(element) => Value::List(decode_elements(bytes, element)),
            Self::Set(element) => Value::Set(decode_elements(bytes, element)),
            Self::Map(key, value) => {
                let pairs = MapIter::new(bytes).into_iter().flatten().flatten();
                Value::Map(pairs.map(|(k, v)| (key.decode(k), value.decode(v))).collect())
            }
            Self::Tuple(elements) => Value::Tuple(decode_fields(bytes, elements.iter())),
            Self::Udt(udt) => Value::Udt(decode_fields(bytes, udt.fields.iter().map(|(_, field)| field))),
            Self::Vector(element, dimension) => {
                let elements = VectorIter::new(bytes, *dimension, element.fixed_len()).flatten();
                Value::Vector(elements.map(|bytes| element.decode(bytes)).collect())
            }
            Self::Frozen(inner) => inner.decode(bytes),
        }
    }
}

fn fixed<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> Value) -> Value {
    bytes.try_into().map_or(Value::Empty, value)
}

fn decode_elements(bytes: &[u8], element: &CqlType) -> Vec<Value> {
    CollectionIter::new(bytes)
        .into_iter()
        .flatten()
        .flatten()
        .map(|bytes| element.decode(bytes))
        .collect()
}

fn decode_fields<'t>(bytes: &[u8], fields: impl Iterator<Item = &'t CqlType>) -> Vec<Option<Value>> {
    let mut items = TupleIter::new(bytes);
    fields
        .map(|field| items.next()?.ok()?.map(|bytes| field.decode(bytes)))
        .collect()
}
