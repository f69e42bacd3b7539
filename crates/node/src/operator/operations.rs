//! Operations on the members of the cluster, for operators.

use std::rc::Rc;
use std::sync::Arc;

use ::cluster::{Cluster, TableKind};
use admin::Operations;
use admin::operations::{Cleaned, KeyspaceKind, Progress, Rebuild, Rebuilt};
use admin::operator::{Local, Selection};
use query::Engine;
use schema::Table;
use tasks::{Class, Kind, Module, Origin, Spec, Task, Tasks};
use topology::HostId;
use upkeep::cleanup::CLEANUP;
use upkeep::{cleanup, copies};
use uuid::Uuid;

use super::NodeOperator;

/// A rebuild of tables, as an operator asks for it. It takes no worker: its streams do.
const REBUILD: Kind = Kind {
    name: "rebuild",
    module: Module::Streaming,
    class: Class::Streaming,
    units: "ranges",
    is_abortable: true,
};

impl Operations for NodeOperator {
    fn decommission(&self) -> Local<'_, Result<(), String>> {
        Box::pin(async move { self.cluster()?.decommission().await.map_err(|e| e.to_string()) })
    }

    fn stay(&self) -> Local<'_, Result<(), String>> {
        Box::pin(async move {
            let cluster = self.cluster()?;
            let stays = cluster.stay(cluster.host_id()).await;
            stays.map_err(|e| e.to_string())
        })
    }

    fn remove_node(&self, host_id: Uuid, ignored: Vec<String>) -> Local<'_, Result<(), String>> {
        Box::pin(async move {
            let cluster = self.cluster()?;
            let ignored: Vec<HostId> = ignored
                .iter()
                .map(|name| member_named(cluster, name))
                .collect::<Result<_, _>>()?;
            let removed = cluster.remove_node_ignoring(HostId(host_id), &ignored).await;
            removed.map_err(|e| e.to_string())
        })
    }

    fn operations(&self) -> Local<'_, Vec<Progress>> {
        Box::pin(async move {
            match &self.watch {
                Some(watch) => watch.progress().await,
                // In maintenance mode the node takes part in no operation.
                None => Vec::new(),
            }
        })
    }

    fn abort_operation(&self, task: Uuid) -> Option<Local<'_, Result<(), String>>> {
        self.watch.as_ref()?.stop(task)
    }

    fn set_keyspace_kind(&self, keyspace: String, has_tablets: bool) -> Local<'_, Result<Vec<String>, String>> {
        Box::pin(async move {
            self.cluster()?;
            if system_tables::kind(&keyspace).is_some() {
                return Err(format!(
                    "keyspace {keyspace} is the system's: its tables stay as they are"
                ));
            }
            let changed = self.engine.set_has_tablets(&keyspace, has_tablets).await;
            changed.map_err(|e| e.to_string())
        })
    }

    fn keyspace_kind(&self, keyspace: &str) -> Result<KeyspaceKind, String> {
        let kinds = self.cluster()?.metadata().kinds_of(keyspace);
        let kinds = kinds.ok_or_else(|| format!("there is no keyspace {keyspace}"))?;
        let mut kind = KeyspaceKind {
            wants_tablets: kinds.wants_tablets,
            ..KeyspaceKind::default()
        };
        for (table, is) in kinds.tables {
            match is {
                TableKind::Tablets => kind.with_tablets.push(table),
                TableKind::Ring => kind.on_ring.push(table),
                TableKind::BetweenBoth => kind.on_their_way.push(table),
            }
        }
        Ok(kind)
    }

    fn rebuild(&self, wanted: Rebuild) -> Local<'_, Result<Rebuilt, String>> {
        // A task of its own: it continues even if the caller stops waiting.
        let (engine, cluster, tasks) = (self.engine.clone(), self.cluster().cloned(), self.shared.tasks.clone());
        let done = runtime::spawn(async move {
            let cluster = cluster?;
            rebuild(&engine, &tasks, |host| cluster.is_live(host), wanted).await
        });
        Box::pin(done)
    }

    fn cleanup(&self, what: Selection) -> Local<'_, Result<Vec<Cleaned>, String>> {
        let (engine, tasks) = (self.engine.clone(), self.shared.tasks.clone());
        let done = runtime::spawn(async move { clean_up(&engine, &tasks, what).await });
        Box::pin(done)
    }

    fn exclude_nodes(&self, hosts: Vec<Uuid>) -> Local<'_, Result<(), String>> {
        Box::pin(async move {
            let hosts: Vec<HostId> = hosts.into_iter().map(HostId).collect();
            self.cluster()?.exclude_nodes(&hosts).await.map_err(|e| e.to_string())
        })
    }
}

