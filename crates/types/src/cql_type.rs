//! The types of CQL.
//!
//! A list, set, map or user-defined type is *multi-cell* unless it is inside [`CqlType::Frozen`]: each element or field
//! has its own cell and write timestamp. Any type inside another type is frozen, explicitly or not. Tuples and vectors
//! are always one cell and are never wrapped. [`CqlType::canonical`] writes the implied `Frozen` out, so that equal
//! types compare equal; both parsers return types in that form.

use std::fmt;
use std::sync::Arc;

/// The most dimensions of a vector: they are a positive `int` of Java in Cassandra's type names.
pub const DIMENSION_MAX: u32 = i32::MAX as u32;

/// A CQL type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CqlType {
    /// US-ASCII text.
    Ascii,
    /// Signed 64-bit integer.
    BigInt,
    /// Any bytes.
    Blob,
    /// One byte, zero is false.
    Boolean,
    /// A distributed 64-bit sum.
    Counter,
    /// Days, unsigned 32 bits, 1970-01-01 is 2^31.
    Date,
    /// Scale (32 bits) and unscaled varint.
    Decimal,
    /// IEEE 754, 64 bits.
    Double,
    /// Months, days and nanoseconds, three signed vints.
    Duration,
    /// IEEE 754, 32 bits.
    Float,
    /// IPv4 or IPv6 address, 4 or 16 bytes.
    Inet,
    /// Signed 32-bit integer.
    Int,
    /// Signed 16-bit integer.
    SmallInt,
    /// UTF-8 text; `varchar` is its alias.
    Text,
    /// Nanoseconds since midnight, 64 bits.
    Time,
    /// Milliseconds since 1970-01-01 UTC, signed 64 bits.
    Timestamp,
    /// A version 1 UUID, ordered by time.
    TimeUuid,
    /// Signed 8-bit integer.
    TinyInt,
    /// A UUID of any version.
    Uuid,
    /// Integer of any size, two's complement.
    VarInt,
    /// Elements in an order of the client's.
    List(Arc<CqlType>),
    /// Distinct elements in their own order.
    Set(Arc<CqlType>),
    /// Values by distinct keys, in the keys' order.
    Map(Arc<CqlType>, Arc<CqlType>),
    /// A fixed count of values, each of its own type.
    Tuple(Arc<[CqlType]>),
    /// A user-defined type.
    Udt(Arc<UdtType>),
    /// A fixed count of values of one type, at most [`DIMENSION_MAX`].
    Vector(Arc<CqlType>, u32),
    /// One cell for a whole collection or user-defined type.
    Frozen(Arc<CqlType>),
    /// No value but the empty one: the value column of old compact tables.
    Empty,
}

/// A user-defined type: named fields in the order of their declaration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UdtType {
    /// The keyspace it belongs to.
    pub keyspace: String,
    /// Its name, without quotes.
    pub name: String,
    /// Names, without quotes, and types.
    pub fields: Vec<(String, CqlType)>,
}

impl CqlType {
    /// The types without parameters that a column may have.
    pub const SCALARS: [Self; 20] = [
        Self::Ascii,
        Self::BigInt,
        Self::Blob,
        Self::Boolean,
        Self::Counter,
        Self::Date,
        Self::Decimal,
        Self::Double,
        Self::Duration,
        Self::Float,
        Self::Inet,
        Self::Int,
        Self::SmallInt,
        Self::Text,
        Self::Time,
        Self::Timestamp,
        Self::TimeUuid,
        Self::TinyInt,
        Self::Uuid,
        Self::VarInt,
    ];

    /// True when each element or field of the value is a cell of its own.
    #[must_use]
    pub const fn is_multi_cell(&self) -> bool {
        matches!(self, Self::List(_) | Self::Set(_) | Self::Map(..) | Self::Udt(_))
    }

    /// True for a list, set or map, frozen or not.
    #[must_use]
    pub fn is_collection(&self) -> bool {
        matches!(self.unfrozen(), Self::List(_) | Self::Set(_) | Self::Map(..))
    }

