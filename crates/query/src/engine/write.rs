//! Writes: to this shard in one call, to others by message.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::{LogError, ReplayPosition};
use coordinator::service::{self, ReplicaError};
use coordinator::{Admission, Extent, Levels, Operation, ReplicatedRead, Stamp, Stretch, WriteKind};
use cql::ast::BatchKind;
use mutation::{ClusteringSlice, Mutation};
use replica::{BlockLimits, PartitionRead, PartitionReader, WriteError};
use runtime::ShardId;
use schema::{Table, TableId};
use stdx::planted::{self, Bug};
use topology::Consistency;
use types::Token;

use super::plan::BatchPlan;
use super::read::BlockSource;
use super::{Engine, Execution, Params};
use crate::write::conditional::collect_lists;
use crate::write::{ListContents, WritePlan};
use crate::{BindContext, QueryError};

/// Batches that failed half way and wait to be finished, at most, on one shard; then no batch for several shards is taken.
const FAILED_BATCHES_MAX: usize = 1000;
/// How long they wait for the next attempt.
const FINISH_DELAY: Duration = Duration::from_secs(1);

/// What came of an attempt to write in one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// In log and memtable of this shard; acknowledge after the shard's next commit.
    Here(ReplayPosition),
    /// The statement changes nothing.
    Nothing,
    /// It takes the general way: another shard, a read first, or no room.
    Later,
}

/// What one step of a read for lists takes.
const LISTS_ROWS: usize = 1000;
const LISTS_BYTES: usize = 1 << 20;

/// Which lists a statement must know.
struct Lists {
    table: Arc<Table>,
    ids: Vec<usize>,
    now: u32,
}

impl Lists {
    /// Collects them from the blocks of one partition.
    async fn collect(&self, source: &mut impl BlockSource) -> Result<ListContents, QueryError> {
        let mut lists = ListContents::new();
        while let Some(block) = source.next_block().await? {
            collect_lists(&self.table, &self.ids, &block, block.key(), self.now, &mut lists);
        }
        Ok(lists)
    }
}

/// A mutation on its way.
type Addressed = (Token, Vec<u8>);

pub(super) fn failure(e: &WriteError) -> QueryError {
    match e {
        WriteError::MemoryFull => {
            QueryError::Overloaded(format!("The shard refuses the write: {e}. It was not applied."))
        }
        WriteError::Log(commitlog::LogError::TooLarge { .. }) => QueryError::invalid(e.to_string()),
        WriteError::Log(e) => log_failure(e),
    }
}

fn replica_failure(e: ReplicaError) -> QueryError {
    match e {
        ReplicaError::UnknownTable(_) => QueryError::invalid("unconfigured table: it was dropped meanwhile"),
        ReplicaError::Overloaded(_) => QueryError::Overloaded(e.to_string()),
        ReplicaError::TooLarge(reason) => QueryError::invalid(reason),
        ReplicaError::Partial(_) | ReplicaError::Stale(_) => QueryError::WriteFailure(e.to_string()),
        ReplicaError::Log(reason) => QueryError::WriteFailure(format!(
            "The write failed in the commitlog: {reason}. It may or may not be applied."
        )),
        ReplicaError::NotHere(_) | ReplicaError::Malformed(_) | ReplicaError::Read(_) | ReplicaError::CannotLead(_) => {
            QueryError::Server(e.to_string())
        }
    }
}

pub(super) fn log_failure(e: &commitlog::LogError) -> QueryError {
    QueryError::WriteFailure(format!(
        "The write failed in the commitlog: {e}. It may or may not be applied."
    ))
}

