//! Writes: statements become mutations, which the coordinator brings to their replicas.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::trace;
use coordinator::{
    Admission, Dated, Deadline, Extent, Logged, Mutations, Operation, ReplicatedRead, Stretch, Unsynced, WriteDone,
    WriteKind,
};
use memory::{Reservation, RowMemory};
use mutation::{Addressed, ClusteringSlice, Located, Mutation};
use plan::write::{ListContents, check_write_bytes, collect_lists};
use plan::{BatchKind, BatchPlan, BindContext, Execution, WritePlan};
use schema::{Table, TableId};
use stdx::preempt;
use stdx::probe;
use topology::Consistency;
use types::Token;

use super::batch_size::BatchSize;
use super::read::BlockSource;
use super::{Engine, Request};
use crate::QueryError;

/// What came of an attempt to write in one call.
#[derive(PartialEq, Eq, Debug)]
pub enum Written {
    /// In log and memtable of this shard; acknowledge after [`Engine::commit`].
    Here(Logged),
    /// The statement changes nothing.
    Nothing,
    /// Its replicas are asked, and the given receiver is notified of the outcome.
    UnderWay,
    /// It takes the general way: another shard of this node, a read first, or no room.
    Later,
}

/// What one step of a read for lists takes.
const LISTS_ROWS: usize = 1000;
const LISTS_BYTES: usize = super::read::BLOCK_BYTES;

/// Which lists a statement must know.
struct Lists {
    table: Arc<Table>,
    ids: Vec<usize>,
    now: u32,
    /// Of the static row, which the first block of a partition has.
    are_static: bool,
    /// The memory of what is collected.
    reservation: Option<Arc<Reservation>>,
}

impl Lists {
    /// Collects them from the blocks of one partition.
    async fn collect(&self, source: &mut impl BlockSource) -> Result<ListContents, QueryError> {
        let mut lists = ListContents::new();
        while let Some(block) = source.next_block().await? {
            preempt::allowed(|| collect_lists(&self.table, &self.ids, &block, block.key(), self.now, &mut lists));
            if let Some(reservation) = &self.reservation {
                let held = reservation.hold(lists.bytes()).await;
                held.map_err(|_| {
                    QueryError::Overloaded(format!(
                        "The lists that the write reads have {} bytes or more, and the node has no room for them: results that are being made, or that clients do \
                         not read, have it all",
                        lists.bytes()
                    ))
                })?;
            }
            if self.are_static {
                break;
            }
        }
        Ok(lists)
    }
}

/// Waits for the memory of so many bytes that a write packs for the rows that its IN relations name.
async fn hold_packed(request: &Request, bytes: usize) -> Result<(), QueryError> {
    let Some(reservation) = request.reservation.as_ref().filter(|_| bytes > 0) else {
        return Ok(());
    };
    reservation.hold(bytes).await.map_err(|_| {
        QueryError::Overloaded(format!(
            "The rows that the IN relations of the write name have {bytes} bytes or more, and the node has no room for \
             them: results that are being made, or that clients do not read, have it all"
        ))
    })
}

/// When the client of a batch gives up: as the batch says, else as the most hurried of its statements says.
pub(super) fn deadline_of_all<'p>(
    writes: impl Iterator<Item = (&'p WritePlan, &'p Execution)>,
    request: &Request,
) -> Result<Deadline, QueryError> {
    let mut shortest = None;
    for (plan, run) in writes {
        if let Some(own) = run.with(|ctx| plan.own_timeout(ctx))? {
            shortest = Some(shortest.map_or(own, |other: Duration| other.min(own)));
        }
    }
    Ok(request.deadline.or(Deadline::after(shortest)))
}

