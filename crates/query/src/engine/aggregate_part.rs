//! A part of an aggregate: some spans of tokens, read at the request's level by the shard that has them, for a
//! coordinator here or elsewhere.
//!
//! A part ends when its spans do, or when [`STEP_MAX`] has passed or it has found many groups: then it reports how far
//! it came, and is asked to continue from there. So no answer is late because there is much to read, and a coordinator
//! whose answer is late knows that something is wrong.

use std::rc::Rc;
use std::time::Duration;

use coordinator::{Extent, ReplicatedRead, Stretch};
use mutation::PartitionBlock;
use plan::{Execution, RowSink, SelectPlan};
use runtime::Instant;
use topology::Consistency;
use types::Token;

use super::Engine;
use super::aggregate_message::{Part, PartRequest, ResumePoint, Span, encode_answer};
use super::groups::Found;
use super::page::{Consumer, Flow, PageRequest, rows_at_once};
use super::read::{BLOCK_BYTES, successor};
use crate::QueryError;

/// How long a part works before it says how far it is.
const STEP_MAX: Duration = Duration::from_secs(1);
/// Rows that one round of requests reads.
const STRETCH_ROWS: usize = 10_000;

impl Engine {
    /// The answer to another node that asks for a part.
    pub(super) async fn aggregate_for_peer(self: &Rc<Self>, body: &[u8]) -> Vec<u8> {
        let mut columns = Vec::new();
        let part = async {
            let refuse = |why: &str| QueryError::Server(why.to_owned());
            let request =
                PartRequest::decode(body).map_err(|_| refuse("expected a request for an aggregate, format 2"))?;
            let schema = self.schema();
            if schema.version != request.schema {
                return Err(refuse("the schema is another one here"));
            }
            let table = |id| schema.table_by_id(id).cloned();
            let select = SelectPlan::decode_part(&request.plan, &schema, table).map_err(|e| refuse(&e.to_string()))?;
            columns = select.selection.columns_of_first();
            let timeout = Duration::from_millis(u64::from(request.timeout_ms));
            self.aggregate_part(&select, &request.run, request.level, &request.spans, timeout)
                .await
        };
        let part = part.await;
        encode_answer(&part, &columns)
    }

    /// Aggregates spans one after the other, as many as there is time for, and something of the first at least.
    pub(super) async fn aggregate_part(
        self: &Rc<Self>,
        select: &SelectPlan,
        run: &Execution,
        level: Consistency,
        spans: &[Span],
        timeout: Duration,
    ) -> Result<Part, QueryError> {
        self.coordinator.count(|m| m.aggregate_parts += 1);
        let until = runtime::now() + STEP_MAX.min(timeout / 4);
        let mut done = Vec::with_capacity(spans.len());
        for span in spans {
            if !done.is_empty() && runtime::now() >= until {
                break;
            }
            let (found, place) = self
                .aggregate_span(select, run, level, span, (until, timeout / 2))
                .await?;
            if let Some(place) = place {
                let begun = Some((found, place));
                return Ok(Part { done, begun });
            }
            done.push(found);
        }
        Ok(Part { done, begun: None })
    }

    /// Aggregates a span until its end, or the place where time was up.
    async fn aggregate_span(
        self: &Rc<Self>,
        select: &SelectPlan,
        run: &Execution,
        level: Consistency,
        span: &Span,
        (until, timeout): (Instant, Duration),
    ) -> Result<(Found, Option<ResumePoint>), QueryError> {
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
        let now = run.expiry_now();
        let stretch = Stretch {
            rows: match select.selection.calls_user_functions {
                true => rows_at_once(select),
                false => STRETCH_ROWS,
            },
            bytes: BLOCK_BYTES,
        };
        let view = self.coordinator.view();
        let extent = Extent::Tokens {
            after: span.after,
            to: span.to,
            from: first,
            inside,
        };
        let read = ReplicatedRead::new(&self.coordinator, &view, &select.table, level, extent, now, stretch);
        let read = read.map_err(QueryError::of_replicas)?.within(timeout);
        let place = consume_until(select, run, &mut consumer, read, until).await?;
        Ok((consumer.take_found(select), place))
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

/// Gives the blocks of many partitions to the consumer until that moment. Returns where to continue then.
async fn consume_until(
    select: &SelectPlan,
    run: &Execution,
    consumer: &mut Consumer<NoRows>,
    mut read: ReplicatedRead,
    until: Instant,
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
        if runtime::now() >= until || consumer.has_many_groups() {
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
