//! The one place where this node becomes what the cluster's metadata say: schema, tablets, truncations, and the view
//! that requests use.
//!
//! Versions of the metadata come one after the other, on shard 0 ([`Follower::follow`]):
//!
//! 1. Tablets that will leave their shard, or be cut otherwise, are made ready while requests run.
//! 2. Each shard takes the version over in one step: tables, tablets, schema, view (docs/dev/tablets.md). From there on
//!    its requests are those of the version.
//! 3. What tablets had that left one shard goes to the shard that has them next. Those that are cut otherwise on their
//!    shard have it from the step of 2.
//! 4. Tablets that are about to come from other nodes are opened, empty. Until here the node has nothing of them: a
//!    node that was away may jump over the end of one move and the beginning of another, which brings the same tablet
//!    back, and what it had of it has left with 3.
//! 5. Dropped tables are removed with their files, clients are notified, truncations are done.
//!
//! What 3 to 5 cannot do now, say because the disk is full, is tried again until it succeeds. Until then, requests for
//! the affected tables wait, and so do later versions. After a crash the start does all of it from the files and the
//! log ([`crate::open`]).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use config::AutoSnapshot;
use coordinator::ClusterView;
use ddl::{SchemaDifference, schema_difference};
use query::Engine;
use replica::{Sealed, Shard, TableStore, TokenRange, TruncationMark, WantedTable, changes_shards, paxos_state_id};
use runtime::{Notify, Permit, Semaphore, ShardId};
use schema::{Column, Schema, Table, TableId};
use system_tables::KeyspaceKind;
use tasks::{Origin, Spec};
use types::Token;

use crate::operator::snapshots::{self, Loss};
use crate::start::Shared;
use crate::view::{awaited_by_shard, cuts, first_targets, ranges_by_shard, without};

/// How long what failed, say because the disk is full, is left alone.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Has every shard of this node do a part, all at once; the parts in order of shards.
pub(crate) async fn on_all_shards<T: Send + 'static>(
    part: impl AsyncFn(Rc<Engine>) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let asked: Vec<_> = (0..runtime::shard_count())
        .map(|shard| {
            let part = part.clone();
            runtime::submit_async_to(ShardId(shard), move || async move { part(Engine::local()).await })
        })
        .collect();
    let mut parts = Vec::with_capacity(asked.len());
    for part in asked {
        parts.push(part.await);
    }
    parts
}

/// A table some of whose tablets leave or arrive here.
#[derive(Clone)]
struct Moving {
    table: TableId,
    /// All its tablets, wherever they are.
    cuts: Arc<[TokenRange]>,
    /// What each shard is to have.
    ranges: Arc<[Vec<TokenRange>]>,
}

/// How the tablets of some tables become others.
#[derive(Default)]
struct Tablets {
    /// By shard: the tables that are new or another.
    wanted: Vec<Vec<WantedTable>>,
    moving: Vec<Moving>,
    /// By shard: those that are opened empty.
    opened: Vec<Vec<(TableId, Vec<TokenRange>)>>,
}

impl Tablets {
    fn new(shards: u32) -> Self {
        Self {
            wanted: vec![Vec::new(); shards as usize],
            moving: Vec::new(),
            opened: vec![Vec::new(); shards as usize],
        }
    }

    /// A table is to have these tablets.
    fn add(&mut self, kept: &Arc<Table>, ranges: &[Vec<TokenRange>], keeps_shards: bool) {
        for (shard, ranges) in ranges.iter().enumerate() {
            self.wanted[shard].push(WantedTable {
                table: kept.clone(),
                ranges: ranges.clone(),
                keeps_shards,
            });
        }
    }

    /// Some of its tablets leave or arrive.
    fn add_moving(&mut self, kept: &Arc<Table>, view: &ClusterView, tablets_of: TableId, ranges: &[Vec<TokenRange>]) {
        let shards = runtime::shard_count();
        self.moving.push(Moving {
            table: kept.id,
            cuts: cuts(view, tablets_of, shards).all.into(),
            ranges: ranges.into(),
        });
    }