    /// True for what is made of other values: a collection, a tuple, a user-defined type, a vector.
    #[must_use]
    pub fn has_elements(&self) -> bool {
        match self.unfrozen() {
            Self::Tuple(_) | Self::Udt(_) | Self::Vector(..) => true,
            other => other.is_collection(),
        }
    }

    /// True for a user-defined type and what has one inside.
    #[must_use]
    pub fn has_fields(&self) -> bool {
        match self {
            Self::Udt(_) => true,
            Self::List(inner) | Self::Set(inner) | Self::Vector(inner, _) | Self::Frozen(inner) => inner.has_fields(),
            Self::Map(key, value) => key.has_fields() || value.has_fields(),
            Self::Tuple(inner) => inner.iter().any(Self::has_fields),
            _ => false,
        }
    }

    /// True for a counter.
    #[must_use]
    pub const fn is_counter(&self) -> bool {
        matches!(self, Self::Counter)
    }

    /// The type inside `Frozen`, or the type itself.
    #[must_use]
    pub fn unfrozen(&self) -> &Self {
        let mut inner = self;
        while let Self::Frozen(next) = inner {
            inner = next;
        }
        inner
    }

    /// Makes the type one cell: wraps a multi-cell type in `Frozen`, and leaves any other as it is.
    #[must_use]
    pub fn frozen(&self) -> Self {
        let canonical = self.canonical();
        if canonical.is_multi_cell() {
            Self::Frozen(Arc::new(canonical))
        } else {
            canonical
        }
    }

    /// The type with every implied `Frozen` written and every meaningless one removed.
    #[must_use]
    pub fn canonical(&self) -> Self {
        match self {
            Self::Frozen(inner) => inner.frozen(),
            Self::List(element) => Self::List(Arc::new(element.frozen())),
            Self::Set(element) => Self::Set(Arc::new(element.frozen())),
            Self::Map(key, value) => Self::Map(Arc::new(key.frozen()), Arc::new(value.frozen())),
            Self::Tuple(elements) => Self::Tuple(elements.iter().map(Self::frozen).collect()),
            Self::Vector(element, dimension) => Self::Vector(Arc::new(element.frozen()), *dimension),
            Self::Udt(udt) => {
                let fields: Vec<_> = udt
                    .fields
                    .iter()
                    .map(|(name, field)| (name.clone(), field.canonical()))
                    .collect();
                // One declaration stays one allocation as long as it says what is meant.
                Self::Udt(if fields == udt.fields {
                    Arc::clone(udt)
                } else {
                    Arc::new(UdtType {
                        keyspace: udt.keyspace.clone(),
                        name: udt.name.clone(),
                        fields,
                    })
                })
            }
            other => other.clone(),
        }
    }

    /// Whether a value of 0 bytes is taken and means null where the value is read.
    #[must_use]
    pub fn is_null_when_empty(&self) -> bool {
        matches!(
            self,
            Self::BigInt
                | Self::Boolean
                | Self::Decimal
                | Self::Double
                | Self::Float
                | Self::Inet
                | Self::Int
                | Self::TimeUuid
                | Self::Timestamp
                | Self::Uuid
                | Self::VarInt
        )
    }

    /// How many bytes each non-empty value has, when the sstable format stores them without a length.
    ///
    /// This is not "values have one width": tinyint, smallint, date and time do have one, and sstables store their
    /// length all the same.
    #[must_use]
    pub fn fixed_len(&self) -> Option<usize> {
        match self {
            Self::Empty => Some(0),
            Self::Boolean => Some(1),
            Self::Float | Self::Int => Some(4),
            Self::BigInt | Self::Double | Self::Timestamp => Some(8),
            Self::TimeUuid | Self::Uuid => Some(16),
            Self::Vector(element, dimension) => element.fixed_len().map(|len| len.saturating_mul(*dimension as usize)),
            Self::Frozen(inner) => inner.fixed_len(),
            Self::Ascii
            | Self::Blob
            | Self::Counter
            | Self::Date
            | Self::Decimal
            | Self::Duration
            | Self::Inet
            | Self::SmallInt
            | Self::Text
            | Self::Time
            | Self::TinyInt
            | Self::VarInt
            | Self::List(_)
            | Self::Set(_)
            | Self::Map(..)
            | Self::Tuple(_)
            | Self::Udt(_) => None,
        }
    }

