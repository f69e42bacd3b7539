//! The part of the bench that runs on each shard of the embedded node.

use std::rc::Rc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cql_protocol::{
    ColumnSpec, Consistency, EncodedMetadata, Extras, Opcode, ProtocolVersion, begin_response, begin_rows,
    finish_response, finish_rows, write_void,
};
use cql_server::{CellWriter, Cells};
use plan::{BindContext, Bound, BoundValues, Execution, OwnedBound, Plan};
use query::engine::{MissedRow, Written};
use query::{Engine, Level, Logged, Outcome, PointOutcome, QueryError, Request};
use runtime::{InstructionCounter, ShardId};
use stdx::random::SplitMix64;
use types::token::token_of;

use super::statements::{ROWS, Statements};
use super::{Options, Results, Scan, ShardResult, Workload};
use crate::allocations::allocation_count;

/// The version that answers are written in.
const VERSION: ProtocolVersion = ProtocolVersion::V4;
/// How often a shard looks whether the others have come as far.
const MEETING_POLL: Duration = Duration::from_micros(200);

/// The bench that all shards take part in.
pub(super) struct Bench {
    workload: Workload,
    statements: Statements,
    shards: u32,
    partitions: u64,
    concurrency: u64,
    windows: u32,
    operations: Option<u64>,
    consistency: Consistency,
    flush: bool,
    /// Shards that have reached each barrier.
    arrived: [AtomicU32; 3],
    results: Results,
}

/// The places where all shards wait for each other.
#[derive(Clone, Copy)]
enum Meeting {
    TableMade,
    TableFilled,
    Measured,
}

impl Bench {
    pub(super) fn new(options: &Options, shards: u32) -> Self {
        Self {
            workload: options.workload(),
            statements: Statements::of(options.workload(), options.values).with_indexes(options.indexes),
            shards,
            partitions: options.partitions,
            concurrency: u64::from(options.concurrency),
            windows: options.duration,
            operations: options.operations,
            consistency: options.consistency_level,
            flush: options.flush,
            arrived: Default::default(),
            results: Results::new(Ok(Vec::new())),
        }
    }