impl Engine {
    /// Tries to write in one call: one partition of this shard.
    #[inline]
    pub fn write_now(
        &self,
        plan: &WritePlan,
        ctx: &BindContext<'_>,
        level: Consistency,
        timestamp: Option<i64>,
    ) -> Result<Written, QueryError> {
        if plan.reads() || plan.counts() || plan.is_conditional() || plan.table.options.rate_limits.writes.is_some() {
            return Ok(Written::Later);
        }
        let mut key = self.key.borrow_mut();
        key.clear();
        let Some(token) = plan.single_key(ctx, &mut key) else {
            return Ok(Written::Later);
        };
        let token = token?;
        let Some(store) = self.shard.store(plan.table.id) else {
            return Ok(Written::Later);
        };
        if store.tablet(token).is_none() || !Levels::from_bits(store.writes_here.get()).contains(level) {
            return Ok(Written::Later);
        }
        let timestamp = match plan.own_timestamp(ctx)?.or(timestamp) {
            Some(t) => t,
            None => self.clock.timestamp(ctx.now_us),
        };
        let mut packed = self.mutation.borrow_mut();
        packed.clear();
        if !plan.pack(&key, timestamp, ctx, &self.clock, None, &mut packed)? {
            return Ok(Written::Nothing);
        }
        let mutation = Mutation::new(&packed).expect("it was packed just now");
        match self.shard.write(&store, token, &mutation) {
            Ok(position) => Ok(Written::Here(position)),
            Err(WriteError::MemoryFull) => Ok(Written::Later),
            Err(e) => Err(failure(&e)),
        }
    }

    /// Writes by the general way and waits until it may be acknowledged.
    pub async fn write(self: &Rc<Self>, plan: &WritePlan, run: &Execution, params: &Params) -> Result<(), QueryError> {
        if let Some(limit) = plan.table.options.rate_limits.writes
            && !plan.counts()
            && let [(token, _)] = run.with(|ctx| plan.keys(ctx))?[..]
        {
            self.admit(plan.table.id, token, Operation::Write, limit).await?;
        }
        let mut mutations = Vec::new();
        self.pack(plan, run, params, None, &mut mutations).await?;
        if plan.counts() {
            return self.add(mutations, params.consistency).await;
        }
        self.apply(mutations, params.consistency, WriteKind::Simple).await
    }

    /// Takes an operation on a partition, if the table's limit leaves room.
    pub(super) async fn admit(
        &self,
        table: TableId,
        token: Token,
        operation: Operation,
        limit: u32,
    ) -> Result<(), QueryError> {
        let admission = Admission {
            table,
            token,
            operation,
            limit,
        };
        let admitted = self.coordinator.admit(admission).await;
        admitted.map_err(QueryError::of_replicas)
    }

    /// Adds to counters.
    async fn add(self: &Rc<Self>, additions: Vec<Addressed>, level: Consistency) -> Result<(), QueryError> {
        // Held to the end: who waits until nobody uses an old view waits for this write.
        let _view = self.coordinator.view();
        let added = self.coordinator.add(additions, level).await;
        added.map_err(QueryError::of_replicas)
    }

    /// Executes a batch and waits until it may be acknowledged.
    pub async fn write_batch(
        self: &Rc<Self>,
        batch: &BatchPlan,
        run: &Execution,
        params: &Params,
    ) -> Result<(), QueryError> {
        let runs: Vec<&Execution> = batch.writes.iter().map(|_| run).collect();
        let own = match &batch.timestamp {
            None => None,
            Some(operand) => run.with(|ctx| match operand.eval(ctx)? {
                crate::Evaluated::Value(v) => Ok(v.as_ref().try_into().ok().map(i64::from_be_bytes)),
                _ => Ok(None),
            })?,
        };
        let writes: Vec<&WritePlan> = batch.writes.iter().map(|w| &**w).collect();
        self.write_all(&writes, &runs, params, own, batch.kind).await
    }

    /// Executes several writes as one batch, each with its own values.
    pub async fn write_all(
        self: &Rc<Self>,
        writes: &[&WritePlan],
        runs: &[&Execution],
        params: &Params,
        timestamp: Option<i64>,
        kind: BatchKind,
    ) -> Result<(), QueryError> {
        // All statements of a batch write at the same moment.
        let timestamp = timestamp.or(params.timestamp).unwrap_or_else(|| {
            self.clock
                .timestamp(runs.first().map_or_else(runtime::wall_clock_us, |r| r.now_us))
        });
        let (mut mutations, mut additions) = (Vec::new(), Vec::new());
        for (plan, run) in writes.iter().zip(runs) {
            let out = if plan.counts() { &mut additions } else { &mut mutations };
            self.pack(plan, run, params, Some(timestamp), out).await?;
        }
        let write_kind = match kind {
            BatchKind::Logged => WriteKind::Batch,
            BatchKind::Unlogged => WriteKind::UnloggedBatch,
            BatchKind::Counter => WriteKind::Counter,
        };
        if !mutations.is_empty() || additions.is_empty() {
            self.apply(mutations, params.consistency, write_kind).await?;
        }
        if !additions.is_empty() {
            self.add(additions, params.consistency).await?;
        }
        Ok(())
    }

