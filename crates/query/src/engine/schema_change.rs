//! Changes of the schema.
//!
//! A front end gives a [`DefinitionSource`]: what it asks for, as a function of the schema. Shard 0 changes the schema,
//! one definition at a time: [`ddl::apply`] makes the next value, and the [`SchemaKeeper`] makes it durable and every
//! shard take it over. Only then the front end is answered. So a client that saw its DDL succeed finds the table on any
//! connection, and after any crash. If another node's change came first, the source is called again with the newer
//! schema.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql::ast::Statement;
use cql_compiler::{DdlContext, compile_ddl};
use ddl::{AlterKeyspace, Definition, KeyspaceTablets, SchemaChange};
use schema::{Schema, TableId};
use topology::HostId;
use uuid::Uuid;

use super::Engine;
use super::execute::SchemaChanged;
use crate::QueryError;
use crate::guardrails::{check_change, check_definition};

/// Makes the definition that is asked for, of the schema that it is to be applied to; None: there is nothing to do.
pub type DefinitionSource = Box<dyn Fn(&Schema) -> Result<Option<Definition>, QueryError> + Send>;

/// A statement as the source of a definition. `keyspace`: the one in use. `now_us`: the wall clock.
pub(super) fn source_of(statement: &Statement, keyspace: Option<&str>, now_us: i64) -> DefinitionSource {
    let (statement, keyspace) = (statement.clone(), keyspace.map(str::to_owned));
    Box::new(move |schema| {
        let ctx = DdlContext {
            keyspace: keyspace.as_deref(),
            now_us,
        };
        Ok(compile_ddl(schema, &statement, &ctx)?)
    })
}

/// How often a statement is made to fit a schema that others change at the same time.
const CONFLICTS_MAX: usize = 100;

/// Why a schema was not made the next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeepError {
    /// It was made from one that is not the present one any more. It did not happen.
    Conflict,
    /// It cannot be. It did not happen.
    Refused(String),
    /// The sentence says why, and whether it may have happened.
    Failed(String),
}

/// Makes a schema durable on all nodes that must know it, and makes every shard take it over ([`Engine::take_schema`]).
/// Lives on shard 0.
pub trait SchemaKeeper {
    /// Makes `next` the schema, if the present one has the version `base`. Resolves when all shards of this node have
    /// it, with warnings for the user.
    fn change(
        &self,
        base: Uuid,
        next: Arc<Schema>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<String>, KeepError>> + '_>>;

    /// Truncates a table everywhere, and waits until the nodes that have replicas of it have done so. The error is a
    /// sentence that says whether it may have happened.
    fn truncate(
        &self,
        table: TableId,
        replicas: Vec<HostId>,
        timeout: Option<Duration>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + '_>>;
}

impl Engine {
    /// Changes the schema of the cluster, and notifies the clients of all nodes. Returns what changed and what the user
    /// should know, or None if the schema already is as asked.
    ///
    /// # Errors
    /// Those of the source; or the definition does not fit the schema, a guardrail refuses it, or the cluster does not
    /// agree on the change.
    pub async fn change_schema(self: &Rc<Self>, source: DefinitionSource) -> Result<Option<SchemaChanged>, QueryError> {
        coordinator::on_metadata_shard(move || async move { Engine::local().change_schema_here(&source).await }).await
    }

    /// Moves the tables of a keyspace to tablets of their own, or to the token ring. Returns what the user should know.
    ///
    /// # Errors
    /// Those of [`Self::change_schema`].
    pub async fn set_has_tablets(
        self: &Rc<Self>,
        keyspace: &str,
        has_tablets: bool,
    ) -> Result<Vec<String>, QueryError> {
        let definition = Definition::AlterKeyspace(AlterKeyspace {
            name: keyspace.to_owned(),
            if_exists: false,
            replication: None,
            durable_writes: None,
            tablets: Some(KeyspaceTablets {
                enabled: Some(has_tablets),
                initial: None,
            }),
        });
        let changed = self
            .change_schema(Box::new(move |_| Ok(Some(definition.clone()))))
            .await?;
        Ok(changed.map_or_else(Vec::new, |(_, warnings)| warnings))
    }

    async fn change_schema_here(
        self: &Rc<Self>,
        source: &DefinitionSource,
    ) -> Result<Option<SchemaChanged>, QueryError> {
        let _one_at_a_time = self.schema_lock.acquire(1).await;
        let guardrails = self.guardrails();
        let new_id = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
        let new_id = uuid::Builder::from_random_bytes(*new_id.as_bytes()).into_uuid();
        for _ in 0..CONFLICTS_MAX {
            let base = self.schema();
            let Some(definition) = source(&base)? else {
                return Ok(None);
            };
            let of_definition = check_definition(&guardrails.schema, &definition)?;
            let nodes = self.nodes_by_datacenter();
            let racks = self.racks_by_datacenter();
            let ctx = ddl::Context {
                new_id,
                nodes: &nodes,
                has_functions: self.has_functions.get(),
                racks: &racks,
                lists_racks: self.lists_racks.get(),
            };
            let Some(mut outcome) = ddl::apply(&base, &definition, &ctx)? else {
                return Ok(None);
            };
            outcome.warnings.extend(of_definition);
            outcome
                .warnings
                .extend(check_change(&guardrails.schema, &base, &outcome.schema)?);
            let keeper = self.keeper().map_err(QueryError::Server)?;
            match keeper.change(base.version, Arc::new(outcome.schema)).await {
                Ok(warnings) => {
                    outcome.warnings.extend(warnings);
                    for warning in &outcome.warnings {
                        log::warn!("{warning}");
                    }
                    let first = outcome.changes.into_iter().next();
                    return Ok(first.map(|change| (change, outcome.warnings)));
                }
                Err(KeepError::Conflict) => {}
                Err(KeepError::Refused(why)) => return Err(QueryError::Invalid(why)),
                Err(KeepError::Failed(e)) => return Err(QueryError::Server(e)),
            }
        }
        Err(QueryError::Server(
            "The schema changes faster than this statement can be made to fit it. It was not executed.".to_owned(),
        ))
    }

    /// The racks that have nodes which hold data, and stay.
    fn racks_by_datacenter(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut racks: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        self.coordinator.context.with_view(|view| {
            for node in view.topology.members().filter(|node| view.topology.may_hold(node)) {
                let here = racks.entry(node.location.datacenter.clone()).or_default();
                here.insert(node.location.rack.clone());
            }
        });
        racks
    }

    /// How many nodes of each datacenter may have copies.
    pub fn nodes_by_datacenter(&self) -> BTreeMap<String, u32> {
        let mut nodes = BTreeMap::new();
        self.coordinator.context.with_view(|view| {
            // Of a datacenter with zero-token nodes alone no keyspace can have copies.
            let holders = view
                .topology
                .members()
                .filter(|node| !view.topology.is_zero_token(node.host_id));
            for node in holders {
                *nodes.entry(node.location.datacenter.clone()).or_default() += 1;
            }
        });
        nodes
    }

    /// Takes over a schema on this shard: statements are made by it from here on.
    pub fn take_schema(&self, next: Arc<Schema>) {
        *self.schema.borrow_mut() = next;
        self.prepared.clear();
    }

    /// Notifies this shard's clients of changes of the schema.
    pub fn tell_changes(&self, changes: &[SchemaChange]) {
        if let Some(listener) = &*self.listener.borrow() {
            changes.iter().for_each(listener);
        }
    }
}
