//! From request frames to answers: at once where memory answers, else as a task.

use std::iter;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use cql_protocol::{
    Consistency, Frame, Opcode, QueryParams, Request, WriteType, begin_response, begin_rows, decode_request,
    finish_response, finish_rows, frame_flags, write_ready, write_void,
};
use front::{AnswerSize, OWNER_EVERY, PENDING_BYTES, ROW_BYTES_FIRST, SlowRequest, TASK_BYTES, increment, shortened};
use memory::READ_BYTES;
use plan::{BindContext, BoundValues, Execution, Plan};
use query::engine::traces::Parameter;
use query::engine::{CameTo, UNPREPARED, Written, partition_of};
use query::trace::Trace;
use query::{Level, Logged, Outcome, PointOutcome, Prepared, QueryError, Recorded, Statement};
use runtime::{Instant, Permit};
use schema::TableId;
use stdx::probe;
use types::Token;

use crate::access::authorize;
use crate::cells::{CellWriter, Cells};
use crate::connection::Connection;
use crate::respond::Reply;
use crate::running::Statements;
use crate::slow::{bound_parameters, parameters_of, slow_request, with_text};
use crate::tracing::{self, Traced};
use crate::values::{binds, owned};
use crate::{Server, metadata};

/// Of a statement that changes the schema, so much is logged.
const CHANGE_CHARS_MAX: usize = 400;

/// Answers of one socket read, before its writes are committed.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) out: Vec<u8>,
    /// Acknowledgements of writes in `out`: where each begins and ends, and the request that it answers.
    writes: Vec<(usize, usize, Reply)>,
    now_us: i64,
    /// The writes that this shard has done alone.
    logged: Option<Logged>,
    /// Requests of one partition that this shard answered at once.
    owned: u64,
    /// The table of the last of them.
    table: Option<TableId>,
    /// The memory of a long request, which is a batch of its own in a preemptible task.
    pub(crate) long: Option<Permit>,
    pub(crate) is_long: bool,
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameOutcome {
    /// It is answered, or will be.
    Done,
    /// Nothing was done: it is the first of a user on a connection that was its driver's so far, and belongs into
    /// another group.
    FirstOfUser,
    /// Nothing was done: the request has to wait, and there is no memory of so many bytes for it. When there is, the
    /// connection takes it once more.
    NeedsMemory(usize),
}

/// Whether a statement is one by which drivers and tools learn of the cluster.
fn is_of_driver(prepared: &Prepared) -> bool {
    let is_system = |keyspace: &str| system_tables::kind(keyspace).is_some();
    match &*prepared.statement {
        Statement::Plan(Plan::Select(select)) => is_system(&select.table.keyspace),
        Statement::Use(keyspace) => is_system(keyspace),
        Statement::Describe(_) => true,
        _ => false,
    }
}

/// What a request takes of the memory for requests while it runs.
fn request_bytes(frame: &Frame<'_>) -> usize {
    frame.body.len() + TASK_BYTES
}

