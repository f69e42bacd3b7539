//! A node's data at its start: the files of its tables, each opened once, and the logs of earlier runs, each read once.
//!
//! Shard 0 opens the files, cuts those that the tablets of now cut, and leaves them for the shards that have their
//! tokens. When every shard has its tables, each reads its part of the logs, and gives what it finds of other shards'
//! tokens to them: tablets may have moved, and the number of shards may have changed.
//!
//! Tablets that are about to come from other nodes are left out ([`first_targets`]): what is here of them is from an
//! earlier time. They are opened empty when the logs are replayed, and durably forget it, before the node says that it
//! knows of them.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use coordinator::ClusterView;
use replica::{Foreign, RecoveryError, RecoveryStats, Shard, TableFiles, TokenRange, WantedTable};
use runtime::ShardId;
use schema::TableId;
use tasks::{JobControl, Origin, Spec, Task};

use crate::start::{Shared, Stage};
use crate::view::{awaited_by_shard, cuts, first_targets, owner, ranges_by_shard, stored_tables, without};

/// Opens this shard's part of every table, and replays what the logs have of it. None when a shard has failed.
///
/// # Errors
/// When the disk refuses, or the log is damaged.
pub(crate) async fn open(shared: &Arc<Shared>, shard: &Rc<Shard>) -> Result<Option<RecoveryStats>, String> {
    runtime::set_local(shard.clone());
    if shard.id() == ShardId(0) {
        let task = shared.tasks.start(Spec::of(&replica::kinds::RESHARD), &Origin::Node);
        let opened = open_files(shared, shard, &task).await;
        task.end(&opened);
        opened?;
    }
    if !shared.meet(Stage::FilesOpened).await {
        return Ok(None);
    }
    let (view, shards) = (shared.first_view(), shared.config.smp);
    for (tablets_of, table) in stored_tables(&shared.schema, &shared.node.system_tables) {
        let targets = first_targets(&view, None, tablets_of);
        let ranges = without(&ranges_by_shard(&view, tablets_of, shards), &targets);
        let files = shared.files_of(table.id);
        shard.open_table(&table, &ranges[shard.id().0 as usize], &files);
        let mut awaited = awaited_by_shard(&view, tablets_of, shards);
        if let Some(store) = shard.store(table.id) {
            store.set_awaited(std::mem::take(&mut awaited[shard.id().0 as usize]));
        }
    }
    if !shared.old_log.segments.is_empty() {
        shard.keep_old_log();
    }
    if !shared.meet(Stage::TablesOpened).await {
        return Ok(None);
    }
    if shard.id() == ShardId(0) {
        shared.forget_files();
    }
    runtime::set_start_phase(Some("replaying the commitlog"));
    let stats = replay(shared, shard, &view).await.map_err(|e| e.to_string())?;
    if !shared.meet(Stage::Replayed).await {
        return Ok(None);
    }
    shard.end_replay();
    open_targets(shared, shard, &view).await?;
    Ok(Some(stats))
}

/// Opens the tablets of this shard that are about to come from other nodes.
async fn open_targets(shared: &Arc<Shared>, shard: &Rc<Shard>, view: &ClusterView) -> Result<(), String> {
    for (tablets_of, table) in stored_tables(&shared.schema, &shared.node.system_tables) {
        let targets = first_targets(view, None, tablets_of);
        let mut ranges = ranges_by_shard(view, tablets_of, shared.config.smp);
        let ranges = ranges.swap_remove(shard.id().0 as usize);
        let opened: Vec<TokenRange> = ranges
            .iter()
            .filter(|range| targets.contains(&range.to))
            .copied()
            .collect();
        let Some(store) = shard.store(table.id).filter(|_| !opened.is_empty()) else {
            continue;
        };
        shard.forget_in_logs(&store, &opened).await.map_err(|e| {
            let name = (&table.keyspace, &table.name);
            format!(
                "the commitlog cannot forget what it has of tablets of {}.{} that come from other nodes: {e}",
                name.0, name.1
            )
        })?;
        let wanted = WantedTable {
            table,
            ranges,
            keeps_shards: false,
        };
        shard.reconcile(&[wanted]);
        shard.open_arrived(&store, &[]);
    }
    Ok(())
}

