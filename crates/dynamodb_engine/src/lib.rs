//! The DynamoDB API on the engine: tables, items and transactions. HTTP is `dynamodb_server`'s, JSON and expressions
//! are `dynamodb`'s.
//!
//! Each shard has a [`Service`]. A table of the API is a keyspace with one table ([`definitions`]); an item is a row of
//! it ([`row`]). Reads are plans of the engine ([`read`]); writes are conditional writes of the coordinator
//! ([`modify`]), unless the table says otherwise ([`service::WriteIsolation`]); transactions are conditional writes of
//! several rows and one record ([`transaction`]).
//!
//! docs/dev/dynamodb.md is the design.

pub mod access_keys;
pub mod backups;
pub mod definitions;
pub mod expiry;
pub mod lock;
pub mod modify;
mod operations;
pub mod read;
pub mod record;
pub mod row;
pub mod service;
pub mod sizes;
pub mod snapshot;
mod system_table;
pub mod table;
pub mod transaction;

pub use dynamodb::{Error, ErrorKind};
pub use service::{Service, Settings, WriteIsolation};