impl Engine {
    /// Writes one partition's mutation without a task. If this shard suffices, it writes in this call. Otherwise it
    /// calls `done` for the receiver of the outcome, and sends requests to the replicas. If `done` returns None, there
    /// is no room for that now.
    #[inline]
    pub fn write_now(
        &self,
        plan: &WritePlan,
        ctx: &BindContext<'_>,
        level: Consistency,
        timestamp: Option<i64>,
        done: impl FnOnce(Token) -> Option<(Rc<dyn WriteDone>, u32)>,
    ) -> Result<Written, QueryError> {
        if plan.is_of_steps() {
            return Ok(Written::Later);
        }
        let mut key = self.key.borrow_mut();
        key.clear();
        let Some(token) = plan.single_key(ctx, &mut key) else {
            return Ok(Written::Later);
        };
        let token = token?;
        let timestamp = match plan.own_timestamp(ctx)? {
            Some(own) if !self.is_usual(own) => return Ok(Written::Later),
            own => own.or(timestamp),
        };
        let timestamp = match timestamp {
            Some(t) => t,
            None => self.clock.timestamp(ctx.now_us),
        };
        let mut packed = self.mutation.borrow_mut();
        packed.clear();
        if !plan.pack(&key, timestamp, ctx, &self.clock, None, &mut packed)? {
            return Ok(Written::Nothing);
        }
        probe::step(|| format!("engine: key of {} bytes, token {}, row packed", key.len(), token.0));
        let mutation = Mutation::new(&packed).expect("it was packed just now");
        let mutation = Located { token, mutation };
        let written = self.coordinator.own.write(mutation, level);
        if let Some(logged) = written.map_err(QueryError::of_replica)? {
            return Ok(Written::Here(logged));
        }
        let Some(done) = done(token) else {
            return Ok(Written::Later);
        };
        let mutation = mutation.to_owned();
        // Released first: no outcome may be delivered while these are borrowed.
        drop((key, packed));
        self.coordinator.writes.write_then(mutation, level, done);
        Ok(Written::UnderWay)
    }

    /// Writes by the general way and waits until it may be acknowledged.
    pub async fn write(
        self: &Rc<Self>,
        plan: &WritePlan,
        run: &Execution,
        request: &Request,
    ) -> Result<(), QueryError> {
        let run = &*plan.read_json(run)?;
        if let Some(limit) = plan.table.options.rate_limits.writes
            && !plan.counts()
            && let [(token, _)] = run.with(|ctx| plan.keys(ctx))?[..]
        {
            self.admit(plan.table.id, token, Operation::Write, limit).await?;
        }
        let deadline = Deadline::after(run.with(|ctx| plan.own_timeout(ctx))?);
        let dated = self.coordinator.writes.date(request.level, deadline);
        let mut mutations = Mutations::new();
        let mut multiplied = 0;
        self.pack(plan, run, request, (None, &dated), (&mut mutations, &mut multiplied))
            .await?;
        if plan.counts() {
            return self.add(mutations, &dated).await;
        }
        self.apply(mutations, &dated, WriteKind::Simple).await
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
        let admitted = self.coordinator.limits.admit(admission).await;
        admitted.map_err(QueryError::of_replicas)
    }

    /// Adds to counters.
    async fn add(self: &Rc<Self>, additions: Mutations, dated: &Dated) -> Result<(), QueryError> {
        let added = self.coordinator.counters.add(additions.into_vec(), dated).await;
        added.map_err(QueryError::of_replicas)
    }

    /// Executes a batch and waits until it may be acknowledged. The answer is what its client is to be warned of.
    pub async fn write_batch(
        self: &Rc<Self>,
        batch: &BatchPlan,
        run: &Execution,
        request: &Request,
    ) -> Result<Vec<String>, QueryError> {
        let request = &self.request_of_batch(batch, run, request)?;
        let runs: Vec<&Execution> = batch.writes.iter().map(|_| run).collect();
        let own = run.with(|ctx| batch.own_timestamp(ctx))?;
        let writes: Vec<&WritePlan> = batch.writes.iter().map(|w| &**w).collect();
        self.write_all(&writes, &runs, request, own, batch.kind).await
    }

    /// The parameters with what the batch itself says of its time.
    pub(super) fn request_of_batch(
        &self,
        batch: &BatchPlan,
        run: &Execution,
        request: &Request,
    ) -> Result<Request, QueryError> {
        Ok(Request {
            deadline: Deadline::after(run.with(|ctx| batch.own_timeout(ctx))?).or(request.deadline),
            ..request.clone()
        })
    }

