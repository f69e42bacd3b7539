//! Text to plan.

use std::sync::Arc;

use cql::ast::{self, BatchKind, Modification, Statement};
use schema::{Schema, Table};

use crate::bind::MarkerSpec;
use crate::restrict::Scope;
use crate::select::{SelectPlan, Source, compile_select};
use crate::term::{Markers, Operand};
use crate::write::{WritePlan, compile_delete, compile_insert, compile_update};
use crate::{QueryError, ResultColumn, system};

/// A compiled statement.
#[derive(Debug)]
pub enum Plan {
    /// Reads.
    Select(Box<SelectPlan>),
    /// Writes.
    Write(Arc<WritePlan>),
    /// Several writes.
    Batch(BatchPlan),
    /// Empties a table.
    Truncate(Arc<Table>),
    /// Changes the connection's keyspace.
    Use(String),
    /// Changes the schema.
    Ddl(Box<Statement>),
    /// Describes the schema.
    Describe(ast::Describe),
}

/// A compiled BATCH.
#[derive(Debug)]
pub struct BatchPlan {
    /// Whether it counts all or not at all, or adds to counters.
    pub kind: BatchKind,
    pub(crate) timestamp: Option<Operand>,
    pub(crate) writes: Vec<Arc<WritePlan>>,
}

impl Plan {
    /// Whether it is written only if a condition holds.
    pub fn is_conditional(&self) -> bool {
        match self {
            Self::Write(w) => w.is_conditional(),
            Self::Batch(b) => b.writes.iter().any(|w| w.is_conditional()),
            _ => false,
        }
    }
}

/// What compilation finds out.
#[derive(Debug)]
pub struct Compiled {
    /// The plan.
    pub plan: Arc<Plan>,
    /// What its markers stand for.
    pub markers: Vec<MarkerSpec>,
    /// For each partition key column the marker that it is compared with, when all have one.
    pub key_markers: Vec<u16>,
    /// The table that it is about, if one.
    pub table: Option<Arc<Table>>,
    /// The columns that it returns.
    pub columns: Arc<[ResultColumn]>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

fn table_of(name: &ast::QualifiedName, schema: &Schema, keyspace: Option<&str>) -> Result<Arc<Table>, QueryError> {
    let Some(keyspace) = name.keyspace.as_deref().or(keyspace) else {
        return Err(QueryError::invalid(
            "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename",
        ));
    };
    let Some(k) = schema.keyspaces.get(keyspace) else {
        return Err(QueryError::invalid(format!("keyspace {keyspace} does not exist")));
    };
    k.tables
        .get(&name.name)
        .cloned()
        .ok_or_else(|| QueryError::invalid(format!("table {} does not exist", name.name)))
}

fn writable(table: &Table) -> Result<(), QueryError> {
    if system::is_virtual(table.id) {
        return Err(QueryError::invalid(format!(
            "Modification is not supported by table {}.{}",
            table.keyspace, table.name
        )));
    }
    Ok(())
}

fn compile_modification(
    m: &Modification,
    schema: &Schema,
    keyspace: Option<&str>,
    markers: &mut Markers,
) -> Result<WritePlan, QueryError> {
    let name = match m {
        Modification::Insert(i) => &i.table,
        Modification::Update(u) => &u.table,
        Modification::Delete(d) => &d.table,
    };
    let table = table_of(name, schema, keyspace)?;
    writable(&table)?;
    let mut scope = Scope {
        schema,
        keyspace: &table.keyspace,
        table: &table,
        markers,
    };
    match m {
        Modification::Insert(i) => compile_insert(i, &table, &mut scope),
        Modification::Update(u) => compile_update(u, &table, &mut scope),
        Modification::Delete(d) => compile_delete(d, &table, &mut scope),
    }
}

/// Compiles one statement against a schema.
pub fn compile(text: &str, schema: &Schema, keyspace: Option<&str>) -> Result<Compiled, QueryError> {
    let parsed = cql::parse(text).map_err(|e| QueryError::Syntax(e.to_string()))?;
    let mut markers = Markers::new(parsed.bind_markers.len());
    let mut columns: Arc<[ResultColumn]> = Arc::from([]);
    let mut about = None;
    let mut key_markers = Vec::new();
    let mut warnings = Vec::new();
    let plan = match parsed.statement {
        Statement::Select(s) => {
            let table = table_of(&s.table, schema, keyspace)?;
            let mut scope = Scope {
                schema,
                keyspace: &table.keyspace,
                table: &table,
                markers: &mut markers,
            };
            let mut plan = compile_select(&s, &table, &mut scope)?;
            plan.source = plan.is_mergeable().then(|| Source {
                text: text.to_owned(),
                keyspace: keyspace.map(str::to_owned),
                schema_version: schema.version,
            });
            columns = plan.selection.columns.clone().into();
            key_markers = plan.key_markers();
            warnings.extend(plan.warning().map(str::to_owned));
            about = Some(table);
            Plan::Select(Box::new(plan))
        }
        Statement::Insert(i) => write_plan(
            Modification::Insert(i),
            schema,
            keyspace,
            &mut markers,
            &mut key_markers,
            &mut about,
        )?,
        Statement::Update(u) => write_plan(
            Modification::Update(u),
            schema,
            keyspace,
            &mut markers,
            &mut key_markers,
            &mut about,
        )?,
        Statement::Delete(d) => write_plan(
            Modification::Delete(d),
            schema,
            keyspace,
            &mut markers,
            &mut key_markers,
            &mut about,
        )?,
        Statement::Batch(b) => {
            let mut writes = Vec::new();
            for m in &b.statements {
                let plan = compile_modification(m, schema, keyspace, &mut markers)?;
                if b.attributes.timestamp.is_some() && plan.timestamp.is_some() {
                    return Err(QueryError::invalid(
                        "Timestamp must be set either on BATCH or individual statements",
                    ));
                }
                if about.is_none() {
                    about = Some(plan.table.clone());
                    key_markers = plan.key_markers();
                }
                writes.push(Arc::new(plan));
            }
            check_batch(b.kind, writes.iter().map(|w| &**w), b.attributes.timestamp.is_some())?;
            if b.attributes.ttl.is_some() {
                return Err(QueryError::invalid(
                    "Global TTL on the BATCH statement is not supported.",
                ));
            }
            if b.attributes.timestamp.is_some() && writes.iter().any(|w: &Arc<WritePlan>| w.is_conditional()) {
                return Err(QueryError::invalid(
                    "Cannot provide custom timestamp for conditional BATCH",
                ));
            }
            let timestamp = match (&b.attributes.timestamp, &about) {
                (Some(t), Some(table)) => {
                    let mut scope = Scope {
                        schema,
                        keyspace: &table.keyspace,
                        table,
                        markers: &mut markers,
                    };
                    Some(scope.term(t, "[timestamp]", &types::CqlType::BigInt)?)
                }
                _ => None,
            };
            Plan::Batch(BatchPlan {
                kind: b.kind,
                timestamp,
                writes,
            })
        }
        Statement::Truncate(t) => {
            let table = table_of(&t.table, schema, keyspace)?;
            if system::is_virtual(table.id) {
                return Err(QueryError::invalid("Cannot truncate virtual tables"));
            }
            Plan::Truncate(table)
        }
        Statement::Use(u) => Plan::Use(u.keyspace),
        Statement::Describe(d) => Plan::Describe(d),
        other => Plan::Ddl(Box::new(other)),
    };
    Ok(Compiled {
        plan: Arc::new(plan),
        markers: markers.finish()?,
        key_markers,
        table: about,
        columns,
        warnings,
    })
}

/// What a batch may hold.
///
/// # Errors
/// When additions to counters stand among other writes, or where they may not.
pub fn check_batch<'p>(
    kind: BatchKind,
    writes: impl Iterator<Item = &'p WritePlan>,
    has_timestamp: bool,
) -> Result<(), QueryError> {
    let (mut counters, mut others) = (false, false);
    for plan in writes {
        match plan.table.is_counter() {
            true => counters = true,
            false => others = true,
        }
    }
    let why = if kind == BatchKind::Counter && has_timestamp {
        "Cannot provide custom timestamp for counter BATCH"
    } else if counters && has_timestamp {
        "Cannot provide custom timestamp for a BATCH containing counters"
    } else if kind == BatchKind::Counter && others {
        "Cannot include non-counter statement in a counter batch"
    } else if counters && others {
        "Counter and non-counter mutations cannot exist in the same batch"
    } else if kind == BatchKind::Logged && counters {
        "Cannot include a counter statement in a logged batch"
    } else {
        return Ok(());
    };
    Err(QueryError::invalid(why))
}

