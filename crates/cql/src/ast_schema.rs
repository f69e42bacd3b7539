//! The part of the syntax tree that changes or describes the schema.

use crate::ast::{FunctionCall, Literal, QualifiedName, Relation, Selection, Term, TypeName};

// --- Properties ------------------------------------------------------------------------------------------------------

/// `name = value` of a WITH clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    /// The name, as [`crate::ast`] says of names.
    pub name: String,
    /// The value.
    pub value: PropertyValue,
}

/// The value of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropertyValue {
    /// A constant.
    Literal(Literal),
    /// A bare word such as `all`, lower-cased.
    Keyword(String),
    /// `{'key': 'value', …}`; may be empty.
    Map(Vec<(Literal, MapValue)>),
}

/// The value of a key in the map of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapValue {
    /// A constant.
    Literal(Literal),
    /// `['rack1', 'rack2']`; may be empty.
    List(Vec<Literal>),
}

// --- Keyspaces -------------------------------------------------------------------------------------------------------

/// `CREATE KEYSPACE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateKeyspace {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The keyspace.
    pub name: String,
    /// `WITH`, never empty.
    pub properties: Vec<Property>,
}

/// `ALTER KEYSPACE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlterKeyspace {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The keyspace.
    pub name: String,
    /// `WITH`, never empty.
    pub properties: Vec<Property>,
}

/// `DROP KEYSPACE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropKeyspace {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The keyspace.
    pub name: String,
}

// --- Tables ----------------------------------------------------------------------------------------------------------

/// `CREATE TABLE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateTable {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The table.
    pub table: QualifiedName,
    /// The columns in the order of the text.
    pub columns: Vec<ColumnDefinition>,
    /// Every `PRIMARY KEY` in the order of the text, whether of a column or of the table; a valid table has exactly
    /// one.
    pub primary_keys: Vec<PrimaryKey>,
    /// `WITH`.
    pub options: TableOptions,
}

/// `CREATE TABLE … LIKE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateTableLike {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The new table.
    pub table: QualifiedName,
    /// The table whose columns and options it gets.
    pub source: QualifiedName,
    /// `WITH INDEXES`
    pub has_indexes: bool,
    /// `WITH`: the options that change.
    pub properties: Vec<Property>,
}

/// A column of CREATE TABLE or ALTER TABLE ADD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnDefinition {
    /// The column.
    pub name: String,
    /// Its type.
    pub type_name: TypeName,
    /// `STATIC`: one value per partition.
    pub is_static: bool,
    /// `TTL`: its value says when the row expires, as in ScyllaDB.
    pub is_row_ttl: bool,
    /// `MASKED WITH`.
    pub mask: Option<ColumnMask>,
}

/// What a reader without the UNMASK permission sees instead of a column's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnMask {
    /// `MASKED WITH DEFAULT`: a fixed value of the type.
    Default,
    /// `MASKED WITH function(arguments)`: the function of the value and the further arguments.
    Function(FunctionCall),
}

/// `PRIMARY KEY ((partition, …), clustering, …)`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrimaryKey {
    /// The partition key, never empty.
    pub partition: Vec<String>,
    /// The clustering key.
    pub clustering: Vec<String>,
}

/// The WITH clause of a table or view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableOptions {
    /// `COMPACT STORAGE`
    pub compact_storage: bool,
    /// `CLUSTERING ORDER BY (column DESC, …)`
    pub clustering_order: Vec<ClusteringOrder>,
    /// `name = value`, including `id`.
    pub properties: Vec<Property>,
}

/// One column of CLUSTERING ORDER BY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusteringOrder {
    /// A clustering column.
    pub column: String,
    /// `DESC`; otherwise `ASC`.
    pub descending: bool,
}

/// `ALTER TABLE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlterTable {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The table.
    pub table: QualifiedName,
    /// What changes.
    pub change: TableChange,
}