    /// What the shards measured, in their order.
    pub(super) fn results(&self) -> Result<Vec<ShardResult>, String> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        results.sort_by_key(|result| result.shard);
        Ok(results)
    }

    /// Runs the bench on one shard.
    pub(super) async fn run(&self, engine: Rc<Engine>) {
        let result = self.measure(&engine).await;
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        match (result, &mut *results) {
            (Ok(Some(result)), Ok(results)) => results.push(result),
            (Err(error), Ok(_)) => *results = Err(error),
            // Another shard has failed before, and its error is reported.
            (_, _) => {}
        }
    }

    /// Waits until every shard is here; false when one has failed.
    async fn meet(&self, meeting: Meeting) -> bool {
        let arrived = &self.arrived[meeting as usize];
        arrived.fetch_add(1, Ordering::AcqRel);
        loop {
            if self.results.lock().unwrap_or_else(PoisonError::into_inner).is_err() {
                return false;
            }
            if arrived.load(Ordering::Acquire) >= self.shards {
                return true;
            }
            runtime::sleep(MEETING_POLL).await;
        }
    }

    /// None when another shard has failed.
    async fn measure(&self, engine: &Rc<Engine>) -> Result<Option<ShardResult>, String> {
        if runtime::shard() == ShardId(0) {
            make_table(engine, &self.statements.made_by)
                .await
                .map_err(|error| error.message())?;
        }
        if !self.meet(Meeting::TableMade).await {
            return Ok(None);
        }
        let mut worker = Worker::new(engine, self).map_err(|error| error.message())?;
        if self.workload != Workload::Write {
            worker.fill().await.map_err(|error| error.message())?;
        }
        if self.flush {
            engine.coordinator.context.shard.row_cache_budget.set_bytes_max(0);
            engine.coordinator.context.shard.flush_all().await?;
        }
        if !self.meet(Meeting::TableFilled).await {
            return Ok(None);
        }
        let result = self
            .measure_batches(&mut worker)
            .await
            .map_err(|error| error.message())?;
        // A shard whose part is done still answers the others' messages until all are done.
        self.meet(Meeting::Measured).await;
        Ok(Some(result))
    }

    async fn measure_batches(&self, worker: &mut Worker<'_>) -> Result<ShardResult, QueryError> {
        let shard = runtime::shard().0;
        // The first shards do what is left over when operations do not divide.
        let share = self
            .operations
            .map(|all| all / u64::from(self.shards) + u64::from(u64::from(shard) < all % u64::from(self.shards)));
        let mut result = ShardResult {
            shard,
            windows: Vec::with_capacity(self.windows as usize),
            ..Default::default()
        };
        let allocations_before = allocation_count();
        let instructions = InstructionCounter::start();
        let start = runtime::now();
        let (mut window_start, mut window_operations) = (start, 0);
        loop {
            let batch = share.map_or(self.concurrency, |share| {
                self.concurrency.min(share - result.operations)
            });
            worker.batch(batch).await?;
            result.operations += batch;
            window_operations += batch;
            if share.is_some_and(|share| result.operations >= share) {
                break;
            }
            let now = runtime::now();
            let window = now.saturating_duration_since(window_start);
            if share.is_none() && window >= Duration::from_secs(1) {
                result.windows.push(window_operations as f64 / window.as_secs_f64());
                if result.windows.len() >= self.windows as usize {
                    break;
                }
                (window_start, window_operations) = (now, 0);
            }
            runtime::yield_now().await;
        }
        result.seconds = start.elapsed().as_secs_f64();
        result.allocations = allocation_count()
            .zip(allocations_before)
            .map(|(after, before)| after - before);
        result.instructions = instructions.and_then(|counter| counter.read());
        if share.is_some() {
            result
                .windows
                .push(result.operations as f64 / result.seconds.max(f64::MIN_POSITIVE));
        }
        Ok(result)
    }
}

async fn make_table(engine: &Rc<Engine>, made_by: &[String]) -> Result<(), QueryError> {
    let keyspace =
        "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}";
    for text in std::iter::once(keyspace).chain(made_by.iter().map(String::as_str)) {
        let statement = engine.compile(text, None)?;
        let run = Execution {
            values: Vec::new(),
            now_us: runtime::wall_clock_us(),
            now_in_seconds: None,
            random: runtime::random_u64(),
        };
        engine
            .execute::<Cells>(&statement.statement, &run, &Request::default())
            .await?;
    }
    Ok(())
}

/// One shard's operations: what a server keeps between requests.
struct Worker<'e> {
    engine: &'e Rc<Engine>,
    workload: Workload,
    statements: &'e Statements,
    id: [u8; 16],
    fill_id: [u8; 16],
    /// Statements that were prepared.
    prepared: u64,
    metadata: EncodedMetadata,
    level: Level,
    keys: Vec<[u8; 8]>,
    key_choice: SplitMix64,
    answers: Vec<u8>,
    batch_operations: u64,
    /// The row of the last read that memory did not answer.
    missed: Option<Box<MissedRow>>,
    /// The writes that are not committed yet.
    logged: Option<Logged>,
}