    /// Tablets of a table, by their last tokens, are opened empty beside those that it has: it is to have all of these
    /// ranges.
    fn add_targets(
        &mut self,
        kept: &Arc<Table>,
        (view, tablets_of): (&ClusterView, TableId),
        ranges: &[Vec<TokenRange>],
        targets: &BTreeSet<Token>,
    ) {
        self.add(kept, ranges, false);
        self.add_moving(kept, view, tablets_of, ranges);
        for (opened, ranges) in self.opened.iter_mut().zip(ranges) {
            let ranges: Vec<_> = ranges
                .iter()
                .filter(|range| targets.contains(&range.to))
                .copied()
                .collect();
            if !ranges.is_empty() {
                opened.push((kept.id, ranges));
            }
        }
    }
}

/// What shards take over.
struct Version {
    schema: Arc<Schema>,
    view: Arc<ClusterView>,
    difference: SchemaDifference,
    /// The schema has changed.
    has_other_schema: bool,
    tablets: Arc<Tablets>,
    /// What follows: tablets that are about to come from other nodes.
    targets: Arc<Tablets>,
    /// Of tables whose tablets or their stages have changed: by shard, the tokens whose older data has not arrived yet.
    awaited: Vec<(TableId, Vec<Vec<TokenRange>>)>,
    /// Tables that lose a column.
    losing: Vec<TableId>,
    /// Tables that get a column back.
    regaining: Vec<TableId>,
}

impl Version {
    fn new(engine: &Engine, next: &Schema, view: Arc<ClusterView>) -> Self {
        let (former, before) = (engine.schema(), engine.coordinator.context.view());
        let schema = with_own_keyspaces(&former, next);
        let mut version = Self {
            difference: schema_difference(&former, &schema),
            has_other_schema: former.version != schema.version,
            tablets: Arc::default(),
            targets: Arc::default(),
            awaited: Vec::new(),
            losing: Vec::new(),
            regaining: Vec::new(),
            schema: Arc::new(schema),
            view,
        };
        let shards = runtime::shard_count();
        let mut changes = (Tablets::new(shards), Tablets::new(shards));
        for keyspace in version.schema.clone().keyspaces.values() {
            for table in keyspace.tables.values() {
                let known = former.keyspaces.get(&keyspace.name);
                let known = known.and_then(|known| known.tables.get(&table.name));
                let known = known.filter(|known| known.id == table.id);
                version.compare(engine, table, known, &before, &mut changes);
            }
        }
        (version.tablets, version.targets) = (Arc::new(changes.0), Arc::new(changes.1));
        version
    }

    /// Notes what becomes of a table.
    fn compare(
        &mut self,
        engine: &Engine,
        table: &Arc<Table>,
        known: Option<&Arc<Table>>,
        before: &ClusterView,
        (tablets, targets): &mut (Tablets, Tablets),
    ) {
        let map = |view: &ClusterView| {
            view.route(table.id)
                .filter(|r| r.has_own_tablets)
                .map(|r| r.map.clone())
        };
        let is_same_map = match (map(before), map(&self.view)) {
            (Some(before), Some(after)) => Arc::ptr_eq(&before, &after),
            (None, None) => true,
            _ => false,
        };
        let is_same = known.is_some_and(|known| Arc::ptr_eq(known, table));
        self.has_other_schema |= !is_same;
        if known.is_some_and(|known| known.dropped.len() < table.dropped.len()) {
            self.losing.push(table.id);
        }
        if known.is_some_and(|known| regains(known, table)) {
            self.regaining.push(table.id);
        }
        let shards = runtime::shard_count();
        // The map of a table on the ring says nothing by being another value.
        let changes_ring = |view: &ClusterView| view.changes_ring(table.id);
        let is_other_ring = changes_ring(before) || changes_ring(&self.view);
        if is_same && is_same_map && !is_other_ring {
            return;
        }
        if !is_same_map || is_other_ring {
            let awaited = awaited_by_shard(&self.view, table.id, shards);
            for kept in engine.node.system_tables.kept_tables(table) {
                self.awaited.push((kept.id, awaited.clone()));
            }
        }
        let all = ranges_by_shard(&self.view, table.id, shards);
        let first = first_targets(&self.view, Some(before), table.id);
        let ranges = without(&all, &first);
        if !first.is_empty() {
            for kept in engine.node.system_tables.kept_tables(table) {
                targets.add_targets(&kept, (&self.view, table.id), &all, &first);
            }
        }
        let former = ranges_by_shard(before, table.id, shards);
        let moves = known.is_some() && !is_same_map && ranges != former;
        if is_same && !moves {
            return;
        }
        let keeps_shards = !changes_shards(&former, &ranges);
        for kept in engine.node.system_tables.kept_tables(table) {
            tablets.add(&kept, &ranges, keeps_shards);
            if moves {
                tablets.add_moving(&kept, &self.view, table.id, &ranges);
            }
        }
    }
}

