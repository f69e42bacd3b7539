//! The syntax tree of CQL: what a statement says, before any schema is consulted.
//!
//! Invariants of every tree that [`crate::parse`] returns:
//! - A *name* is a `String` holding the identifier as the schema stores it: lower-cased when it was written without
//!   quotes, verbatim when it was written `"Quoted"`. `Display` quotes it again when it must.
//! - A [`Literal`] keeps its source text, so that a number of any size reaches the type that will read it.
//! - Bind markers are numbered by their order in the text, starting at 0.
//! - What is rare and large is boxed: trees are moved while they are read, and most of them are columns and markers.
//! - `Display` prints canonical CQL: parsing the printed text gives an equal tree.
//!
//! What the grammar of Cassandra accepts but its planner refuses, such as two primary keys, is
//! representable here, so that the refusal keeps its proper error code.

use stdx::LongVec;

/// One statement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each variant is the statement of that name, documented on the struct it holds"
)]
pub enum Statement {
    Select(Select),
    Insert(Insert),
    Update(Update),
    Delete(Delete),
    Batch(Batch),
    Truncate(Truncate),
    Use(Use),
    CreateKeyspace(CreateKeyspace),
    AlterKeyspace(AlterKeyspace),
    DropKeyspace(DropKeyspace),
    CreateTable(CreateTable),
    CreateTableLike(CreateTableLike),
    AlterTable(AlterTable),
    DropTable(DropTable),
    CreateType(CreateType),
    AlterType(AlterType),
    DropType(DropType),
    CreateIndex(CreateIndex),
    DropIndex(DropIndex),
    CreateMaterializedView(CreateMaterializedView),
    AlterMaterializedView(AlterMaterializedView),
    DropMaterializedView(DropMaterializedView),
    CreateFunction(CreateFunction),
    DropFunction(DropFunction),
    CreateAggregate(CreateAggregate),
    DropAggregate(DropAggregate),
    CreateTrigger(CreateTrigger),
    DropTrigger(DropTrigger),
    CreateRole(CreateRole),
    AlterRole(AlterRole),
    DropRole(DropRole),
    CreateUser(CreateUser),
    AlterUser(AlterUser),
    DropUser(DropUser),
    AddIdentity(AddIdentity),
    DropIdentity(DropIdentity),
    Grant(Grant),
    Revoke(Revoke),
    GrantRole(GrantRole),
    RevokeRole(RevokeRole),
    ListPermissions(ListPermissions),
    ListRoles(ListRoles),
    ListUsers,
    ListSuperusers,
    Describe(Describe),
}

/// A name that may carry its keyspace: `[keyspace.]name`, of a table, type, index, function or view.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QualifiedName {
    /// The keyspace, when it was written.
    pub keyspace: Option<String>,
    /// The name within the keyspace.
    pub name: String,
}

// --- Terms -----------------------------------------------------------------------------------------------------------

/// An expression that yields a value without looking at a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Term {
    /// A constant.
    Literal(Literal),
    /// `?` or `:name`.
    BindMarker(BindMarker),
    /// `[a, b]`: a list or a vector; the receiving type decides.
    List(LongVec<Term>),
    /// `{a, b}`. The empty `{}` is a set here and may be received as an empty map.
    Set(LongVec<Term>),
    /// `{k: v, …}`, never empty.
    Map(LongVec<(Term, Term)>),
    /// `{field: v, …}`, never empty.
    UserType(Vec<(String, Term)>),
    /// `(a, b)`, never empty. One element `(a)` is a tuple of one.
    Tuple(LongVec<Term>),
    /// `[keyspace.]name(arguments)`.
    FunctionCall(Box<FunctionCall>),
    /// `(type) term`.
    TypeCast {
        /// The type to take the term as.
        type_name: Box<TypeName>,
        /// What is cast.
        term: Box<Term>,
    },
    /// `left operator right`.
    Arithmetic {
        /// Which of the five operations.
        operator: ArithmeticOperator,
        /// The left operand.
        left: Box<Term>,
        /// The right operand.
        right: Box<Term>,
    },
    /// `-term`, where the term is not a number (`-5` is a literal).
    Negation(Box<Term>),
}

/// A constant in its source text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Literal {
    /// What the lexer recognised.
    pub kind: LiteralKind,
    /// For a string, its content without quotes and escapes; for all others the text as written (`-12`, `0xCAFE`,
    /// `1h30m`, `TRUE`).
    pub text: String,
}

