//! Prepared statements: compiled once a shard, known to the whole node by their text.
//!
//! An id is the MD5 of keyspace and text, as Cassandra's, unless equal names are several variables. Where the text
//! names the keyspace of each of its tables it is the MD5 of the text alone: a driver that prepares again on a
//! connection that uses another keyspace expects the id that it had. The node keeps texts by id; a shard that meets an
//! id for the first time, or after the schema changed, compiles it. Both caches are bounded: when full, a shard drops a
//! statement that no client executes, and the node drops the text that was used longest ago; their users are asked to
//! prepare again.
//!
//! Users are also asked to prepare again when a change of the schema has changed the types of the parameters or the
//! columns of the result: a client encodes values, and before version 5 of the protocol decodes rows, by what PREPARE
//! returned. The id stays the same, so the node cannot distinguish a client that has prepared again from one that has
//! not: results of such a statement come with their metadata from then on, whatever a client of an older version asks
//! for.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use cql::Variables;
use cql_compiler::{MarkerSpec, Statement, compile_with};
use plan::restrict::KeyMarkers;
use plan::{Plan, ResultColumn};
use schema::{Schema, Table};
use stdx::preempt;
use types::CqlType;
use types::token::murmur3_x64_128;

use super::Engine;
use crate::QueryError;

/// Prepared statements that a node remembers.
const STATEMENTS_MAX: usize = 10_000;

/// How often a statement is compiled at most until it is ready. It is compiled again if the schema or the guardrails
/// changed during the compilation; nothing else runs during the last one.
const COMPILATIONS_MAX: u32 = 4;

/// MD5 of keyspace and text.
pub type PreparedId = [u8; 16];

/// The id of what is not prepared.
pub const UNPREPARED: PreparedId = [0; 16];

/// A statement that is ready to be executed on this shard.
#[derive(Debug)]
pub struct Prepared {
    /// Its id; of a statement that is executed once, [`UNPREPARED`].
    pub id: PreparedId,
    /// As the client wrote it.
    pub text: Arc<str>,
    /// Names the result's metadata: changes when its columns do.
    pub metadata_id: [u8; 16],
    /// What is executed.
    pub statement: Arc<Statement>,
    /// What its markers mean.
    pub markers: Vec<MarkerSpec>,
    /// For each partition key column its marker, when all have one.
    pub key_markers: KeyMarkers,
    /// The table that it is about, if one.
    pub table: Option<Arc<Table>>,
    /// The columns that it returns.
    pub columns: Arc<[ResultColumn]>,
    /// Whether clients may hold metadata of its result that is no longer true.
    pub was_altered: bool,
    /// Whether each execution has to be checked by [`Engine::guard`] first, so that none is answered in one call.
    pub is_guarded: bool,
    /// Whether one of its values may have many elements, so that long values take long to go through.
    pub takes_elements: bool,
    /// Whether it names its table without a keyspace.
    pub depends_on_use: bool,
    /// Whether it is the same whichever keyspace is used.
    pub is_qualified: bool,
    /// What the user should know whenever it is executed.
    pub warnings: Vec<String>,
    /// What a server keeps with the statement, such as its encoded metadata.
    pub attachment: OnceCell<Box<dyn Any>>,
    /// Whether a client has executed it since it was last looked at to be forgotten.
    was_used: Cell<bool>,
}

impl Prepared {
    /// Its plan, when it reads or writes.
    #[inline]
    pub fn plan(&self) -> Option<&Plan> {
        self.statement.plan()
    }

    /// Whether it writes only if a condition holds.
    #[inline]
    pub fn is_conditional(&self) -> bool {
        self.statement.is_conditional()
    }
}

/// Whether a value may have many elements: of a collection, or of a row as JSON.
fn takes_elements(statement: &Statement, markers: &[MarkerSpec]) -> bool {
    let is_of_json = matches!(statement.plan(), Some(Plan::Write(write)) if write.is_of_json());
    is_of_json || markers.iter().any(|marker| marker.cql_type.has_elements())
}

#[derive(Debug, Clone)]
struct Text {
    text: Arc<str>,
    keyspace: Option<Arc<str>>,
    used: u64,
    /// That of the last PREPARE.
    metadata_id: [u8; 16],
    /// Names the parameters of the last PREPARE and their types.
    parameters_id: [u8; 16],
    /// Whether an earlier PREPARE had another.
    was_altered: bool,
}

