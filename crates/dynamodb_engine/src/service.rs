//! The API on one shard: its tables, and how requests end that the engine does not execute.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::CoordinatorError;
use dynamodb::{Error, ErrorKind};
use plan::write::WriteClock;
use query::{Engine, QueryError};
use topology::Consistency;
use uuid::Uuid;

use crate::definitions::{BACKUPS, TRANSACTIONS};
use crate::sizes::KnownSizes;
use crate::system_table;
use crate::table::{ItemTable, KEYSPACE_PREFIX, keyspace_of};

/// How writes are ordered with others of the same item: `alternator_write_isolation`, or the tag of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WriteIsolation {
    /// Every write is decided with all others of its item.
    #[default]
    Always,
    /// Writes that read first are; others have their timestamps.
    OnlyReadModifyWrite,
    /// Writes that read first are refused; others have their timestamps.
    Forbid,
    /// No write is: one that reads first may overwrite what was written since.
    Unsafe,
}

/// The tag of a table that has a [`WriteIsolation`] of its own.
pub const ISOLATION_TAG: &str = "system:write_isolation";

impl WriteIsolation {
    /// The policy of a name of the option or the tag; both the short and the long names of ScyllaDB's documentation.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "a" | "always" | "always_use_lwt" => Self::Always,
            "o" | "only_rmw_uses_lwt" => Self::OnlyReadModifyWrite,
            "f" | "forbid" | "forbid_rmw" => Self::Forbid,
            "u" | "unsafe" | "unsafe_rmw" => Self::Unsafe,
            _ => return None,
        })
    }
}

/// What the node's configuration says of the API.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of tables without a tag.
    pub write_isolation: WriteIsolation,
    /// Copies of each item, in each datacenter that has as many nodes.
    pub replication_factor: u32,
    /// Items of a BatchWriteItem.
    pub batch_write_items_max: usize,
    /// How long an estimate of a table's items and bytes is shown before a new one is made.
    pub sizes_validity: Duration,
    /// What ARNs name; clients of a cluster of one's own sign for any region.
    pub region: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            write_isolation: WriteIsolation::Always,
            replication_factor: 3,
            batch_write_items_max: dynamodb::request::WRITES_MAX,
            // As the service, which updates them about every six hours.
            sizes_validity: Duration::from_secs(6 * 60 * 60),
            region: "ceto".to_owned(),
        }
    }
}

/// See the module. Each shard keeps one as its local value, so that messages from other shards find it.
pub struct Service {
    pub(crate) engine: Rc<Engine>,
    pub(crate) clock: WriteClock,
    pub(crate) settings: Settings,
    /// The tables of the schema of this version, as far as requests have asked for them.
    tables: RefCell<(Uuid, BTreeMap<String, Arc<ItemTable>>)>,
    /// Estimates of tables' sizes, on shard 0.
    pub(crate) known_sizes: KnownSizes,
    /// Transactions that are committed and answered, and not carried out yet.
    pub(crate) settling: Cell<usize>,
    /// Backups whose snapshots are being taken.
    pub(crate) creating: Cell<usize>,
}

impl Service {
    /// The API on the shard of an engine.
    pub fn new(engine: Rc<Engine>, settings: Settings) -> Rc<Self> {
        Rc::new(Self {
            engine,
            clock: WriteClock::default(),
            settings,
            tables: RefCell::new((Uuid::nil(), BTreeMap::new())),
            known_sizes: KnownSizes::default(),
            settling: Cell::new(0),
            creating: Cell::new(0),
        })
    }

    /// The API on the shard that runs this.
    pub fn local() -> Rc<Self> {
        runtime::local::<Self>().expect("every shard that serves the API keeps it before it takes messages")
    }

    /// The engine of this shard.
    pub const fn engine(&self) -> &Rc<Engine> {
        &self.engine
    }

    /// The table of a name whose items are read or written.
    ///
    /// # Errors
    /// ResourceNotFoundException when there is none, or it is being restored.
    pub fn table(&self, name: &str) -> Result<Arc<ItemTable>, Error> {
        let table = self.find_table(name)?;
        let usable = table.filter(|table| !table.definition.is_being_restored());
        usable.ok_or_else(resource_not_found)
    }

    /// The table of a name, if there is one, also while it is being restored.
    ///
    /// # Errors
    /// When its definition cannot be read.
    pub fn find_table(&self, name: &str) -> Result<Option<Arc<ItemTable>>, Error> {
        // PartiQL can name what is no name of a table.
        if is_internal(name) {
            return Ok(None);
        }
        self.find_any_table(name)
    }

    /// As [`Service::find_table`], also the tables of records.
    pub(crate) fn find_any_table(&self, name: &str) -> Result<Option<Arc<ItemTable>>, Error> {
        let schema = self.engine.schema();
        let mut tables = self.tables.borrow_mut();
        if tables.0 != schema.version {
            let found = |name: &str| schema.table(&keyspace_of(name), name);
            // A table that has not changed stays as it is.
            tables
                .1
                .retain(|name, table| found(name).is_some_and(|now| Arc::ptr_eq(now, &table.table)));
            tables.0 = schema.version;
        }
        if let Some(table) = tables.1.get(name) {
            return Ok(Some(table.clone()));
        }
        system_table::check_name(name)?;
        let Some(table) = schema.table(&keyspace_of(name), name) else {
            return Ok(None);
        };
        let table = ItemTable::of(table)?.map(Arc::new);
        if let Some(table) = &table {
            tables.1.insert(name.to_owned(), table.clone());
        }
        Ok(table)
    }

    /// The names of all tables of the API, ascending.
    pub fn table_names(&self) -> Vec<String> {
        let schema = self.engine.schema();
        let names = schema.keyspaces.iter().filter_map(|(keyspace, found)| {
            let name = keyspace.strip_prefix(KEYSPACE_PREFIX)?;
            let table = found.tables.get(name)?;
            let is_shown = table.options.extensions.contains_key(crate::table::EXTENSION) && !is_internal(name);
            is_shown.then(|| name.to_owned())
        });
        stdx::preempt::collect(names)
    }

    /// The level of reads.
    pub(crate) const fn read_level(is_consistent: bool) -> Consistency {
        if is_consistent {
            Consistency::LocalQuorum
        } else {
            Consistency::LocalOne
        }
    }
}

/// Whether a table has records of the API itself, and clients do not see it.
fn is_internal(name: &str) -> bool {
    [TRANSACTIONS, BACKUPS].contains(&name)
}

/// The error of a table that is not there.
#[cold]
pub fn resource_not_found() -> Error {
    Error::new(ErrorKind::ResourceNotFound, "Requested resource not found")
}

/// What a client is answered when the engine does not execute its request. Clients repeat a request that ended with
/// 500 or with throttling.
#[cold]
pub fn of_engine(error: QueryError) -> Error {
    let kind = match &error {
        QueryError::Overloaded(_) | QueryError::Replicas(CoordinatorError::RateLimited { .. }) => {
            ErrorKind::ProvisionedThroughputExceeded
        }
        QueryError::Replicas(CoordinatorError::Unavailable(_)) => ErrorKind::ServiceUnavailable,
        QueryError::Invalid(_) => ErrorKind::Validation,
        _ => ErrorKind::InternalServerError,
    };
    Error::new(kind, error.message())
}
