//! The node as its operators see it: crate `admin` asks, this answers from the cluster, the engines and the shards.
//!
//! Lives on shard 0 and sees the node; what other shards have is asked for by message, and summed.

mod access_keys;
pub(crate) mod backups;
mod balance;
mod client_routes;
mod control;
mod handoff;
mod jobs;
mod members;
mod metrics;
mod operations;
mod repairs;
pub(crate) mod snapshots;
mod tablet_repairs;
mod watch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ::cluster::{Cluster, Role};
use admin::Handoff;
use admin::control::Control;
use admin::operator::{
    Balance, ClientRoute, ClientRouteKey, Keyspace, Local, Metric, Node, NotChanged, Operator, Quarantined, Raft,
    Range, RepairedTable, Repairs, Selection, Snapshot, Started, State, Table, TabletRepair, Work,
};
use coordinator::Tombstones;
use query::Engine;
use replica::TableStore;
use runtime::net::TcpListener;
use tasks::Tasks;
use topology::{HostId, NodeNumber, TabletMap};
use uuid::Uuid;

use crate::follow::on_all_shards;
use crate::maintenance;
use crate::start::Shared;

pub(crate) use control::key_text;

/// Listens for operators; an error names the options that choose another address.
async fn bind(what: &str, address: SocketAddr, options: &str) -> Result<(TcpListener, SocketAddr), String> {
    let bound = admin::http::bind(what, address).await;
    bound.map_err(|reason| format!("{reason} (the options {options} name another)"))
}

/// The listeners of the REST API and of the metrics.
pub(crate) struct OperatorListeners {
    api: Option<(TcpListener, SocketAddr)>,
    metrics: Option<(TcpListener, SocketAddr)>,
}