/// Does something on every shard with each table of which tablets leave, and the ranges that the shard is to have.
async fn of_leaving(
    tablets: &Arc<Tablets>,
    what: impl AsyncFn(&Shard, &TableStore, &[TokenRange]) + Clone + Send + 'static,
) {
    let tablets = tablets.clone();
    on_all_shards(async move |engine: Rc<Engine>| {
        for Moving { table, ranges, .. } in &tablets.moving {
            if let Some(store) = engine.coordinator.context.shard.store(*table) {
                what(
                    &engine.coordinator.context.shard,
                    &store,
                    &ranges[engine.coordinator.context.shard.id().0 as usize],
                )
                .await;
            }
        }
    })
    .await;
}

/// Whether a table gets back a column that it had before.
fn regains(known: &Table, table: &Table) -> bool {
    let is_new = |column: &&Column| {
        known
            .columns
            .iter()
            .all(|other| other.id != column.id || other.name != column.name)
    };
    let mut new = table.columns.iter().filter(is_new);
    new.any(|column| table.dropped.iter().any(|dropped| dropped.name == column.name))
}

/// A schema with this node's definitions of what each node has for itself.
fn with_own_keyspaces(own: &Schema, next: &Schema) -> Schema {
    let mut next = next.clone();
    for (name, keyspace) in &own.keyspaces {
        if system_tables::kind(name) == Some(KeyspaceKind::Local) {
            next.keyspaces.insert(name.clone(), keyspace.clone());
        }
    }
    next
}

/// Follows the cluster's metadata. On shard 0, whose local value it is.
pub(crate) struct Follower {
    engine: Rc<Engine>,
    shared: Arc<Shared>,
    auto_snapshot: Cell<AutoSnapshot>,
    /// Notified of snapshots that are not kept permanently.
    pub(crate) snapshot_with_end: Notify,
    turn: Semaphore,
}

impl Follower {
    pub(crate) fn new(engine: Rc<Engine>, shared: Arc<Shared>) -> Rc<Self> {
        let turn = Semaphore::new(1);
        Rc::new(Self {
            engine,
            auto_snapshot: Cell::new(shared.config.auto_snapshot),
            shared,
            snapshot_with_end: Notify::new(),
            turn,
        })
    }

    /// Keeps the node as it is, tables and tablets, while the permit is held: what looks at one shard after the other
    /// needs it.
    pub(crate) async fn hold(&self) -> Permit {
        self.turn.acquire(1).await
    }

    /// Makes the node what a version says. Returns when all of it is done.
    pub(crate) async fn follow(&self, schema: &Schema, view: Arc<ClusterView>) {
        let _turn = self.turn.acquire(1).await;
        let former = self.engine.schema();
        let version = Arc::new(Version::new(&self.engine, schema, view));
        self.flush_losing(&version).await;
        self.prepare(&version.tablets).await;
        let taken = version.clone();
        let waiting = on_all_shards(async move |engine: Rc<Engine>| take(&engine, &taken)).await;
        self.hand_over_all(&version.tablets, waiting).await;
        self.open_targets(&version.targets).await;
        self.keep(&former, &version.difference.dropped_tables, Loss::Dropped)
            .await;
        let ended = version.clone();
        on_all_shards(async move |engine: Rc<Engine>| end(&engine, &ended).await).await;
        self.finish_truncations().await;
    }

