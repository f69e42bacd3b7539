//! Results read back: the types that the workload uses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use crate::model::Value;

/// Rows of a result: for each its values that are not null, by column.
pub type Rows = Vec<BTreeMap<String, Value>>;

/// What is left of a body. None where it is too short or not of the workload's types.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

/// A column's type, of those the workload uses.
enum Type {
    Int,
    Boolean,
    Counter,
    Long,
    Text,
    Blob,
    Uuid,
    Inet,
    Set,
    Map,
    List,
    Other,
}

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn short(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(crate) fn string(&mut self) -> Option<String> {
        let n = self.short()?;
        String::from_utf8(self.take(n.into())?.to_vec()).ok()
    }

    /// An address with a length in one byte, and a port in four.
    pub(crate) fn inet(&mut self) -> Option<SocketAddr> {
        let length = *self.take(1)?.first()?;
        let address = address(self.take(length.into())?)?;
        Some(SocketAddr::new(address, u16::try_from(self.int()?).ok()?))
    }

    /// None within is null.
    fn bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match usize::try_from(self.int()?) {
            Ok(n) => self.take(n).map(Some),
            Err(_) => Some(None),
        }
    }

    fn column_type(&mut self) -> Option<Type> {
        Some(match self.short()? {
            0x09 => Type::Int,
            0x04 => Type::Boolean,
            0x05 => Type::Counter,
            0x02 => Type::Long,
            0x03 => Type::Blob,
            0x0a | 0x0d => Type::Text,
            0x0c => Type::Uuid,
            0x10 => Type::Inet,
            0x21 => {
                self.column_type()?;
                self.column_type()?;
                Type::Map
            }
            0x22 => {
                self.column_type()?;
                Type::Set
            }
            0x20 => {
                self.column_type()?;
                Type::List
            }
            _ => Type::Other,
        })
    }

    /// Rows, and the state from which the next page continues.
    pub(crate) fn rows(&mut self) -> Option<(Rows, Option<Vec<u8>>)> {
        let flags = self.int()?;
        let columns = self.int()?;
        let next = if flags & 2 == 0 {
            None
        } else {
            Some(self.bytes()??.to_vec())
        };
        if flags & 1 != 0 {
            self.string()?;
            self.string()?;
        }
        let mut specs = Vec::new();
        for _ in 0..columns {
            if flags & 1 == 0 {
                self.string()?;
                self.string()?;
            }
            specs.push((self.string()?, self.column_type()?));
        }
        let mut rows = Vec::new();
        for _ in 0..self.int()? {
            let mut row = BTreeMap::new();
            for (name, column_type) in &specs {
                if let Some(bytes) = self.bytes()?
                    && let Some(value) = value(column_type, bytes)?
                {
                    row.insert(name.clone(), value);
                }
            }
            rows.push(row);
        }
        Some((rows, next))
    }
}

/// A value; None within for types that are not looked at.
fn value(column_type: &Type, bytes: &[u8]) -> Option<Option<Value>> {
    let int = |bytes: Option<&[u8]>| Some(i32::from_be_bytes(bytes?.try_into().ok()?));
    let mut reader = Reader(bytes);
    Some(Some(match column_type {
        Type::Int => Value::Int(int(Some(bytes))?),
        // Those of the workload are small.
        Type::Counter => {
            let value = i64::from_be_bytes(bytes.try_into().ok()?);
            Value::Int(i32::try_from(value).ok()?)
        }
        // True is 1.
        Type::Boolean => Value::Int((*bytes.first()?).into()),
        Type::Text => Value::Text(String::from_utf8(bytes.to_vec()).ok()?),
        // In decimal.
        Type::Long => Value::Text(i64::from_be_bytes(bytes.try_into().ok()?).to_string()),
        Type::Blob | Type::Uuid => Value::Text(bytes.iter().map(|b| format!("{b:02x}")).collect()),
        Type::Inet => Value::Text(address(bytes)?.to_string()),
        Type::Set => {
            let mut set = BTreeSet::new();
            for _ in 0..reader.int()? {
                set.insert(int(reader.bytes()?)?);
            }
            Value::Set(set)
        }
        Type::Map => {
            let mut map = BTreeMap::new();
            for _ in 0..reader.int()? {
                map.insert(int(reader.bytes()?)?, int(reader.bytes()?)?);
            }
            Value::Map(map)
        }
        Type::List => {
            let mut list = Vec::new();
            for _ in 0..reader.int()? {
                list.push(int(reader.bytes()?)?);
            }
            Value::list(list)
        }
        Type::Other => return Some(None),
    }))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match *bytes {
        [a, b, c, d] => Some(IpAddr::from([a, b, c, d])),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}
