//! Tables of the API as changes of the schema.
//!
//! A table is a keyspace of its own with one table, whose extension has the definition: schema and definition change in
//! one step, on all nodes. The keyspace comes first and the table second; a crash between them leaves an empty
//! keyspace, which the next CreateTable of that name takes and no other operation shows.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use ddl::{
    AlterKeyspace, AlterTable, CreateKeyspace, CreateTable, Definition, DropKeyspace, NameInKeyspace, NewColumn,
    TableChange, TableOption,
};
use dynamodb::table::{AttributeDefinition, KeyElement, KeySchema, KeyType, ScalarType, TableDefinition};
use dynamodb::{Error, ErrorKind};
use query::QueryError;
use schema::{ColumnKind, Schema, Table, TombstoneGc, TombstoneGcMode};
use types::CqlType;
use uuid::Uuid;

use crate::row::{ATTRIBUTES, LOCK};
use crate::service::{Service, of_engine, resource_not_found};
use crate::table::{EXTENSION, ItemTable, keyspace_of};

/// The table of the records of transactions; no client can name it.
pub(crate) const TRANSACTIONS: &str = "~transactions";

/// The table of the records of backups; no client can name it.
pub(crate) const BACKUPS: &str = "~backups";

/// How the restore of a table ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RestoreEnd {
    /// It can be used.
    Active,
    /// It cannot be restored, and is deleted.
    Deleted,
}

/// How long deletions of records are kept: as long as the table's acceptors know what they have accepted.
const RECORDS_GRACE_SECONDS: i32 = 3 * 3_600;

/// Keyspaces of clusters with fewer nodes than copies have one copy.
const FEW_NODES_COPIES: u32 = 1;

fn name_of(name: &str) -> NameInKeyspace {
    NameInKeyspace {
        keyspace: keyspace_of(name),
        name: name.to_owned(),
    }
}

fn extension(definition: &TableDefinition) -> Result<TableOption, Error> {
    let bytes = definition.encode();
    let bytes = bytes.map_err(|e| Error::new(ErrorKind::InternalServerError, e.to_string()))?;
    Ok(TableOption::Extensions([(EXTENSION.to_owned(), bytes)].into()))
}

const fn cql_type(scalar: ScalarType) -> CqlType {
    match scalar {
        ScalarType::S => CqlType::Text,
        ScalarType::N => CqlType::Decimal,
        ScalarType::B => CqlType::Blob,
    }
}

fn create_table(definition: &TableDefinition) -> Result<Definition, Error> {
    let of_key = |element: &KeyElement| {
        let kind = match element.key_type {
            KeyType::Hash => ColumnKind::PartitionKey,
            KeyType::Range => ColumnKind::Clustering,
        };
        NewColumn::new(&element.name, cql_type(definition.type_of(&element.name)), kind)
    };
    let mut columns: Vec<NewColumn> = definition.key_schema.0.iter().map(of_key).collect();
    let attributes = CqlType::Map(Arc::new(CqlType::Text), Arc::new(CqlType::Blob));
    columns.push(NewColumn::new(ATTRIBUTES, attributes, ColumnKind::Regular));
    columns.push(NewColumn::new(LOCK, CqlType::Blob, ColumnKind::Regular));
    let mut options = vec![extension(definition)?];
    if definition.name == TRANSACTIONS {
        // Each transaction deletes its record. One that came back would be deleted again, and change nothing.
        options.push(TableOption::TombstoneGc(TombstoneGc::of(TombstoneGcMode::Timeout)));
        options.push(TableOption::GcGraceSeconds(RECORDS_GRACE_SECONDS));
    }
    if definition.is_being_restored() {
        // Deletions of the backup are old, and must stay until all that they cover has come.
        options.push(TableOption::TombstoneGc(TombstoneGc::of(TombstoneGcMode::Disabled)));
    }
    Ok(Definition::CreateTable(CreateTable {
        table: name_of(&definition.name),
        if_not_exists: false,
        id: None,
        columns,
        ttl_column: None,
        is_compact: false,
        options,
    }))
}

/// An error of the API on its way through the engine, which knows none.
type Refusal = Arc<OnceLock<Error>>;

fn refuse(refusal: &Refusal, error: Error) -> QueryError {
    let message = error.message.clone();
    // The first one ends the change.
    let _ = refusal.set(error);
    QueryError::Invalid(message)
}