impl OperatorListeners {
    /// Takes the addresses that the configuration names. What the workdir says of an earlier run is not true any more.
    pub(crate) async fn bind(shared: &Shared) -> Result<Self, String> {
        let config = &shared.config;
        let path = config.workdir.join(admin::nodetool::ADDRESS_FILE);
        if runtime::fs::exists(&path) {
            runtime::fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let api = match config.api {
            Some(address) => Some(bind("the REST API", address, "api_address and api_port").await?),
            None => None,
        };
        let metrics = match config.prometheus {
            Some(address) => Some(bind("Prometheus", address, "prometheus_address and prometheus_port").await?),
            None => None,
        };
        Ok(Self { api, metrics })
    }

    /// Opens them, and writes the API's address to the workdir.
    pub(crate) fn open(
        self,
        shared: &Arc<Shared>,
        engine: &Rc<Engine>,
        cluster: Option<&Rc<Cluster>>,
    ) -> Result<(), String> {
        let operator = Rc::new(NodeOperator {
            shared: shared.clone(),
            engine: engine.clone(),
            member: cluster.cloned(),
            watch: cluster.map(|cluster| watch::Watch::start(cluster.clone(), shared.tasks.clone())),
            started: runtime::now(),
            started_us: runtime::wall_clock_us(),
        });
        runtime::set_local(Rc::new(AdminFacts(operator.clone())));
        let operator: Rc<dyn Operator> = operator;
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
    /// The node as a member of its cluster; None in maintenance mode.
    member: Option<Rc<Cluster>>,
    watch: Option<Rc<watch::Watch>>,
    started: runtime::Instant,
    started_us: i64,
}

/// What virtual tables show of the reports for operators. Lives on the shard that answers operators.
pub(crate) struct AdminFacts(Rc<NodeOperator>);

impl AdminFacts {
    /// Whether the node listens for CQL.
    pub(crate) fn serves_cql(&self) -> bool {
        self.0.node().serves_cql
    }

    /// Where it does.
    pub(crate) fn native_addresses(&self) -> Vec<String> {
        let bound = self.0.shared.bound_addresses();
        let bound = bound
            .into_iter()
            .flat_map(|(native, shard_aware)| [Some(native), shard_aware]);
        bound.flatten().map(|address| address.to_string()).collect()
    }

    /// How long the node runs, in milliseconds.
    pub(crate) fn uptime_ms(&self) -> u64 {
        self.0.node().uptime_ms
    }

    /// Bytes that it may use.
    pub(crate) fn memory(&self) -> u64 {
        self.0.shared.config.memory
    }

    /// Which part of the requests is traced.
    pub(crate) fn trace_probability(&self) -> f64 {
        Control::trace_probability(&*self.0)
    }

    /// The size that tablets should have on average; 0 for any.
    pub(crate) fn tablet_bytes_goal(&self) -> u64 {
        self.0.shared.options.current().config.balancing.tablet_bytes_goal
    }

    /// The metadata that this node has; None in maintenance mode.
    pub(crate) fn metadata(&self) -> Option<Arc<::cluster::Metadata>> {
        Some(self.0.member.as_ref()?.metadata())
    }

    /// The voters of the metadata group; None in maintenance mode.
    pub(crate) fn voters(&self) -> Option<Vec<Uuid>> {
        let status = self.0.member.as_ref()?.status();
        let votes = |member: &&::cluster::MemberStatus| matches!(member.role, Role::Leader | Role::Voter);
        Some(
            status
                .members
                .iter()
                .filter(votes)
                .map(|member| member.host_id.0)
                .collect(),
        )
    }
}

/// This shard's part of the tables that are meant, by name.
fn selected(engine: &Engine, what: &Selection) -> Vec<Rc<TableStore>> {
    let mut stores = engine.coordinator.context.shard.stores();
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
    Tombstones::report_loss().await?;
    let work = async move |engine: Rc<Engine>| {
        let mut result = Ok(());
        for store in selected(&engine, &what) {
            let accepted = engine.coordinator.context.shard.accept_loss(&store).await;
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
            compaction_backlog_bytes: engine.coordinator.context.shard.compaction_backlog_bytes(store),
            ..Table::default()
        };
        for tablet in store.tablets().iter() {
            tablet.with_version(|version| {
                for reader in &version.sstables {
                    let meta = reader.meta();
                    told.sstables += 1;
                    describe_sstable(reader, &mut told);
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
                told.memtable_rows += active.row_count();
                for frozen in &version.frozen {
                    told.flushes += 1;
                    told.memtable_bytes += frozen.charged() as u64;
                    told.memtable_partitions += frozen.share(frozen.memtable.partition_count() as u64);
                    told.memtable_rows += frozen.share(frozen.memtable.row_count());
                }
            });
        }
        told.is_auto_compaction_off = !store.compacts_by_itself();
        if let Some(recorded) = store.metrics.recorded_so_far() {
            for (told, histogram) in [
                (&mut told.reads, &recorded.reads),
                (&mut told.scans, &recorded.scans),
                (&mut told.writes, &recorded.writes),
                (&mut told.sstables_per_read, &recorded.sstables_per_read),
                (&mut told.tombstones_per_read, &recorded.tombstones_per_read),
                (&mut told.rows_per_read, &recorded.rows_per_read),
            ] {
                told.add(histogram.buckets(), histogram.sum());
            }
        }
        told
    });
    tables.collect()
}

/// Adds what an sstable's statistics say.
fn describe_sstable(reader: &sstable::Reader, told: &mut Table) {
    let meta = reader.meta();
    let statistics = &meta.statistics;
    told.filter_bytes += reader.filter_memory() as u64;
    let (lookups, misses) = reader.lookups_and_misses();
    told.index_lookups += lookups;
    told.filter_false_positives += misses;
    if statistics.compression_ratio > 0.0 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a ratio is shown with five digits"
        )]
        let compressed = (meta.data_len as f64 * statistics.compression_ratio) as u64;
        told.compressed_from_bytes += meta.data_len;
        told.compressed_to_bytes += compressed;
    }
    let span = statistics.max_timestamp.saturating_sub(statistics.min_timestamp);
    told.sstable_span_us = told.sstable_span_us.max(u64::try_from(span).unwrap_or(0));
    add_estimated(&mut told.partition_bytes, &statistics.partition_size);
    add_estimated(&mut told.partition_cells, &statistics.cell_count);
}