fn write_plan(
    m: Modification,
    schema: &Schema,
    keyspace: Option<&str>,
    markers: &mut Markers,
    key_markers: &mut Vec<u16>,
    about: &mut Option<Arc<Table>>,
) -> Result<Plan, QueryError> {
    let plan = compile_modification(&m, schema, keyspace, markers)?;
    *key_markers = plan.key_markers();
    *about = Some(plan.table.clone());
    Ok(Plan::Write(Arc::new(plan)))
}

/// Which statements are point reads: those that memory answers in one call.
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use uuid::Uuid;

    use super::*;
    use crate::ddl::{self, DdlContext};

    fn schema() -> Schema {
        let mut schema = Schema {
            version: Uuid::nil(),
            keyspaces: BTreeMap::new(),
        };
        for (number, text) in [
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE ks.t (k int, c int, v int, w text, l list<int>, s int static, PRIMARY KEY (k, c))",
            "CREATE TABLE ks.n (k int, c int, n counter, m counter, s counter static, PRIMARY KEY (k, c))",
        ]
        .iter()
        .enumerate()
        {
            let statement = cql::parse(text).expect("the test's statements are CQL").statement;
            let ctx = DdlContext {
                keyspace: None,
                now_us: 1,
                new_id: Uuid::from_u128(number as u128 + 1),
                nodes: &BTreeMap::from([("datacenter1".to_owned(), 1)]),
            };
            let changed = ddl::apply(&schema, &statement, &ctx).expect(text);
            schema = changed.expect("it changes something").schema;
        }
        schema
    }

    #[test]
    fn a_row_named_by_its_whole_key_is_read_in_one_call_whatever_single_values_are_asked_for() {
        let schema = schema();
        for (text, expected) in [
            ("SELECT v, w, k, c FROM ks.t WHERE k = 1 AND c = 2", true),
            ("SELECT v FROM ks.t WHERE k = ? AND c = ?", true),
            ("SELECT v, l FROM ks.t WHERE k = 1 AND c = 2", false),
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
            let Plan::Select(select) = &*compiled.plan else {
                panic!("{text} is a SELECT")
            };
            assert_eq!(select.is_point(), expected, "{text}");
        }
    }
}