impl<'e> Worker<'e> {
    fn new(engine: &'e Rc<Engine>, bench: &'e Bench) -> Result<Self, QueryError> {
        let statements = &bench.statements;
        let statement = engine.prepare(&statements.measured.replace("{n}", "1"), None)?;
        let columns: Vec<ColumnSpec<'_>> = statement
            .columns
            .iter()
            .map(|column| ColumnSpec {
                keyspace: "ks",
                table: statements.table,
                name: &column.name,
                column_type: &column.cql_type,
            })
            .collect();
        let shard = runtime::shard().0;
        let schema = engine.schema();
        let table = schema
            .keyspaces
            .get("ks")
            .and_then(|ks| ks.tables.get(statements.table));
        let table = table
            .map(|table| table.id)
            .ok_or_else(|| QueryError::invalid("the table is gone"))?;
        let keys: Vec<[u8; 8]> = (0..bench.partitions)
            .map(u64::to_be_bytes)
            .filter(|key| engine.coordinator.own.owner(table, token_of(key)) == shard)
            .collect();
        if keys.is_empty() {
            let message = format!("shard {shard} owns none of the keys; give more --partitions");
            return Err(QueryError::invalid(message));
        }
        Ok(Self {
            engine,
            workload: bench.workload,
            statements,
            id: statement.id,
            fill_id: engine.prepare(&statements.fill, None)?.id,
            prepared: 1,
            metadata: EncodedMetadata::new(VERSION, &columns),
            level: Level::from_number(bench.consistency.number()).expect("both have the protocol's numbers"),
            keys,
            key_choice: SplitMix64::new(runtime::random_u64()),
            answers: Vec::with_capacity(1 << 16),
            batch_operations: bench.concurrency,
            missed: None,
            logged: None,
        })
    }

    /// Writes every key of this shard once.
    async fn fill(&mut self) -> Result<(), QueryError> {
        let keys = std::mem::take(&mut self.keys);
        let batch_operations = usize::try_from(self.batch_operations).unwrap_or(usize::MAX);
        for batch in keys.chunks(batch_operations) {
            let now_us = runtime::wall_clock_us();
            let id = self.fill_id;
            for key in batch {
                for value in &self.statements.filled {
                    if !self.operation_now(&id, (value.as_deref(), key), now_us)? {
                        self.operation_later(&id, (value.as_deref(), key), now_us).await?;
                    }
                }
            }
            self.finish_batch().await?;
            runtime::yield_now().await;
        }
        self.keys = keys;
        Ok(())
    }

    /// One batch of operations on random keys. The clock is asked once for all of them.
    async fn batch(&mut self, operations: u64) -> Result<(), QueryError> {
        let now_us = runtime::wall_clock_us();
        let id = self.id;
        let bound = self.statements.bound.as_deref();
        for _ in 0..operations {
            match self.workload {
                Workload::Prepare => self.prepare()?,
                Workload::Scan(scan) => self.scan(scan, now_us).await?,
                _ => {
                    let key = self.random_key();
                    if !self.operation_now(&id, (bound, &key), now_us)? {
                        self.operation_later(&id, (bound, &key), now_us).await?;
                    }
                }
            }
        }
        self.finish_batch().await
    }

    /// Prepares a statement that was not prepared before.
    fn prepare(&mut self) -> Result<(), QueryError> {
        self.prepared += 1;
        let text = self.statements.measured.replace("{n}", &self.prepared.to_string());
        self.engine.prepare(&text, None).map(drop)
    }

    /// Reads the whole table.
    async fn scan(&mut self, scan: Scan, now_us: i64) -> Result<(), QueryError> {
        let statement = self.engine.prepared(&self.id)?;
        let run = Execution {
            values: Vec::new(),
            now_us,
            now_in_seconds: None,
            random: runtime::random_u64(),
        };
        let request = Request {
            level: self.level,
            ..Request::default()
        };
        let executed = self
            .engine
            .execute::<Cells>(&statement.statement, &run, &request)
            .await?;
        let Outcome::Rows(page) = executed else {
            return Err(QueryError::Server("a scan returns rows".to_owned()));
        };
        let partitions = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        // Other shards' partitions come on top of it.
        let (least, most) = match scan {
            Scan::Count => (1, 1),
            Scan::Group => (partitions, u32::MAX),
            Scan::Filter => (0, 0),
        };
        if (least..=most).contains(&page.rows) {
            Ok(())
        } else {
            Err(QueryError::Server(format!(
                "{} rows of {partitions} partitions of {ROWS} rows",
                page.rows
            )))
        }
    }

