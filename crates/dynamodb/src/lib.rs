//! The DynamoDB API as values and functions, without I/O: [`Error`]s of the service, attribute [`value`]s and their
//! JSON and stored forms, [`expression`]s with their evaluation, [`legacy`] parameters, [`update`]s and
//! [`projection`]s.
//!
//! [`request`]s of operations with their checks, definitions of [`table`]s, and [`answer`]s.
//!
//! Nothing here knows of sockets or clocks. Texts of errors are those of the service in 2026, because clients
//! and their tests compare them.

pub mod answer;
pub mod arn;
pub mod capacity;
pub mod error;
pub mod expression;
pub mod legacy;
pub mod partiql;
pub mod path;
pub mod projection;
pub mod request;
pub mod table;
pub mod update;
pub mod value;

pub use error::{CancellationReason, Error, ErrorKind};
pub use value::{AttributeValue, Item, Number, Set, ValueType};
