//! One shard's statement engine: what turns plans into results.
//!
//! Lives on each shard in an `Rc` and as the shard's local value, so that messages from other shards find it. It
//! sees the whole node: a statement whose key another shard owns goes there as a message, with the plan (shared,
//! immutable) and the bound values (owned). The node's schema is one immutable value; shard 0 changes it, one statement
//! at a time, makes it durable, and only answers when every shard has taken it over.

mod aggregate;
mod aggregate_message;
mod aggregate_part;
mod batch_size;
mod columns;
mod conditional;
mod description;
mod execute;
mod fragment_text;
mod fragments;
#[doc(hidden)]
pub mod fuzz;
mod groups;
mod guard;
mod listed;
mod ownership;
mod page;
mod paging_state;
mod patience;
mod point;
mod point_anywhere;
mod prepared;
mod read;
mod replicated;
mod request;
mod row_expiry;
mod schema_change;
pub(crate) mod tombstones;
pub mod traces;
mod truncate;
mod virtual_tables;
mod write;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use coordinator::{Coordinator, PointRead};
use cql_compiler::Dialect;
use cql_compiler::describe::DescribedNode;
use ddl::SchemaChange;
use logging::LineLimit;
use plan::write::WriteClock;
use schema::{Schema, TableId};
use system_tables::Registry;
use topology::Consistency;

use crate::guardrails::Guardrails;

pub use batch_size::BatchPartitions;
pub use execute::Outcome;
pub use ownership::{CameTo, TabletPlace, partition_of};
pub use page::PageRequest;
pub use paging_state::{PagingState, Position};
pub use point::{MissedRow, PointOutcome};
pub use prepared::{Prepared, PreparedId, SharedStatements, UNPREPARED};
pub use read::Page;
pub use request::Request;
pub use row_expiry::ExpiredRows;
pub use schema_change::{DefinitionSource, KeepError, SchemaKeeper};
pub use tombstones::{PageLimits, TombstoneWarning};
pub use write::Written;

/// What the shards of a node share.
pub struct NodeState {
    /// The tables that every node has.
    pub system_tables: Arc<Registry>,
    /// What DESCRIBE says of the node now.
    pub described: Box<dyn Fn() -> DescribedNode + Send + Sync>,
    /// Texts of prepared statements, by id, so that any shard can serve them.
    pub statements: SharedStatements,
}

/// Called on each shard for each change of the schema.
pub type SchemaListener = Box<dyn Fn(&SchemaChange)>;

/// One shard's engine.
pub struct Engine {
    /// The way to the other replicas.
    pub coordinator: Rc<Coordinator>,
    /// What all shards share.
    pub node: Arc<NodeState>,
    schema: RefCell<Arc<Schema>>,
    clock: WriteClock,
    prepared: prepared::Cache,
    point: RefCell<point::PointScratch>,
    /// What was read last and has to be confirmed, with its digest.
    unconfirmed: RefCell<Option<(PointRead, u128)>>,
    tombstones_read: Cell<u64>,
    mutation: RefCell<Vec<u8>>,
    key: RefCell<Vec<u8>>,
    listener: RefCell<Option<SchemaListener>>,
    schema_lock: runtime::Semaphore,
    keeper: RefCell<Option<Rc<dyn SchemaKeeper>>>,
    page_limits: Cell<PageLimits>,
    /// Whether keyspaces with tablets list the racks of their copies.
    lists_racks: Cell<bool>,
    /// What equal names of bind markers mean.
    dialect: Cell<Dialect>,
    has_functions: Cell<bool>,
    batch_partitions: BatchPartitions,
    /// Pages whose clients were warned, and reads that failed, for their tombstones.
    tombstone_excesses: Cell<(u64, u64)>,
    tombstone_log: LineLimit,
    guardrails: RefCell<Rc<Guardrails>>,
    /// [`Guardrails::usual_timestamps`] of them.
    usual_timestamps: Cell<(u64, u64)>,
    guardrail_log: LineLimit,
}

impl Engine {
    /// How many partitions the batches had that this shard coordinated.
    pub const fn batch_partitions(&self) -> &BatchPartitions {
        &self.batch_partitions
    }

