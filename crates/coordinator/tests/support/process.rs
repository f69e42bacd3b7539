//! One process of a simulated node: how each of its shards starts, and what it runs.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::{ClusterView, Coordinator, Promises, ReplicaHandler};
use hints::Hints;
use replica::TokenRange;
use rpc::Rpc;
use runtime::ShardId;
use schema::Table;
use test_node::{Hosted, Options, Process};
use topology::HostId;
use types::Token;

use super::{Local, Shape, counters};

/// What the shards of one process share.
pub(super) struct Boot {
    process: Process,
    promises: Arc<Promises>,
}

/// So many parts of a range, about equally long.
fn cut(range: TokenRange, parts: u16) -> Vec<TokenRange> {
    let (after, to) = (i128::from(range.after.0), i128::from(range.to.0));
    let bound = |part: u16| i64::try_from(after + (to - after) * i128::from(part) / i128::from(parts));
    let bound = |part| Token(bound(part).expect("it is between two tokens"));
    let part = |part| TokenRange {
        after: bound(part),
        to: bound(part + 1),
    };
    (0..parts).map(part).collect()
}

/// What a run before left on a node's disk.
pub(super) fn prepare(shape: &Shape, table: &Arc<Table>, host: HostId) -> Boot {
    let of_shard = |shard| cut(replica::shard_range(shard, shape.shards), shape.tablets);
    let tables = [table.clone(), coordinator::paxos_state_of(table), counters()];
    let hosted = tables.map(|table| Hosted {
        table,
        tablets: (0..shape.shards).map(of_shard).collect(),
    });
    let options = Options {
        host_id: host.0,
        shards: shape.shards,
        sync: shape.sync,
        ..Options::default()
    };
    let process = Process::start(options, hosted.to_vec());
    let promises = if shape.promises_in_rows {
        Promises::in_rows()
    } else {
        Promises::open(Path::new("/")).expect("the file of promises can be read")
    };
    Boot { process, promises }
}

/// Starts a shard of a node.
pub(super) async fn live(boot: Rc<Boot>, shape: Shape, view: Arc<ClusterView>, host: HostId) -> Local {
    boot.promises.wait_for_clock().await;
    let id = runtime::shard();
    let shard = boot.process.open(id);
    let stats = boot.process.replay(std::slice::from_ref(&shard)).await.swap_remove(0);
    let mut config = rpc::Config::new("sea", host.0);
    config.limits = shape.limits.clone();
    let me = view.topology.node(host).expect("the node is a member");
    config.listen = Some(me.internode);
    let rpc = Rpc::start(config, Rc::new(ReplicaHandler::default())).expect("the port is free");
    let coordinator = Coordinator::new(shard.clone(), Some(rpc.clone()), view.clone());
    coordinator.cas.keep_promises(boot.promises.clone());
    for (number, _) in view.topology.numbered_nodes() {
        coordinator.set_live(number, true);
    }
    if shape.hints {
        coordinator.keep_hints(start_hints(&shape));
    }
    runtime::set_local(coordinator.clone());
    for (id, batch) in stats.unfinished_batches {
        coordinator.batches.resume(id, batch).await.expect("the log takes it");
    }
    if shape.hints && id == ShardId(0) {
        begin_reports(&coordinator).await;
    }
    drop(runtime::spawn(coordinator.hints.clone().run()));
    drop(runtime::spawn(coordinator.writes.clone().run_batchlog()));
    drop(runtime::spawn(shard.log.clone().run_periodic()));
    let local = Local {
        shard,
        coordinator,
        rpc,
    };
    for (table, version) in view.truncations() {
        let store = local.shard.store(table).expect("the table is open");
        store.set_version(version, 0, version);
        if store.truncated_at.get() < version {
            local
                .take_truncation(table, version)
                .await
                .expect("it can be truncated");
        }
    }
    local
}

fn start_hints(shape: &Shape) -> Rc<Hints> {
    let hints = Hints::start(hints::Options {
        dir: PathBuf::from("/hints"),
        shard: runtime::shard().0,
        shards: shape.shards,
        bytes_max: 1 << 20,
        window: Duration::from_hours(3),
        allowed: hints::Allowed::default(),
        segment_bytes: 16 << 10,
        bytes_per_second: 1 << 20,
    });
    hints.expect("the hints' directory can be read")
}

async fn begin_reports(coordinator: &Rc<Coordinator>) {
    let begun = coordinator
        .tombstones
        .begin_reports(coordinator::AcceptedLoss::default())
        .await;
    begun.expect("the ledger can be read");
    let coordinator = coordinator.clone();
    drop(runtime::spawn(async move {
        // The other shards need their coordinators.
        runtime::sleep(Duration::from_millis(100)).await;
        coordinator.tombstones.clone().run_reports().await;
    }));
}