/// What ALTER TABLE changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableChange {
    /// `ADD [IF NOT EXISTS] column type, …`
    Add {
        /// `IF NOT EXISTS`
        if_not_exists: bool,
        /// The new columns, never empty.
        columns: Vec<ColumnDefinition>,
    },
    /// `DROP [IF EXISTS] column, … [USING TIMESTAMP t]`
    Drop {
        /// `IF EXISTS`
        if_exists: bool,
        /// The columns, never empty.
        columns: Vec<String>,
        /// `USING TIMESTAMP`: older values are dropped, in microseconds.
        timestamp: Option<Literal>,
    },
    /// `RENAME [IF EXISTS] a TO b AND …`
    Rename {
        /// `IF EXISTS`
        if_exists: bool,
        /// Old and new names, never empty.
        columns: Vec<(String, String)>,
    },
    /// `ALTER [IF EXISTS] column TYPE type`
    AlterType {
        /// `IF EXISTS`
        if_exists: bool,
        /// The column.
        column: String,
        /// Its new type.
        type_name: TypeName,
    },
    /// `ALTER [IF EXISTS] column MASKED WITH …` or `DROP MASKED`
    AlterMask {
        /// `IF EXISTS`
        if_exists: bool,
        /// The column.
        column: String,
        /// The new mask; `None` removes it.
        mask: Option<ColumnMask>,
    },
    /// `WITH name = value AND …`
    Properties(Vec<Property>),
    /// `DROP COMPACT STORAGE`
    DropCompactStorage,
    /// `TTL column`, or `TTL NULL`: which column says when a row expires, as in ScyllaDB.
    RowTtl(Option<String>),
}

/// `DROP TABLE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropTable {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The table.
    pub table: QualifiedName,
}

// --- User-defined types ----------------------------------------------------------------------------------------------

/// `CREATE TYPE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateType {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The type.
    pub name: QualifiedName,
    /// Its fields, never empty.
    pub fields: Vec<FieldDefinition>,
}

/// A field of a user-defined type, or an argument of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldDefinition {
    /// The name.
    pub name: String,
    /// The type.
    pub type_name: TypeName,
}

/// `ALTER TYPE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlterType {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The type.
    pub name: QualifiedName,
    /// What changes.
    pub change: TypeChange,
}

/// What ALTER TYPE changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeChange {
    /// `ADD [IF NOT EXISTS] field type`
    Add {
        /// `IF NOT EXISTS`
        if_not_exists: bool,
        /// The new field.
        field: FieldDefinition,
    },
    /// `RENAME [IF EXISTS] a TO b AND …`
    Rename {
        /// `IF EXISTS`
        if_exists: bool,
        /// Old and new names, never empty.
        fields: Vec<(String, String)>,
    },
    /// `ALTER field TYPE type`
    Alter(FieldDefinition),
}

/// `DROP TYPE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropType {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The type.
    pub name: QualifiedName,
}

// --- Secondary indexes and materialized views ------------------------------------------------------------------------

/// `CREATE [CUSTOM] INDEX`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateIndex {
    /// `CUSTOM`
    pub custom: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The index, when named; its keyspace is the table's.
    pub name: Option<String>,
    /// The indexed table.
    pub table: QualifiedName,
    /// What is indexed; may be empty for a custom index. ScyllaDB's local index has its partition key here as
    /// [`IndexTarget::PartitionKey`].
    pub targets: Vec<IndexTarget>,
    /// `USING 'class'`
    pub using: Option<String>,
    /// `WITH`, in which `OPTIONS = {…}` is the property `options`.
    pub properties: Vec<Property>,
}

/// What an index indexes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexTarget {
    /// A column as it is.
    Column(String),
    /// `values(column)`
    Values(String),
    /// `keys(column)`
    Keys(String),
    /// `entries(column)`
    Entries(String),
    /// `full(column)`
    Full(String),
    /// `(a, b)`: the base table's partition key, first target of ScyllaDB's local index.
    PartitionKey(Vec<String>),
}

/// `DROP INDEX`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropIndex {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The index.
    pub name: QualifiedName,
}