    async fn pack(
        self: &Rc<Self>,
        plan: &WritePlan,
        run: &Execution,
        params: &Params,
        timestamp: Option<i64>,
        out: &mut Vec<Addressed>,
    ) -> Result<(), QueryError> {
        let keys = run.with(|ctx| plan.keys(ctx))?;
        let timestamp = match run
            .with(|ctx| plan.own_timestamp(ctx))?
            .or(timestamp)
            .or(params.timestamp)
        {
            Some(t) => t,
            None => self.clock.timestamp(run.now_us),
        };
        for (token, key) in keys {
            let lists = if plan.reads() {
                Some(self.lists(plan, token, &key, run, params.consistency).await?)
            } else {
                None
            };
            // More than most take: to grow step by step costs as much as the rest.
            let mut bytes = Vec::with_capacity(key.len() + 320);
            let any = run.with(|ctx| plan.pack(&key, timestamp, ctx, &self.clock, lists.as_ref(), &mut bytes))?;
            if any {
                out.push((token, bytes));
            }
        }
        Ok(())
    }

    /// The present elements of the lists that the statement changes by place or value, read at the level that it writes at.
    async fn lists(
        self: &Rc<Self>,
        plan: &WritePlan,
        token: Token,
        key: &[u8],
        run: &Execution,
        level: Consistency,
    ) -> Result<ListContents, QueryError> {
        let now = u32::try_from(run.now_us / 1_000_000).unwrap_or(0);
        let wanted = Lists {
            table: plan.table.clone(),
            ids: plan.lists_read().collect(),
            now,
        };
        let key = key.to_vec();
        let level = if level == Consistency::Any {
            Consistency::One
        } else {
            level
        };
        if !self.reads_here(plan.table.id, level) {
            let extent = Extent::Partition {
                key,
                slices: vec![ClusteringSlice::all()],
                reversed: false,
            };
            let stretch = Stretch {
                rows: LISTS_ROWS,
                bytes: LISTS_BYTES,
            };
            let view = self.coordinator.view();
            let read = ReplicatedRead::new(&self.coordinator, &view, &plan.table, level, extent, now, stretch);
            return wanted.collect(&mut read.map_err(QueryError::of_replicas)?).await;
        }
        let owner = ShardId(self.owner(plan.table.id, token));
        let read = move || async move {
            let engine = Engine::local();
            let store = engine.store(&wanted.table, i64::from(now) * 1_000_000)?;
            let tablet = store
                .tablet(token)
                .ok_or_else(|| QueryError::Server("a token of no shard".to_owned()))?;
            let read = PartitionRead {
                token,
                key,
                slices: vec![ClusteringSlice::all()],
                reversed: false,
                limits: BlockLimits {
                    rows: LISTS_ROWS,
                    bytes: LISTS_BYTES,
                },
            };
            let cache = engine.shard.cache.clone();
            let mut reader = PartitionReader::new(wanted.table.clone(), tablet.version(), cache, read);
            wanted.collect(&mut reader).await
        };
        runtime::submit_async_to(owner, read).await
    }

    /// Applies mutations on all their replicas and waits until the level is met.
    ///
    /// A logged batch counts all or not at all, even if the process is killed half way: on one shard it is one record of
    /// the log; on several, this shard notes it first, and a restart or, when it failed, a later attempt finishes it; on several
    /// nodes, other nodes note it too (`coordinator`'s batchlog).
    async fn apply(
        self: &Rc<Self>,
        mutations: Vec<Addressed>,
        level: Consistency,
        kind: WriteKind,
    ) -> Result<(), QueryError> {
        let Some((first, _)) = mutations.first() else {
            return Ok(());
        };
        let is_here = self.all_here(&mutations, level);
        if !is_here && kind == WriteKind::Batch && mutations.iter().any(|(token, _)| token != first) {
            let written = self.coordinator.write_logged(mutations, level).await;
            return written.map_err(QueryError::of_replicas);
        }
        let is_split = is_here && {
            let mut owners = mutations.iter().map(|(token, m)| self.owner_of(*token, m));
            let first = owners.next();
            owners.any(|owner| Some(owner) != first)
        };
        if kind != WriteKind::Batch || !is_split {
            return self.write_through(mutations, level, kind).await;
        }
        if self.failed_batches.borrow().len() >= FAILED_BATCHES_MAX {
            return Err(QueryError::Overloaded(
                "too many batches have failed half way and wait to be finished".to_owned(),
            ));
        }
        let id = (u128::from(runtime::random_u64()) << 64) | u128::from(runtime::random_u64());
        let all = mutations.iter().map(|(_, m)| m.as_slice());
        let position = self.shard.begin_batch(id, all).map_err(|e| failure(&e))?;
        let whole = mutations.iter().map(|(_, m)| m.clone()).collect();
        let result = match self.acknowledged(position).await {
            Ok(()) => self.write_through(mutations, level, kind).await,
            Err(e) => Err(e),
        };
        match result {
            Ok(()) => self.shard.end_batch(id),
            Err(_) => self.finish_later(id, whole),
        }
        result
    }