impl Service {
    async fn change(
        self: &Rc<Self>,
        source: impl Fn(&Schema) -> Result<Option<Definition>, Error> + Send + 'static,
    ) -> Result<(), Error> {
        let refusal = Refusal::default();
        let refused = refusal.clone();
        let source = Box::new(move |schema: &Schema| source(schema).map_err(|error| refuse(&refused, error)));
        let changed = self.engine.change_schema(source).await;
        changed
            .map(drop)
            .map_err(|error| refusal.get().cloned().unwrap_or_else(|| of_engine(error)))
    }

    /// Creates a table.
    ///
    /// # Errors
    /// ResourceInUseException when there is one of that name.
    pub async fn create_table(self: &Rc<Self>, definition: TableDefinition) -> Result<Arc<ItemTable>, Error> {
        if self.find_any_table(&definition.name)?.is_some() {
            return Err(in_use(&definition.name));
        }
        let keyspace = self.create_keyspace(&definition.name);
        self.change(move |_| Ok(Some(keyspace.clone()))).await?;
        let name = definition.name.clone();
        let made = create_table(&definition)?;
        let create = move |schema: &Schema| match find(schema, &definition.name) {
            Some(_) => Err(in_use(&definition.name)),
            None => Ok(Some(made.clone())),
        };
        self.change(create).await?;
        self.find_any_table(&name)?.ok_or_else(resource_not_found)
    }

    /// How many copies of its items a table has that is created now, by datacenter.
    fn copies(&self) -> impl Iterator<Item = (String, u32)> {
        let wanted = self.settings.replication_factor;
        let nodes = self.engine.nodes_by_datacenter().into_iter();
        nodes.map(move |(datacenter, nodes)| {
            let copies = if nodes < wanted { FEW_NODES_COPIES } else { wanted };
            (datacenter, copies)
        })
    }

    /// Gives the records of transactions and of backups the copies that a new table has: a record is all that is left
    /// of a transaction whose coordinator ends, so it must not have fewer copies than what it is about. Returns whether
    /// that has changed something.
    ///
    /// # Errors
    /// When the schema cannot be changed now.
    pub async fn raise_copies_of_records(self: &Rc<Self>) -> Result<bool, Error> {
        let wanted: Vec<(String, u32)> = self.copies().collect();
        let mut is_raised = false;
        for records in [TRANSACTIONS, BACKUPS] {
            if raised_copies(&self.engine.schema(), records, &wanted).is_none() {
                continue;
            }
            let wanted = wanted.clone();
            self.change(move |schema| {
                Ok(raised_copies(schema, records, &wanted).map(|replication| {
                    Definition::AlterKeyspace(AlterKeyspace {
                        name: keyspace_of(records),
                        if_exists: true,
                        replication: Some(replication),
                        durable_writes: None,
                        tablets: None,
                    })
                }))
            })
            .await?;
            is_raised = true;
        }
        Ok(is_raised)
    }

    fn create_keyspace(&self, name: &str) -> Definition {
        let mut replication = vec![("class".to_owned(), "NetworkTopologyStrategy".to_owned())];
        replication.extend(
            self.copies()
                .map(|(datacenter, copies)| (datacenter, copies.to_string())),
        );
        Definition::CreateKeyspace(CreateKeyspace {
            name: keyspace_of(name),
            if_not_exists: true,
            replication: replication.into_iter().collect(),
            durable_writes: None,
            tablets: None,
        })
    }

    /// Deletes a table with its items; returns what it was.
    ///
    /// # Errors
    /// ResourceNotFoundException; or the table is protected.
    pub async fn delete_table(self: &Rc<Self>, name: &str) -> Result<Arc<ItemTable>, Error> {
        let table = self.find_table(name)?.ok_or_else(resource_not_found)?;
        check_unrestored(&table.definition)?;
        let (name, id) = (name.to_owned(), table.table.id);
        self.change(move |schema| {
            let found = find(schema, &name).filter(|found| found.id == id).ok_or_else(resource_not_found)?;
            let is_protected = definition_of(found)?.deletion_protection;
            if is_protected {
                return Err(Error::validation(format!(
                    "Resource cannot be deleted as it is currently protected against deletion. Disable deletion protection first: {name}"
                )));
            }
            Ok(Some(Definition::DropKeyspace(DropKeyspace {
                name: keyspace_of(&name),
                if_exists: false,
            })))
        })
        .await?;
        Ok(table)
    }

