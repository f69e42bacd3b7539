//! CQL types and values: encoding, ordering, text forms, Murmur3 tokens.
//!
//! A *serialised value* is what a client binds, a cell holds and an sstable stores: bytes without their own length or
//! type. [`CqlType`] gives them meaning: [`CqlType::validate`] says whether they are well-formed, [`Comparator`] orders
//! them, [`CqlType::deserialize`] makes a [`Value`], [`CqlType::format`] a text. Orders, encodings and error words are
//! those of Apache Cassandra; the tests hold literals that Cassandra 5.0 produced.
//!
//! A null has no bytes and is not a value; an *empty* value (no bytes) is one for most types, for old clients' sake,
//! and orders before all others.

mod calendar;
pub mod civil;
mod collection;
mod compare;
mod cql_type;
mod duration;
mod error;
mod format;
#[doc(hidden)]
pub mod fuzz;
pub mod like;
mod literal;
mod marshal;
mod numeric;
pub mod sorted;
pub mod timeuuid;
pub mod token;
mod type_cursor;
mod type_text;
mod user_type;
mod validate;
mod value;
mod zone;

pub use calendar::iso_seconds;
pub use collection::{CollectionBuilder, CollectionIter, Malformed, MapIter, TupleBuilder, TupleIter, VectorIter};
pub use compare::Comparator;
pub use cql_type::{CqlType, DIMENSION_MAX, UdtType, quote_identifier};
pub use duration::Duration;
pub use error::TypeError;
pub use literal::{LiteralKind, NUMBER_DIGITS_MAX};
pub use marshal::{partition_key_from_marshal_name, partition_key_marshal_name};
pub use token::Token;
pub use type_cursor::{NESTING_MAX, TypeNameError, TypeNameProblem};
pub use value::{Decimal, Value};