    /// Whether this node suffices for writing all of these.
    fn all_here(&self, mutations: &[Addressed], level: Consistency) -> bool {
        mutations
            .iter()
            .all(|(_, m)| Mutation::new(m).is_some_and(|m| self.writes_here(m.table, level)))
    }

    /// Applies mutations on the shards of this node that own them, or on all their replicas.
    async fn write_through(
        self: &Rc<Self>,
        mutations: Vec<Addressed>,
        level: Consistency,
        kind: WriteKind,
    ) -> Result<(), QueryError> {
        // Held to the end: who waits until nobody uses an old view waits for this write.
        let mut view = self.coordinator.view();
        let mut mutations = mutations;
        while self.all_here(&mutations, level) {
            let stamp = Stamp::of_mutations(&view, mutations.iter().map(|(_, bytes)| &bytes[..]));
            let shares = self.by_shard(mutations);
            let newer = match self.hand_out(&shares, stamp).await {
                // Another shard was ahead with a change of the cluster, and did nothing.
                Err(ReplicaError::Stale(_)) if shares.len() == 1 => self.coordinator.view(),
                result => return result.map_err(replica_failure),
            };
            if newer.version == view.version {
                runtime::yield_now().await;
            }
            view = newer;
            mutations = shares.into_values().flat_map(Arc::unwrap_or_clone).collect();
        }
        let written = self.coordinator.write(mutations, level, kind, kind == WriteKind::Batch);
        written.await.map_err(QueryError::of_replicas)
    }

    fn by_shard(&self, mutations: Vec<Addressed>) -> BTreeMap<u32, Arc<Vec<Addressed>>> {
        let mut by_shard: BTreeMap<u32, Vec<Addressed>> = BTreeMap::new();
        for (token, bytes) in mutations {
            let owner = self.owner_of(token, &bytes);
            by_shard.entry(owner).or_default().push((token, bytes));
        }
        by_shard
            .into_iter()
            .map(|(shard, share)| (shard, Arc::new(share)))
            .collect()
    }

    /// The shard of this node that has what a packed mutation is for.
    fn owner_of(&self, token: Token, mutation: &[u8]) -> u32 {
        let table = Mutation::new(mutation).map(|m| m.table);
        table.map_or(self.shard.id().0, |table| self.owner(table, token))
    }

    /// Applies on each shard what is its own.
    async fn hand_out(
        self: &Rc<Self>,
        by_shard: &BTreeMap<u32, Arc<Vec<Addressed>>>,
        stamp: Stamp,
    ) -> Result<(), ReplicaError> {
        let mut waiting = Vec::new();
        let mut here = None;
        for (shard, mutations) in by_shard {
            if ShardId(*shard) == self.shard.id() {
                here = Some(mutations);
            } else {
                let mutations = Arc::clone(mutations);
                waiting.push(runtime::submit_async_to(ShardId(*shard), move || async move {
                    Engine::local().apply_here(&mutations, stamp).await
                }));
            }
        }
        let mut result = match here {
            Some(mutations) => self.apply_here(mutations, stamp).await,
            None => Ok(()),
        };
        for w in waiting {
            result = result.and(w.await);
        }
        result
    }