    /// Flushes tables that lose a column: a file has its cells by the column's name, so those that are newer than the
    /// time of the DROP are its successor's if it is added again.
    async fn flush_losing(&self, version: &Arc<Version>) {
        if version.losing.is_empty() {
            return;
        }
        let version = version.clone();
        on_all_shards(async move |engine: Rc<Engine>| {
            for store in version
                .losing
                .iter()
                .filter_map(|table| engine.coordinator.context.shard.store(*table))
            {
                for tablet in store.tablets().iter() {
                    if let Err(e) = engine.coordinator.context.shard.flush(&store, tablet).await {
                        let table = store.table();
                        log::warn!("{}.{} loses a column without a flush: {e}", table.keyspace, table.name);
                    }
                }
            }
        })
        .await;
    }

    /// Makes tablets ready that will leave their shard, or be cut otherwise.
    async fn prepare(&self, tablets: &Arc<Tablets>) {
        if tablets.moving.is_empty() {
            return;
        }
        let kept = tablets.clone();
        let tablets = tablets.clone();
        on_all_shards(async move |engine: Rc<Engine>| {
            for Moving { table, cuts, ranges } in &tablets.moving {
                let Some(store) = engine.coordinator.context.shard.store(*table) else {
                    continue;
                };
                let wanted = &ranges[engine.coordinator.context.shard.id().0 as usize];
                if let Err(e) = engine
                    .coordinator
                    .context
                    .shard
                    .prepare_to_leave(&store, wanted, cuts)
                    .await
                {
                    let table = store.table();
                    let name = (&table.keyspace, &table.name);
                    log::warn!(
                        "cannot prepare every tablet of {}.{} before its move; the move continues: {e}",
                        name.0,
                        name.1
                    );
                }
            }
        })
        .await;
        // After the preparation of all shards, which may take long, and after running flushes: while tablets are kept
        // in memory, they free no memory for writes.
        of_leaving(&kept, Shard::flushes_end).await;
        // Nothing is flushed between this and the step that takes the version over.
        of_leaving(&kept, Shard::keep_in_memory).await;
    }

    /// Opens tablets of which this node has nothing. The logs of earlier runs may have writes to them, which the next
    /// start must not bring into them.
    async fn open_targets(&self, targets: &Arc<Tablets>) {
        if targets.moving.is_empty() {
            return;
        }
        if !self.shared.old_log_is_gone.load(Ordering::Acquire) {
            let what = "the opening of tablets that come from other nodes";
            until_done(what, async || forget_in_logs(targets).await).await;
        }
        let taken = targets.clone();
        let waiting = on_all_shards(async move |engine: Rc<Engine>| take_tablets(&engine, &taken)).await;
        self.hand_over_all(targets, waiting).await;
    }

    /// Hands over what left shards, of the tables that wait for it.
    async fn hand_over_all(&self, tablets: &Tablets, waiting: Vec<Vec<TableId>>) {
        let waiting: BTreeSet<TableId> = waiting.into_iter().flatten().collect();
        // What acceptors know comes first: a statement decides alone where they know nothing.
        let moving = tablets.moving.iter().rev();
        for moving in moving.filter(|moving| waiting.contains(&moving.table)) {
            self.hand_over(moving).await;
        }
    }