#[derive(Debug, Default)]
struct Texts {
    by_id: HashMap<PreparedId, Text, foldhash::fast::FixedState>,
    /// The ids by [`Text::used`]: the first is that of the text used longest ago.
    by_use: BTreeMap<u64, PreparedId>,
    uses: u64,
}

impl Texts {
    /// The number of the use that happens now; that of the former use, if there was one, is free.
    fn next_use(&mut self, id: &PreparedId, former: Option<u64>) -> u64 {
        if let Some(former) = former {
            self.by_use.remove(&former);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, *id);
        self.uses
    }
}

/// The texts of a node's prepared statements, shared by its shards.
#[derive(Debug, Default)]
pub struct SharedStatements(Mutex<Texts>);

impl SharedStatements {
    /// Remembers what a client prepares; whether it had another result when it was prepared before.
    fn remember(&self, prepared: &Prepared, keyspace: Option<&str>) -> bool {
        let mut texts = self.0.lock().expect("no thread panics while holding the statements");
        let known = texts.by_id.get(&prepared.id);
        let was_altered = known.is_some_and(|t| t.was_altered || t.metadata_id != prepared.metadata_id);
        let former = known.map(|t| t.used);
        let used = texts.next_use(&prepared.id, former);
        texts.by_id.insert(
            prepared.id,
            Text {
                text: prepared.text.clone(),
                keyspace: keyspace.map(Into::into),
                used,
                metadata_id: prepared.metadata_id,
                parameters_id: parameters_id(prepared),
                was_altered,
            },
        );
        if texts.by_id.len() > STATEMENTS_MAX
            && let Some((_, oldest)) = texts.by_use.pop_first()
        {
            texts.by_id.remove(&oldest);
        }
        was_altered
    }

    fn find(&self, id: &PreparedId) -> Option<Text> {
        let mut texts = self.0.lock().expect("no thread panics while holding the statements");
        let former = texts.by_id.get(id)?.used;
        let used = texts.next_use(id, Some(former));
        let text = texts.by_id.get_mut(id)?;
        text.used = used;
        Some(text.clone())
    }
}

/// One shard's compiled statements: [`STATEMENTS_MAX`] at the most. Each new one replaces one that no client has
/// executed for a while (CLOCK): statements that clients prepare and never execute push out one another.
#[derive(Debug, Default)]
pub(super) struct Cache(RefCell<Compiled>);

#[derive(Debug, Default)]
struct Compiled {
    by_id: HashMap<PreparedId, Rc<Prepared>, foldhash::fast::FixedState>,
    /// The ids of all, in the order in which they are looked at when one has to go.
    clock: VecDeque<PreparedId>,
}

impl Cache {
    pub(super) fn clear(&self) {
        let mut compiled = self.0.borrow_mut();
        compiled.by_id.clear();
        compiled.clock.clear();
    }

    #[inline]
    fn get(&self, id: &PreparedId) -> Option<Rc<Prepared>> {
        self.0.borrow().by_id.get(id).cloned()
    }

    fn insert(&self, prepared: Rc<Prepared>) {
        let mut compiled = self.0.borrow_mut();
        let id = prepared.id;
        if compiled.by_id.insert(id, prepared).is_some() {
            return;
        }
        if compiled.by_id.len() > STATEMENTS_MAX {
            compiled.forget_one();
        }
        compiled.clock.push_back(id);
    }
}

impl Compiled {
    /// Ends: what it passes over counts as unused afterwards.
    fn forget_one(&mut self) {
        while let Some(id) = self.clock.pop_front() {
            match self.by_id.get(&id) {
                Some(prepared) if prepared.was_used.take() => self.clock.push_back(id),
                _ => {
                    self.by_id.remove(&id);
                    return;
                }
            }
        }
    }
}

fn id_of(text: &str, keyspace: Option<&str>, variables: Variables) -> PreparedId {
    let mut named = md5::Context::new();
    named.consume(keyspace.unwrap_or(""));
    named.consume(text);
    // A node that reads the text otherwise must not take the statement for its own.
    if variables == Variables::ByPlace {
        named.consume("\0");
    }
    named.finalize().0
}

/// The id of the result's metadata. All nodes make the same of the columns: where one of another release does not,
/// results come with metadata that clients have.
fn metadata_id(columns: &[ResultColumn]) -> [u8; 16] {
    types_id(columns.iter().map(|c| (c.name.as_str(), &c.cql_type)))
}