    /// Changes the definition of a table: `change` is called with what it is, perhaps several times.
    ///
    /// # Errors
    /// ResourceNotFoundException, and those of `change`.
    pub async fn change_table(
        self: &Rc<Self>,
        name: &str,
        change: impl Fn(&mut TableDefinition) -> Result<(), Error> + Send + 'static,
    ) -> Result<Arc<ItemTable>, Error> {
        let changed = name.to_owned();
        self.change(move |schema| {
            let found = find(schema, &changed).ok_or_else(resource_not_found)?;
            let mut definition = definition_of(found)?;
            check_unrestored(&definition)?;
            let before = definition.clone();
            change(&mut definition)?;
            if definition == before {
                return Ok(None);
            }
            Ok(Some(Definition::AlterTable(AlterTable {
                table: name_of(&changed),
                if_exists: false,
                change: TableChange::Options(vec![extension(&definition)?]),
            })))
        })
        .await?;
        self.find_table(name)?.ok_or_else(resource_not_found)
    }

    /// Ends the restore of a table, unless another node has done so.
    pub(crate) async fn end_restoring(self: &Rc<Self>, table: &ItemTable, end: RestoreEnd) -> Result<(), Error> {
        let (name, id) = (table.name.clone(), table.table.id);
        self.change(move |schema| {
            let Some(found) = find(schema, &name).filter(|found| found.id == id) else {
                return Ok(None);
            };
            let mut definition = definition_of(found)?;
            let Some(source) = definition.restore.as_mut().filter(|source| source.in_progress) else {
                return Ok(None);
            };
            if end == RestoreEnd::Deleted {
                return Ok(Some(Definition::DropKeyspace(DropKeyspace {
                    name: keyspace_of(&name),
                    if_exists: true,
                })));
            }
            source.in_progress = false;
            let keyspace = schema.keyspaces.get(&keyspace_of(&name));
            // As a new table has it.
            let mode = if keyspace.is_some_and(|keyspace| keyspace.has_tablets()) {
                TombstoneGcMode::Repair
            } else {
                TombstoneGcMode::Timeout
            };
            let options = vec![extension(&definition)?, TableOption::TombstoneGc(TombstoneGc::of(mode))];
            Ok(Some(Definition::AlterTable(AlterTable {
                table: name_of(&name),
                if_exists: true,
                change: TableChange::Options(options),
            })))
        })
        .await
    }

    /// The table of a name that clients do not see, with one attribute as its key. Creates it unless it is there.
    pub(crate) async fn hidden_table(
        self: &Rc<Self>,
        name: &str,
        key: &str,
        scalar_type: ScalarType,
    ) -> Result<Arc<ItemTable>, Error> {
        if let Some(table) = self.find_any_table(name)? {
            return Ok(table);
        }
        let attribute = AttributeDefinition {
            name: key.to_owned(),
            scalar_type,
        };
        let element = KeyElement {
            name: key.to_owned(),
            key_type: KeyType::Hash,
        };
        let definition = TableDefinition::new(
            name.to_owned(),
            Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64()).to_string(),
            runtime::wall_clock_us() / 1_000,
            vec![attribute],
            KeySchema(vec![element]),
        );
        match self.create_table(definition).await {
            Err(error) if error.kind == ErrorKind::ResourceInUse => {
                self.find_any_table(name)?.ok_or_else(resource_not_found)
            }
            created => created,
        }
    }
}

/// The replication of a table of records with at least so many copies; None if it is that already.
fn raised_copies(schema: &Schema, records: &str, wanted: &[(String, u32)]) -> Option<BTreeMap<String, String>> {
    let keyspace = schema.keyspaces.get(&keyspace_of(records))?;
    let mut replication = keyspace.replication.clone();
    let mut is_raised = false;
    for (datacenter, copies) in wanted {
        let now = replication
            .get(datacenter)
            .map_or(Some(0), |copies| copies.parse().ok());
        if now.is_some_and(|now: u32| now < *copies) {
            replication.insert(datacenter.clone(), copies.to_string());
            is_raised = true;
        }
    }
    is_raised.then_some(replication)
}

fn find<'s>(schema: &'s Schema, name: &str) -> Option<&'s Arc<Table>> {
    schema.table(&keyspace_of(name), name)
}

fn definition_of(table: &Arc<Table>) -> Result<TableDefinition, Error> {
    let found = ItemTable::of(table)?.ok_or_else(resource_not_found)?;
    Ok(found.definition)
}

/// Refuses to change a table whose items are still being written from a backup.
fn check_unrestored(definition: &TableDefinition) -> Result<(), Error> {
    if definition.is_being_restored() {
        return Err(Error::new(
            ErrorKind::ResourceInUse,
            format!(
                "Attempt to change a resource which is still in use: Table is being created: {}",
                definition.name
            ),
        ));
    }
    Ok(())
}

#[cold]
fn in_use(name: &str) -> Error {
    Error::new(ErrorKind::ResourceInUse, format!("Table already exists: {name}"))
}