    /// The name of a type that has no parameters.
    pub const fn native_name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Ascii => "ascii",
            Self::BigInt => "bigint",
            Self::Blob => "blob",
            Self::Boolean => "boolean",
            Self::Counter => "counter",
            Self::Date => "date",
            Self::Decimal => "decimal",
            Self::Double => "double",
            Self::Duration => "duration",
            Self::Float => "float",
            Self::Inet => "inet",
            Self::Int => "int",
            Self::SmallInt => "smallint",
            Self::Text => "text",
            Self::Time => "time",
            Self::Timestamp => "timestamp",
            Self::TimeUuid => "timeuuid",
            Self::TinyInt => "tinyint",
            Self::Uuid => "uuid",
            Self::VarInt => "varint",
            Self::Empty => "empty",
            Self::List(_)
            | Self::Set(_)
            | Self::Map(..)
            | Self::Tuple(_)
            | Self::Udt(_)
            | Self::Vector(..)
            | Self::Frozen(_) => return None,
        })
    }

    /// The type without parameters whose name this is, in lower case.
    pub(crate) fn from_native_name(name: &str) -> Option<Self> {
        match name {
            "varchar" => Some(Self::Text),
            "empty" => Some(Self::Empty),
            _ => Self::SCALARS
                .into_iter()
                .find(|scalar| scalar.native_name() == Some(name)),
        }
    }

    fn write_name(&self, f: &mut fmt::Formatter<'_>, place: Nesting) -> fmt::Result {
        if let Some(name) = self.native_name() {
            return f.write_str(name);
        }
        // Tuples are frozen everywhere and say so; the others when they are inside, or wrapped.
        let says_frozen = match self {
            Self::Tuple(_) => true,
            Self::Vector(..) => false,
            _ => matches!(place, Nesting::Inside),
        };
        if let Self::Frozen(inner) = self {
            return inner.write_name(f, Nesting::Inside);
        }
        if says_frozen {
            f.write_str("frozen<")?;
        }
        match self {
            Self::List(element) => write!(f, "list<{}>", Inside(element))?,
            Self::Set(element) => write!(f, "set<{}>", Inside(element))?,
            Self::Map(key, value) => write!(f, "map<{}, {}>", Inside(key), Inside(value))?,
            Self::Tuple(elements) => {
                f.write_str("tuple<")?;
                for (index, element) in elements.iter().enumerate() {
                    let separator = if index == 0 { "" } else { ", " };
                    write!(f, "{separator}{}", Inside(element))?;
                }
                f.write_str(">")?;
            }
            Self::Udt(udt) => f.write_str(&quote_identifier(&udt.name))?,
            Self::Vector(element, dimension) => write!(f, "vector<{}, {dimension}>", Inside(element))?,
            _ => {}
        }
        if says_frozen { f.write_str(">") } else { Ok(()) }
    }
}

/// Whether a part of a type's name is the outermost type or inside another.
#[derive(Clone, Copy)]
enum Nesting {
    Outermost,
    Inside,
}

struct Inside<'a>(&'a CqlType);

impl fmt::Display for Inside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_name(f, Nesting::Inside)
    }
}

/// The name as `system_schema.columns.type` has it.
impl fmt::Display for CqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_name(f, Nesting::Outermost)
    }
}

/// `name` as a CQL identifier: in double quotes unless it reads back the same without.
#[must_use]
pub fn quote_identifier(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && !is_reserved(name);
    if plain {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// Words that CQL never takes for a name unless they are quoted.
fn is_reserved(name: &str) -> bool {
    const RESERVED: &str = "add allow alter and apply asc authorize batch begin by columnfamily create delete desc describe \
        drop entries execute from full grant if in index infinity insert into is keyspace limit materialized modify nan \
        norecursive not null of on or order primary rename revoke schema select set table to token truncate unlogged \
        update use using view where with";
    RESERVED.split(' ').any(|word| word == name)
}
