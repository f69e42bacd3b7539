//! Changes of the schema, and the statements that are about it.
//!
//! Shard 0 changes the schema, one statement at a time: it computes the next value, and gives it to the
//! [`SchemaKeeper`], which makes it durable and has every shard take it over. Only then the client is answered. So a
//! client that saw its DDL succeed finds the table on any connection, and after any crash.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cql::ast::{AlterKeyspace, Literal, LiteralKind, MapValue, Property, PropertyValue, Statement};
use cql_compiler::ddl::{self, DdlContext, SchemaChange};
use plan::Execution;
use schema::record::TOMBSTONE_GC;
use schema::{Schema, TableId};
use topology::HostId;
use uuid::Uuid;

use super::execute::SchemaChanged;
use super::{Engine, Request};
use crate::QueryError;
use crate::guardrails::{check_change, check_kind};

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
    /// it, with what to tell the user.
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
    pub(super) async fn change_schema(
        self: &Rc<Self>,
        statement: &Statement,
        run: &Execution,
        request: &Request,
    ) -> Result<Option<SchemaChanged>, QueryError> {
        let (statement, keyspace, now_us) = (statement.clone(), request.keyspace.clone(), run.now_us);
        coordinator::on_metadata_shard(move || async move {
            Engine::local()
                .change_schema_here(&statement, keyspace.as_deref(), now_us)
                .await
        })
        .await
    }

    /// Has the tables of a keyspace go to tablets of their own, or to the token ring, as `ALTER KEYSPACE … WITH tablets
    /// = {'enabled': …}` does; the schema's clients hear of it. Lives on shard 0. Returns what the user should know.
    ///
    /// # Errors
    /// Those of the statement.
    pub async fn set_has_tablets(
        self: &Rc<Self>,
        keyspace: &str,
        has_tablets: bool,
    ) -> Result<Vec<String>, QueryError> {
        let literal = |kind, text: String| Literal { kind, text };
        let enabled = (
            literal(LiteralKind::String, "enabled".to_owned()),
            MapValue::Literal(literal(LiteralKind::Boolean, has_tablets.to_string())),
        );
        let statement = Statement::AlterKeyspace(AlterKeyspace {
            if_exists: false,
            name: keyspace.to_owned(),
            properties: vec![Property {
                name: "tablets".to_owned(),
                value: PropertyValue::Map(vec![enabled]),
            }],
        });
        let changed = self
            .change_schema_here(&statement, None, runtime::wall_clock_us())
            .await?;
        Ok(changed.map_or_else(Vec::new, |(_, warnings)| warnings))
    }

    async fn change_schema_here(
        self: &Rc<Self>,
        statement: &Statement,
        keyspace: Option<&str>,
        now_us: i64,
    ) -> Result<Option<SchemaChanged>, QueryError> {
        let _one_at_a_time = self.schema_lock.acquire(1).await;
        let guardrails = self.guardrails();
        let of_kind = check_kind(&guardrails.schema, statement)?;
        let new_id = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
        let new_id = uuid::Builder::from_random_bytes(*new_id.as_bytes()).into_uuid();
        for _ in 0..CONFLICTS_MAX {
            let base = self.schema();
            let nodes = self.nodes_by_datacenter();
            let racks = self.racks_by_datacenter();
            let ctx = DdlContext {
                keyspace,
                now_us,
                new_id,
                nodes: &nodes,
                has_tombstone_gc: self
                    .coordinator
                    .with_view(|view| view.topology.enabled_features().contains(TOMBSTONE_GC)),
                has_functions: self.has_functions.get(),
                racks: &racks,
                lists_racks: self.lists_racks.get(),
            };
            let Some(mut outcome) = ddl::apply(&base, statement, &ctx)? else {
                return Ok(None);
            };
            outcome.warnings.extend_from_slice(&of_kind);
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
        self.coordinator.with_view(|view| {
            for node in view.topology.members().filter(|node| view.topology.may_hold(node)) {
                let here = racks.entry(node.location.datacenter.clone()).or_default();
                here.insert(node.location.rack.clone());
            }
        });
        racks
    }

    fn nodes_by_datacenter(&self) -> BTreeMap<String, u32> {
        let mut nodes = BTreeMap::new();
        self.coordinator.with_view(|view| {
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

    /// Tells this shard's clients what changed of the schema.
    pub fn tell_changes(&self, changes: &[SchemaChange]) {
        if let Some(listener) = &*self.listener.borrow() {
            changes.iter().for_each(listener);
        }
    }
}
