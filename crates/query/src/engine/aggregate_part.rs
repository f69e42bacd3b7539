//! An aggregate as work near the data: some spans of tokens, read at the request's level by the shard that has them.
//!
//! A part ends when its span does, when time is up, or when it has found many groups: then it reports how far it came,
//! and is asked to continue from there.

use std::sync::Arc;

use coordinator::near::{Amount, Malformed, ResumePoint, Span, StepTime, Work};
use coordinator::{Extent, ReplicatedRead, Stretch};
use mutation::PartitionBlock;
use plan::{Execution, RowSink, SelectPlan};
use schema::Schema;
use stdx::bytes::Reader;
use topology::Consistency;
use types::{Comparator, Token};
use uuid::Uuid;

use super::Engine;
use super::aggregate_message::{AggregateMessage, get_error, put_error};
use super::groups::Found;
use super::page::{Consumer, Flow, PageRequest, group_order, rows_at_once};
use super::read::{BLOCK_BYTES, successor};
use crate::QueryError;

/// Rows that one round of requests reads.
const STRETCH_ROWS: usize = 10_000;

/// See the module.
#[derive(Clone)]
pub(super) struct Aggregate {
    pub(super) select: Arc<SelectPlan>,
    run: Execution,
    level: Consistency,
    /// The version of the schema that the plan is of; None when the schema is another one by now.
    schema: Option<Uuid>,
    /// The columns of which other nodes want the values of a group's first row.
    columns: Arc<[usize]>,
    /// How the values of GROUP BY compare.
    order: Arc<[Option<Comparator>]>,
}

impl Aggregate {
    pub(super) fn new(select: &Arc<SelectPlan>, run: &Execution, level: Consistency, schema: &Schema) -> Self {
        let now = schema.table_by_id(select.table.id);
        let is_current = now.is_some_and(|table| *table == select.table);
        Self {
            columns: select.selection.columns_of_first().into(),
            order: group_order(select).into(),
            select: Arc::clone(select),
            run: run.clone(),
            level,
            schema: is_current.then_some(schema.version),
        }
    }
}

impl Work for Aggregate {
    type Output = Found;
    type Error = QueryError;

    const KIND: u8 = 1;
    const ACTIVITY: &'static str = "Aggregating";

    fn encode(&self) -> Option<Vec<u8>> {
        let message = AggregateMessage {
            schema: self.schema?,
            plan: self.select.encode_part()?,
            run: self.run.clone(),
            level: self.level,
        };
        Some(message.encode())
    }

    fn decode(bytes: &[u8]) -> Result<Self, String> {
        let message = AggregateMessage::decode(bytes);
        let message = message.map_err(|_| "expected an aggregate, format 1".to_owned())?;
        let schema = Engine::local().schema();
        if schema.version != message.schema {
            return Err("the schema is another one here".to_owned());
        }
        let table = |id| schema.table_by_id(id).cloned();
        let select = SelectPlan::decode_part(&message.plan, &schema, table).map_err(|e| e.to_string())?;
        Ok(Self::new(&Arc::new(select), &message.run, message.level, &schema))
    }