    /// A batch that was noted has failed, perhaps half way: it is written again until every shard has its part, here or by the
    /// next start, which would find the note.
    fn finish_later(self: &Rc<Self>, id: u128, batch: Vec<Vec<u8>>) {
        self.failed_batches.borrow_mut().insert(id, batch);
        if self.finishing.replace(true) {
            return;
        }
        let engine = self.clone();
        drop(runtime::spawn(async move {
            while !engine.failed_batches.borrow().is_empty() {
                runtime::sleep(FINISH_DELAY).await;
                if let Err(e) = engine.finish_batches().await {
                    log::warn!("a batch that failed half way could not be finished yet: {e}");
                }
                if let Err(e) = engine.note_failed_batches_again().await {
                    log::warn!("a batch that failed half way holds the log: {e}");
                }
            }
            engine.finishing.set(false);
        }));
    }

    /// Keeps batches that wait to be finished from holding old segments of the log.
    async fn note_failed_batches_again(&self) -> Result<(), LogError> {
        let (losses, mut again) = (self.shard.log.losses(), Vec::new());
        for id in self.shard.batches_noted_before(coordinator::NOTE_SEGMENTS_MAX) {
            if let Some(batch) = self.failed_batches.borrow().get(&id) {
                let mutations = batch.iter().map(Vec::as_slice);
                again.push((id, self.shard.note_batch_again(id, mutations)?));
            }
        }
        if again.is_empty() {
            return Ok(());
        }
        self.shard.release_older_notes(&again, losses).await
    }

    /// Writes again every batch that failed on this shard. A truncation does that first: afterwards they would bring back what
    /// was truncated.
    pub async fn finish_batches(self: &Rc<Self>) -> Result<(), QueryError> {
        loop {
            let next = self
                .failed_batches
                .borrow()
                .first_key_value()
                .map(|(id, b)| (*id, b.clone()));
            let Some((id, batch)) = next else { return Ok(()) };
            self.write_again(id, batch).await?;
            self.failed_batches.borrow_mut().remove(&id);
        }
    }

    /// Writes a batch that is noted in the log and perhaps is not finished, and notes that it is finished: a later start that
    /// still finds the earlier run's log must not bring back what was truncated since.
    pub async fn write_again(self: &Rc<Self>, id: u128, batch: Vec<Vec<u8>>) -> Result<(), QueryError> {
        let mut mutations = Vec::with_capacity(batch.len());
        let schema = self.schema();
        for bytes in batch {
            let Some(m) = Mutation::new(&bytes) else { continue };
            // A table that was dropped since takes its part of the batch with it.
            let Some(table) = schema.table_by_id(m.table) else {
                continue;
            };
            // So does one that was truncated since, or is being truncated now: the batch is from before.
            let truncated_at = self.coordinator.with_view(|view| view.truncated_at(m.table));
            if self
                .shard
                .store(m.table)
                .is_some_and(|store| store.truncated_at.get() != truncated_at)
            {
                continue;
            }
            m.validate(&table.layout)
                .map_err(|e| QueryError::Server(e.to_string()))?;
            mutations.push((types::token::token_of(m.key), bytes));
        }
        self.write_through(mutations, Consistency::One, WriteKind::Batch)
            .await?;
        self.shard.end_batch(id);
        self.shard.commit().map_err(|e| log_failure(&e))?;
        Ok(())
    }

    async fn apply_here(&self, mutations: &[Addressed], stamp: Stamp) -> Result<(), ReplicaError> {
        let all_or_nothing = mutations.len() > 1;
        service::apply(&self.shard, mutations, all_or_nothing, false, stamp).await
    }

    /// Waits until a committed write may be acknowledged: at once in periodic mode.
    pub async fn acknowledged(&self, position: ReplayPosition) -> Result<(), QueryError> {
        if self.shard.log.is_batch() && !planted::is_planted(Bug::UnsyncedWrite) {
            self.shard.log.synced(position).await.map_err(|e| log_failure(&e))?;
        }
        Ok(())
    }

    /// What to compare with when the writes that follow are committed.
    #[inline]
    pub fn losses(&self) -> u64 {
        self.shard.log.losses()
    }

    /// Hands the log of all writes since `losses` was asked for to the kernel. Err: some of them may be lost.
    #[inline]
    pub fn commit_since(&self, losses: u64) -> Result<ReplayPosition, QueryError> {
        let written = self.shard.commit().map_err(|e| log_failure(&e))?;
        if self.shard.log.losses() != losses {
            return Err(QueryError::WriteFailure(
                "The write failed in the commitlog. It may or may not be applied.".to_owned(),
            ));
        }
        Ok(written)
    }
}