/// The id of the parameters' metadata. It never leaves the node.
fn parameters_id(prepared: &Prepared) -> [u8; 16] {
    types_id(prepared.markers.iter().map(|m| (m.name.as_str(), &m.cql_type)))
}

/// The Murmur3 hash of names and types.
fn types_id<'c>(columns: impl Iterator<Item = (&'c str, &'c CqlType)>) -> [u8; 16] {
    let mut text = String::new();
    for (name, cql_type) in columns {
        text.push_str(name);
        text.push('\0');
        match cql_type.native_name() {
            Some(name) => text.push_str(name),
            // The name of a type has no fields, which are part of the metadata too.
            None if cql_type.has_fields() => text.push_str(&cql_type.marshal_name()),
            None => write!(text, "{cql_type}").expect("a string takes everything"),
        }
        text.push('\0');
    }
    let (first, second) = murmur3_x64_128(text.as_bytes(), 0);
    (u128::from(first) << 64 | u128::from(second)).to_be_bytes()
}

impl Engine {
    /// Compiles a statement by the schema and the guardrails of the moment at which this ends: it may be preempted.
    fn compiled(&self, id: PreparedId, text: Arc<str>, keyspace: Option<&str>) -> Result<Prepared, QueryError> {
        for _ in 1..COMPILATIONS_MAX {
            let (schema, guardrails) = (self.schema(), self.guardrails());
            let compiled = self.compiled_by(&schema, id, text.clone(), keyspace);
            if Arc::ptr_eq(&schema, &self.schema()) && Rc::ptr_eq(&guardrails, &self.guardrails()) {
                return compiled;
            }
        }
        preempt::offer(None, || self.compiled_by(&self.schema(), id, text, keyspace))
    }

    fn compiled_by(
        &self,
        schema: &Schema,
        id: PreparedId,
        text: Arc<str>,
        keyspace: Option<&str>,
    ) -> Result<Prepared, QueryError> {
        let guardrails = self.guardrails();
        let c = preempt::allowed(|| compile_with(&text, schema, keyspace, self.dialect.get()))?;
        guardrails.check_relations(c.relations)?;
        guardrails.check_text(&c.statement)?;
        Ok(Prepared {
            id,
            is_guarded: guardrails.watches(&c.statement),
            text,
            metadata_id: metadata_id(&c.columns),
            takes_elements: takes_elements(&c.statement, &c.markers),
            statement: c.statement,
            markers: c.markers,
            key_markers: c.key_markers,
            depends_on_use: c.depends_on_use,
            is_qualified: c.is_qualified,
            warnings: c.warnings,
            table: c.table,
            columns: c.columns,
            was_altered: false,
            attachment: OnceCell::new(),
            was_used: Cell::new(false),
        })
    }

    /// Compiles a statement that is executed once.
    pub fn compile(&self, text: &str, keyspace: Option<&str>) -> Result<Prepared, QueryError> {
        self.compiled(UNPREPARED, text.into(), keyspace)
    }

    /// Prepares a statement for the node.
    pub fn prepare(&self, text: &str, keyspace: Option<&str>) -> Result<Rc<Prepared>, QueryError> {
        let variables = self.dialect.get().variables;
        let id = id_of(text, keyspace, variables);
        if let Some(p) = self.prepared.get(&id) {
            return Ok(p);
        }
        let unqualified = keyspace.map(|_| id_of(text, None, variables));
        if let Some(other) = &unqualified
            && let Some(p) = self.prepared.get(other)
            && p.is_qualified
        {
            return Ok(p);
        }
        let mut prepared = self.compiled(id, text.into(), keyspace)?;
        let mut keyspace = keyspace;
        if let Some(other) = unqualified
            && prepared.is_qualified
        {
            (prepared.id, keyspace) = (other, None);
        }
        prepared.was_altered = self.node.statements.remember(&prepared, keyspace);
        Ok(self.keep(prepared))
    }

    fn keep(&self, prepared: Prepared) -> Rc<Prepared> {
        let prepared = Rc::new(prepared);
        self.prepared.insert(prepared.clone());
        prepared
    }

