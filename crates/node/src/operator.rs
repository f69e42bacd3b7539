//! The node as its operators see it: crate `admin` asks, this answers from the cluster, the engines and the shards.
//!
//! Lives on shard 0 and sees the node; what other shards have is asked for by message, and summed.

mod handoff;
mod jobs;
mod metrics;
pub(crate) mod snapshots;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ::cluster::Cluster;
use admin::Handoff;
use admin::operator::{
    Clock, ClockState, Keyspace, Local, Member, Metric, Node, Operator, Quarantined, Raft, Range, Selection, Snapshot,
    Started, State, Table, Work,
};
use query::Engine;
use replica::TableStore;
use runtime::net::TcpListener;
use tasks::Tasks;
use topology::{HostId, NodeNumber, TabletMap};

use crate::follow::on_all_shards;
use crate::start::Shared;

/// The doors for operators.
pub(crate) struct Doors {
    api: Option<(TcpListener, SocketAddr)>,
    metrics: Option<(TcpListener, SocketAddr)>,
}

impl Doors {
    /// Takes the addresses that the configuration names. What the workdir says of an earlier run is not true any more.
    pub(crate) async fn bind(shared: &Shared) -> Result<Self, String> {
        let config = &shared.config;
        let path = config.workdir.join(admin::nodetool::ADDRESS_FILE);
        if runtime::fs::exists(&path) {
            runtime::fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let api = match config.api {
            Some(address) => Some(admin::http::bind("the REST API", address).await?),
            None => None,
        };
        let metrics = match config.prometheus {
            Some(address) => Some(admin::http::bind("Prometheus", address).await?),
            None => None,
        };
        Ok(Self { api, metrics })
    }

    /// Opens them, and tells in the workdir where the API is.
    pub(crate) fn open(self, shared: &Arc<Shared>, engine: &Rc<Engine>, cluster: &Rc<Cluster>) -> Result<(), String> {
        let operator: Rc<dyn Operator> = Rc::new(NodeOperator {
            shared: shared.clone(),
            engine: engine.clone(),
            cluster: cluster.clone(),
            started: runtime::now(),
            started_us: runtime::wall_clock_us(),
        });
        if let Some((listener, address)) = self.api {
            let path = shared.config.workdir.join(admin::nodetool::ADDRESS_FILE);
            let written = runtime::fs::write(&path, format!("{address}\n").as_bytes());
            written.map_err(|e| format!("{}: {e}", path.display()))?;
            log::info!("the REST API listens on {address}");
            drop(runtime::spawn(admin::serve_api(listener, operator.clone())));
        }
        if let Some((listener, address)) = self.metrics {
            log::info!("metrics for Prometheus are at http://{address}/metrics");
            let tells_tables = shared.config.table_metrics;
            drop(runtime::spawn(admin::serve_metrics(listener, operator, tells_tables)));
        }
        Ok(())
    }
}

struct NodeOperator {
    shared: Arc<Shared>,
    engine: Rc<Engine>,
    cluster: Rc<Cluster>,
    started: runtime::Instant,
    started_us: i64,
}

/// This shard's part of the tables that are meant, by name.
fn selected(engine: &Engine, what: &Selection) -> Vec<Rc<TableStore>> {
    let mut stores = engine.shard.stores();
    stores.retain(|store| {
        let table = store.table();
        what.has(&table.keyspace, &table.name)
    });
    stores.sort_by_key(|store| {
        let table = store.table();
        (table.keyspace.clone(), table.name.clone())
    });
    stores
}

async fn accept_quarantined(what: Selection) -> Result<(), String> {
    let work = async move |engine: Rc<Engine>| {
        let mut result = Ok(());
        for store in selected(&engine, &what) {
            let accepted = engine.shard.accept_loss(&store).await;
            result = result.and(accepted.map(drop));
        }
        result
    };
    on_all_shards(work).await.into_iter().collect()
}

/// This shard's part of every table that has files.
fn tables_here(engine: &Engine) -> Vec<Table> {
    let stores = selected(engine, &Selection::default());
    let tables = stores.iter().map(|store| {
        let table = store.table();
        let mut told = Table {
            keyspace: table.keyspace.clone(),
            name: table.name.clone(),
            compaction_backlog_bytes: engine.shard.compaction_backlog_bytes(store),
            ..Table::default()
        };
        for tablet in store.tablets().iter() {
            tablet.with_version(|version| {
                for reader in &version.sstables {
                    let meta = reader.meta();
                    told.sstables += 1;
                    told.disk_bytes += meta.disk_len;
                    told.data_bytes += meta.data_len;
                    told.partitions += meta.partitions;
                    told.sstable_memory_bytes += reader.memory() as u64;
                }
                for missing in version.missing.iter() {
                    let quarantined = Quarantined {
                        first_token: missing.first.0,
                        last_token: missing.last.0,
                        reason: missing.reason.clone(),
                    };
                    told.quarantined.insert(missing.name(), quarantined);
                }
                let active = version.active.borrow();
                told.memtable_bytes += active.bytes() as u64;
                told.memtable_partitions += active.partition_count() as u64;
                for frozen in &version.frozen {
                    told.flushes += 1;
                    told.memtable_bytes += frozen.memtable.bytes() as u64;
                    told.memtable_partitions += frozen.memtable.partition_count() as u64;
                }
            });
        }
        told
    });
    tables.collect()
}

fn state(state: topology::NodeState) -> State {
    match state {
        topology::NodeState::Joining => State::Joining,
        topology::NodeState::Normal => State::Normal,
        topology::NodeState::Leaving | topology::NodeState::Left => State::Leaving,
    }
}

fn clock(verdict: &topology::ClockVerdict) -> Clock {
    use topology::{ClockDoubt, ClockState as Judged};
    let (state, reason) = match verdict.state {
        Judged::Trusted => (ClockState::Trusted, ""),
        Judged::Suspect(ClockDoubt::Unheard) => (ClockState::Suspect, "no other node was heard since the start"),
        Judged::Suspect(ClockDoubt::Stepped) => (ClockState::Suspect, "it has stepped"),
        Judged::Suspect(ClockDoubt::Outvoted) => (ClockState::Suspect, "the other nodes disagree"),
        Judged::OutOfService => (ClockState::OutOfService, "the other nodes disagree"),
    };
    #[expect(clippy::cast_precision_loss, reason = "an offset is told in seconds")]
    let ahead_seconds = verdict.ahead_us as f64 / 1e6;
    Clock {
        state,
        reason,
        ahead_seconds,
    }
}

impl NodeOperator {
    fn members(&self, status: &::cluster::Status) -> Vec<Member> {
        let metadata = self.cluster.metadata();
        let members = status.members.iter().map(|member| {
            let node = metadata.topology.node(member.host_id);
            Member {
                host_id: member.host_id.0,
                address: member.internode.ip(),
                native: node.map_or(member.internode.ip(), |node| node.native.ip()),
                datacenter: member.location.datacenter.clone(),
                rack: member.location.rack.clone(),
                state: state(member.state),
                is_live: member.is_live,
                takes_writes: member.takes_writes,
                tokens: node.map_or_else(Vec::new, |node| node.tokens.iter().map(|token| token.0).collect()),
                shards: node.map_or(0, |node| node.shards),
                schema_version: member.schema_version,
                release: node.map_or_else(String::new, |node| node.release.clone()),
                differs_at: member.differs_at,
            }
        });
        members.collect()
    }

