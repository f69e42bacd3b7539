//! BATCH messages: several statements as one request.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use cql_protocol::{BatchKind, BatchStatement, Extras, WriteType, write_void};
use front::{ROW_BYTES_FIRST, Session, TASK_BYTES, increment};
use memory::READ_BYTES;
use plan::write::BoundWrite;
use plan::{BatchPlan, BoundValues, Execution, Plan};
use query::engine::partition_of;
use query::{Engine, Level, Prepared, QueryError};

use crate::access::authorize;
use crate::connection::Connection;
use crate::dispatch::{Batch, FrameOutcome, check_consistency, check_serial, elapsed_us, level};
use crate::respond::Reply;
use crate::running::Statements;
use crate::slow::{parameters_of, slow_request, with_text};
use crate::tracing;
use crate::values::{binds, owned};

/// What a statement of a batch has besides its values.
const STATEMENT_BYTES: usize = 128;
/// What kind of request a BATCH message is, in Cassandra's words.
const BATCH: &str = "Execute batch of CQL3 queries";

impl Connection {
    /// Runs a BATCH message as a task.
    pub(crate) fn batch(
        self: &Rc<Self>,
        b: &cql_protocol::Batch<'_>,
        mut reply: Reply,
        bytes: usize,
        answers: &mut Batch,
    ) -> FrameOutcome {
        // Each statement has memory of its own besides its values.
        let bytes = bytes + TASK_BYTES + b.len() * STATEMENT_BYTES;
        let Some(memory) = self.reserve_in(answers, bytes) else {
            return FrameOutcome::NeedsMemory(bytes);
        };
        reply.consistency = b.consistency;
        increment(&self.server.counts.batches);
        let engine = &self.server.engine;
        let keyspace = b.keyspace.map(Rc::from).or_else(|| self.keyspace.borrow().clone());
        let now_us = runtime::wall_clock_us();
        let mut statements: Vec<(Rc<Prepared>, Execution)> = Vec::with_capacity(b.len());
        let kind = match b.kind {
            BatchKind::Logged => plan::BatchKind::Logged,
            BatchKind::Unlogged => plan::BatchKind::Unlogged,
            BatchKind::Counter => plan::BatchKind::Counter,
        };
        let collected = collect(
            (&self.session, engine),
            b,
            (keyspace.as_deref(), now_us),
            kind,
            &mut statements,
        );
        let writes_where_full = |(prepared, run): &(Rc<Prepared>, Execution)| {
            let partition = prepared.plan().and_then(|plan| partition_of(plan, run));
            engine.coordinator.context.warns_writer_of(partition)
        };
        reply.warns_of_disks = engine.coordinator.context.warns_of_disks() && statements.iter().any(writes_where_full);
        let conditional = statements.iter().any(|(prepared, _)| prepared.is_conditional());
        if conditional {
            reply.write_type = WriteType::Cas;
        }
        let mut request = request_of_batch(b);
        let connection = self.clone();
        let came = runtime::now();
        self.session.spawn(Some(memory), |permits| async move {
            let _permits = permits;
            let mut out = Vec::new();
            let (session, engine) = (&connection.session, &connection.server.engine);
            request.result_memory = conditional.then(|| session.front.memory.results.clone());
            let holds = |(prepared, _): &(Rc<Prepared>, Execution)| {
                matches!(prepared.plan(), Some(Plan::Write(write)) if write.reads() || write.has_alternatives())
            };
            let reserved = if !conditional && statements.iter().any(holds) {
                Some(session.reserve_answer(ROW_BYTES_FIRST, READ_BYTES).await)
            } else {
                None
            };
            request.reservation = reserved.as_ref().map(|(_, memory)| Arc::clone(memory));
            let began = runtime::now();
            let _running = connection.note_running(Statements::batch(&statements), &reply, (came, began));
            let text = || text_of_batch(&statements);
            let traced = connection.begin_trace(&reply, BATCH, || with_text(parameters_of(&request), text()));
            let mut warnings = Vec::new();
            let result = {
                let work = pin!(async {
                    match collected {
                        Ok(()) => {
                            let writes = statements.iter().map(|(prepared, run)| (&**prepared, run));
                            warnings = engine.guard_batch(writes, &request).await?;
                            if !conditional {
                                warnings.extend(write_batch(engine, &statements, &request, kind).await?);
                                return Ok(None);
                            }
                            let answer = engine
                                .execute_conditional(conditional_statements(&statements), true, &request)
                                .await;
                            answer.map(Some)
                        }
                        Err(e) => Err(e),
                    }
                });
                tracing::traced(traced, engine, work).await
            };
            connection.note_slow(began.elapsed(), &reply, || {
                let prepared = statements.iter().map(|(prepared, _)| &**prepared);
                slow_request(BATCH, text(), parameters_of(&request), prepared)
            });
            let took = elapsed_us(now_us);
            let counts = &session.front.counts;
            if conditional {
                &counts.conditional
            } else {
                &counts.writes
            }
            .add(took, 1);
            let warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
            let warnings = [&warnings[..], reply.extras().warnings].concat();
            let extras = Extras {
                warnings: &warnings,
                ..reply.extras()
            };
            match result {
                Ok(Some(answer)) => reply.conditional(&mut out, &extras, &answer, None),
                Ok(None) => write_void(&mut out, reply.version, reply.stream, &extras),
                Err(e) => reply.error(&mut out, &e),
            }
            session.outbox.push(&mut out);
        });
        FrameOutcome::Done
    }
}