/// Adds a histogram of an sstable. Of values above its last bound it says no more than that.
fn add_estimated(told: &mut admin::Distribution, histogram: &sstable::EstimatedHistogram) {
    let mut last = 0;
    let buckets = histogram.buckets().map(|(bound, count)| {
        last = bound.map_or(last, |bound| u64::try_from(bound).unwrap_or(0));
        (last, u64::try_from(count).unwrap_or(0))
    });
    let buckets: Vec<(u64, u64)> = buckets.collect();
    let sum = buckets.iter().map(|(last, count)| last.saturating_mul(*count)).sum();
    told.add(buckets, sum);
}

/// The tables that have files, summed over the node's shards, by keyspace and name.
pub(crate) async fn tables() -> BTreeMap<(String, String), Table> {
    let mut merged: BTreeMap<(String, String), Table> = BTreeMap::new();
    let parts = on_all_shards(async |engine: Rc<Engine>| tables_here(&engine)).await;
    for part in parts.into_iter().flatten() {
        let whole = merged.entry((part.keyspace.clone(), part.name.clone())).or_default();
        merge(whole, part);
    }
    merged
}

/// Adds a shard's part of a table.
fn merge(whole: &mut Table, part: Table) {
    whole.keyspace = part.keyspace;
    whole.name = part.name;
    whole.sstables += part.sstables;
    whole.disk_bytes += part.disk_bytes;
    whole.compaction_backlog_bytes += part.compaction_backlog_bytes;
    whole.data_bytes += part.data_bytes;
    whole.partitions += part.partitions;
    whole.sstable_memory_bytes += part.sstable_memory_bytes;
    whole.memtable_bytes += part.memtable_bytes;
    whole.memtable_partitions += part.memtable_partitions;
    whole.memtable_rows += part.memtable_rows;
    whole.flushes += part.flushes;
    whole.filter_bytes += part.filter_bytes;
    whole.index_lookups += part.index_lookups;
    whole.filter_false_positives += part.filter_false_positives;
    whole.compressed_from_bytes += part.compressed_from_bytes;
    whole.compressed_to_bytes += part.compressed_to_bytes;
    whole.is_auto_compaction_off |= part.is_auto_compaction_off;
    whole.sstable_span_us = whole.sstable_span_us.max(part.sstable_span_us);
    // Several shards may lack tokens of one.
    whole.quarantined.extend(part.quarantined);
    for (whole, part) in [
        (&mut whole.partition_bytes, part.partition_bytes),
        (&mut whole.partition_cells, part.partition_cells),
        (&mut whole.reads, part.reads),
        (&mut whole.scans, part.scans),
        (&mut whole.writes, part.writes),
        (&mut whole.sstables_per_read, part.sstables_per_read),
        (&mut whole.tombstones_per_read, part.tombstones_per_read),
        (&mut whole.rows_per_read, part.rows_per_read),
    ] {
        whole.merge(part);
    }
}

/// Bytes of the node's sstables.
pub(crate) async fn load() -> u64 {
    crate::sizes::all_bytes().await
}

impl NodeOperator {
    /// The node as a member of its cluster.
    ///
    /// # Errors
    /// In maintenance mode.
    fn cluster(&self) -> Result<&Rc<Cluster>, String> {
        self.member.as_ref().ok_or_else(maintenance::refusal)
    }

    /// When it was started: how long ago, and the time of day in microseconds.
    fn since(&self) -> (std::time::Duration, i64) {
        (runtime::now().saturating_duration_since(self.started), self.started_us)
    }

    /// The tablets of a map with what joins neighbours that have the same nodes: shards are not the ring's matter.
    fn ranges(&self, map: &TabletMap) -> Vec<Range> {
        let view = self.engine.coordinator.context.view();
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
        let Some(cluster) = &self.member else {
            return members::node_apart(&self.shared, &self.engine, self.since());
        };
        let status = cluster.status();
        let members = members::of_status(&cluster.metadata(), &status);
        let mode = match members
            .iter()
            .find(|member| member.host_id == self.shared.host_id)
            .map(|me| me.state)
        {
            Some(State::Joining) => "JOINING",
            Some(State::Leaving) => "LEAVING",
            Some(State::Normal) | None if self.shared.is_drained() => "DRAINED",
            Some(State::Normal) | None if self.shared.drain_is_wanted() => "DRAINING",
            Some(State::Normal) | None if !status.is_in_service => "OUT_OF_SERVICE",
            Some(State::Normal) | None => "NORMAL",
        };
        Node {
            cluster_name: status.cluster_name,
            schema_version: status.schema_version,
            mode: mode.to_owned(),
            serves_cql: status.is_in_service && !self.shared.drain_is_wanted() && !self.refuses_clients(),
            clock: members::clock(&status.clock),
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
            ..members::own(&self.shared, self.since())
        }
    }