    /// The prepared statement of that id.
    #[inline]
    pub fn prepared(&self, id: &[u8]) -> Result<Rc<Prepared>, QueryError> {
        if let Ok(id) = <&PreparedId>::try_from(id)
            && let Some(p) = self.prepared.get(id)
        {
            p.was_used.set(true);
            return Ok(p);
        }
        self.prepare_again(id)
    }

    #[cold]
    fn prepare_again(&self, id: &[u8]) -> Result<Rc<Prepared>, QueryError> {
        let unprepared = || QueryError::Unprepared(id.to_vec());
        let id: PreparedId = id.try_into().map_err(|_| unprepared())?;
        let text = self.node.statements.find(&id).ok_or_else(unprepared)?;
        // A statement that no longer compiles counts as unprepared: the client prepares it again, and learns why it
        // fails.
        let mut prepared = self
            .compiled(id, text.text, text.keyspace.as_deref())
            .map_err(|_| unprepared())?;
        if prepared.metadata_id != text.metadata_id || parameters_id(&prepared) != text.parameters_id {
            return Err(unprepared());
        }
        prepared.was_altered = text.was_altered;
        Ok(self.keep(prepared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(number: usize) -> Prepared {
        let mut id = UNPREPARED;
        id[..8].copy_from_slice(&(number as u64).to_be_bytes());
        Prepared {
            id,
            text: format!("USE k{number}").into(),
            metadata_id: [0; 16],
            statement: Arc::new(Statement::Use(format!("k{number}"))),
            markers: Vec::new(),
            key_markers: KeyMarkers::new(),
            table: None,
            columns: Arc::from([]),
            was_altered: false,
            is_guarded: false,
            takes_elements: false,
            depends_on_use: false,
            is_qualified: false,
            warnings: Vec::new(),
            attachment: OnceCell::new(),
            was_used: Cell::new(false),
        }
    }

    #[test]
    fn an_id_is_the_hash_of_keyspace_and_text() {
        for length in 0..200 {
            let text = "x".repeat(length);
            let check = |keyspace: Option<&str>, variables, named: String| {
                assert_eq!(id_of(&text, keyspace, variables), md5::compute(named).0, "{length}");
            };
            check(None, Variables::ByName, text.clone());
            check(Some("ks"), Variables::ByName, format!("ks{text}"));
            check(Some("ks"), Variables::ByPlace, format!("ks{text}\0"));
        }
    }

    #[test]
    fn a_full_shard_forgets_one_statement_that_nobody_executes_for_each_new_one() {
        let cache = Cache::default();
        let all: Vec<Rc<Prepared>> = (0..3 * STATEMENTS_MAX)
            .map(|number| Rc::new(prepared(number)))
            .collect();
        let execute = |number: usize| cache.get(&all[number].id).expect("it is known").was_used.set(true);
        for (number, prepared) in all.iter().enumerate() {
            cache.insert(prepared.clone());
            // Two are executed all the time, one was once.
            match number {
                0..2 => {}
                2 => execute(2),
                _ => [0, 1].into_iter().for_each(execute),
            }
        }
        let compiled = cache.0.borrow();
        assert_eq!(compiled.by_id.len(), STATEMENTS_MAX);
        assert_eq!(compiled.clock.len(), STATEMENTS_MAX);
        let known: Vec<usize> = (0..all.len())
            .filter(|&number| compiled.by_id.contains_key(&all[number].id))
            .collect();
        assert_eq!(known[..2], [0, 1], "those in use stay");
        assert_eq!(
            known[2],
            all.len() - STATEMENTS_MAX + 2,
            "of the others the newest are left"
        );
    }

    #[test]
    fn a_full_node_forgets_the_text_that_was_used_longest_ago() {
        let texts = SharedStatements::default();
        let all: Vec<Prepared> = (0..STATEMENTS_MAX + 2).map(prepared).collect();
        let is_known = |number: usize| texts.find(&all[number].id).is_some();
        for p in &all[..STATEMENTS_MAX] {
            texts.remember(p, None);
        }
        // Executing or preparing a statement again is a use.
        assert!(is_known(0));
        texts.remember(&all[1], None);
        for p in &all[STATEMENTS_MAX..] {
            texts.remember(p, None);
        }
        let forgotten: Vec<usize> = (0..all.len()).filter(|&number| !is_known(number)).collect();
        assert_eq!(forgotten, [2, 3]);
        let texts = texts.0.lock().expect("nobody panicked");
        assert_eq!(texts.by_use.len(), texts.by_id.len());
    }
}
