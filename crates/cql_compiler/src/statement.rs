//! From the text of a statement to what is executed.

use std::sync::Arc;

use cql::Variables;
use cql::ast::{self, Modification};
use plan::restrict::{KeyMarkers, NullRule};
use plan::{BatchKind, BatchPlan, Operand, Plan, ResultColumn, WritePlan};
use schema::{Schema, Table};
use system_tables::KeyspaceKind;
use types::CqlType;

use crate::CompileError;
use crate::fragments::fragments_table;
use crate::restrict::Scope;
use crate::select::{compile_select, warning};
use crate::term::{MarkerSpec, Markers};
use crate::write::{compile_delete, compile_insert, compile_update};

/// A compiled statement.
#[derive(Debug)]
pub enum Statement {
    /// Reads or writes.
    Plan(Plan),
    /// Empties a table; the operand is how long its client waits, a duration.
    Truncate(Arc<Table>, Option<Operand>),
    /// Changes the connection's keyspace.
    Use(String),
    /// Changes the schema.
    Ddl(Box<ast::Statement>),
    /// Describes the schema.
    Describe(ast::Describe),
}

impl Statement {
    /// The plan, when it reads or writes.
    #[inline]
    pub const fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Plan(plan) => Some(plan),
            Self::Truncate(..) | Self::Use(_) | Self::Ddl(_) | Self::Describe(_) => None,
        }
    }

    /// Whether it writes only if a condition holds.
    #[inline]
    pub fn is_conditional(&self) -> bool {
        self.plan().is_some_and(Plan::is_conditional)
    }
}

/// What statements mean where servers differ.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Dialect {
    /// What equal names of bind markers mean.
    pub variables: Variables,
    /// What a comparison with null means.
    pub nulls: NullRule,
}

/// What compilation finds out.
#[derive(Debug)]
pub struct Compiled {
    /// What is executed.
    pub statement: Arc<Statement>,
    /// The meaning of its markers.
    pub markers: Vec<MarkerSpec>,
    /// For each partition key column the marker that it is compared with, when all have one.
    pub key_markers: KeyMarkers,
    /// The table that it is about, if one.
    pub table: Option<Arc<Table>>,
    /// The columns that it returns.
    pub columns: Arc<[ResultColumn]>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// Whether it reads or writes a table that it names without a keyspace.
    pub depends_on_use: bool,
    /// Whether it names the keyspace of each of its tables, and so is the same whichever is in use. False if that was
    /// not checked.
    pub is_qualified: bool,
    /// The relations of its WHERE; of a BATCH the most that one of its statements has.
    pub relations: usize,
}

fn table_of(name: &ast::QualifiedName, schema: &Schema, keyspace: Option<&str>) -> Result<Arc<Table>, CompileError> {
    let Some(keyspace) = name.keyspace.as_deref().or(keyspace) else {
        return Err(CompileError::invalid(
            "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename",
        ));
    };
    let Some(k) = schema.keyspaces.get(keyspace) else {
        return Err(CompileError::invalid(format!("keyspace {keyspace} does not exist")));
    };
    k.tables
        .get(&name.name)
        .cloned()
        .ok_or_else(|| CompileError::invalid(format!("table {} does not exist", name.name)))
}

/// The table that a SELECT without FROM reads: each node has one row in it.
fn own_table() -> ast::QualifiedName {
    ast::QualifiedName {
        keyspace: Some("system".to_owned()),
        name: "local".to_owned(),
    }
}

/// The relation that chooses the only row of [`own_table`].
fn own_row() -> ast::Relation {
    let key = ast::Literal {
        kind: ast::LiteralKind::String,
        text: "local".to_owned(),
    };
    ast::Relation {
        subject: ast::Subject::Column("key".to_owned()),
        predicate: ast::Predicate::Compare(ast::ComparisonOperator::Equal, ast::Term::Literal(key)),
    }
}

/// Whether a table is in a keyspace that each node has for itself, and that no client writes to.
fn is_of_node(table: &Table) -> bool {
    system_tables::kind(&table.keyspace) == Some(KeyspaceKind::Local)
}

