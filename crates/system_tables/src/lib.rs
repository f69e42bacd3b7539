//! The tables that every node has.
//!
//! A system table has one of three kinds ([`Kind`]): *virtual* tables are computed as they are read, *local* tables are
//! stored on this node alone, *replicated* tables are stored like those of users. The crate that owns the facts of a
//! table registers it ([`Builder`]) with its [`Definition`]. The node builds one [`Registry`] at its start; it does not
//! change while the node runs.
//!
//! A virtual table ([`VirtualTable`]) is read through a [`Reader`], which asks the table's [`Content`] for the
//! partitions that the statement wants and for nothing else, and hands the rows out in blocks, as stored tables do.
//! Nothing is kept between two reads.
//!
//! # Invariants
//! - A table's id is the name-based UUID of its keyspace's and its own name, as in Cassandra: the same on every node
//!   and in every release.
//! - A table of a [`KeyspaceKind::Local`] keyspace is virtual or local, a table of a [`KeyspaceKind::Replicated`]
//!   keyspace is replicated.
//! - A row of a virtual table names all columns of its definition, in the order of the definition.

mod definition;
mod keyspaces;
mod reader;
mod registry;
mod replicated;
mod rows;
mod schema_tables;
mod text;
mod virtual_table;
mod without_rows;

pub use definition::{Definition, Options, table_id};
pub use keyspaces::{KeyspaceKind, kind};
pub use reader::{BlockLimits, PartitionBlocks, Reader, ScanBlocks};
pub use registry::{Builder, Kind, Registry, Virtual};
pub use rows::{Rows, Value};
pub use text::{NamedRow, rows_of};
pub use virtual_table::{
    Content, NoRows, Opening, Partitions, Request, VirtualTable, Wanted, Writing, WrittenRow, modification_unsupported,
    ready, takes_writes,
};