    fn keyspaces(&self) -> Vec<Keyspace> {
        let (schema, view) = (self.engine.schema(), self.engine.coordinator.context.view());
        let keyspaces = schema.keyspaces.values().map(|keyspace| Keyspace {
            name: keyspace.name.clone(),
            is_system: system_tables::kind(&keyspace.name).is_some(),
            is_local: keyspace
                .replication
                .get("class")
                .is_some_and(|class| class.ends_with("LocalStrategy")),
            tables: keyspace.tables.keys().cloned().collect(),
            has_tablets: keyspace
                .tables
                .values()
                .any(|table| view.route(table.id).is_some_and(|route| route.has_own_tablets)),
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
        let view = self.engine.coordinator.context.view();
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
            let mut merged = tables().await;
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
            if let Some(cluster) = &self.member {
                all.extend(metrics::node::balance(&cluster.own_balance_report()));
            }
            all.extend(metrics::node::tasks(&self.shared.tasks.classes()));
            all.extend(metrics::node::large_data(sstable::large_counts()));
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
        jobs::start(&self.engine, self.member.as_ref(), &self.shared.tasks, work)
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
        self.cluster()?.confirm_clock()
    }

    fn balance(&self) -> Local<'_, Result<Balance, String>> {
        Box::pin(async move { Ok(balance::balance(self.cluster()?).await) })
    }

    fn set_balanced(&self, is_balanced: bool) -> Local<'_, Result<(), String>> {
        Box::pin(async move {
            let set = self.cluster()?.set_balanced(is_balanced).await;
            set.map_err(|e| e.to_string())
        })
    }

    fn client_routes(&self) -> Vec<ClientRoute> {
        client_routes::shown(&self.shared.client_routes())
    }

    fn put_client_routes(&self, routes: Vec<ClientRoute>) -> Local<'_, Result<(), NotChanged>> {
        Box::pin(async move { client_routes::change(self.cluster(), client_routes::put(routes)).await })
    }

    fn remove_client_routes(&self, routes: Vec<ClientRouteKey>) -> Local<'_, Result<(), NotChanged>> {
        Box::pin(async move { client_routes::change(self.cluster(), client_routes::removed(routes)).await })
    }

    fn repair(&self, wanted: Repairs) -> Local<'_, Result<Vec<RepairedTable>, String>> {
        // A task of its own: it continues even if the caller stops waiting.
        let (engine, cluster, tasks) = (self.engine.clone(), self.cluster().cloned(), self.shared.tasks.clone());
        let done = runtime::spawn(async move {
            cluster?;
            repairs::run(&engine, &tasks, wanted).await
        });
        Box::pin(done)
    }

    fn repair_cluster(&self, what: Selection, incremental_mode: Option<String>) -> Local<'_, Result<u64, String>> {
        let (engine, cluster, tasks) = (self.engine.clone(), self.cluster().cloned(), self.shared.tasks.clone());
        let done = runtime::spawn(async move {
            let cluster = cluster?;
            repairs::run_everywhere(&engine, &tasks, |host| cluster.is_live(host), (what, incremental_mode)).await
        });
        Box::pin(done)
    }

    fn repair_tablets(&self, wanted: TabletRepair) -> Local<'_, Result<Uuid, String>> {
        let (engine, cluster, tasks) = (self.engine.clone(), self.cluster().cloned(), self.shared.tasks.clone());
        Box::pin(async move { tablet_repairs::start(&engine, &tasks, cluster?, wanted).await })
    }

    fn barrier(&self) -> Local<'_, Result<(), String>> {
        Box::pin(async move { self.cluster()?.barrier().await.map(|_| ()).map_err(|e| e.to_string()) })
    }
}