/// The lexical kinds of constants. Which types a kind may be received as is the planner's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LiteralKind {
    /// `'text'` or `$$text$$`.
    String,
    /// `-12`.
    Integer,
    /// `1.5`, `1e9`, `NaN`, `-Infinity`.
    Float,
    /// `true` or `false`, in any case.
    Boolean,
    /// `123e4567-e89b-12d3-a456-426614174000`.
    Uuid,
    /// `0xCAFE`.
    Blob,
    /// `1h30m`, `P1Y2M`, `-P2W`.
    Duration,
    /// `null`.
    Null,
}

/// A marker for a value that is bound at execution.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BindMarker {
    /// Position among the statement's markers, in the order of the text.
    pub index: usize,
    /// The name of `:name`; `None` for `?`.
    pub name: Option<String>,
}

/// A call with terms as arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionCall {
    /// The function.
    pub name: QualifiedName,
    /// Its arguments.
    pub arguments: Vec<Term>,
}

/// Arithmetic between two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArithmeticOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

// --- Types -----------------------------------------------------------------------------------------------------------

/// A type as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TypeName {
    /// A type of the language.
    Native(NativeType),
    /// `list<element>`.
    List(Box<TypeName>),
    /// `set<element>`.
    Set(Box<TypeName>),
    /// `map<key, value>`.
    Map(Box<TypeName>, Box<TypeName>),
    /// `tuple<a, b>`, never empty.
    Tuple(Vec<TypeName>),
    /// `vector<element, dimension>`; the dimension as written, which may be none that a vector can have.
    Vector(Box<TypeName>, i32),
    /// `frozen<type>`.
    Frozen(Box<TypeName>),
    /// A user-defined type.
    UserType(QualifiedName),
    /// `'org.example.SomeType'`: the class name of a type that has no CQL name.
    Custom(String),
}

/// The types of the language. `varchar` is read as `text`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is the CQL type of that name")]
pub enum NativeType {
    Ascii,
    BigInt,
    Blob,
    Boolean,
    Counter,
    Date,
    Decimal,
    Double,
    Duration,
    Float,
    Inet,
    Int,
    SmallInt,
    Text,
    Time,
    Timestamp,
    TimeUuid,
    TinyInt,
    Uuid,
    VarInt,
}

// --- SELECT ----------------------------------------------------------------------------------------------------------

/// `SELECT … [FROM …]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Select {
    /// `SELECT JSON`: one text column with the row as a JSON object.
    pub json: bool,
    /// `SELECT DISTINCT`: one row per partition.
    pub distinct: bool,
    /// What is selected.
    pub selection: Selection,
    /// The table or view read; none in ScyllaDB's `SELECT now()`, which has no clause after its selection.
    pub table: Option<QualifiedName>,
    /// ScyllaDB's `FROM MUTATION_FRAGMENTS(table)`: what each source of this node has of the table.
    pub fragments: bool,
    /// `WHERE … AND …`; empty when there is none.
    pub relations: Vec<Relation>,
    /// `GROUP BY`: columns, or functions of them.
    pub group_by: Vec<Selector>,
    /// `ORDER BY`.
    pub order_by: Vec<Ordering>,
    /// `PER PARTITION LIMIT`.
    pub per_partition_limit: Option<Term>,
    /// `LIMIT`.
    pub limit: Option<Term>,
    /// `ALLOW FILTERING`.
    pub allow_filtering: bool,
    /// ScyllaDB's `BYPASS CACHE`.
    pub bypass_cache: bool,
    /// ScyllaDB's `USING TIMEOUT`: a duration.
    pub timeout: Option<Term>,
}

impl Select {
    /// Whether what is selected may need no table: neither `*` nor DISTINCT rows, nor bare columns.
    pub(crate) fn may_have_no_table(&self) -> bool {
        let is_column = |selected: &AliasedSelector| matches!(selected.selector, Selector::Column(_));
        match &self.selection {
            Selection::All => false,
            Selection::Selectors(selectors) => !self.distinct && !selectors.iter().any(is_column),
        }
    }
}

/// What a SELECT selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// `*`
    All,
    /// A list of selectors.
    Selectors(Vec<AliasedSelector>),
}

/// `selector [AS alias]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliasedSelector {
    /// What is selected.
    pub selector: Selector,
    /// The name of the result column, when given.
    pub alias: Option<String>,
}

