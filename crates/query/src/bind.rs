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

/// What a marker stands for: told to drivers at PREPARE, checked at EXECUTE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarkerSpec {
    /// The name of the column or argument it is compared with or assigned to, or of the marker itself when it has one.
    pub name: String,
    /// The type of value that it takes.
    pub cql_type: CqlType,
}

/// A column of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResultColumn {
    /// Its name or alias.
    pub name: String,
    /// Its type.
    pub cql_type: CqlType,
}