/// Opens the files of all tables, and gives each tablet its own, where they were written for others, or for another
/// number of shards.
async fn open_files(shared: &Arc<Shared>, shard: &Rc<Shard>, task: &Task) -> Result<(), String> {
    let view = shared.first_view();
    for (tablets_of, table) in stored_tables(&shared.schema, &shared.node.system_tables) {
        let dir = shard.table_dir(&table);
        let mut cuts = cuts(&view, tablets_of, shared.config.smp);
        let targets = first_targets(&view, None, tablets_of);
        cuts.here.retain(|range| !targets.contains(&range.to));
        let (count, generations, host_id) = (cuts.all.len(), shared.generations.clone(), shared.host_id);
        let (name, id) = (format!("{}.{}", table.keyspace, table.name), table.id);
        let work = move |control: JobControl| {
            replica::prepare_sstables(&table, &dir, &cuts, (&generations, host_id), &control)
        };
        let (files, rewritten) = task.run_job(work).await??;
        if rewritten > 0 {
            log::info!("rewrote {rewritten} sstables of {name} for {count} parts of its tokens");
        }
        shared.set_files(id, files);
    }
    Ok(())
}

/// Reads this shard's part of the logs.
async fn replay(shared: &Arc<Shared>, shard: &Rc<Shard>, view: &ClusterView) -> Result<RecoveryStats, RecoveryError> {
    let bases: HashMap<TableId, TableId> = stored_tables(&shared.schema, &shared.node.system_tables)
        .into_iter()
        .map(|(tablets_of, table)| (table.id, tablets_of))
        .collect();
    let unowned = Cell::new(0);
    let hand_over = async |foreign: Vec<Foreign>| {
        let mut by_shard: BTreeMap<u32, Vec<Foreign>> = BTreeMap::new();
        for foreign in foreign {
            let base = bases.get(&foreign.table).copied().unwrap_or(foreign.table);
            match owner(view, base, foreign.token, shared.config.smp) {
                Some(shard) => by_shard.entry(shard).or_default().push(foreign),
                None => unowned.set(unowned.get() + 1),
            }
        }
        for (shard, foreign) in by_shard {
            let applied: Result<u64, RecoveryError> = runtime::submit_async_to(ShardId(shard), move || async move {
                let shard = runtime::local::<Shard>().expect("every shard has its tables before the first replays");
                shard.replay_foreign(&foreign).await
            })
            .await;
            unowned.set(unowned.get() + applied?);
        }
        Ok(())
    };
    let stats = shard
        .replay(&shared.config.commitlog_dir, shared.boot_id, hand_over)
        .await?;
    if stats.mutations > 0 {
        log::info!(
            "shard {}: replayed {} mutations of {} segments",
            shard.id().0,
            stats.mutations,
            stats.segments
        );
    }
    if unowned.get() > 0 {
        log::warn!(
            "shard {}: {} mutations in the commitlog are of tokens that this node does not have any more; they were left out",
            shard.id().0,
            unowned.get()
        );
    }
    Ok(stats)
}

impl Shared {
    fn set_files(&self, table: TableId, files: TableFiles) {
        let mut all = self.files.lock().expect("no thread panics while holding the files");
        all.insert(table, Arc::new(files));
    }

    fn files_of(&self, table: TableId) -> Arc<TableFiles> {
        let all = self.files.lock().expect("no thread panics while holding the files");
        all.get(&table).cloned().unwrap_or_default()
    }

    /// Every shard has its part of them.
    fn forget_files(&self) {
        self.files
            .lock()
            .expect("no thread panics while holding the files")
            .clear();
    }
}