fn writable(m: &Modification, table: &Table) -> Result<(), CompileError> {
    if !is_of_node(table) {
        return Ok(());
    }
    let refused = |what: &str| Err(CompileError::invalid(what));
    let (attributes, is_conditional) = match m {
        Modification::Insert(i) => (&i.attributes, i.if_not_exists),
        Modification::Update(u) => (&u.attributes, !matches!(u.conditions, ast::Conditions::None)),
        Modification::Delete(d) => (&d.attributes, !matches!(d.conditions, ast::Conditions::None)),
    };
    if is_conditional {
        return refused("Conditional updates are not supported by virtual tables");
    }
    if attributes.ttl.is_some() {
        return refused("Expiring columns are not supported by virtual tables");
    }
    if !system_tables::takes_writes(&table.keyspace, &table.name) {
        return refused(&system_tables::modification_unsupported(&table.keyspace, &table.name));
    }
    if attributes.timestamp.is_some() {
        return refused("Custom timestamp is not supported by virtual tables");
    }
    match m {
        Modification::Delete(_) => refused(&format!(
            "Deletion is not supported by table {}.{}",
            table.keyspace, table.name
        )),
        Modification::Insert(_) | Modification::Update(_) => Ok(()),
    }
}

fn is_qualified(statement: &ast::Statement) -> bool {
    let is_named = |table: &ast::QualifiedName| table.keyspace.is_some();
    match statement {
        ast::Statement::Select(s) => s.table.as_ref().is_some_and(is_named),
        ast::Statement::Insert(i) => is_named(&i.table),
        ast::Statement::Update(u) => is_named(&u.table),
        ast::Statement::Delete(d) => is_named(&d.table),
        ast::Statement::Batch(b) => b.statements.iter().all(|m| is_named(table_name_of(m))),
        ast::Statement::Truncate(t) => is_named(&t.table),
        _ => false,
    }
}

fn relations_of(statement: &ast::Statement) -> usize {
    let of_modification = |m: &Modification| match m {
        Modification::Insert(_) => 0,
        Modification::Update(u) => u.relations.len(),
        Modification::Delete(d) => d.relations.len(),
    };
    match statement {
        ast::Statement::Select(s) => s.relations.len(),
        ast::Statement::Update(u) => u.relations.len(),
        ast::Statement::Delete(d) => d.relations.len(),
        ast::Statement::Batch(b) => b.statements.iter().map(of_modification).max().unwrap_or(0),
        _ => 0,
    }
}

const fn table_name_of(m: &Modification) -> &ast::QualifiedName {
    match m {
        Modification::Insert(i) => &i.table,
        Modification::Update(u) => &u.table,
        Modification::Delete(d) => &d.table,
    }
}

fn compile_modification(
    m: &Modification,
    schema: &Schema,
    keyspace: Option<&str>,
    (nulls, markers): (NullRule, &mut Markers),
) -> Result<WritePlan, CompileError> {
    stdx::preempt::point();
    let table = table_of(table_name_of(m), schema, keyspace)?;
    writable(m, &table)?;
    let mut scope = Scope {
        schema,
        keyspace: &table.keyspace,
        table: &table,
        nulls,
        markers,
    };
    match m {
        Modification::Insert(i) => compile_insert(i, &table, &mut scope),
        Modification::Update(u) => compile_update(u, &table, &mut scope),
        Modification::Delete(d) => compile_delete(d, &table, &mut scope),
    }
}

/// Compiles one statement against a schema. Equal names of bind markers are one variable.
///
/// # Errors
/// When the text is not CQL, or does not fit the schema.
pub fn compile(text: &str, schema: &Schema, keyspace: Option<&str>) -> Result<Compiled, CompileError> {
    compile_with(text, schema, keyspace, Dialect::default())
}