    async fn run(&self, span: &Span, time: StepTime) -> Result<(Found, Option<ResumePoint>), QueryError> {
        let (engine, select, run) = (Engine::local(), &*self.select, &self.run);
        let mut consumer = run.with(|ctx| Consumer::new(select, ctx, &PageRequest::default(), NoRows))?;
        consumer.keep_groups(select);
        run.with(|ctx| consumer.begin_scan(select, ctx))?;
        let (mut first, mut inside) = ((first_of(span.after), Vec::new()), None);
        if let Some(place) = &span.place {
            first = place.from.clone();
            if let Some((bound, had_rows)) = &place.inside {
                inside = Some(bound.clone());
                consumer.resume_partition(*had_rows);
            }
        }
        let stretch = Stretch {
            rows: if select.selection.calls_user_functions {
                rows_at_once(select)
            } else {
                STRETCH_ROWS
            },
            bytes: BLOCK_BYTES,
        };
        let extent = Extent::Tokens {
            after: span.after,
            to: span.to,
            from: first,
            inside,
        };
        let (coordinator, now) = (&engine.coordinator, run.expiry_now());
        let view = coordinator.context.view();
        let read = ReplicatedRead::new(
            &coordinator.reads,
            &view,
            &select.table,
            self.level,
            extent,
            now,
            stretch,
        );
        let lookups = run.with(|ctx| select.restrictions.lookups(ctx))?;
        let read = read
            .map_err(QueryError::of_replicas)?
            .listed_by(lookups)
            .within(time.round);
        let place = consume_until(select, run, &mut consumer, read, time).await?;
        Ok((consumer.take_found(select), place))
    }

    fn join(&self, known: &mut Found, more: Found) -> Result<(), QueryError> {
        Ok(known.merge(more, &self.order)?)
    }

    fn amount(&self, found: &Found) -> Amount {
        Amount {
            results: found.groups() as u64,
            bytes: found.held_bytes(),
        }
    }

    fn is_final(error: &QueryError) -> bool {
        matches!(
            error,
            QueryError::Function(_) | QueryError::UserFunction(_) | QueryError::Invalid(_)
        )
    }

    fn refused(reason: String) -> QueryError {
        QueryError::Server(reason)
    }

    fn put_found(&self, found: &Found, out: &mut Vec<u8>) {
        found.encode(&self.columns, out);
    }

    fn get_found(&self, reader: &mut Reader<'_>) -> Result<Found, Malformed> {
        Found::decode(&self.select, &self.columns, reader)
    }

    fn put_error(error: &QueryError, out: &mut Vec<u8>) {
        put_error(error, out);
    }

    fn get_error(reader: &mut Reader<'_>) -> Result<QueryError, Malformed> {
        get_error(reader)
    }
}

/// The sink of a part: an aggregate gives its row where its parts are joined.
struct NoRows;

impl RowSink for NoRows {
    fn value(&mut self, _: Option<&[u8]>) {}

    fn end_row(&mut self) {}

    fn bytes(&self) -> usize {
        0
    }
}

/// The lowest token above one; the lowest of all above itself.
pub(super) fn first_of(after: Token) -> Token {
    match after.0 {
        i64::MIN => after,
        n => Token(n.saturating_add(1)),
    }
}

/// Gives the blocks of many partitions to the consumer until time is up. Returns where to continue then.
async fn consume_until(
    select: &SelectPlan,
    run: &Execution,
    consumer: &mut Consumer<NoRows>,
    mut read: ReplicatedRead,
    time: StepTime,
) -> Result<Option<ResumePoint>, QueryError> {
    while let Some(block) = read.next_block().await.map_err(QueryError::of_replicas)? {
        let flow = run.with(|ctx| consumer.block(select, ctx, &block))?;
        let is_skipped = flow == Flow::SkipPartition;
        if is_skipped {
            read.skip_partition();
        }
        let ends = is_skipped || block.covered.is_none();
        if ends {
            run.with(|ctx| consumer.end_partition(select, ctx, &block))?;
        }
        if runtime::now() >= time.until || consumer.has_many_groups() {
            return Ok(Some(place_behind(block, ends, consumer)));
        }
        runtime::give_way().await;
    }
    Ok(None)
}

fn place_behind(block: PartitionBlock, ends: bool, consumer: &Consumer<NoRows>) -> ResumePoint {
    let key = block.key().to_vec();
    match block.covered {
        Some(bound) if !ends => ResumePoint {
            from: (block.token, key),
            inside: Some((bound, consumer.partition_has_rows())),
        },
        _ => ResumePoint {
            from: (block.token, successor(key)),
            inside: None,
        },
    }
}