    /// Executes several writes as one batch, each with its own values. The answer is what its client is to be warned
    /// of.
    pub async fn write_all(
        self: &Rc<Self>,
        writes: &[&WritePlan],
        runs: &[&Execution],
        request: &Request,
        timestamp: Option<i64>,
        kind: BatchKind,
    ) -> Result<Vec<String>, QueryError> {
        let (mut read, mut read_runs) = (Vec::new(), Vec::new());
        if writes.iter().any(|plan| plan.is_of_json()) {
            for (plan, run) in writes.iter().zip(runs) {
                read.push(plan.read_json(run)?);
            }
            read_runs.extend(read.iter().map(|run| &**run));
        }
        let runs = if read.is_empty() { runs } else { &read_runs[..] };
        let own = writes.iter().zip(runs).map(|(plan, run)| (&**plan, *run));
        let deadline = deadline_of_all(own, request)?;
        let dated = self.coordinator.writes.date(request.level, deadline);
        // All statements of a batch write at the same moment.
        let timestamp = timestamp
            .or(request.timestamp)
            .unwrap_or_else(|| self.clock.timestamp(dated.now_us()));
        let (mut mutations, mut additions) = (Mutations::new(), Mutations::new());
        let mut multiplied = 0;
        for (plan, run) in writes.iter().zip(runs) {
            let out = if plan.counts() { &mut additions } else { &mut mutations };
            self.pack(plan, run, request, (Some(timestamp), &dated), (out, &mut multiplied))
                .await?;
        }
        let warnings = self.check_batch(writes, mutations.iter().chain(&additions), kind)?;
        let write_kind = match kind {
            BatchKind::Logged => WriteKind::Batch,
            BatchKind::Unlogged => WriteKind::UnloggedBatch,
            BatchKind::Counter => WriteKind::Counter,
        };
        if !mutations.is_empty() || additions.is_empty() {
            self.apply(mutations, &dated, write_kind).await?;
        }
        if !additions.is_empty() {
            self.add(additions, &dated).await?;
        }
        Ok(warnings)
    }