    /// Gives what tablets of a table had that left a shard to those that have them next.
    async fn hand_over(&self, moving: &Moving) {
        let Some(store) = self.engine.coordinator.context.shard.store(moving.table) else {
            return;
        };
        let table = store.table();
        let spec = Spec {
            scope: "table",
            keyspace: table.keyspace.clone(),
            table: table.name.clone(),
            total: 1,
            ..Spec::of(&replica::kinds::HAND_OVER)
        };
        let task = self.engine.coordinator.context.shard.tasks().start(spec, &Origin::Node);
        task.begin();
        let what = format!("the move of tablets of {}.{}", table.keyspace, table.name);
        let sealed = Arc::new(until_done(&what, async || seal(moving).await).await);
        until_done(&what, async || self.delete_left(moving, &sealed).await).await;
        let id = moving.table;
        on_all_shards(async move |engine: Rc<Engine>| {
            if let Some(store) = engine.coordinator.context.shard.store(id) {
                engine.coordinator.context.shard.open_arrived(&store, &sealed);
                engine.coordinator.context.shard.forget_left(&store).await;
                if sealed.iter().any(|sealed| !sealed.missing.is_empty()) {
                    // An operator may have accepted the loss in the meantime.
                    let _ = engine.coordinator.context.look_for_quarantined(id).await;
                }
            }
        })
        .await;
        log::info!("tablets of {}.{} are on their shards", table.keyspace, table.name);
        task.end(&Ok::<_, String>(()));
    }

    /// Deletes what no shard of this node has any more.
    async fn delete_left(&self, moving: &Moving, sealed: &[Sealed]) -> Result<(), String> {
        let is_here = |reader: &Arc<sstable::Reader>| {
            let mut here = moving.ranges.iter().flatten();
            here.any(|range| range.overlaps(reader.tokens()))
        };
        let all = sealed.iter().flat_map(|sealed| &sealed.sstables);
        let left: Vec<_> = all.filter(|reader| !is_here(reader)).cloned().collect();
        if left.is_empty() {
            Ok(())
        } else {
            self.engine.coordinator.context.shard.delete_left(&left).await
        }
    }

    /// What is kept of tables that are dropped or truncated from now on.
    pub(crate) fn set_auto_snapshot(&self, auto_snapshot: AutoSnapshot) {
        self.auto_snapshot.set(auto_snapshot);
    }

    /// Keeps what tables have before it is deleted, unless they say otherwise (`allow_auto_snapshot`). A disk that is
    /// too full for that must not keep its operator from making room.
    async fn keep(&self, schema: &Schema, tables: &[TableId], loss: Loss) {
        let AutoSnapshot { is_on, ttl } = self.auto_snapshot.get();
        let allows = |id: &TableId| {
            let table = schema.table_by_id(*id);
            table.is_none_or(|table| table.options.allow_auto_snapshot)
        };
        let kept: Vec<TableId> = tables.iter().copied().filter(allows).collect();
        if !is_on || kept.is_empty() {
            return;
        }
        if let Err(e) = snapshots::keep(&self.engine, schema, &kept, loss, ttl).await {
            log::error!("cannot snapshot a table before its data is deleted: {e}");
        }
    }

    /// Does on all shards what is left to do of the truncations in the view: after a change of the cluster, and at a
    /// start. The steps are those of `coordinator/src/truncate.rs`.
    pub(crate) async fn finish_truncations(&self) {
        for (table, version) in self.engine.coordinator.context.view().truncations() {
            let Some(store) = self.engine.coordinator.context.shard.store(table) else {
                continue;
            };
            if store.truncated_at.get() >= version {
                continue;
            }
            let name = store.table();
            let what = format!("the truncation of {}.{}", name.keyspace, name.name);
            until_done(&what, async || self.truncate(table, version).await).await;
        }
    }

    async fn truncate(&self, table: TableId, version: u64) -> Result<(), String> {
        let settled = on_all_shards(async |engine: Rc<Engine>| {
            let settled = engine.coordinator.context.shard.settle_batches().await;
            settled.map_err(|e| format!("a batch before it failed: {e}"))
        });
        settled.await.into_iter().collect::<Result<(), String>>()?;
        self.keep(&self.engine.schema(), &[table], Loss::Truncated).await;
        let forgotten = on_all_shards(async move |engine: Rc<Engine>| engine.coordinator.forget_table(table).await);
        forgotten.await.into_iter().collect::<Result<(), String>>()?;
        let Some(store) = self.engine.coordinator.context.shard.store(table) else {
            return Ok(());
        };
        let dir = store.dir.clone();
        let marked = runtime::offload(move || TruncationMark::of(&dir).write(version)).await;
        marked.map_err(|e| format!("the mark of the truncation cannot be written: {e}"))?;
        on_all_shards(async move |engine: Rc<Engine>| engine.coordinator.context.set_truncated_at(table, version))
            .await;
        Ok(())
    }
}

