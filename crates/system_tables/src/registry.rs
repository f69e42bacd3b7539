//! Which system tables a node has, of which kind each is, and the sources that compute the virtual ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use schema::{Keyspace, Schema, Table, TableId};

use crate::definition::{Definition, definitions};
use crate::keyspaces::{KeyspaceKind, kind, with_tables};
use crate::virtual_table::{NoRows, Opening, Request, VirtualTable, ready};
use crate::{replicated, schema_tables, without_rows};

/// Where the rows of a system table are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Computed as they are read; nothing is stored. Takes no writes, except for the tables that `takes_writes` names.
    Virtual,
    /// Stored on this node alone, through the usual storage. Only the node itself writes to it.
    Local,
    /// Stored as the tables of users are, on the replicas of its keyspace. Users may write to it.
    Replicated,
}

/// Makes the table that a node keeps for itself beside a table of a user.
type Companion = fn(&Table) -> Arc<Table>;

/// Collects the system tables of a node at its start.
pub struct Builder {
    tables: BTreeMap<String, BTreeMap<String, Arc<Table>>>,
    kinds: HashMap<TableId, Kind>,
    virtual_tables: HashMap<TableId, Virtual>,
    companions: Vec<Companion>,
}

/// A virtual table that was registered.
pub struct Virtual {
    /// What it looks like in this release.
    pub table: Arc<Table>,
    /// The source that computes its rows.
    pub source: Arc<dyn VirtualTable>,
}

/// A table of which this node has no rows.
struct Empty(Definition);

impl VirtualTable for Empty {
    fn definition(&self) -> &Definition {
        &self.0
    }

    fn open(&self, _: Request) -> Opening<'_> {
        ready(NoRows)
    }
}

impl Builder {
    /// With the tables of the schema, the replicated ones, and those of which no node has rows.
    #[must_use]
    pub fn new() -> Self {
        let mut builder = Self {
            tables: BTreeMap::new(),
            kinds: HashMap::new(),
            virtual_tables: HashMap::new(),
            companions: Vec::new(),
        };
        for definition in definitions(replicated::TABLES) {
            builder.replicated_table(&definition);
        }
        for definition in definitions(without_rows::TABLES) {
            builder.virtual_table(Arc::new(Empty(definition)));
        }
        for table in schema_tables::all() {
            builder.virtual_table(table);
        }
        builder
    }

    fn add(&mut self, definition: &Definition, kind_of_table: Kind) -> Arc<Table> {
        let (keyspace, name) = (definition.keyspace, definition.name());
        let fits = match kind(keyspace) {
            Some(KeyspaceKind::Local) => matches!(kind_of_table, Kind::Virtual | Kind::Local),
            Some(KeyspaceKind::Replicated) => kind_of_table == Kind::Replicated,
            None => false,
        };
        assert!(fits, "{keyspace} has no tables of kind {kind_of_table:?}: {name}");
        let table = Arc::new(definition.table());
        let of_keyspace = self.tables.entry(keyspace.to_owned()).or_default();
        let former = of_keyspace.insert(name.to_owned(), table.clone());
        assert!(former.is_none(), "{keyspace}.{name} is registered twice");
        self.kinds.insert(table.id, kind_of_table);
        table
    }

    /// Registers a virtual table with the source that computes its rows.
    ///
    /// # Panics
    /// When the table is known, its definition is no table, or its keyspace has no virtual ones: the caller has a bug.
    pub fn virtual_table(&mut self, source: Arc<dyn VirtualTable>) {
        let table = self.add(source.definition(), Kind::Virtual);
        self.virtual_tables.insert(table.id, Virtual { table, source });
    }

    /// Registers a table that each node stores for itself.
    ///
    /// # Panics
    /// As [`Builder::virtual_table`].
    pub fn local_table(&mut self, definition: &Definition) {
        self.add(definition, Kind::Local);
    }

    /// Registers a table that is stored as those of users are.
    ///
    /// # Panics
    /// As [`Builder::virtual_table`].
    pub fn replicated_table(&mut self, definition: &Definition) {
        self.add(definition, Kind::Replicated);
    }

    /// Registers local tables of which there is one beside each table of a user, in the same tablets. They are not in
    /// the schema.
    pub fn local_beside_user_tables(&mut self, companion: fn(&Table) -> Arc<Table>) {
        self.companions.push(companion);
    }

    /// The registry.
    #[must_use]
    pub fn build(self) -> Registry {
        Registry {
            keyspaces: with_tables(self.tables).into_iter().map(Arc::new).collect(),
            kinds: self.kinds,
            virtual_tables: self.virtual_tables,
            companions: self.companions,
        }
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

/// The system tables of a node. Immutable; the node shares one among its shards.
pub struct Registry {
    keyspaces: Vec<Arc<Keyspace>>,
    kinds: HashMap<TableId, Kind>,
    virtual_tables: HashMap<TableId, Virtual>,
    companions: Vec<Companion>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("tables", &self.kinds.len()).finish()
    }
}

/// Ids of system tables are name-based: a bit test answers for nearly all other tables.
fn may_be_of_system(table: TableId) -> bool {
    table.0.get_version_num() == 3
}

impl Registry {
    /// The definitions of all system keyspaces.
    #[must_use]
    pub fn keyspaces(&self) -> &[Arc<Keyspace>] {
        &self.keyspaces
    }

    /// A schema that came from elsewhere, with this release's definitions of the keyspaces that each node has for
    /// itself.
    #[must_use]
    pub fn with_system_keyspaces(&self, schema: &Schema) -> Schema {
        let mut schema = schema.clone();
        for keyspace in &self.keyspaces {
            let is_local = kind(&keyspace.name) == Some(KeyspaceKind::Local);
            if is_local || !schema.keyspaces.contains_key(&keyspace.name) {
                schema.keyspaces.insert(keyspace.name.clone(), keyspace.clone());
            }
        }
        schema
    }

    /// The kind of a system table; None for any other.
    #[must_use]
    pub fn kind(&self, table: TableId) -> Option<Kind> {
        may_be_of_system(table)
            .then(|| self.kinds.get(&table).copied())
            .flatten()
    }

    /// A virtual table; None for any other.
    #[must_use]
    pub fn virtual_table(&self, table: TableId) -> Option<&Virtual> {
        may_be_of_system(table)
            .then(|| self.virtual_tables.get(&table))
            .flatten()
    }

    /// All virtual tables, in any order.
    pub fn virtual_tables(&self) -> impl Iterator<Item = &Virtual> {
        self.virtual_tables.values()
    }

    /// The tables that a node stores for one of the schema: none for a virtual one; for a user's also what the node
    /// keeps beside it, in the same tablets.
    #[must_use]
    pub fn kept_tables(&self, table: &Arc<Table>) -> Vec<Arc<Table>> {
        match self.kind(table.id) {
            Some(Kind::Virtual) => Vec::new(),
            Some(Kind::Local | Kind::Replicated) => vec![table.clone()],
            None => {
                let mut kept = vec![table.clone()];
                if kind(&table.keyspace).is_none() {
                    kept.extend(self.companions.iter().map(|companion| companion(table)));
                }
                kept
            }
        }
    }
}