/// An expression over a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// A column.
    Column(String),
    /// A constant or a bind marker.
    Term(Term),
    /// `count(*)` or `count(1)`.
    CountRows,
    /// `[keyspace.]name(arguments)`, including `writetime(c)`, `maxwritetime(c)` and `ttl(c)` under those names.
    FunctionCall {
        /// The function.
        name: Box<QualifiedName>,
        /// Its arguments.
        arguments: Vec<Selector>,
    },
    /// `CAST(selector AS type)`.
    Cast {
        /// What is converted.
        selector: Box<Selector>,
        /// Into which type.
        type_name: Box<TypeName>,
    },
    /// `selector[key]`.
    Element {
        /// A collection.
        collection: Box<Selector>,
        /// The key or element.
        key: Box<Term>,
    },
    /// `selector[from..to]`, each bound optional and included.
    Slice {
        /// A collection.
        collection: Box<Selector>,
        /// The first key or element.
        from: Option<Box<Term>>,
        /// The last key or element.
        to: Option<Box<Term>>,
    },
    /// `selector.field` of a user-defined type.
    Field {
        /// A value of a user-defined type.
        value: Box<Selector>,
        /// The field.
        field: String,
    },
    /// `[a, b]`
    List(Vec<Selector>),
    /// `{a, b}` or `{}`.
    Set(Vec<Selector>),
    /// `{k: v, …}`, never empty.
    Map(Vec<(Selector, Selector)>),
    /// `{field: v, …}`, never empty. Written the same way, `{column: v}` is this too.
    UserType(Vec<(String, Selector)>),
    /// `(a, b)`, never empty. `(a)` is a tuple if the expected type is one, and else `a`.
    Tuple(Vec<Selector>),
    /// `(type) selector`: the type of a selector that has none by itself.
    TypeHint {
        /// The type.
        type_name: Box<TypeName>,
        /// The hinted selector.
        selector: Box<Selector>,
    },
    /// `left operator right`.
    Arithmetic {
        /// Which of the five operations.
        operator: ArithmeticOperator,
        /// The left operand.
        left: Box<Selector>,
        /// The right operand.
        right: Box<Selector>,
    },
    /// `-selector`, where the selector is not a number.
    Negation(Box<Selector>),
}

/// One column of ORDER BY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordering {
    /// The column ordered by.
    pub column: String,
    /// In which direction, or by distance to what.
    pub direction: Direction,
}

/// How a column orders rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Direction {
    /// `ASC`, the default.
    Ascending,
    /// `DESC`
    Descending,
    /// `ANN OF term`: nearest vectors first.
    NearestTo(Term),
}

/// One condition on columns, of WHERE and of IF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// What is compared.
    pub subject: Subject,
    /// With what, and how.
    pub predicate: Predicate,
}

/// The left side of a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A column.
    Column(String),
    /// `column[key]`
    Element {
        /// The map or list.
        column: String,
        /// The key or position.
        key: Box<Term>,
    },
    /// `column.field`; in IF only.
    Field {
        /// A column of a user-defined type.
        column: String,
        /// The field.
        field: String,
    },
    /// `(a, b)`: clustering columns compared as one; in WHERE only.
    Columns(Vec<String>),
    /// `token(a, b)`; in WHERE only.
    Token(Vec<String>),
    /// `expr(index, value)`: a custom index's own query; in WHERE only and with [`Predicate::Matches`].
    Index(QualifiedName),
}

/// The right side of a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Predicate {
    /// `operator value`
    Compare(ComparisonOperator, Term),
    /// `IN (a, b)`, `IN ?`, or `NOT IN`.
    In {
        /// `NOT IN`.
        negated: bool,
        /// The alternatives.
        values: InValues,
    },
    /// `BETWEEN low AND high`, both included.
    Between(Box<Term>, Box<Term>),
    /// `IS NOT NULL`
    IsNotNull,
    /// The value of `expr(index, value)`.
    Matches(Term),
}

/// The alternatives of IN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InValues {
    /// `(a, b)`; may be empty.
    Terms(LongVec<Term>),
    /// One marker for the whole list.
    BindMarker(BindMarker),
}

/// A comparison between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ComparisonOperator {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `CONTAINS`
    Contains,
    /// `CONTAINS KEY`
    ContainsKey,
    /// `NOT CONTAINS`
    NotContains,
    /// `NOT CONTAINS KEY`
    NotContainsKey,
    /// `LIKE`
    Like,
}

impl ComparisonOperator {
    /// Whether it compares by the order of values: `=`, `!=`, `<`, `<=`, `>`, `>=`.
    pub fn is_order(self) -> bool {
        matches!(
            self,
            Self::Equal | Self::NotEqual | Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual
        )
    }
}