    /// The engine of a shard.
    pub fn new(coordinator: Rc<Coordinator>, node: Arc<NodeState>, schema: Arc<Schema>) -> Rc<Self> {
        let engine = Rc::new(Self {
            coordinator,
            node,
            schema: RefCell::new(schema),
            clock: WriteClock::default(),
            prepared: prepared::Cache::default(),
            point: RefCell::default(),
            unconfirmed: RefCell::default(),
            tombstones_read: Cell::new(0),
            mutation: RefCell::default(),
            key: RefCell::default(),
            listener: RefCell::default(),
            schema_lock: runtime::Semaphore::new(1),
            keeper: RefCell::default(),
            page_limits: Cell::default(),
            lists_racks: Cell::new(false),
            dialect: Cell::default(),
            has_functions: Cell::new(false),
            batch_partitions: BatchPartitions::default(),
            tombstone_excesses: Cell::default(),
            tombstone_log: LineLimit::new(|lines| log::warn!("{lines} more reads of many tombstones are not logged")),
            guardrails: RefCell::default(),
            usual_timestamps: Cell::new(Guardrails::default().usual_timestamps()),
            guardrail_log: LineLimit::new(|lines| log::warn!("{lines} more warnings of guardrails are not logged")),
        });
        engine.coordinator.begin_alone();
        engine.coordinator.near.serve::<aggregate_part::Aggregate>();
        engine.coordinator.traces.on_end(Box::new(|trace| {
            drop(runtime::spawn(
                async move { Self::local().keep_trace(&trace, None).await },
            ));
        }));
        engine
    }

    /// Whether this node may answer reads of a table alone.
    fn reads_here(&self, table: TableId, level: Consistency) -> bool {
        let table = self.coordinator.own.table(table);
        table.is_some_and(|table| table.satisfies(level))
    }

    /// The engine of the shard that runs this.
    pub fn local() -> Rc<Self> {
        runtime::local::<Self>().expect("every shard keeps its engine before it takes messages")
    }

    /// Tombstones that statements met on this shard: range tombstones, deleted partitions, and rows of which nothing
    /// lives. Statements that read one row by its whole key are not counted.
    pub fn tombstones_read(&self) -> u64 {
        self.tombstones_read.get()
    }

    fn count_tombstones(&self, count: u64) {
        self.tombstones_read.set(self.tombstones_read.get() + count);
    }

    /// The schema as it is now.
    pub fn schema(&self) -> Arc<Schema> {
        self.schema.borrow().clone()
    }

    /// Sets the keeper of the schema. Before this call no statement changes it. On shard 0.
    pub fn set_keeper(&self, keeper: Rc<dyn SchemaKeeper>) {
        *self.keeper.borrow_mut() = Some(keeper);
    }

    fn keeper(&self) -> Result<Rc<dyn SchemaKeeper>, String> {
        let keeper = self.keeper.borrow().clone();
        keeper.ok_or_else(|| "the node is starting, and does not change its metadata yet".to_owned())
    }

    /// Sets how many tombstones a page may meet, those of [`PageLimits::default`] at first.
    pub fn set_page_limits(&self, limits: PageLimits) {
        self.page_limits.set(limits);
    }

    /// Sets what statements mean where servers differ, before the first one.
    pub fn set_dialect(&self, dialect: Dialect) {
        self.dialect.set(dialect);
    }

    /// Has statements write the copies of keyspaces with tablets as lists of racks, or not, as at first. On shard 0.
    pub fn set_lists_racks(&self, lists_racks: bool) {
        self.lists_racks.set(lists_racks);
    }

    /// Lets functions be created, or not, as at first (`user_defined_functions_enabled`). On shard 0.
    pub fn set_has_functions(&self, has_functions: bool) {
        self.has_functions.set(has_functions);
    }

    /// How many pages of this shard's clients met more tombstones than `tombstone_warn_threshold`, and how many reads
    /// failed at `tombstone_failure_threshold`.
    pub fn tombstone_excesses(&self) -> (u64, u64) {
        self.tombstone_excesses.get()
    }

    /// Sets the listener that is notified of schema changes on this shard.
    pub fn set_listener(&self, listener: SchemaListener) {
        *self.listener.borrow_mut() = Some(listener);
    }
}
