//! Writes: to this shard in one call, to others by message.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use commitlog::ReplayPosition;
use mutation::compact::{LiveColumn, LiveRow};
use mutation::{ClusteringSlice, Mutation, RangeTombstoneList};
use replica::{BlockLimits, PartitionRead, PartitionReader, WriteError};
use runtime::ShardId;
use types::Token;

use super::plan::BatchPlan;
use super::{Engine, Execution, Params};
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

/// A mutation on its way.
type Addressed = (Token, Vec<u8>);

fn failure(e: &WriteError) -> QueryError {
    match e {
        WriteError::MemoryFull => {
            QueryError::Overloaded(format!("The shard refuses the write: {e}. It was not applied."))
        }
        WriteError::Log(commitlog::LogError::TooLarge { .. }) => QueryError::invalid(e.to_string()),
        WriteError::Log(e) => log_failure(e),
    }
}

fn log_failure(e: &commitlog::LogError) -> QueryError {
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
        timestamp: Option<i64>,
    ) -> Result<Written, QueryError> {
        if plan.reads() {
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
        if store.tablet(token).is_none() {
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
        let mut mutations = Vec::new();
        self.pack(plan, run, params, None, &mut mutations).await?;
        self.apply(mutations, false).await
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
        self.write_all(&writes, &runs, params, own, batch.logged).await
    }

    /// Executes several writes as one batch, each with its own values.
    pub async fn write_all(
        self: &Rc<Self>,
        writes: &[&WritePlan],
        runs: &[&Execution],
        params: &Params,
        timestamp: Option<i64>,
        logged: bool,
    ) -> Result<(), QueryError> {
        // All statements of a batch write at the same moment.
        let timestamp = timestamp.or(params.timestamp).unwrap_or_else(|| {
            self.clock
                .timestamp(runs.first().map_or_else(runtime::wall_clock_us, |r| r.now_us))
        });
        let mut mutations = Vec::new();
        for (plan, run) in writes.iter().zip(runs) {
            self.pack(plan, run, params, Some(timestamp), &mut mutations).await?;
        }
        self.apply(mutations, logged).await
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
                Some(self.lists(plan, token, &key, run).await?)
            } else {
                None
            };
            let mut bytes = Vec::new();
            let any = run.with(|ctx| plan.pack(&key, timestamp, ctx, &self.clock, lists.as_ref(), &mut bytes))?;
            if any {
                out.push((token, bytes));
            }
        }
        Ok(())
    }

    /// The present elements of the lists that the statement changes by place or value.
    async fn lists(
        self: &Rc<Self>,
        plan: &WritePlan,
        token: Token,
        key: &[u8],
        run: &Execution,
    ) -> Result<ListContents, QueryError> {
        let owner = self.owner(token);
        let (table, key) = (plan.table.clone(), key.to_vec());
        let now = u32::try_from(run.now_us / 1_000_000).unwrap_or(0);
        let ids: Vec<usize> = plan
            .statics
            .iter()
            .chain(&plan.regulars)
            .filter(|a| a.change.reads())
            .map(|a| a.id)
            .collect();
        let read = move || async move {
            let engine = Engine::local();
            let store = engine.store(&table, i64::from(now) * 1_000_000)?;
            let tablet = store
                .tablet(token)
                .ok_or_else(|| QueryError::Server("a token of no shard".to_owned()))?;
            let limits = BlockLimits {
                rows: 1000,
                bytes: 1 << 20,
            };
            let slices = vec![ClusteringSlice::all()];
            let read = PartitionRead {
                token,
                key: key.clone(),
                slices,
                reversed: false,
                limits,
            };
            let cache = engine.shard.cache.clone();
            let mut reader = PartitionReader::new(table.clone(), tablet.version(), cache, read);
            let mut lists = ListContents::new();
            while let Some(block) = reader
                .next_block()
                .await
                .map_err(|e| QueryError::ReadFailure(e.to_string()))?
            {
                let ranges = RangeTombstoneList::from_sorted(block.range_tombstones.clone());
                let statics = block.static_row().map(|r| (&key[..], r, block.tombstone));
                let rows = block.rows().map(|(ck, r)| {
                    (
                        ck,
                        r,
                        block.tombstone.merge(ranges.covering(&table.clustering_order, ck)),
                    )
                });
                for (name, row, deletion) in statics.into_iter().chain(rows) {
                    for (id, column) in LiveRow::new(row, &table.layout, deletion, now).columns() {
                        if let (true, LiveColumn::Complex(elements)) = (ids.contains(&id), column) {
                            let list = elements.map(|(p, c)| (p.to_vec(), c.value.to_vec())).collect();
                            lists.insert((name.to_vec(), id), list);
                        }
                    }
                }
            }
            Ok(lists)
        };
        runtime::submit_async_to(ShardId(owner), read).await
    }

    /// Applies mutations on the shards that own them and waits until all may be acknowledged.
    ///
    /// A logged batch counts all or not at all, even if the process is killed half way: on one shard it is one record of
    /// the log; on several, this shard notes it first, and a restart or, when it failed, a later attempt finishes it.
    async fn apply(self: &Rc<Self>, mutations: Vec<Addressed>, logged: bool) -> Result<(), QueryError> {
        let by_shard = self.by_shard(mutations);
        if !logged || by_shard.len() < 2 {
            return self.hand_out(by_shard).await;
        }
        if self.failed_batches.borrow().len() >= FAILED_BATCHES_MAX {
            return Err(QueryError::Overloaded(
                "too many batches have failed half way and wait to be finished".to_owned(),
            ));
        }
        let id = (u128::from(runtime::random_u64()) << 64) | u128::from(runtime::random_u64());
        let all = by_shard.values().flatten().map(|(_, m)| m.as_slice());
        let position = self.shard.begin_batch(id, all).map_err(|e| failure(&e))?;
        let whole = by_shard.values().flatten().map(|(_, m)| m.clone()).collect();
        let result = match self.acknowledged(position).await {
            Ok(()) => self.hand_out(by_shard).await,
            Err(e) => Err(e),
        };
        match result {
            Ok(()) => self.shard.end_batch(id),
            Err(_) => self.finish_later(id, whole),
        }
        result
    }

    fn by_shard(&self, mutations: Vec<Addressed>) -> BTreeMap<u32, Vec<Addressed>> {
        let mut by_shard: BTreeMap<u32, Vec<Addressed>> = BTreeMap::new();
        for (token, bytes) in mutations {
            by_shard.entry(self.owner(token)).or_default().push((token, bytes));
        }
        by_shard
    }

    /// Applies on each shard what is its own.
    async fn hand_out(self: &Rc<Self>, by_shard: BTreeMap<u32, Vec<Addressed>>) -> Result<(), QueryError> {
        let mut waiting = Vec::new();
        let mut here = None;
        for (shard, mutations) in by_shard {
            if ShardId(shard) == self.shard.id() {
                here = Some(mutations);
            } else {
                waiting.push(runtime::submit_async_to(ShardId(shard), move || async move {
                    Engine::local().apply_here(mutations).await
                }));
            }
        }
        let mut result = match here {
            Some(mutations) => self.apply_here(mutations).await,
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
            }
            engine.finishing.set(false);
        }));
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
            m.validate(&table.layout)
                .map_err(|e| QueryError::Server(e.to_string()))?;
            mutations.push((types::token::token_of(m.key), bytes));
        }
        self.hand_out(self.by_shard(mutations)).await?;
        self.shard.end_batch(id);
        self.shard.commit().map_err(|e| log_failure(&e))?;
        Ok(())
    }

    async fn apply_here(self: &Rc<Self>, mutations: Vec<Addressed>) -> Result<(), QueryError> {
        let mut parts = Vec::with_capacity(mutations.len());
        for (token, bytes) in &mutations {
            let m = Mutation::new(bytes).ok_or_else(|| QueryError::Server("a mutation is not whole".to_owned()))?;
            let Some(store) = self.shard.store(m.table) else {
                return Err(QueryError::invalid("unconfigured table: it was dropped meanwhile"));
            };
            parts.push((store, *token, m));
        }
        let losses = self.shard.log.losses();
        let mut last = None;
        let all_at_once = parts.len() > 1;
        let mut left = &parts[..];
        while let Some((store, token, m)) = left.first() {
            let written = if all_at_once {
                self.shard.write_batch(left)
            } else {
                self.shard.write(store, *token, m)
            };
            match written {
                Ok(position) => {
                    last = Some(position);
                    left = if all_at_once { &[] } else { &left[1..] };
                }
                Err(WriteError::MemoryFull) => self.shard.room().await.map_err(|e| failure(&e))?,
                Err(e) => return Err(failure(&e)),
            }
        }
        let Some(position) = last else { return Ok(()) };
        self.commit_since(losses)?;
        self.acknowledged(position).await
    }

    /// Waits until a committed write may be acknowledged: at once in periodic mode.
    pub async fn acknowledged(&self, position: ReplayPosition) -> Result<(), QueryError> {
        if self.shard.log.is_batch() {
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