/// Has the logs forget what they have of tablets that are to be opened empty.
async fn forget_in_logs(targets: &Arc<Tablets>) -> Result<(), String> {
    let targets = targets.clone();
    let forgotten = on_all_shards(async move |engine: Rc<Engine>| {
        for (table, ranges) in &targets.opened[engine.coordinator.context.shard.id().0 as usize] {
            if let Some(store) = engine.coordinator.context.shard.store(*table) {
                engine.coordinator.context.shard.forget_in_logs(&store, ranges).await?;
            }
        }
        Ok(())
    });
    forgotten.await.into_iter().collect()
}

/// Puts everything into sealed sstables that tablets of a table have which left their shard.
async fn seal(moving: &Moving) -> Result<Vec<Sealed>, String> {
    let (id, cuts) = (moving.table, moving.cuts.clone());
    let parts = on_all_shards(
        async move |engine: Rc<Engine>| match engine.coordinator.context.shard.store(id) {
            Some(store) => engine.coordinator.context.shard.seal_leaving(&store, &cuts).await,
            None => Ok(Vec::new()),
        },
    );
    let parts: Result<Vec<Vec<Sealed>>, String> = parts.await.into_iter().collect();
    Ok(parts?.into_iter().flatten().collect())
}

/// Does something again and again until it succeeds.
async fn until_done<T>(what: &str, attempt: impl AsyncFn() -> Result<T, String>) -> T {
    let mut is_told = false;
    loop {
        match attempt().await {
            Ok(done) => return done,
            Err(e) if !std::mem::replace(&mut is_told, true) => {
                log::error!("{what} is tried again until it succeeds, and requests wait for it: {e}");
            }
            Err(_) => {}
        }
        runtime::sleep(RETRY_DELAY).await;
    }
}

/// Replaces the tablets of this shard. Returns the tables of which something leaves the shard or moves to it.
fn take_tablets(engine: &Engine, tablets: &Tablets) -> Vec<TableId> {
    let changed = engine
        .coordinator
        .context
        .shard
        .reconcile(&tablets.wanted[engine.coordinator.context.shard.id().0 as usize]);
    engine.coordinator.cas.forget_left(&changed);
    let waiting = changed.iter().filter(|store| store.waits_for_hand_over());
    waiting.map(|store| store.table().id).collect()
}

/// Takes a version over on this shard, in one step. Returns the tables of which something leaves the shard or moves to
/// it from another.
fn take(engine: &Engine, version: &Version) -> Vec<TableId> {
    let here = engine.coordinator.context.shard.id().0 as usize;
    let waiting = take_tablets(engine, &version.tablets);
    for (table, awaited) in &version.awaited {
        if let Some(store) = engine.coordinator.context.shard.store(*table) {
            store.set_awaited(awaited[here].clone());
        }
    }
    // A version that leaves the schema as it is, say a move, leaves prepared statements as they are.
    if version.has_other_schema {
        engine.take_schema(version.schema.clone());
    }
    engine.coordinator.take_view(version.view.clone());
    waiting
}

/// Drops tables on this shard that the schema does not have any more, and notifies its clients of what changed.
async fn end(engine: &Engine, version: &Version) {
    let difference = &version.difference;
    for store in version
        .regaining
        .iter()
        .filter_map(|table| engine.coordinator.context.shard.store(*table))
    {
        if let Err(e) = engine.coordinator.context.shard.reopen_sstables(&store).await {
            let table = store.table();
            log::error!(
                "what {}.{} had in a column that is there again is read at the next start: {e}",
                table.keyspace,
                table.name
            );
        }
    }
    for id in &difference.dropped_tables {
        for id in [*id, paxos_state_id(*id)] {
            if let Err(e) = engine.coordinator.context.shard.drop_table(id).await {
                log::error!("cannot remove all files of a dropped table: {e}");
            }
        }
        engine.coordinator.cas.forget_states(*id);
    }
    engine.tell_changes(&difference.changes);
}