/// Refuses levels that the statement cannot have; whether its replicas can give the level is for the coordinator to
/// say.
#[inline]
pub(crate) fn check_consistency(prepared: &Prepared, consistency: Consistency) -> Result<(), QueryError> {
    match consistency {
        Consistency::Any if matches!(prepared.plan(), Some(Plan::Select(_))) => {
            Err(QueryError::invalid("ANY ConsistencyLevel is only supported for writes"))
        }
        Consistency::Serial | Consistency::LocalSerial => match prepared.plan() {
            Some(Plan::Write(write)) if write.counts() => Err(QueryError::invalid(
                "Counter operations are inherently non-serializable",
            )),
            Some(Plan::Write(_)) => Err(QueryError::invalid(
                "You must use conditional updates for serializable writes",
            )),
            _ => Ok(()),
        },
        Consistency::Any => match prepared.plan() {
            Some(Plan::Write(write)) if write.counts() => Err(QueryError::Invalid(format!(
                "Consistency level ANY is not yet supported for counter table {}",
                write.table.name
            ))),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Converts the protocol's consistency level.
#[inline]
pub(crate) fn level(consistency: Consistency) -> Level {
    Level::from_number(consistency.number()).expect("both have the protocol's numbers")
}

/// Refuses what a serial phase cannot be.
pub(crate) fn check_serial(consistency: Consistency, serial: Option<Consistency>) -> Result<(), QueryError> {
    let serial = serial.unwrap_or(Consistency::Serial);
    if consistency.is_serial() {
        return Err(QueryError::invalid(format!(
            "{} is not supported as conditional update commit consistency. Use ANY if you mean \"make sure it is \
             accepted but I don't care how many replicas commit it for non-SERIAL reads\"",
            consistency.name()
        )));
    }
    if !serial.is_serial() {
        return Err(QueryError::invalid(
            "Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL",
        ));
    }
    Ok(())
}

/// Refuses levels that the statement cannot have; the answer to a conditional one is that of one.
#[inline]
fn check_levels(prepared: &Prepared, params: &QueryParams<'_>, reply: &mut Reply) -> Result<(), QueryError> {
    if prepared.is_conditional() {
        reply.write_type = WriteType::Cas;
        return check_serial(params.consistency, params.serial_consistency);
    }
    check_consistency(prepared, params.consistency)
}

fn request(p: &QueryParams<'_>, keyspace: Option<&str>) -> query::Request {
    query::Request {
        keyspace: p.keyspace.or(keyspace).map(str::to_owned),
        page_rows: p.page_size,
        paging_state: p.paging_state.map(<[u8]>::to_vec),
        timestamp: p.timestamp,
        level: level(p.consistency),
        serial_level: p.serial_consistency.map_or(Level::Serial, level),
        is_serial: p.consistency.is_serial(),
        ..query::Request::default()
    }
}

impl Connection {
    /// Takes one frame.
    #[inline]
    pub(crate) fn frame(self: &Rc<Self>, frame: &Frame<'_>, batch: &mut Batch) -> FrameOutcome {
        let header = &frame.header;
        let mut reply = Reply::to(header);
        reply.rate_limit_error = self.rate_limit_error;
        reply.trace = self.session.trace(header.flags & frame_flags::TRACING != 0);
        let request = match decode_request(frame, self.extensions) {
            Ok((_payload, request)) => request,
            Err(e) => {
                reply.protocol_error(&mut batch.out, &e.to_string());
                return FrameOutcome::Done;
            }
        };
        if !batch.is_long && self.is_long(frame, &request) {
            return self.take_long(frame);
        }
        match request {
            Request::Execute {
                id,
                result_metadata_id,
                params,
                tablet_version_block,
            } => {
                reply.consistency = params.consistency;
                reply.tablet_version_block = tablet_version_block;
                match self.server.engine.prepared(id) {
                    Ok(prepared) if self.is_first_of_user(&prepared) => return FrameOutcome::FirstOfUser,
                    Ok(prepared) => {
                        let taken = self.run(&prepared, &params, result_metadata_id, reply, frame, batch);
                        if taken != FrameOutcome::Done {
                            return taken;
                        }
                    }
                    Err(e) => reply.error(&mut batch.out, &e),
                }
                increment(&self.server.counts.executes);
            }
            Request::Query { text, params } => {
                reply.consistency = params.consistency;
                let keyspace = self.keyspace.borrow().clone();
                match self
                    .server
                    .engine
                    .compile(text, params.keyspace.or(keyspace.as_deref()))
                {
                    Ok(prepared) if self.is_first_of_user(&prepared) => return FrameOutcome::FirstOfUser,
                    Ok(prepared) => {
                        let taken = self.run(&Rc::new(prepared), &params, None, reply, frame, batch);
                        if taken != FrameOutcome::Done {
                            return taken;
                        }
                    }
                    Err(e) => reply.error(&mut batch.out, &e),
                }
                increment(&self.server.counts.queries);
            }
            Request::Prepare { text, keyspace } => return self.prepare(text, keyspace, reply, batch),
            Request::Batch(_) if self.session.is_drivers() => return FrameOutcome::FirstOfUser,
            Request::Batch(b) => return self.batch(&b, reply, frame.body.len(), batch),
            Request::Options => self.server.supported(&mut batch.out, reply.version, reply.stream),
            Request::Register(events) => {
                let outbox = &self.session.outbox;
                self.server.events.register((outbox, self.version()), events);
                write_ready(&mut batch.out, reply.version, reply.stream);
            }
            Request::Startup(_) => {
                reply.protocol_error(
                    &mut batch.out,
                    "Unexpected message STARTUP, the connection is already initialized",
                );
            }
            Request::AuthResponse(_) => {
                reply.protocol_error(
                    &mut batch.out,
                    "Unexpected message AUTH_RESPONSE: no authentication is in progress",
                );
            }
        }
        FrameOutcome::Done
    }

    /// Whether a statement is the first on this connection that is not a driver's own.
    #[inline]
    pub(crate) fn is_first_of_user(&self, prepared: &Prepared) -> bool {
        self.session.is_drivers() && !is_of_driver(prepared)
    }

    /// Runs a statement: at once if memory answers, else as a task.
    #[inline]
    fn run(
        self: &Rc<Self>,
        prepared: &Rc<Prepared>,
        params: &QueryParams<'_>,
        metadata_id: Option<&[u8]>,
        mut reply: Reply,
        frame: &Frame<'_>,
        batch: &mut Batch,
    ) -> FrameOutcome {
        let engine = &self.server.engine;
        let permitted = authorize(&self.session, prepared);
        let checked = permitted.and_then(|()| check_levels(prepared, params, &mut reply));
        let values = match checked.and_then(|()| binds(prepared, &params.values)) {
            Ok(values) => values,
            Err(e) => return reply.refuse(&mut batch.out, &e),
        };
        probe::step(|| described(prepared, values.len(), params.consistency));
        let ctx = BindContext {
            values: BoundValues::Lent(&values),
            now_us: batch.now(),
            now_in_seconds: params.now_in_seconds,
            random: batch.random(),
        };
        reply.warns_of_disks = engine.coordinator.context.warns_of_disks() && self.writes_where_full(prepared, &ctx);
        let mut missed = None;
        match prepared.plan() {
            _ if reply.trace.is_some() || prepared.is_guarded || batch.is_long => {}
            _ if self.has_other_version(&reply, prepared, &ctx) => {}
            Some(Plan::Select(select)) if select.may_have_nulls(&values) => {}
            Some(Plan::Select(select)) if select.is_point() && !params.consistency.is_serial() => {
                let out = &mut batch.out;
                let start = out.len();
                let mark = begin_response(out, reply.version, reply.stream, Opcode::Result, &reply.extras());
                let m = metadata::result(prepared, reply.version);
                let new_id = metadata_id
                    .filter(|id| *id != prepared.metadata_id)
                    .map(|_| &prepared.metadata_id[..]);
                let rows_mark = begin_rows(out, m, metadata::is_skipped(prepared, params, metadata_id), new_id);
                match engine.read_now(select, &ctx, level(params.consistency), &mut CellWriter(out)) {
                    Ok(PointOutcome::Rows(n)) => {
                        batch.owned += 1;
                        batch.table = Some(select.table.id);
                        finish_rows(out, rows_mark, n, None);
                        if let Err(e) = finish_response(out, mark) {
                            reply.error(out, &QueryError::invalid(e.to_string()));
                        }
                        return FrameOutcome::Done;
                    }
                    Ok(PointOutcome::Unconfirmed(n)) => {
                        finish_rows(out, rows_mark, n, None);
                        if finish_response(out, mark).is_ok() {
                            let answer = out.split_off(start);
                            let bytes = frame.body.len() + PENDING_BYTES + answer.len();
                            let Some(memory) = self.session.try_reserve(bytes) else {
                                engine.forget_unconfirmed();
                                return FrameOutcome::NeedsMemory(bytes);
                            };
                            let later = self.later(prepared, params, metadata_id, reply, &ctx);
                            match self.begin_confirming(answer, later, memory) {
                                Some(done) => engine.confirm(select, ctx.expiry_now(), done),
                                None => engine.forget_unconfirmed(),
                            }
                            return FrameOutcome::Done;
                        }
                        engine.forget_unconfirmed();
                        out.truncate(start);
                    }
                    Ok(PointOutcome::Missed) => {
                        mark.abandon(out);
                        missed = engine.take_missed();
                    }
                    Ok(PointOutcome::NeedsDisk | PointOutcome::OtherShard(_)) => mark.abandon(out),
                    Err(e) => {
                        mark.abandon(out);
                        return reply.refuse(out, &e);
                    }
                }
            }
            Some(Plan::Write(write)) => {
                let done = |token| {
                    let is_plain = prepared.warnings.is_empty();
                    is_plain
                        .then(|| {
                            self.begin_pending(
                                reply,
                                (prepared, write.table.id, token),
                                frame.body.len() + PENDING_BYTES,
                                ctx.now_us,
                            )
                        })
                        .flatten()
                };
                match engine.write_now(write, &ctx, level(params.consistency), params.timestamp, done) {
                    Ok(Written::UnderWay) => return FrameOutcome::Done,
                    Ok(written @ (Written::Here(_) | Written::Nothing)) => {
                        if let Written::Here(logged) = written {
                            logged.add_to(&mut batch.logged);
                        }
                        batch.owned += 1;
                        batch.table = Some(write.table.id);
                        let start = batch.out.len();
                        write_void(&mut batch.out, reply.version, reply.stream, &reply.extras());
                        batch.writes.push((start, batch.out.len(), reply));
                        return FrameOutcome::Done;
                    }
                    Ok(Written::Later) => {}
                    Err(e) => return reply.refuse(&mut batch.out, &e),
                }
            }
            _ => {}
        }
        let bytes = request_bytes(frame);
        let Some(memory) = self.reserve_in(batch, bytes) else {
            return FrameOutcome::NeedsMemory(bytes);
        };
        let mut later = self.later(prepared, params, metadata_id, reply, &ctx);
        later.request.missed = missed;
        self.run_later(later, memory);
        FrameOutcome::Done
    }

    /// Whether a statement writes a partition with a replica whose disks are full or nearly full.
    #[cold]
    fn writes_where_full(&self, prepared: &Prepared, ctx: &BindContext<'_>) -> bool {
        let partition = self.server.partition_at_once(prepared, ctx);
        let is_write = matches!(prepared.plan(), Some(Plan::Write(_)));
        is_write && self.server.engine.coordinator.context.warns_writer_of(partition)
    }

    /// A request that owns all it needs.
    fn later(
        &self,
        prepared: &Rc<Prepared>,
        params: &QueryParams<'_>,
        metadata_id: Option<&[u8]>,
        reply: Reply,
        ctx: &BindContext<'_>,
    ) -> DeferredRequest {
        let keyspace = self.keyspace.borrow().clone();
        DeferredRequest {
            prepared: prepared.clone(),
            run: Execution {
                values: owned(ctx.values),
                now_us: ctx.now_us,
                now_in_seconds: ctx.now_in_seconds,
                random: ctx.random,
            },
            request: query::Request {
                takes_empty_pages: self.takes_empty_pages,
                statement: Some(prepared.text.clone()),
                ..self::request(params, keyspace.as_deref())
            },
            skip_metadata: metadata::is_skipped(prepared, params, metadata_id),
            metadata_id: metadata_id.map(<[u8]>::to_vec),
            reply,
        }
    }

    /// Runs a request as a task, which holds its memory to the end.
    #[cold]
    pub(crate) fn run_later(self: &Rc<Self>, later: DeferredRequest, memory: Permit) {
        let connection = self.clone();
        let came = runtime::now();
        self.session.spawn(Some(memory), |permits| async move {
            let _permits = permits;
            let is_scan = matches!(later.prepared.plan(), Some(Plan::Select(select)) if !select.is_point());
            let work = pin!(connection.work(later, came));
            if is_scan {
                // A scan may take minutes: it stops when the client has left.
                let _ = connection.session.outbox.unless_gone(work).await;
            } else {
                work.await;
            }
        });
    }

    /// Executes a request and answers it.
    async fn work(self: &Rc<Self>, mut later: DeferredRequest, came: Instant) {
        self.server.note_later(&later);
        let session = &self.session;
        let size = later.answer_size(self);
        let (mut out, mut reserved) = (None, None);
        if let Some(bytes) = size.map(AnswerSize::get).or_else(|| later.write_bytes()) {
            if later.may_run_twice() && session.begins_with_trial(bytes, later.read_bytes()) {
                out = self.try_little(&mut later, came).await;
            }
            if out.is_none() {
                reserved = Some(session.reserve_answer(bytes, later.read_bytes()).await);
            }
        }
        later.request.reservation = reserved.as_ref().map(|(_, memory)| Arc::clone(memory));
        if later.prepared.is_conditional() {
            later.request.result_memory = Some(session.front.memory.results.clone());
        }
        let mut out = match out {
            Some(out) => out,
            None => self.make_answer(&later, came).await,
        };
        if let Some(size) = size {
            size.learn(out.len());
        }
        session.outbox.push(&mut out);
        // Its plan may have many values.
        stdx::preempt::allowed(|| drop(later));
    }

    /// Makes a small answer, which waits for no client that has more unsent. None: the result is larger, or the client
    /// has too much unsent.
    async fn try_little(self: &Rc<Self>, later: &mut DeferredRequest, came: Instant) -> Option<Vec<u8>> {
        let (_of_session, trial) = self.session.reserve_trial().await;
        later.request.reservation = Some(Arc::clone(&trial));
        let out = self.make_answer(later, came).await;
        // Given back before it waits for more.
        later.request.reservation = None;
        (!trial.is_outgrown() && self.session.outbox.is_free(out.len())).then_some(out)
    }

    /// Executes a request; the frame of its answer.
    async fn make_answer(self: &Rc<Self>, later: &DeferredRequest, came: Instant) -> Vec<u8> {
        let engine = &self.server.engine;
        let kind = later.kind();
        let began = runtime::now();
        let _running = self.note_running(later.statements(), &later.reply, (came, began));
        let traced = self.begin_trace(&later.reply, kind, || with_text(later.parameters(), later.text()));
        // Pinned here: given away by value it would be copied, and kept twice in this future.
        let executed = pin!(async {
            let warnings = engine.guard(&later.prepared, &later.run, &later.request).await?;
            let executed = engine.execute::<Cells>(&later.prepared.statement, &later.run, &later.request);
            Ok::<_, QueryError>((executed.await?, warnings))
        });
        let result = tracing::traced(traced, engine, executed).await;
        let mut out = Vec::new();
        if later
            .request
            .reservation
            .as_ref()
            .is_some_and(|memory| memory.is_outgrown())
        {
            // The result outgrew its trial: the caller executes the request again.
            return out;
        }
        self.server.note_latency(later);
        let took = began.elapsed() + later.request.waited;
        self.note_slow(took, &later.reply, || later.slow());
        match result {
            Ok((outcome, warnings)) => {
                self.log_change(&later.prepared.statement);
                if let Outcome::SetKeyspace(k) = &outcome {
                    *self.keyspace.borrow_mut() = Some(k.as_str().into());
                }
                let known = later.metadata_id.as_deref();
                // Looked up after the statement has run: by now the tablet may have moved.
                let route = self.route(&later.reply, || later.partition());
                let skip_metadata = later.skip_metadata;
                later.reply.outcome(
                    &mut out,
                    (&outcome, &warnings),
                    &later.prepared,
                    skip_metadata,
                    known,
                    route.as_ref(),
                );
            }
            Err(e) => later.reply.error(&mut out, &e),
        }
        out
    }

    /// Begins the trace of a request whose client asked for one.
    pub(crate) fn begin_trace(
        &self,
        reply: &Reply,
        kind: &'static str,
        parameters: impl FnOnce() -> Vec<Parameter>,
    ) -> Option<Traced> {
        let id = reply.trace?.id;
        Some(Traced {
            trace: Trace::begin(id),
            client: self.session.peer,
            kind,
            parameters: parameters(),
        })
    }

    /// Logs for the operator which client changed the schema or emptied a table.
    fn log_change(&self, statement: &Statement) {
        let text = match statement {
            Statement::Ddl(statement) => statement.to_string(),
            Statement::Truncate(table, _) => format!("TRUNCATE {}.{}", table.keyspace, table.name),
            Statement::Plan(_) | Statement::Use(_) | Statement::Describe(_) => return,
        };
        log::info!("client {}: {}", self.session.peer, shortened(&text, CHANGE_CHARS_MAX));
    }

    /// Commits the writes of a socket read and hands its answers out.
    #[inline]
    pub(crate) fn finish_batch(self: &Rc<Self>, batch: &mut Batch) {
        self.server.note_batch(batch);
        batch.now_us = 0;
        if batch.writes.is_empty() {
            self.session.outbox.push(&mut batch.out);
            return;
        }
        let logged = batch.logged.take();
        let committed = logged.map_or(Ok(None), |logged| self.server.engine.commit(&logged));
        match committed {
            Ok(None) => {
                batch.writes.clear();
                self.session.outbox.push(&mut batch.out);
            }
            Ok(Some(unsynced)) => {
                // The acknowledgements wait for the sync; other batches share it.
                let mut answers = std::mem::take(batch);
                let connection = self.clone();
                let permit = self.session.try_in_flight();
                let counted = answers.out.capacity();
                self.session.outbox.count(counted);
                drop(runtime::spawn(async move {
                    let _permit = permit;
                    if let Err(e) = connection.server.engine.synced(unsynced).await {
                        answers.fail_writes(&e);
                    }
                    let outbox = &connection.session.outbox;
                    outbox.uncount(counted);
                    outbox.push(&mut answers.out);
                }));
            }
            Err(e) => {
                batch.fail_writes(&e);
                self.session.outbox.push(&mut batch.out);
            }
        }
    }
}

impl Server {
    /// Counts the requests of a socket read that were answered at once, and times a sample of such reads.
    #[inline]
    fn note_batch(&self, batch: &mut Batch) {
        if batch.owned == 0 {
            return;
        }
        let counts = &self.front.counts;
        let weight = counts.note_at_once(std::mem::take(&mut batch.owned));
        if let Some(weight) = weight.filter(|_| batch.now_us != 0) {
            let took = elapsed_us(batch.now_us);
            let writes = !batch.writes.is_empty();
            if writes { &counts.writes } else { &counts.reads }.add(took, weight);
            // The table of the last statement counts for all of them.
            self.record(batch.table, |recorded| {
                if writes {
                    recorded.writes.add(took, weight);
                } else {
                    recorded.reads.add(took, weight);
                    recorded.sstables_per_read.add(0, weight);
                }
            });
        }
    }

    /// Records something of a table, if this shard has any of it.
    pub(crate) fn record(&self, table: Option<TableId>, record: impl FnOnce(&Recorded)) {
        if let Some(store) = table.and_then(|table| self.engine.coordinator.context.shard.store(table)) {
            record(store.metrics.recorded());
        }
    }

    /// Counts whether a request that was not answered at once reached a shard or a node that has its partition. Only
    /// one in [`OWNER_EVERY`] such requests is looked at.
    fn note_later(&self, later: &DeferredRequest) {
        if self.front.counts.note_later()
            && let Some((table, token)) = later.partition()
        {
            self.note_owner(table, token);
        }
    }

    /// Counts one sampled request as [`OWNER_EVERY`] requests.
    pub(crate) fn note_owner(&self, table: TableId, token: Token) {
        let counts = &self.front.counts;
        let count = match self.engine.came_to(table, token) {
            Some(CameTo::Owner) => &counts.owned,
            Some(CameTo::OwningNode) => &counts.owned_by_node,
            Some(CameTo::Elsewhere) => &counts.foreign,
            None => return,
        };
        count.set(count.get() + OWNER_EVERY);
    }

    /// Counts how long a request took that was not answered at once.
    pub(crate) fn note_latency(&self, later: &DeferredRequest) {
        let counts = &self.front.counts;
        let latencies = match later.prepared.plan() {
            _ if later.prepared.is_conditional() || later.request.is_serial => &counts.conditional,
            Some(Plan::Select(select)) if select.is_point() => &counts.reads,
            Some(Plan::Select(_)) => &counts.ranges,
            Some(Plan::Write(_)) => &counts.writes,
            Some(Plan::Batch(_) | Plan::VirtualWrite(_)) | None => return,
        };
        let took = elapsed_us(later.run.now_us);
        latencies.add(took, 1);
        match later.prepared.plan() {
            Some(Plan::Select(select)) => {
                let is_of_one = select.is_point() || later.partition().is_some();
                self.record(Some(select.table.id), |recorded| {
                    if is_of_one { &recorded.reads } else { &recorded.scans }.add(took, 1);
                });
            }
            Some(Plan::Write(write)) => self.record(Some(write.table.id), |recorded| recorded.writes.add(took, 1)),
            Some(Plan::Batch(_) | Plan::VirtualWrite(_)) | None => {}
        }
    }
}

/// A statement with so many values, for the steps that tests see.
fn described(prepared: &Prepared, values: usize, consistency: Consistency) -> String {
    let plan = match prepared.plan() {
        Some(Plan::Select(select)) => format!("SELECT of {}.{}", select.table.keyspace, select.table.name),
        Some(Plan::Write(write)) => format!("write to {}.{}", write.table.keyspace, write.table.name),
        _ => "another statement".to_owned(),
    };
    format!("dispatch: a {plan} with {values} values at {consistency:?}")
}

/// Since a moment of the wall clock; 0 when it was set back.
pub(crate) fn elapsed_us(since: i64) -> u64 {
    u64::try_from(runtime::wall_clock_us() - since).unwrap_or(0)
}

impl Batch {
    /// Of answers that go to this empty buffer.
    pub(crate) fn of(out: Vec<u8>) -> Self {
        Self { out, ..Self::default() }
    }

    /// Bytes of answers so far.
    pub(crate) fn bytes(&self) -> usize {
        self.out.len()
    }

    /// The moment of this batch: the clock is asked once for all its requests.
    #[inline]
    fn now(&mut self) -> i64 {
        if self.now_us == 0 {
            self.now_us = runtime::wall_clock_us();
        }
        self.now_us
    }

    #[inline]
    fn random(&self) -> u64 {
        runtime::random_u64()
    }

    /// Turns the acknowledgements of this batch into errors.
    #[cold]
    fn fail_writes(&mut self, error: &QueryError) {
        let mut out = Vec::with_capacity(self.out.len());
        let mut at = 0;
        for (start, end, reply) in self.writes.drain(..) {
            out.extend_from_slice(&self.out[at..start]);
            reply.error(&mut out, error);
            at = end;
        }
        out.extend_from_slice(&self.out[at..]);
        self.out = out;
    }
}

/// What kind of request executes a statement, in Cassandra's words.
pub(crate) fn kind_of(prepared: &Prepared) -> &'static str {
    match prepared.id {
        UNPREPARED => "Execute CQL3 query",
        _ => "Execute CQL3 prepared query",
    }
}

/// A request that could not be answered at once.
pub(crate) struct DeferredRequest {
    prepared: Rc<Prepared>,
    run: Execution,
    pub(crate) request: query::Request,
    skip_metadata: bool,
    metadata_id: Option<Vec<u8>>,
    pub(crate) reply: Reply,
}

impl DeferredRequest {
    /// The statement as the client wrote it.
    pub(crate) fn text(&self) -> String {
        self.prepared.text.to_string()
    }

    /// How large its result is taken to be, as of those before it; None when it is small anyway.
    fn answer_size<'a>(&self, connection: &'a Connection) -> Option<&'a AnswerSize> {
        match self.prepared.plan() {
            Some(Plan::Select(select)) if select.is_point() => Some(&connection.row_size),
            Some(Plan::Select(_)) if self.request.page_rows.is_none() => Some(&connection.unpaged_size),
            Some(Plan::Select(_)) => Some(&connection.page_size),
            _ => None,
        }
    }

    /// How much a write is taken to hold at first that reads lists before, or names several rows; None of others.
    fn write_bytes(&self) -> Option<usize> {
        let holds = match self.prepared.plan() {
            // Conditional statements read by themselves.
            Some(plan) if plan.is_conditional() => false,
            Some(Plan::Write(write)) => write.reads() || write.has_alternatives(),
            Some(Plan::Batch(batch)) => batch
                .writes
                .iter()
                .any(|write| write.reads() || write.has_alternatives()),
            _ => false,
        };
        holds.then_some(ROW_BYTES_FIRST)
    }

    /// What it has of its sources at a time.
    fn read_bytes(&self) -> usize {
        match self.prepared.plan() {
            Some(Plan::Select(select)) if select.is_point() => 0,
            _ => READ_BYTES,
        }
    }

    /// What kind of request it is, in Cassandra's words.
    fn kind(&self) -> &'static str {
        kind_of(&self.prepared)
    }

    /// What is said of it if it was slow.
    pub(crate) fn slow(&self) -> SlowRequest {
        slow_request(self.kind(), self.text(), self.parameters(), iter::once(&*self.prepared))
    }

    /// Names and values that describe it, but its text.
    fn parameters(&self) -> Vec<Parameter> {
        let mut parameters = parameters_of(&self.request);
        parameters.extend(bound_parameters(&self.prepared, &self.run));
        parameters
    }

    /// What of it is shown while it runs.
    pub(crate) fn statements(&self) -> Statements {
        Statements::One(Rc::clone(&self.prepared))
    }

    /// Whether it may be executed again when its result is larger than expected.
    fn may_run_twice(&self) -> bool {
        let is_limited = match self.prepared.plan() {
            Some(Plan::Select(select)) => select.table.options.rate_limits.reads.is_some(),
            _ => true,
        };
        !is_limited && !matches!(self.request.level, Level::Serial | Level::LocalSerial) && self.reply.trace.is_none()
    }

    /// The table and the token of the one partition that it names.
    fn partition(&self) -> Option<(TableId, Token)> {
        partition_of(self.prepared.plan()?, &self.run)
    }
}