/// Rebuilds, and says how much was copied.
///
/// # Errors
/// A sentence with what was not copied; the rest was.
async fn rebuild(
    engine: &Rc<Engine>,
    tasks: &Arc<Tasks>,
    is_live: impl Fn(HostId) -> bool,
    wanted: Rebuild,
) -> Result<Rebuilt, String> {
    let spec = Spec {
        entity: wanted.datacenter.clone().unwrap_or_default(),
        ..spec_of(&REBUILD, "node", &wanted.what)
    };
    let datacenter = wanted.datacenter.as_deref();
    let work = async |task: &Task| {
        if let Some(name) = datacenter {
            engine
                .coordinator
                .context
                .with_view(|view| copies::check_datacenter(view, name))?;
        }
        let tables = tables_of(engine, &wanted.what)?;
        copies::rebuild(engine, tables, datacenter, is_live, task).await
    };
    let rebuilt = as_task(tasks, spec, work).await?;
    Ok(Rebuilt {
        tables: rebuilt.tables,
        ranges: rebuilt.ranges,
        bytes: rebuilt.bytes,
    })
}

/// Cleans up, and says of each table what was removed.
///
/// # Errors
/// A sentence, when a disk refuses or the task is aborted. What was removed until then stays so.
async fn clean_up(engine: &Rc<Engine>, tasks: &Arc<Tasks>, what: Selection) -> Result<Vec<Cleaned>, String> {
    let spec = spec_of(&CLEANUP, "node", &what);
    let work = async |task: &Task| {
        let tables = tables_of(engine, &what)?;
        cleanup::clean(engine, &tables, task).await
    };
    let cleaned = as_task(tasks, spec, work).await?;
    let shown = |of: cleanup::Cleaned| Cleaned {
        keyspace: of.table.keyspace.clone(),
        table: of.table.name.clone(),
        removed_bytes: of.removed_bytes,
        unowned_files: of.unowned_files,
        is_skipped: of.is_skipped,
    };
    Ok(cleaned.into_iter().map(shown).collect())
}

/// Does an operator's work as a task, which ends with the result of the work.
pub(super) async fn as_task<T, E: std::fmt::Display>(
    tasks: &Arc<Tasks>,
    spec: Spec,
    work: impl AsyncFnOnce(&Task) -> Result<T, E>,
) -> Result<T, E> {
    let task = tasks.start(spec, &Origin::Operator);
    task.begin();
    let done = work(&task).await;
    task.end(&done);
    done
}

/// The task of an operator's work on some tables.
pub(super) fn spec_of(kind: &'static Kind, scope: &'static str, what: &Selection) -> Spec {
    Spec {
        scope,
        keyspace: what.keyspaces.join(","),
        table: what.tables.join(","),
        ..Spec::of(kind)
    }
}

/// The member of a host id or an address.
fn member_named(cluster: &Cluster, name: &str) -> Result<HostId, String> {
    let metadata = cluster.metadata();
    let is_named = |node: &&topology::Node| node.host_id.to_string() == name || node.internode.ip().to_string() == name;
    let found = metadata.topology.members().find(is_named).map(|node| node.host_id);
    found.ok_or_else(|| format!("'{name}' is neither the host id nor the address of a member"))
}

/// The tables that are meant: of users, unless a keyspace of the system is named.
///
/// # Errors
/// When there is no keyspace or table of a name.
pub(super) fn tables_of(engine: &Rc<Engine>, what: &Selection) -> Result<Vec<Arc<Table>>, String> {
    let schema = engine.schema();
    for name in &what.keyspaces {
        let keyspace = schema.keyspaces.get(name);
        let keyspace = keyspace.ok_or_else(|| format!("there is no keyspace {name}"))?;
        if let Some(table) = what.tables.iter().find(|table| !keyspace.tables.contains_key(*table)) {
            return Err(format!("there is no table {name}.{table}"));
        }
    }
    let of_users = |name: &String| system_tables::kind(name).is_none() || what.keyspaces.contains(name);
    let keyspaces = schema.keyspaces.values().filter(|keyspace| of_users(&keyspace.name));
    let tables = keyspaces.flat_map(|keyspace| keyspace.tables.values());
    let meant = tables.filter(|table| what.has(&table.keyspace, &table.name));
    Ok(meant.cloned().collect())
}