/// `CREATE MATERIALIZED VIEW`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateMaterializedView {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The view.
    pub name: QualifiedName,
    /// Its columns.
    pub selection: Selection,
    /// The base table.
    pub base_table: QualifiedName,
    /// `WHERE`: which rows it has.
    pub relations: Vec<Relation>,
    /// Its key.
    pub primary_key: PrimaryKey,
    /// `WITH`.
    pub options: TableOptions,
}

/// `ALTER MATERIALIZED VIEW`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlterMaterializedView {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The view.
    pub name: QualifiedName,
    /// `WITH`, never empty.
    pub properties: Vec<Property>,
}

/// `DROP MATERIALIZED VIEW`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropMaterializedView {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The view.
    pub name: QualifiedName,
}

// --- Functions, aggregates, triggers ---------------------------------------------------------------------------------

/// `CREATE FUNCTION`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateFunction {
    /// `OR REPLACE`
    pub or_replace: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The function.
    pub name: QualifiedName,
    /// Its arguments.
    pub arguments: Vec<FieldDefinition>,
    /// `CALLED ON NULL INPUT`; otherwise `RETURNS NULL ON NULL INPUT`.
    pub called_on_null: bool,
    /// `RETURNS`
    pub return_type: TypeName,
    /// `LANGUAGE`
    pub language: String,
    /// `AS`: the source text.
    pub body: String,
}

/// `DROP FUNCTION`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropFunction {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// Which function.
    pub signature: Signature,
}

/// A function or aggregate, identified by its name and its argument types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// The function.
    pub name: QualifiedName,
    /// Its argument types, when given.
    pub argument_types: Option<Vec<TypeName>>,
}

/// `CREATE AGGREGATE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateAggregate {
    /// `OR REPLACE`
    pub or_replace: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The aggregate.
    pub name: QualifiedName,
    /// Its argument types.
    pub argument_types: Vec<TypeName>,
    /// `SFUNC`: a function of the state's keyspace.
    pub state_function: String,
    /// `STYPE`
    pub state_type: TypeName,
    /// ScyllaDB's `REDUCEFUNC`: merges two states.
    pub reduce_function: Option<String>,
    /// `FINALFUNC`
    pub final_function: Option<String>,
    /// `INITCOND`
    pub initial_state: Option<Term>,
}

/// `DROP AGGREGATE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropAggregate {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// Which aggregate.
    pub signature: Signature,
}

/// `CREATE TRIGGER`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateTrigger {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The trigger.
    pub name: String,
    /// Its table.
    pub table: QualifiedName,
    /// `USING`: the class.
    pub class: String,
}

/// `DROP TRIGGER`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropTrigger {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The trigger.
    pub name: String,
    /// Its table.
    pub table: QualifiedName,
}

// --- DESCRIBE --------------------------------------------------------------------------------------------------------

/// `DESCRIBE …`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Describe {
    /// What is described.
    pub subject: DescribeSubject,
    /// `WITH INTERNALS`: including what the server keeps for itself, such as table ids.
    pub with_internals: bool,
}

/// What DESCRIBE describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DescribeSubject {
    /// `CLUSTER`
    Cluster,
    /// `[FULL] SCHEMA`
    Schema {
        /// System keyspaces too.
        full: bool,
    },
    /// `KEYSPACES`
    Keyspaces,
    /// `[ONLY] KEYSPACE [name]`
    Keyspace {
        /// Only the keyspace itself, not what is in it.
        only: bool,
        /// The keyspace; the one in use when `None`.
        name: Option<String>,
    },
    /// `TABLES`
    Tables,
    /// `TABLE name`
    Table(QualifiedName),
    /// `INDEX name`
    Index(QualifiedName),
    /// `MATERIALIZED VIEW name`
    MaterializedView(QualifiedName),
    /// `TYPES`
    Types,
    /// `TYPE name`
    Type(QualifiedName),
    /// `FUNCTIONS`
    Functions,
    /// `FUNCTION name`
    Function(QualifiedName),
    /// `AGGREGATES`
    Aggregates,
    /// `AGGREGATE name`
    Aggregate(QualifiedName),
    /// A bare name: a keyspace, table, view or index, whichever is found first.
    Any(QualifiedName),
}