/// Compiles one statement, as [`compile`], in that dialect.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(
    text: &str,
    schema: &Schema,
    keyspace: Option<&str>,
    dialect: Dialect,
) -> Result<Compiled, CompileError> {
    let nulls = dialect.nulls;
    let parsed = cql::parse_with(text, dialect.variables).map_err(|e| CompileError::Syntax(e.to_string()))?;
    let mut markers = Markers::new(parsed.bind_markers.len());
    let write = |m: Modification, markers: &mut Markers| {
        let plan = compile_modification(&m, schema, keyspace, (nulls, markers))?;
        let is_virtual = is_of_node(&plan.table);
        let plan = Arc::new(plan);
        Ok::<_, CompileError>(Statement::Plan(if is_virtual {
            Plan::VirtualWrite(plan)
        } else {
            Plan::Write(plan)
        }))
    };
    let is_qualified = is_qualified(&parsed.statement);
    let relations = relations_of(&parsed.statement);
    let depends_on_use = !is_qualified
        && match &parsed.statement {
            ast::Statement::Select(s) => s.table.is_some(),
            ast::Statement::Insert(_) | ast::Statement::Update(_) | ast::Statement::Delete(_) => true,
            _ => false,
        };
    let statement = match parsed.statement {
        ast::Statement::Select(mut s) => {
            let table = match &s.table {
                Some(name) if s.fragments => fragments_table(table_of(name, schema, keyspace)?.as_ref())?,
                Some(name) => table_of(name, schema, keyspace)?,
                None => {
                    s.relations.push(own_row());
                    table_of(&own_table(), schema, None)?
                }
            };
            let mut scope = Scope {
                schema,
                keyspace: match &s.table {
                    Some(_) => &table.keyspace,
                    None => keyspace.unwrap_or(&table.keyspace),
                },
                table: &table,
                nulls,
                markers: &mut markers,
            };
            let mut plan = compile_select(&mut s, &table, &mut scope)?;
            if let Some(name) = s.table.as_ref().filter(|_| s.fragments) {
                if !s.order_by.is_empty() {
                    return Err(CompileError::invalid(
                        "ORDER BY is not supported on MUTATION_FRAGMENTS: fragments come in the order that each source has them in",
                    ));
                }
                plan = plan.of_fragments(table_of(name, schema, keyspace)?);
            }
            Statement::Plan(Plan::Select(Arc::new(plan)))
        }
        ast::Statement::Insert(i) => write(Modification::Insert(i), &mut markers)?,
        ast::Statement::Update(u) => write(Modification::Update(u), &mut markers)?,
        ast::Statement::Delete(d) => write(Modification::Delete(d), &mut markers)?,
        ast::Statement::Batch(b) => {
            let plan = compile_batch(&b, schema, keyspace, (nulls, &mut markers))?;
            Statement::Plan(Plan::Batch(Arc::new(plan)))
        }
        ast::Statement::Truncate(t) => {
            let table = table_of(&t.table, schema, keyspace)?;
            if is_of_node(&table) {
                return Err(CompileError::invalid(format!(
                    "Truncation is not supported by table {}.{}",
                    table.keyspace, table.name
                )));
            }
            let mut scope = Scope {
                schema,
                keyspace: &table.keyspace,
                table: &table,
                nulls,
                markers: &mut markers,
            };
            let timeout = scope.optional(t.timeout.as_ref(), "[timeout]", &CqlType::Duration)?;
            Statement::Truncate(table, timeout)
        }
        ast::Statement::Use(u) => Statement::Use(u.keyspace),
        ast::Statement::Describe(d) => Statement::Describe(d),
        other => Statement::Ddl(Box::new(other)),
    };
    let mut columns: Arc<[ResultColumn]> = Arc::default();
    let mut warnings = Vec::new();
    let (table, key_markers) = match &statement {
        Statement::Plan(Plan::Select(select)) => {
            columns = select.selection.columns.clone();
            warnings.extend(warning(select).map(str::to_owned));
            (Some(select.table.clone()), select.key_markers())
        }
        Statement::Plan(Plan::Write(write)) => (Some(write.table.clone()), write.key_markers()),
        // Every node has rows of its own: no key says which node to ask.
        Statement::Plan(Plan::VirtualWrite(write)) => (Some(write.table.clone()), KeyMarkers::new()),
        Statement::Plan(Plan::Batch(batch)) => match batch.writes.first() {
            Some(first) => (Some(first.table.clone()), key_markers_of(batch)),
            None => (None, KeyMarkers::new()),
        },
        Statement::Truncate(..) | Statement::Use(_) | Statement::Ddl(_) | Statement::Describe(_) => {
            (None, KeyMarkers::new())
        }
    };
    Ok(Compiled {
        statement: Arc::new(statement),
        markers: markers.finish()?,
        key_markers,
        table,
        columns,
        warnings,
        depends_on_use,
        is_qualified,
        relations,
    })
}

