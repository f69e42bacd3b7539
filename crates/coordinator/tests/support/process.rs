//! One process of a simulated node: how each of its shards starts, and what it runs.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::{Commitlog, OldLog};
use coordinator::{ClusterView, Coordinator, Promises, ReplicaHandler};
use hints::Hints;
use replica::{NotedBatches, Shard, ShardOptions, TableFiles, TokenRange};
use rpc::Rpc;
use runtime::ShardId;
use schema::Table;
use topology::HostId;
use types::Token;

use super::{Local, Seen, Shape, counters};

/// What the shards of one process share.
pub(super) struct Boot {
    noted_batches: Arc<NotedBatches>,
    last_segment: u64,
    generations: Arc<sstable::Generations>,
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

/// Runs a shard of a node, from its start to the end of its process.
pub(super) async fn live(
    seen: &Seen,
    boot: &RefCell<Option<Rc<Boot>>>,
    shape: &Shape,
    table: &Arc<Table>,
    view: Arc<ClusterView>,
    host: HostId,
) {
    let (data_dir, log_dir) = (PathBuf::from("/data"), PathBuf::from("/commitlog"));
    let id = runtime::shard();
    if id == ShardId(0) {
        let prepared = prepare(shape, table, &data_dir, &log_dir);
        prepared.promises.wait_for_clock().await;
        *boot.borrow_mut() = Some(Rc::new(prepared));
    }
    let boot = loop {
        let ready = boot.borrow().clone();
        if let Some(ready) = ready {
            break ready;
        }
        runtime::sleep(Duration::from_micros(100)).await;
    };
    let (shard, log) = new_shard(shape, &boot, host, data_dir, &log_dir);
    let ranges = cut(shard.token_range(), shape.tablets);
    for table in [table, &coordinator::paxos_state_of(table), &counters()] {
        let files = TableFiles::open(table, &shard.table_dir(table)).expect("the sstables can be opened");
        shard.open_table(table, &ranges, &files);
    }
    shard.keep_old_log();
    let stats = shard
        .replay(&log_dir, runtime::boot_id(), async |_| Ok(()))
        .await
        .expect("the log can be replayed");
    shard.end_replay();
    let mut config = rpc::Config::new("sea", host.0);
    config.limits = shape.limits.clone();
    let me = view.topology.node(host).expect("the node is a member");
    config.listen = Some(me.internode);
    let rpc = Rpc::start(config, Rc::new(ReplicaHandler::default())).expect("the port is free");
    let coordinator = Coordinator::new(shard.clone(), Some(rpc.clone()), view.clone());
    coordinator.keep_promises(boot.promises.clone());
    for (number, _) in view.topology.numbered_nodes() {
        coordinator.set_live(number, true);
    }
    if shape.hints {
        coordinator.keep_hints(start_hints(shape));
    }
    runtime::set_local(coordinator.clone());
    for (id, batch) in stats.unfinished_batches {
        coordinator.resume_batch(id, batch).await.expect("the log takes it");
    }
    if shape.hints && id == ShardId(0) {
        begin_reports(&coordinator).await;
    }
    drop(runtime::spawn(coordinator.clone().run_handoff()));
    drop(runtime::spawn(coordinator.clone().run_batchlog()));
    drop(runtime::spawn(log.run_periodic()));
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
    seen.run(local).await;
}

/// The shard without tables, and its log.
fn new_shard(
    shape: &Shape,
    boot: &Boot,
    host: HostId,
    data_dir: PathBuf,
    log_dir: &Path,
) -> (Rc<Shard>, Rc<Commitlog>) {
    let id = runtime::shard();
    let log = Commitlog::new(commitlog::Options {
        dir: log_dir.to_owned(),
        shard: id.0,
        shards: shape.shards,
        segment_bytes: 1 << 20,
        sync: shape.sync,
        boot_id: runtime::boot_id(),
        first_segment: boot.last_segment + 1,
    });
    let shard = Shard::new(
        ShardOptions {
            shard: id,
            shards: shape.shards,
            data_dir,
            dirty_bytes_max: 16 << 20,
            cache_bytes_max: 1 << 20,
            log_bytes_max: 64 << 20,
            generations: boot.generations.clone(),
            noted_batches: boot.noted_batches.clone(),
            activity: Arc::default(),
            compaction_room: Arc::default(),
            tasks: tasks::Tasks::new(1, host.0),
            host_id: host.0,
        },
        log.clone(),
    );
    (shard, log)
}

/// Makes the directories of a node ready: what its first shard does for all.
fn prepare(shape: &Shape, table: &Arc<Table>, data_dir: &Path, log_dir: &Path) -> Boot {
    for dir in [data_dir, log_dir] {
        runtime::fs::create_dir_all(dir).expect("the disk takes directories");
    }
    // Else a power loss takes the directories, with everything that was synced in them.
    runtime::fs::sync_dir("/").expect("the disk syncs directories");
    let old_log = OldLog::take(log_dir).expect("the log can be synced");
    let mut largest = 0;
    for table in [table, &coordinator::paxos_state_of(table), &counters()] {
        let dir = data_dir
            .join(&table.keyspace)
            .join(format!("{}-{}", table.name, table.id.0.simple()));
        if !runtime::fs::exists(&dir) {
            continue;
        }
        sstable::remove_unsealed(&dir).expect("the table's directory can be read");
        for descriptor in sstable::list(&dir).expect("the table's directory can be read") {
            if let sstable::Generation::Number(n) = descriptor.generation {
                largest = largest.max(n);
            }
        }
    }
    let promises = Promises::open(Path::new("/")).expect("the file of promises can be read");
    if !shape.promises_in_rows {
        promises.need_no_rows();
    }
    Boot {
        noted_batches: Arc::new(NotedBatches::new()),
        last_segment: old_log.last_segment,
        generations: Arc::new(sstable::Generations::above(largest)),
        promises,
    }
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
    let begun = coordinator.begin_reports(coordinator::AcceptedLoss::default()).await;
    begun.expect("the ledger can be read");
    let coordinator = coordinator.clone();
    drop(runtime::spawn(async move {
        // The other shards need their coordinators.
        runtime::sleep(Duration::from_millis(100)).await;
        coordinator.run_reports().await;
    }));
}
