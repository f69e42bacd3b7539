//! Keyspaces, tables, columns and the layout of their rows.
//!
//! A [`Schema`] is one immutable value; DDL makes the next one. The execution of a statement holds the `Arc` of the
//! schema that the statement was planned with. Columns carry a [`ColumnId`] that is never given to another column of
//! the same table, so a packed row written before an ALTER reads the same after it: a read does not ask for the cells
//! of a dropped column.

mod function;
#[doc(hidden)]
pub mod fuzz;
mod index;
mod layout;
mod object;
pub mod record;
mod table;
mod tablet_options;
mod text;
mod tombstone_gc;

pub use function::{Language, UserAggregate, UserFunction, signature};
pub use index::{Index, IndexId, IndexKind, IndexPart};
pub use layout::{
    CellLayout, ClusteringOrder, RowLayout, Successor, components, key_component, pad_with_nulls, push_component,
    push_null, split_component,
};
pub use object::{Change, KeyspaceObject, Object, ObjectKind, ObjectName};
pub use table::{
    Column, ColumnId, ColumnKind, CompactStorage, DroppedColumn, Keyspace, RateLimits, Schema, Table, TableId,
    TableOptions,
};
pub use tablet_options::TabletOptions;
pub use text::{
    describe_aggregate, describe_function, describe_index, describe_keyspace, describe_table, describe_type,
    is_virtual_keyspace, java_double, quote_identifier,
};
pub use tombstone_gc::{PAXOS_GRACE_SECONDS_MIN, TombstoneGc, TombstoneGcMode};