// --- INSERT, UPDATE, DELETE, BATCH -----------------------------------------------------------------------------------

/// `INSERT INTO …`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Insert {
    /// The table written.
    pub table: QualifiedName,
    /// The row.
    pub values: InsertValues,
    /// `IF NOT EXISTS`.
    pub if_not_exists: bool,
    /// `USING`.
    pub attributes: Attributes,
}

/// The row of an INSERT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InsertValues {
    /// `(columns) VALUES (values)`; the two lists may differ in length, which the planner refuses.
    Columns {
        /// The columns.
        columns: Vec<String>,
        /// Their values.
        values: Vec<Term>,
    },
    /// `JSON value [DEFAULT NULL | UNSET]`
    Json {
        /// A string literal or a bind marker.
        value: Term,
        /// `DEFAULT UNSET`: columns the object does not name keep their values; otherwise they become null.
        default_unset: bool,
    },
}

/// The `USING` clause of a modification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// `TIMESTAMP`: the client write timestamp in microseconds.
    pub timestamp: Option<Term>,
    /// `TTL`: seconds.
    pub ttl: Option<Term>,
    /// ScyllaDB's `TIMEOUT`: a duration.
    pub timeout: Option<Term>,
}

/// `UPDATE …`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The table written.
    pub table: QualifiedName,
    /// `USING`.
    pub attributes: Attributes,
    /// `SET`, never empty.
    pub assignments: LongVec<Assignment>,
    /// `WHERE`, never empty.
    pub relations: Vec<Relation>,
    /// `IF`.
    pub conditions: Conditions,
}

/// One assignment of SET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// What changes.
    pub target: Target,
    /// How.
    pub operation: Operation,
}

/// A column, or a part of one, that UPDATE sets or DELETE removes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The whole column.
    Column(String),
    /// `column[key]`
    Element {
        /// The map, list or (in DELETE) set.
        column: String,
        /// The key, position or element.
        key: Box<Term>,
    },
    /// `column.field`
    Field {
        /// A column of a user-defined type.
        column: String,
        /// The field.
        field: String,
    },
}

/// What an assignment does to its target. Only `Set` applies to elements and fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// `target = term`
    Set(Term),
    /// `column = column + term` or `column += term`: counters, and the end of lists.
    Add(Term),
    /// `column = column - term` or `column -= term`.
    Subtract(Term),
    /// `column = term + column`: the front of lists.
    Prepend(Term),
}

/// The IF clause of a conditional update or delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conditions {
    /// No IF: the statement is unconditional.
    None,
    /// `IF EXISTS`
    Exists,
    /// `IF a = 1 AND …`, never empty.
    All(Vec<Relation>),
}

/// `DELETE …`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// What is removed; empty for whole rows.
    pub targets: LongVec<Target>,
    /// The table written.
    pub table: QualifiedName,
    /// `USING TIMESTAMP` and `TIMEOUT`; the TTL is always `None`.
    pub attributes: Attributes,
    /// `WHERE`, never empty.
    pub relations: Vec<Relation>,
    /// `IF`.
    pub conditions: Conditions,
    /// ScyllaDB's `BYPASS LARGE_DATA_GUARDRAILS`; never in a batch.
    pub bypasses_large_data_guardrails: bool,
}

/// `BEGIN BATCH … APPLY BATCH`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Logged, unlogged or of counters.
    pub kind: BatchKind,
    /// `USING`, for all statements of the batch; a TTL here is valid syntax but has no meaning.
    pub attributes: Attributes,
    /// The statements; may be empty.
    pub statements: LongVec<Modification>,
}

/// The kinds of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchKind {
    /// `BEGIN BATCH`: all or nothing, by way of the batchlog.
    Logged,
    /// `BEGIN UNLOGGED BATCH`
    Unlogged,
    /// `BEGIN COUNTER BATCH`
    Counter,
}

/// A statement that is allowed in a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the statement of that name")]
pub enum Modification {
    Insert(Insert),
    Update(Update),
    Delete(Delete),
}

/// `TRUNCATE [TABLE] table [USING TIMEOUT duration]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncate {
    /// The table emptied.
    pub table: QualifiedName,
    /// ScyllaDB's `USING TIMEOUT`.
    pub timeout: Option<Term>,
}

/// `USE keyspace`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The keyspace of unqualified names from now on.
    pub keyspace: String,
}

pub use crate::ast_auth::*;
pub use crate::ast_schema::*;