/// The markers of the partition key of a BATCH: those of its last statement that has some, as Cassandra reports them to
/// drivers; none when the statements are of several tables or the BATCH has markers of its own.
fn key_markers_of(batch: &BatchPlan) -> KeyMarkers {
    let (first, own) = (&batch.writes[0], batch.timestamp.iter().chain(&batch.timeout));
    let is_of_one = batch.writes.iter().all(|write| write.table.id == first.table.id);
    if !is_of_one || own.into_iter().any(|operand| matches!(operand, Operand::Marker { .. })) {
        return KeyMarkers::new();
    }
    let markers = batch.writes.iter().rev().map(|write| write.key_markers());
    markers
        .into_iter()
        .find(|markers| !markers.is_empty())
        .unwrap_or_default()
}

/// Compiles a BATCH.
fn compile_batch(
    batch: &ast::Batch,
    schema: &Schema,
    keyspace: Option<&str>,
    (nulls, markers): (NullRule, &mut Markers),
) -> Result<BatchPlan, CompileError> {
    let attributes = &batch.attributes;
    let mut writes = Vec::new();
    for m in &batch.statements {
        let name = table_name_of(m);
        if let Some(keyspace) = name.keyspace.as_deref().or(keyspace) {
            markers.begin_table(keyspace, &name.name);
        }
        let plan = compile_modification(m, schema, keyspace, (nulls, &mut *markers))?;
        if is_of_node(&plan.table) {
            return Err(CompileError::invalid(match batch.kind {
                ast::BatchKind::Logged => "Cannot include a virtual table statement in a logged batch",
                ast::BatchKind::Unlogged | ast::BatchKind::Counter => {
                    "Cannot include a virtual table statement in a batch"
                }
            }));
        }
        if attributes.timestamp.is_some() && plan.has_timestamp() {
            return Err(CompileError::invalid(
                "Timestamp must be set either on BATCH or individual statements",
            ));
        }
        writes.push(Arc::new(plan));
    }
    let kind = match batch.kind {
        ast::BatchKind::Logged => BatchKind::Logged,
        ast::BatchKind::Unlogged => BatchKind::Unlogged,
        ast::BatchKind::Counter => BatchKind::Counter,
    };
    BatchPlan::check(kind, writes.iter().map(|w| &**w), attributes.timestamp.is_some())?;
    if attributes.ttl.is_some() {
        return Err(CompileError::invalid(
            "Global TTL on the BATCH statement is not supported.",
        ));
    }
    if attributes.timestamp.is_some() && writes.iter().any(|w: &Arc<WritePlan>| w.is_conditional()) {
        return Err(CompileError::invalid(
            "Cannot provide custom timestamp for conditional BATCH",
        ));
    }
    let (mut timestamp, mut timeout) = (None, None);
    if let Some(first) = writes.first() {
        let table = first.table.clone();
        markers.begin_table("[batch]", "[batch]");
        let mut scope = Scope {
            schema,
            keyspace: &table.keyspace,
            table: &table,
            nulls,
            markers,
        };
        timestamp = scope.optional(attributes.timestamp.as_ref(), "[timestamp]", &CqlType::BigInt)?;
        timeout = scope.optional(attributes.timeout.as_ref(), "[timeout]", &CqlType::Duration)?;
    }
    Ok(BatchPlan {
        kind,
        timestamp,
        timeout,
        writes: writes.into(),
    })
}

