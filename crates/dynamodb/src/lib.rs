//! The DynamoDB API as values and functions, without I/O: [`Error`]s of the service, attribute [`value`]s and their
//! JSON and stored forms, [`expression`]s with their evaluation, [`legacy`] parameters, [`update`]s and
//! [`projection`]s.
//!
//! Nothing here knows of tables, sockets or clocks. Texts of errors are those of the service in 2026, because clients
//! and their tests compare them.

pub mod error;
pub mod expression;
pub mod fuzz;
pub mod legacy;
pub mod path;
pub mod projection;
pub mod update;
pub mod value;

pub use error::{CancellationReason, Error, ErrorKind};
pub use value::{AttributeValue, Item, Number, Set, ValueType};
