//! What a front end asks of the schema, as values.
//!
//! Names are as they are stored, types and values are typed, and keyspaces are named. Nothing here is checked:
//! [`crate::apply`] checks all of it.

use std::collections::BTreeMap;

use schema::{ColumnKind, IndexPart, TableId, UserFunction};
use types::CqlType;

use crate::TableOption;

/// A change of the schema that is asked for: one object is created, altered or dropped.
#[derive(Clone, PartialEq, Debug)]
pub enum Definition {
    /// A new keyspace.
    CreateKeyspace(CreateKeyspace),
    /// Other settings of a keyspace.
    AlterKeyspace(AlterKeyspace),
    /// A keyspace goes, and everything in it.
    DropKeyspace(DropKeyspace),
    /// A new table.
    CreateTable(CreateTable),
    /// A new table with the columns and options of another one.
    CreateTableLike(CreateTableLike),
    /// Other columns or options of a table.
    AlterTable(AlterTable),
    /// A table goes.
    DropTable(DropTable),
    /// A new secondary index.
    CreateIndex(CreateIndex),
    /// A secondary index goes.
    DropIndex(DropIndex),
    /// A new user-defined type.
    CreateType(CreateType),
    /// Other fields of a user-defined type.
    AlterType(AlterType),
    /// A user-defined type goes.
    DropType(DropType),
    /// A new user-defined function.
    CreateFunction(CreateFunction),
    /// A user-defined function goes.
    DropFunction(DropFunction),
    /// A new user-defined aggregate.
    CreateAggregate(CreateAggregate),
    /// A user-defined aggregate goes.
    DropAggregate(DropAggregate),
}

impl Definition {
    /// The names of a table's properties that are given; none for what is not about a table.
    pub fn table_properties(&self) -> impl Iterator<Item = &'static str> {
        let (id, options): (Option<TableId>, &[TableOption]) = match self {
            Self::CreateTable(create) => (create.id, &create.options),
            Self::CreateTableLike(create) => (create.id, &create.options),
            Self::AlterTable(AlterTable {
                change: TableChange::Options(options),
                ..
            }) => (None, options),
            _ => (None, &[]),
        };
        let options = options.iter().map(TableOption::name);
        id.map(|_| "id").into_iter().chain(options)
    }
}

/// Whether the tables of a keyspace have tablets of their own, and how many at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyspaceTablets {
    /// Whether they have; None: as before, and they have in a new keyspace.
    pub enabled: Option<bool>,
    /// How many tablets a new table has; None: as many as fit the cluster.
    pub initial: Option<u32>,
}

/// A new keyspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateKeyspace {
    /// Its name.
    pub name: String,
    /// Whether a keyspace of that name is no error.
    pub if_not_exists: bool,
    /// The strategy's `class`, and copies by datacenter or `replication_factor`; see [`schema::Keyspace::replication`].
    /// What it does not say is completed.
    pub replication: BTreeMap<String, String>,
    /// Whether writes go to the commitlog; None: they do.
    pub durable_writes: Option<bool>,
    /// Whether its tables have tablets; None: they have, and the schema does not say so.
    pub tablets: Option<KeyspaceTablets>,
}

/// Other settings of a keyspace; None leaves one as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterKeyspace {
    /// Its name.
    pub name: String,
    /// Whether it is no error that there is none of that name.
    pub if_exists: bool,
    /// See [`CreateKeyspace::replication`].
    pub replication: Option<BTreeMap<String, String>>,
    /// See [`CreateKeyspace::durable_writes`].
    pub durable_writes: Option<bool>,
    /// See [`CreateKeyspace::tablets`].
    pub tablets: Option<KeyspaceTablets>,
}

/// A keyspace goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropKeyspace {
    /// Its name.
    pub name: String,
    /// Whether it is no error that there is none of that name.
    pub if_exists: bool,
}

/// The name of a table, type, function or aggregate, with its keyspace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameInKeyspace {
    /// The keyspace.
    pub keyspace: String,
    /// The name in it.
    pub name: String,
}

/// A column of a new table, or a new column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub cql_type: CqlType,
    /// Its role. Columns of a key are listed in the order of the key.
    pub kind: ColumnKind,
    /// Whether a clustering column orders the rows descendingly; nothing for others.
    pub descending: bool,
}

impl NewColumn {
    /// A column; ascending if it is a clustering column.
    #[must_use]
    pub fn new(name: &str, cql_type: CqlType, kind: ColumnKind) -> Self {
        Self {
            name: name.to_owned(),
            cql_type,
            kind,
            descending: false,
        }
    }
}

/// A new table.
#[derive(Clone, PartialEq, Debug)]
pub struct CreateTable {
    /// Its name.
    pub table: NameInKeyspace,
    /// Whether a table of that name is no error.
    pub if_not_exists: bool,
    /// Its identity; None: the one of the [`crate::Context`].
    pub id: Option<TableId>,
    /// Its columns; those of the partition key and of the clustering key in the order of these.
    pub columns: Vec<NewColumn>,
    /// The column that says when a row expires, if one does.
    pub ttl_column: Option<String>,
    /// Whether it is stored as tables of Thrift's time are.
    pub is_compact: bool,
    /// Its options; those that are not given have their defaults.
    pub options: Vec<TableOption>,
}

/// A new table with the columns and options of another one.
#[derive(Clone, PartialEq, Debug)]
pub struct CreateTableLike {
    /// Its name.
    pub table: NameInKeyspace,
    /// Whether a table of that name is no error.
    pub if_not_exists: bool,
    /// Its identity; None: the one of the [`crate::Context`].
    pub id: Option<TableId>,
    /// The table whose columns and options it gets.
    pub source: NameInKeyspace,
    /// Whether it gets indexes like those of the source.
    pub has_indexes: bool,
    /// The options in which it differs.
    pub options: Vec<TableOption>,
}

