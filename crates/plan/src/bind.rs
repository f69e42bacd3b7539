//! Values that come with an execution, and what a term evaluates to.

use std::borrow::Cow;

use types::CqlType;

/// A value bound to a marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound<'a> {
    /// Serialised bytes.
    Value(&'a [u8]),
    /// Null.
    Null,
    /// Not given: leaves what is there as it is.
    Unset,
}

/// What an execution brings: bound values and the moment.
#[derive(Clone, Copy, Debug)]
pub struct BindContext<'a> {
    /// One for each marker.
    pub values: &'a [Bound<'a>],
    /// Wall clock at the start of the statement, microseconds since the epoch.
    pub now_us: i64,
    /// A random number of this execution: seeds `uuid()` and the clock sequence of `now()`.
    pub random: u64,
}

/// A bound value that its execution owns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnedBound {
    /// Serialised bytes.
    Value(Vec<u8>),
    /// Null.
    Null,
    /// Not given.
    Unset,
}

impl OwnedBound {
    /// Takes a value over.
    pub fn from(bound: Bound<'_>) -> Self {
        match bound {
            Bound::Value(v) => Self::Value(v.to_vec()),
            Bound::Null => Self::Null,
            Bound::Unset => Self::Unset,
        }
    }

    /// Lends it out.
    pub fn borrow(&self) -> Bound<'_> {
        match self {
            Self::Value(v) => Bound::Value(v),
            Self::Null => Bound::Null,
            Self::Unset => Bound::Unset,
        }
    }
}

/// The values and the moment of one execution, owned, so that they can go to another shard.
#[derive(Clone, Debug)]
pub struct Execution {
    /// One for each marker.
    pub values: Vec<OwnedBound>,
    /// Microseconds since the epoch.
    pub now_us: i64,
    /// Random bits.
    pub random: u64,
}

impl Execution {
    /// Runs `f` with the values lent out.
    pub fn with<R>(&self, f: impl FnOnce(&BindContext<'_>) -> R) -> R {
        let values: Vec<Bound<'_>> = self.values.iter().map(OwnedBound::borrow).collect();
        f(&BindContext {
            values: &values,
            now_us: self.now_us,
            random: self.random,
        })
    }
}

/// What a term is worth in one execution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Evaluated<'a> {
    /// Serialised bytes, valid for the receiver's type.
    Value(Cow<'a, [u8]>),
    /// Null.
    Null,
    /// An unset marker.
    Unset,
}

/// A column of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResultColumn {
    /// Its name or alias.
    pub name: String,
    /// Its type.
    pub cql_type: CqlType,
}