    /// The tablets of a map with what joins neighbours that have the same nodes: shards are not the ring's matter.
    fn ranges(&self, map: &TabletMap) -> Vec<Range> {
        let view = self.engine.coordinator.view();
        let host = |number: NodeNumber| view.topology.numbered(number).map(|node| node.host_id.0);
        let mut ranges: Vec<Range> = Vec::new();
        let is_ring = matches!(map.boundaries(), topology::Boundaries::LastTokens(_));
        for tablet in map.tablets() {
            let Some((after, to)) = map.token_range(tablet.id) else {
                continue;
            };
            let replicas: Vec<_> = tablet
                .replicas
                .iter()
                .filter_map(|replica| host(replica.node))
                .collect();
            match ranges.last_mut() {
                Some(last) if is_ring && last.replicas == replicas => last.end = to.0,
                _ => ranges.push(Range {
                    start: after.0,
                    end: to.0,
                    replicas,
                }),
            }
        }
        ranges
    }
}

impl Operator for NodeOperator {
    fn node(&self) -> Node {
        let status = self.cluster.status();
        let info = self.shared.about.info();
        let members = self.members(&status);
        let mode = match members
            .iter()
            .find(|member| member.host_id == self.shared.host_id)
            .map(|me| me.state)
        {
            Some(State::Joining) => "JOINING",
            Some(State::Leaving) => "LEAVING",
            Some(State::Normal) | None if !status.is_in_service => "OUT_OF_SERVICE",
            Some(State::Normal) | None => "NORMAL",
        };
        let snitch = self.shared.config.settings.get("endpoint_snitch").cloned().flatten();
        let snitch = snitch.unwrap_or_else(|| "SimpleSnitch".to_owned());
        let elapsed = runtime::now().saturating_duration_since(self.started);
        Node {
            host_id: self.shared.host_id,
            cluster_name: status.cluster_name,
            schema_version: status.schema_version,
            release: info.release_version.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            snitch: format!("org.apache.cassandra.locator.{snitch}"),
            mode: mode.to_owned(),
            uptime_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            started_s: self.started_us / 1_000_000,
            serves_cql: status.is_in_service,
            clock: clock(&status.clock),
            memory: self.shared.config.memory,
            members,
            raft: Raft {
                leader: status.leader.map(|id| id.0),
                term: status.raft.term,
                applied: status.raft.applied,
                committed: status.raft.committed,
                last: status.raft.last,
                voters: status.raft.voters.len(),
                withdrawn: status.withdrawn.or_else(|| {
                    let why = status.unreadable?;
                    Some(format!(
                        "this node cannot read a change of the metadata, and applies no later one: {why}. Start it with the release of the other nodes"
                    ))
                }),
            },
        }
    }