    /// What the CQL server does with an EXECUTE when memory can answer; false when it cannot.
    #[inline]
    fn operation_now(
        &mut self,
        id: &[u8],
        (bound, key): (Option<&[u8]>, &[u8]),
        now_us: i64,
    ) -> Result<bool, QueryError> {
        let engine = self.engine;
        let statement = engine.prepared(id)?;
        let values = [Bound::Value(bound.unwrap_or_default()), Bound::Value(key)];
        let values = &values[usize::from(bound.is_none())..];
        if values.len() != statement.markers.len() {
            return Err(QueryError::invalid("the statement wants another number of values"));
        }
        let context = BindContext {
            values: BoundValues::Lent(values),
            now_us,
            now_in_seconds: None,
            random: runtime::random_u64(),
        };
        let out = &mut self.answers;
        match statement.plan() {
            Some(Plan::Select(select)) => {
                let mark = begin_response(out, VERSION, 0, Opcode::Result, &Extras::default());
                let rows = begin_rows(out, &self.metadata, true, None);
                let count = match engine.read_now(select, &context, self.level, &mut CellWriter(out))? {
                    PointOutcome::Rows(count) => count,
                    PointOutcome::Missed => {
                        mark.abandon(out);
                        self.missed = engine.take_missed();
                        return Ok(false);
                    }
                    _ => {
                        mark.abandon(out);
                        return Ok(false);
                    }
                };
                finish_rows(out, rows, count, None);
                finish_response(out, mark).map_err(|error| QueryError::invalid(error.to_string()))?;
                if count != 1 {
                    return Err(QueryError::Server(format!(
                        "{count} rows of a key that was written once"
                    )));
                }
                Ok(true)
            }
            Some(Plan::Write(write)) => match engine.write_now(write, &context, self.level, None, |_| None)? {
                written @ (Written::Here(_) | Written::Nothing) => {
                    if let Written::Here(logged) = written {
                        logged.add_to(&mut self.logged);
                    }
                    write_void(out, VERSION, 0, &Extras::default());
                    Ok(true)
                }
                Written::UnderWay | Written::Later => Ok(false),
            },
            _ => Err(QueryError::Server("neither a read nor a write".to_owned())),
        }
    }

    /// The general way, for what memory could not answer.
    #[cold]
    async fn operation_later(
        &mut self,
        id: &[u8; 16],
        (bound, key): (Option<&[u8]>, &[u8]),
        now_us: i64,
    ) -> Result<(), QueryError> {
        let statement = self.engine.prepared(id)?;
        let values = bound.into_iter().chain([key]);
        let values = values.map(|value| OwnedBound::Value(value.to_vec())).collect();
        let run = Execution {
            values,
            now_us,
            now_in_seconds: None,
            random: runtime::random_u64(),
        };
        let request = Request {
            level: self.level,
            missed: self.missed.take(),
            ..Request::default()
        };
        let executed = self.engine.execute::<Cells>(&statement.statement, &run, &request);
        match executed.await? {
            Outcome::Conditional(answer) if !answer.applied => {
                Err(QueryError::Server("a condition that holds does not".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Hands the writes of a batch to the kernel, and drops its answers.
    async fn finish_batch(&mut self) -> Result<(), QueryError> {
        self.answers.clear();
        let Some(logged) = self.logged.take() else {
            return Ok(());
        };
        match self.engine.commit(&logged)? {
            Some(unsynced) => self.engine.synced(unsynced).await,
            None => Ok(()),
        }
    }

    /// Any key of this shard, equally often.
    #[inline]
    fn random_key(&mut self) -> [u8; 8] {
        let index = self.key_choice.scaled(self.keys.len() as u64);
        self.keys[usize::try_from(index).expect("it is below the number of keys")]
    }
}