/// Other columns or options of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct AlterTable {
    /// Its name.
    pub table: NameInKeyspace,
    /// Whether it is no error that there is none of that name.
    pub if_exists: bool,
    /// What changes.
    pub change: TableChange,
}

/// What changes in a table.
#[derive(Clone, PartialEq, Debug)]
pub enum TableChange {
    /// Static or regular columns are added.
    Add {
        /// Whether columns that are there are passed over.
        if_not_exists: bool,
        /// The columns.
        columns: Vec<NewColumn>,
        /// The one of them that says when a row expires, if one does.
        ttl_column: Option<String>,
    },
    /// Static or regular columns go.
    Drop {
        /// Whether columns that are not there are passed over.
        if_exists: bool,
        /// The columns.
        columns: Vec<String>,
        /// Cells with an older write timestamp go with the column, microseconds since the epoch.
        dropped_at_us: i64,
    },
    /// Columns of the key get other names.
    Rename {
        /// Whether columns that are not there are passed over.
        if_exists: bool,
        /// Old and new names.
        columns: Vec<(String, String)>,
    },
    /// A column gets another type, of which its values are values too.
    Type {
        /// Whether it is no error that the column is not there.
        if_exists: bool,
        /// The column.
        column: String,
        /// Its new type.
        cql_type: CqlType,
    },
    /// Options get other values.
    Options(Vec<TableOption>),
    /// The table no longer has compact storage.
    DropCompactStorage,
    /// This column says from now on when a row expires; None: no column does.
    TtlColumn(Option<String>),
}

/// A table goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropTable {
    /// Its name.
    pub table: NameInKeyspace,
    /// Whether it is no error that there is none of that name.
    pub if_exists: bool,
}

/// A new secondary index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateIndex {
    /// The table that is indexed.
    pub table: NameInKeyspace,
    /// Its name; None: it is made of those of the table and the column.
    pub name: Option<String>,
    /// Whether an index of that name, or one that equals it but for the name, is no error.
    pub if_not_exists: bool,
    /// What is indexed. No class that is built takes more or less than one.
    pub targets: Vec<IndexTarget>,
    /// As what it is declared.
    pub class: IndexClass,
}

/// What an index covers of its table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexTarget {
    /// The column.
    pub column: String,
    /// What of the column; None: its value, or the values in it if it is a collection that is not frozen.
    pub part: Option<IndexPart>,
}

/// As what an index is declared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IndexClass {
    /// As one without a class.
    Legacy,
    /// As a local index of ScyllaDB, by these columns, which must be the partition key.
    Local(Vec<String>),
    /// As one of a class.
    Custom {
        /// The class, or another name that it has.
        name: String,
        /// Its options.
        options: BTreeMap<String, String>,
    },
}

/// A secondary index goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropIndex {
    /// Its name, and the keyspace of its table.
    pub name: NameInKeyspace,
    /// Whether it is no error that there is none of that name.
    pub if_exists: bool,
}

/// A new user-defined type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateType {
    /// Its name.
    pub name: NameInKeyspace,
    /// Whether a type of that name is no error.
    pub if_not_exists: bool,
    /// Names and types of its fields.
    pub fields: Vec<(String, CqlType)>,
}

/// Other fields of a user-defined type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterType {
    /// Its name.
    pub name: NameInKeyspace,
    /// Whether it is no error that there is none of that name.
    pub if_exists: bool,
    /// What changes.
    pub change: TypeChange,
}

/// What changes in a user-defined type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TypeChange {
    /// A field is added at the end.
    Add {
        /// Whether it is no error that there is a field of that name.
        if_not_exists: bool,
        /// Its name.
        field: String,
        /// Its type.
        cql_type: CqlType,
    },
    /// Fields get other names.
    Rename {
        /// Whether fields that are not there are passed over.
        if_exists: bool,
        /// Old and new names.
        fields: Vec<(String, String)>,
    },
}

/// A user-defined type goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropType {
    /// Its name.
    pub name: NameInKeyspace,
    /// Whether it is no error that there is none of that name.
    pub if_exists: bool,
}

/// What becomes of a function or aggregate that has the signature of a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// It is an error.
    Refuse,
    /// It stays, and nothing changes.
    Keep,
    /// The new one replaces it.
    Replace,
}

/// A new user-defined function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateFunction {
    /// The function.
    pub function: UserFunction,
    /// What becomes of one with its signature.
    pub existing: Existing,
}

/// A function or aggregate that is dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DroppedSignature {
    /// Its name.
    pub name: NameInKeyspace,
    /// The types of its arguments; None: there is one of that name only.
    pub argument_types: Option<Vec<CqlType>>,
}

/// A user-defined function goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropFunction {
    /// Which one.
    pub signature: DroppedSignature,
    /// Whether it is no error that there is none.
    pub if_exists: bool,
}

/// A new user-defined aggregate. The type of its result is that of its functions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateAggregate {
    /// Its name.
    pub name: NameInKeyspace,
    /// What becomes of one with its signature.
    pub existing: Existing,
    /// The types of its arguments.
    pub arguments: Vec<CqlType>,
    /// The name of the function that takes a row.
    pub state_function: String,
    /// The type of the state.
    pub state_type: CqlType,
    /// The name of the function that joins two states, if there is one.
    pub reduce_function: Option<String>,
    /// The name of the function that makes the result of the last state, if there is one.
    pub final_function: Option<String>,
    /// The state before the first row, serialised; None is null.
    pub initial_state: Option<Vec<u8>>,
}

/// A user-defined aggregate goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropAggregate {
    /// Which one.
    pub signature: DroppedSignature,
    /// Whether it is no error that there is none.
    pub if_exists: bool,
}
