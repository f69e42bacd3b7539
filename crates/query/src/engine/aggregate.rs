//! Aggregates beside the data: the shards that have the rows aggregate them, all at once, and only what they find
//! travels ([`coordinator::near`]).
//!
//! With GROUP BY a span of tokens results in groups (`groups.rs`), which are not joined with those of other spans. When
//! those of the first spans fill the page, no shard is asked for more.

use std::rc::Rc;
use std::sync::Arc;

use coordinator::Spread;
use coordinator::near::{Near, ResultLimits};
use plan::{Execution, RowSink, SelectPlan};
use topology::Consistency;
use types::Token;

use super::aggregate_part::Aggregate;
use super::groups::{Found, GROUP_BYTES_MAX};
use super::page::{Consumer, Flow};
use super::paging_state::Position;
use super::{Engine, Request};
use crate::QueryError;

impl Engine {
    /// How a read of tokens is spread over the cluster; None when one scan from here is right.
    pub(super) fn spread(
        &self,
        select: &SelectPlan,
        request: &Request,
        consumer: &Consumer<impl RowSink>,
        (from, to): (Token, Token),
    ) -> Result<Option<Spread>, QueryError> {
        let has_one_shard = runtime::shard_count() == 1 && self.coordinator.context.is_alone();
        let begins = *consumer.position() == Position::Start;
        let has_groups = || select.has_groups_apart() && self.expects_few_groups(select.table.id, consumer);
        if has_one_shard || request.is_serial || !begins || from > to || !(select.is_mergeable() || has_groups()) {
            return Ok(None);
        }
        let after = Token(from.0.saturating_sub(1));
        let view = self.coordinator.context.view();
        let spread = self
            .coordinator
            .near
            .spread(&view, select.table.id, (after, to), request.level);
        spread.map_err(QueryError::of_replicas)
    }

    /// Aggregates what was spread, into a page; None when it has more groups than there is memory for, and nothing has
    /// come into the page.
    pub(super) async fn spread_aggregate<S: RowSink>(
        self: &Rc<Self>,
        select: &Arc<SelectPlan>,
        run: &Execution,
        consumer: &mut Consumer<S>,
        level: Consistency,
        spread: Spread,
    ) -> Result<Option<Flow>, QueryError> {
        let schema = self.schema();
        let aggregate = Aggregate::new(select, run, level, &schema);
        let wanted = ResultLimits {
            results: consumer.groups_wanted(),
            bytes_max: GROUP_BYTES_MAX,
        };
        let near = self.coordinator.near.run(aggregate, spread, level, wanted);
        let found = match consumer.within(near).await?? {
            Near::Found(found) => found,
            Near::TooMuch => return Ok(None),
        };
        if !select.group_by.is_empty() {
            for group in found.into_iter().flat_map(Found::into_groups) {
                let flow = run.with(|ctx| consumer.take_part(select, ctx, group))?;
                if flow != Flow::Continue {
                    return Ok(Some(flow));
                }
            }
            return Ok(Some(Flow::Continue));
        }
        let mut whole = Found::All(select.selection.new_group());
        for found in found {
            whole.merge(found, &[])?;
        }
        if let Found::All(state) = whole {
            consumer.give_group(state);
        }
        Ok(Some(Flow::Continue))
    }
}