/// Which statements are point reads: those that memory answers in one call.
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plan::{Execution, OwnedBound};
    use uuid::Uuid;

    use super::*;
    use crate::{DdlContext, compile_ddl};

    fn schema() -> Schema {
        let mut schema = Schema {
            version: Uuid::nil(),
            keyspaces: BTreeMap::new(),
        };
        for (number, text) in [
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE ks.t (k int, c int, v int, w text, l list<int>, s int static, PRIMARY KEY (k, c))",
            "CREATE TABLE ks.n (k int, c int, n counter, m counter, s counter static, PRIMARY KEY (k, c))",
            "CREATE TABLE ks.ts (k int, at timestamp, v timestamp, PRIMARY KEY (k, at))",
        ]
        .iter()
        .enumerate()
        {
            let statement = cql::parse(text).expect("the test's statements are CQL").statement;
            let ctx = DdlContext {
                keyspace: None,
                now_us: 1,
            };
            let definition = compile_ddl(&schema, &statement, &ctx).expect(text);
            let ctx = ddl::Context {
                new_id: Uuid::from_u128(number as u128 + 1),
                nodes: &BTreeMap::from([("datacenter1".to_owned(), 1)]),
                has_functions: true,
                racks: &BTreeMap::new(),
                lists_racks: false,
            };
            let changed = ddl::apply(&schema, &definition.expect("it asks for something"), &ctx).expect(text);
            schema = changed.expect("it changes something").schema;
        }
        schema
    }

    fn compiled(text: &str) -> Result<Compiled, CompileError> {
        compile(text, &schema(), Some("ks"))
    }

    #[test]
    fn markers_of_a_batch_tell_their_tables_and_the_key_of_its_last_statement() {
        let insert = "INSERT INTO t (k, c) VALUES (?, ?)";
        let update = "UPDATE t SET v = ? WHERE k = ? AND c = 1";
        let of = |text: &str| {
            let found = compiled(text).expect(text);
            let tables = found
                .markers
                .iter()
                .map(|marker| marker.of.as_ref().map(|(_, table)| table.to_string()));
            (
                tables.collect::<Option<Vec<_>>>().unwrap_or_default(),
                found.key_markers.to_vec(),
            )
        };
        let t = || "t".to_owned();
        assert_eq!(of(insert), (Vec::new(), vec![0]), "a statement alone has one table");
        assert_eq!(
            of(&format!("BEGIN BATCH {insert}; {update}; APPLY BATCH")),
            (vec![t(); 4], vec![3])
        );
        assert_eq!(
            of(&format!("BEGIN BATCH USING TIMESTAMP ? {insert}; APPLY BATCH")),
            (vec!["[batch]".to_owned(), t(), t()], Vec::new())
        );
        let counters = "BEGIN COUNTER BATCH UPDATE n SET n = n + ? WHERE k = ? AND c = 1; UPDATE n SET m = m + 1 WHERE k = 1 AND c = ?; APPLY BATCH";
        assert_eq!(
            of(counters).1,
            vec![1],
            "the last statement that has markers for the whole key"
        );
        assert_eq!(
            of("SELECT v FROM t WHERE k IN (?)").1,
            vec![0],
            "one value is one partition"
        );
        assert!(of("SELECT v FROM t WHERE k IN (?, ?)").1.is_empty());
    }

    #[test]
    fn rows_are_grouped_by_a_function_that_grows_with_the_last_column() {
        let refused = |group: &str, words: &str| {
            let error = compiled(&format!("SELECT k FROM ts GROUP BY {group}")).expect_err(group);
            assert!(error.to_string().contains(words), "{group}: {error}");
        };
        for group in [
            "k, floor(at, 1h)",
            "k, floor(floor(at, 1h), 1d)",
            "k, to_date(at), floor(at, 1d)",
        ] {
            let plan = compiled(&format!("SELECT k FROM ts GROUP BY {group}"));
            assert_eq!(plan.is_ok(), !group.contains("to_date"), "{group}");
        }
        refused("k, to_date(at), at", "only supported on the last element");
        refused("k, mintimeuuid(at)", "Only monotonic functions");
        refused("k, floor(at, 1d, at)", "Only monotonic functions");
        refused("k, max(at)", "Aggregate functions are not supported");
        refused("k, now()", "must have one clustering column");
        refused("k, floor(v, 1d)", "only supported on clustering columns, got v");
        refused("k, cast(at AS date)", "GROUP BY takes columns");
        refused("floor(at, 1d)", "declared order");
    }

    #[test]
    fn a_statement_depends_on_use_when_its_table_has_no_keyspace() {
        for (text, depends) in [
            ("SELECT v FROM t", true),
            ("SELECT v FROM ks.t", false),
            ("INSERT INTO t (k, c) VALUES (1, 1)", true),
            ("DELETE FROM ks.t WHERE k = 1", false),
            ("UPDATE t SET v = 1 WHERE k = 1 AND c = 1", true),
            ("USE ks", false),
        ] {
            assert_eq!(compiled(text).expect(text).depends_on_use, depends, "{text}");
        }
    }

    #[test]
    fn a_statement_is_qualified_when_each_of_its_tables_has_a_keyspace() {
        for (text, qualified) in [
            ("SELECT v FROM t", false),
            ("SELECT v FROM ks.t", true),
            ("INSERT INTO ks.t (k, c) VALUES (1, 1)", true),
            (
                "BEGIN BATCH DELETE FROM ks.t WHERE k = 1; UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 1; APPLY BATCH",
                true,
            ),
            (
                "BEGIN BATCH DELETE FROM ks.t WHERE k = 1; UPDATE t SET v = 1 WHERE k = 1 AND c = 1; APPLY BATCH",
                false,
            ),
            ("TRUNCATE ks.t", true),
            ("TRUNCATE t", false),
            ("DROP TABLE ks.t", false),
            ("USE ks", false),
        ] {
            assert_eq!(compiled(text).expect(text).is_qualified, qualified, "{text}");
        }
    }

    #[test]
    fn a_row_named_by_its_whole_key_is_read_in_one_call_unless_a_static_column_is_asked_for() {
        let schema = schema();
        for (text, expected) in [
            ("SELECT v, w, k, c FROM ks.t WHERE k = 1 AND c = 2", true),
            ("SELECT v FROM ks.t WHERE k = ? AND c = ?", true),
            ("SELECT v, l FROM ks.t WHERE k = 1 AND c = 2", true),
            ("SELECT v, s FROM ks.t WHERE k = 1 AND c = 2", false),
            ("SELECT v FROM ks.t WHERE k = 1", false),
            ("SELECT v FROM ks.t WHERE k = 1 AND c IN (1, 2)", false),
            ("SELECT writetime(v) FROM ks.t WHERE k = 1 AND c = 2", false),
            ("SELECT sum(v) FROM ks.t WHERE k = 1 AND c = 2", false),
            ("SELECT n, k, m FROM ks.n WHERE k = 1 AND c = 2", true),
            ("SELECT n, s FROM ks.n WHERE k = 1 AND c = 2", false),
            ("SELECT n FROM ks.n WHERE k = 1", false),
            (
                "SELECT n FROM ks.n WHERE k = 1 AND c = 2 AND m = 3 ALLOW FILTERING",
                false,
            ),
            ("SELECT writetime(n) FROM ks.n WHERE k = 1 AND c = 2", false),
        ] {
            let compiled = compile(text, &schema, None).unwrap_or_else(|e| panic!("{text}: {e}"));
            let Statement::Plan(Plan::Select(select)) = &*compiled.statement else {
                panic!("{text} is a SELECT")
            };
            assert_eq!(select.is_point(), expected, "{text}");
        }
    }

    #[test]
    fn a_row_comes_as_json_in_the_statement_or_bound() {
        let schema = schema();
        for (text, refusal) in [
            (
                r#"INSERT INTO ks.t JSON '{"k": 1, "c": 2, "L": [1], "\"v\"": null}'"#,
                None,
            ),
            (
                r#"INSERT INTO ks.t JSON '{"k": 1, "c": 2, "x": 1}'"#,
                Some("JSON values map contains unrecognized column: x"),
            ),
            (
                r#"INSERT INTO ks.t JSON '{"k": 1, "c": 2, "\"K\"": 1}'"#,
                Some("JSON values map contains unrecognized column: K"),
            ),
            (
                r#"INSERT INTO ks.t JSON '{"k": 1, "s": 1}' DEFAULT UNSET"#,
                Some("Invalid unset value for column c"),
            ),
            ("INSERT INTO ks.t JSON 'null'", Some("Got null for INSERT JSON values")),
            (
                r#"INSERT INTO ks.n JSON '{"k": 1, "c": 1}'"#,
                Some("INSERT statements are not allowed on counter tables, use UPDATE instead"),
            ),
        ] {
            let refused = compile(text, &schema, None).err().map(|e| e.to_string());
            assert_eq!(refused.as_deref(), refusal, "{text}");
        }
        let compiled = compile("INSERT INTO ks.t JSON ? DEFAULT UNSET USING TTL ?", &schema, None).expect("it is CQL");
        let names: Vec<_> = compiled.markers.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names, ["[json]", "[ttl]"]);
        assert!(compiled.key_markers.is_empty(), "the key is inside the text");
        let Statement::Plan(Plan::Write(write)) = &*compiled.statement else {
            panic!("it is a write")
        };
        let run = |text: OwnedBound| Execution {
            values: vec![text, OwnedBound::Value(vec![0, 0, 0, 9])],
            now_us: 0,
            now_in_seconds: None,
            random: 0,
        };
        let one = run(OwnedBound::Value(br#"{"c": 2, "k": 1, "v": null, "k": 3}"#.to_vec()));
        let read = write.read_json(&one).expect("it is a row").into_owned();
        let int = |n: i32| OwnedBound::Value(n.to_be_bytes().to_vec());
        let of_column = |name: &str| {
            let at = write
                .table
                .columns
                .iter()
                .position(|c| c.name == name)
                .expect("it is a column");
            read.values[2 + at].clone()
        };
        assert_eq!(of_column("k"), int(3), "the last of two counts");
        assert_eq!(of_column("c"), int(2));
        assert_eq!(of_column("v"), OwnedBound::Null);
        assert_eq!(of_column("w"), OwnedBound::Unset);
        let refused = write
            .read_json(&run(OwnedBound::Null))
            .map(drop)
            .map_err(|e| e.to_string());
        assert_eq!(refused, Err("Got null for INSERT JSON values".to_owned()));
    }

    #[test]
    fn relations_on_one_column_go_together_only_as_bounds_and_searches() {
        let schema = schema();
        for (relations, refusal) in [
            ("v > 1 AND v <= 5", None),
            ("l CONTAINS 1 AND l CONTAINS 2", None),
            (
                "v > 1 AND v > 2",
                Some("More than one restriction was found for the start bound on v"),
            ),
            (
                "v < 1 AND v <= 2",
                Some("More than one restriction was found for the end bound on v"),
            ),
            (
                "v = 1 AND v > 0",
                Some("v cannot be restricted by more than one relation if it includes an Equal"),
            ),
            (
                "v IN (1, 2) AND v = 1",
                Some("v cannot be restricted by more than one relation if it includes a IN"),
            ),
            (
                "v > 1 AND v = 1",
                Some("Column \"v\" cannot be restricted by both an equality and an inequality relation"),
            ),
            ("v BETWEEN 1 AND 2", None),
            (
                "v BETWEEN 1 AND 2 AND v > 0",
                Some("More than one restriction was found for the start bound on v"),
            ),
            ("l NOT CONTAINS 1 AND l CONTAINS 2", None),
            ("v != 1 AND v NOT IN (2, 3) AND v > 0 AND v IS NOT NULL", None),
            ("v != null", Some("Unsupported null value for column v")),
            ("c NOT IN (1) AND k != 1 AND w LIKE 'a%'", None),
            (
                "v LIKE 'a%'",
                Some("LIKE is allowed only on text and ascii columns, which v of type int is not"),
            ),
            (
                "v NOT CONTAINS 1",
                Some("Cannot use NOT CONTAINS on non-collection column v"),
            ),
            (
                "l NOT CONTAINS KEY 1",
                Some("Cannot use NOT CONTAINS KEY on non-map column l"),
            ),
        ] {
            let text = format!("SELECT k FROM ks.t WHERE {relations} ALLOW FILTERING");
            let refused = compile(&text, &schema, None).err().map(|e| e.to_string());
            assert_eq!(refused.as_deref(), refusal, "{text}");
        }
    }
}