    fn keyspaces(&self) -> Vec<Keyspace> {
        let schema = self.engine.schema();
        let keyspaces = schema.keyspaces.values().map(|keyspace| Keyspace {
            name: keyspace.name.clone(),
            is_system: system_tables::kind(&keyspace.name).is_some(),
            is_local: keyspace
                .replication
                .get("class")
                .is_some_and(|class| class.ends_with("LocalStrategy")),
            tables: keyspace.tables.keys().cloned().collect(),
            replication: keyspace.replication.clone(),
        });
        keyspaces.collect()
    }

    fn ring(&self, keyspace: &str, table: Option<&str>) -> Option<Vec<Range>> {
        let schema = self.engine.schema();
        let keyspace = schema.keyspaces.get(keyspace)?;
        let table = match table {
            Some(name) => keyspace.tables.get(name),
            None => keyspace.tables.values().next(),
        };
        let view = self.engine.coordinator.view();
        if let Some(route) = table.and_then(|table| view.route(table.id)) {
            return Some(self.ranges(&route.map));
        }
        // No table has a route yet: as a table on the token ring would have it.
        let datacenters = view.topology.datacenters();
        let replication = topology::Replication::parse(&keyspace.replication, &datacenters).ok()?;
        let map = topology::ring_map(&view.topology, &replication).ok()?;
        Some(self.ranges(&map))
    }

    fn tables(&self) -> Local<'_, Vec<Table>> {
        Box::pin(async move {
            let mut merged: BTreeMap<(String, String), Table> = BTreeMap::new();
            let parts = on_all_shards(async |engine: Rc<Engine>| tables_here(&engine)).await;
            for part in parts.into_iter().flatten() {
                let whole = merged.entry((part.keyspace.clone(), part.name.clone())).or_default();
                // Several shards may lack tokens of one.
                let quarantined = std::mem::take(&mut whole.quarantined).into_iter();
                let quarantined = quarantined.chain(part.quarantined.clone()).collect();
                *whole = Table {
                    sstables: whole.sstables + part.sstables,
                    disk_bytes: whole.disk_bytes + part.disk_bytes,
                    compaction_backlog_bytes: whole.compaction_backlog_bytes + part.compaction_backlog_bytes,
                    data_bytes: whole.data_bytes + part.data_bytes,
                    partitions: whole.partitions + part.partitions,
                    sstable_memory_bytes: whole.sstable_memory_bytes + part.sstable_memory_bytes,
                    memtable_bytes: whole.memtable_bytes + part.memtable_bytes,
                    memtable_partitions: whole.memtable_partitions + part.memtable_partitions,
                    flushes: whole.flushes + part.flushes,
                    quarantined,
                    ..part
                };
            }
            for snapshot in snapshots::list(&self.engine).await.unwrap_or_default() {
                if let Some(table) = merged.get_mut(&(snapshot.keyspace, snapshot.table)) {
                    table.snapshot_bytes += snapshot.own_bytes;
                }
            }
            merged.into_values().collect()
        })
    }

    fn metrics(&self) -> Local<'_, Vec<Metric>> {
        Box::pin(async move {
            let of_shards = on_all_shards(async |engine: Rc<Engine>| metrics::of_shard(&engine)).await;
            let mut all: Vec<Metric> = of_shards.into_iter().flatten().collect();
            let node = self.node();
            all.extend(metrics::node::build(&node));
            all.extend(metrics::node::cluster(&node));
            all.extend(metrics::node::tasks(&self.shared.tasks.classes()));
            let shared = self.shared.clone();
            all.extend(runtime::offload(move || metrics::node::machine(&shared.config)).await);
            all.extend(metrics::node::handoff(
                &self.handoff(),
                &self.pending_hints().await,
                &self.missed_writes(),
            ));
            all
        })
    }

    fn start(&self, work: Work) -> Started {
        jobs::start(&self.engine, &self.cluster, &self.shared.tasks, work)
    }

    fn tasks(&self) -> &Arc<Tasks> {
        &self.shared.tasks
    }

    fn accept_quarantined(&self, keyspace: String, table: String) -> Local<'_, Result<(), String>> {
        let what = Selection {
            keyspaces: vec![keyspace],
            tables: vec![table],
        };
        Box::pin(accept_quarantined(what))
    }

    fn snapshots(&self) -> Local<'_, Result<Vec<Snapshot>, String>> {
        Box::pin(snapshots::list(&self.engine))
    }

    fn clear_snapshots(&self, tag: Option<String>, what: Selection) -> Local<'_, Result<(), String>> {
        Box::pin(snapshots::clear(&self.engine, tag, what))
    }

    fn confirm_clock(&self) -> Result<(), String> {
        self.cluster.confirm_clock()
    }

    fn remove_node(&self, host_id: uuid::Uuid) -> Local<'_, Result<(), String>> {
        let host_id = HostId(host_id);
        Box::pin(async move { self.cluster.remove_node(host_id).await.map_err(|e| e.to_string()) })
    }

    fn barrier(&self) -> Local<'_, Result<(), String>> {
        Box::pin(async move { self.cluster.barrier().await.map(|_| ()).map_err(|e| e.to_string()) })
    }
}
