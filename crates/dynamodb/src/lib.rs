//! The DynamoDB API as values and functions, without I/O.
//!
//! - [`request`]: the body of a call as a typed request, with all checks that need no data; [`partiql`] statements.
//! - [`answer`]: bodies of answers; [`error`]: those of errors; [`capacity`]: the units that answers report.
//! - [`table`]: definitions of tables, their stored form and description; [`arn`]: their names.
//! - [`value`]: attribute values and items, in JSON and stored.
//! - [`expression`]: conditions, projections and updates with their evaluation; [`legacy`]: the parameters before them;
//!   [`update`] and [`projection`]: what they do to an item.
//!
//! Nothing here knows of sockets or clocks. Texts of errors are those of the service in 2026, because clients and their
//! tests compare them.

pub mod answer;
pub mod arn;
pub mod backup;
pub mod capacity;
pub mod error;
pub mod expression;
pub mod fuzz;
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