    /// Has a batch meet its guardrails.
    fn check_batch<'m>(
        &self,
        writes: &[&WritePlan],
        mutations: impl Iterator<Item = &'m Addressed>,
        kind: BatchKind,
    ) -> Result<Vec<String>, QueryError> {
        let mut size = BatchSize::default();
        preempt::allowed(|| {
            let tables: HashMap<TableId, &Table> = writes.iter().map(|plan| (plan.table.id, &*plan.table)).collect();
            for mutation in mutations {
                preempt::point();
                let mutation = mutation.mutation();
                if let Some(table) = tables.get(&mutation.table) {
                    size.add(table, &mutation);
                }
            }
        });
        size.record(kind, &self.batch_partitions);
        let limits = self.guardrails().batches;
        let warnings = preempt::allowed(|| size.check(kind, limits))?;
        self.log_guardrails(&warnings);
        Ok(warnings)
    }

    /// Packs a statement after those before it. `multiplied` are the bytes that they and this one have because their
    /// IN relations name several rows.
    async fn pack(
        self: &Rc<Self>,
        plan: &WritePlan,
        run: &Execution,
        request: &Request,
        (timestamp, dated): (Option<i64>, &Dated),
        (out, multiplied): (&mut Mutations, &mut usize),
    ) -> Result<(), QueryError> {
        let now_us = dated.now_us();
        let more = run.with_at(now_us, |ctx| plan.multiplied_bytes(ctx))?;
        if more > 0 {
            *multiplied += more;
            check_write_bytes(*multiplied)?;
            hold_packed(request, *multiplied).await?;
        }
        let keys = run.with_at(now_us, |ctx| plan.keys(ctx))?;
        let timestamp = match run
            .with_at(now_us, |ctx| plan.own_timestamp(ctx))?
            .or(timestamp)
            .or(request.timestamp)
        {
            Some(t) => t,
            None => self.clock.timestamp(now_us),
        };
        if keys.is_empty() {
            run.with_at(now_us, |ctx| plan.check_rows(ctx))?;
        }
        out.reserve(keys.len());
        let mut packed = 0;
        for (token, key) in keys {
            check_write_bytes(packed)?;
            let lists = if plan.reads() {
                Some(self.lists(plan, &key, run, (dated, request)).await?)
            } else {
                None
            };
            // More than most take: to grow step by step costs as much as the rest.
            let mut bytes = Vec::with_capacity(key.len() + 320);
            let any = run.with_at(now_us, |ctx| {
                plan.pack(&key, timestamp, ctx, &self.clock, lists.as_ref(), &mut bytes)
            })?;
            packed += bytes.len();
            // The lists are packed: what others wait for is not kept until the replicas have answered.
            if let Some(lists) = lists {
                preempt::allowed(|| lists.free());
                request
                    .reservation
                    .iter()
                    .for_each(|reservation| reservation.give_back());
                hold_packed(request, *multiplied).await?;
            }
            if any {
                out.push(Addressed::at(token, bytes).expect("it was packed just now"));
            }
            runtime::give_way().await;
        }
        Ok(())
    }

    /// The present elements of the lists that the statement changes by place or value, read at the level that it writes
    /// at. Reads only the rows that it names: a partition may be large.
    async fn lists(
        self: &Rc<Self>,
        plan: &WritePlan,
        key: &[u8],
        run: &Execution,
        (dated, request): (&Dated, &Request),
    ) -> Result<ListContents, QueryError> {
        let now = run.expiry_now();
        let rows = run.with(|ctx| plan.named_rows(ctx))?;
        let mut slices: Vec<ClusteringSlice> = rows.iter().map(|row| ClusteringSlice::exactly(row)).collect();
        let order = &plan.table.clustering_order;
        preempt::sort_by(&mut slices, |one, other| one.start.compare(order, &other.start));
        let are_static = slices.is_empty();
        trace::note(|| {
            if are_static {
                "Reading lists of the static row for the write".to_owned()
            } else {
                format!("Reading lists of the rows that the write names: {}", slices.len())
            }
        });
        if are_static {
            slices.push(ClusteringSlice::all());
        }
        let wanted = Lists {
            table: plan.table.clone(),
            ids: plan.columns_read().collect(),
            now,
            are_static,
            reservation: request.reservation.clone(),
        };
        let key = key.to_vec();
        let level = match dated.level {
            Consistency::Any => Consistency::One,
            level => level,
        };
        let extent = Extent::Partition {
            key,
            slices,
            reversed: false,
        };
        let stretch = Stretch {
            rows: if are_static { 1 } else { LISTS_ROWS },
            bytes: LISTS_BYTES,
        };
        let view = self.coordinator.context.view();
        let read = ReplicatedRead::new(&self.coordinator.reads, &view, &plan.table, level, extent, now, stretch);
        let row_memory = request.reservation.clone().map(|memory| memory as Arc<dyn RowMemory>);
        let read = read.map_err(QueryError::of_replicas)?.with_row_memory(row_memory);
        let mut read = read.until(dated.deadline);
        wanted.collect(&mut read).await
    }

    /// Applies mutations on all their replicas and waits until the level is met.
    async fn apply(self: &Rc<Self>, mutations: Mutations, dated: &Dated, kind: WriteKind) -> Result<(), QueryError> {
        if mutations.is_empty() {
            return Ok(());
        }
        let written = match kind {
            WriteKind::Batch => self.coordinator.writes.write_batch(mutations, dated).await,
            _ => self.coordinator.writes.write_in_parts(mutations, dated, kind).await,
        };
        written.map_err(QueryError::of_replicas)
    }

    /// Hands what this shard alone has written to the kernel. None: it may be acknowledged.
    ///
    /// # Errors
    /// When some of it may be lost.
    #[inline]
    pub fn commit(&self, logged: &Logged) -> Result<Option<Unsynced>, QueryError> {
        self.coordinator.own.commit(logged).map_err(QueryError::of_replica)
    }

    /// Waits until what was committed may be acknowledged.
    ///
    /// # Errors
    /// When the log cannot be synced.
    pub async fn synced(&self, unsynced: Unsynced) -> Result<(), QueryError> {
        let synced = self.coordinator.own.sync(unsynced).await;
        synced.map_err(QueryError::of_replica)
    }
}