/// Prepares the statements of a batch with their values, as far as the first that is refused.
fn collect(
    (session, engine): (&Session, &Engine),
    b: &cql_protocol::Batch<'_>,
    (keyspace, now_us): (Option<&str>, i64),
    kind: plan::BatchKind,
    statements: &mut Vec<(Rc<Prepared>, Execution)>,
) -> Result<(), QueryError> {
    for entry in b.entries() {
        let prepared = match entry.statement {
            BatchStatement::Prepared(id) => engine.prepared(id)?,
            BatchStatement::Text(text) => Rc::new(engine.compile(text, keyspace)?),
        };
        authorize(session, &prepared)?;
        if matches!(prepared.plan(), Some(Plan::VirtualWrite(_))) {
            return Err(QueryError::invalid(
                "Cannot include a virtual table statement in a batch",
            ));
        }
        if !matches!(prepared.plan(), Some(Plan::Write(_))) {
            return Err(QueryError::invalid(
                "Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed.",
            ));
        }
        let values = binds(&prepared, &entry.values)?;
        let values = owned(BoundValues::Lent(&values));
        statements.push((
            prepared,
            Execution {
                values,
                now_us,
                now_in_seconds: b.now_in_seconds,
                random: runtime::random_u64(),
            },
        ));
    }
    let writes = statements.iter().filter_map(|(prepared, _)| match prepared.plan() {
        Some(Plan::Write(write)) => Some(&**write),
        _ => None,
    });
    BatchPlan::check(kind, writes, false)?;
    let conditional = statements.iter().any(|(prepared, _)| prepared.is_conditional());
    for (prepared, _) in &*statements {
        if conditional {
            check_serial(b.consistency, b.serial_consistency)?
        } else if b.consistency.is_serial() {
            // Cassandra takes a serial level here for a quorum, and so do its users.
        } else {
            check_consistency(prepared, b.consistency)?
        }
    }
    Ok(())
}

fn request_of_batch(batch: &cql_protocol::Batch<'_>) -> query::Request {
    query::Request {
        level: level(batch.consistency),
        serial_level: batch.serial_consistency.map_or(Level::Serial, level),
        timestamp: batch.timestamp,
        ..query::Request::default()
    }
}

/// The statements of a batch, for people.
fn text_of_batch(statements: &[(Rc<Prepared>, Execution)]) -> String {
    let texts = statements.iter().map(|(prepared, _)| &*prepared.text);
    format!("BEGIN BATCH {}; APPLY BATCH", texts.collect::<Vec<_>>().join("; "))
}

fn conditional_statements(statements: &[(Rc<Prepared>, Execution)]) -> Vec<BoundWrite> {
    statements
        .iter()
        .filter_map(|(prepared, run)| match prepared.plan() {
            Some(Plan::Write(plan)) => Some(BoundWrite {
                plan: plan.clone(),
                run: run.clone(),
            }),
            _ => None,
        })
        .collect()
}

async fn write_batch(
    engine: &Rc<Engine>,
    statements: &[(Rc<Prepared>, Execution)],
    request: &query::Request,
    kind: plan::BatchKind,
) -> Result<Vec<String>, QueryError> {
    let mut writes = Vec::with_capacity(statements.len());
    let mut runs = Vec::with_capacity(statements.len());
    for (prepared, run) in statements {
        if let Some(Plan::Write(w)) = prepared.plan() {
            writes.push(&**w);
            runs.push(run);
        }
    }
    engine.write_all(&writes, &runs, request, None, kind).await
}
