//! Reads of rows that indexes list.
//!
//! An index says which rows may match. They are read as any others are, and the consumer checks all that the statement
//! says, so a row that has changed since it was listed is no answer. See docs/dev/indexes.md.

use std::rc::Rc;
use std::time::Duration;

use coordinator::Extent;
use mutation::candidates::{CandidatesFrom, PassedPosition};
use mutation::terms::IndexLookup;
use mutation::{Bound, PartitionBlock};
use plan::{Execution, RowSink, SelectPlan};
use topology::Consistency;
use types::Token;
use types::token::token_of;

use super::Engine;
use super::page::{Consumer, Flow};
use super::paging_state::Position;
use super::read::{BlockSource, KeptRead, consume_scan, failure, read_options, stretch_of, successor};
use crate::QueryError;

impl Engine {
    /// Reads the rows that indexes list in tokens of this shard.
    pub(super) async fn listed(
        self: &Rc<Self>,
        select: &SelectPlan,
        run: &Execution,
        consumer: &mut Consumer<impl RowSink>,
        (from, to): (Token, Token),
        lookups: Vec<IndexLookup>,
    ) -> Result<Flow, QueryError> {
        let start = listed_from(select, consumer.position(), from);
        if let (Position::BehindRow { key, .. }, PassedPosition::All) = (consumer.position().clone(), &start.passed) {
            let token = token_of(&key);
            if (from..=to).contains(&token) && self.coordinator.own.has_token(&select.table, token) {
                let flow = self.partition(select, run, consumer, token, &key).await?;
                if flow != Flow::Continue && flow != Flow::SkipPartition {
                    return Ok(flow);
                }
            }
        }
        let extent = ((Token(from.0.saturating_sub(1)), to), start);
        let how = (stretch_of(consumer), read_options(select, consumer));
        let read = self.coordinator.own.read_listed(&select.table, extent, lookups, how);
        let source = KeptRead {
            read: read.map_err(|e| failure(&select.table, e))?,
            table: &select.table,
            unused: None,
        };
        consume_listed(select, run, consumer, source).await
    }

    /// Reads the rows that indexes list in a range of tokens from its replicas.
    pub(super) async fn replicated_listed(
        self: &Rc<Self>,
        select: &SelectPlan,
        run: &Execution,
        consumer: &mut Consumer<impl RowSink>,
        (from, to): (Token, Token),
        (lookups, level): (Vec<IndexLookup>, Consistency),
    ) -> Result<Flow, QueryError> {
        let start = listed_from(select, consumer.position(), from);
        if let (Position::BehindRow { key, .. }, PassedPosition::All) = (consumer.position().clone(), &start.passed) {
            let flow = self
                .replicated_partition(select, run, consumer, &key, (level, Duration::ZERO))
                .await?;
            if matches!(flow, Flow::PageFull | Flow::Done) {
                return Ok(flow);
            }
        }
        let CandidatesFrom { token, key, passed } = start;
        let (key, inside) = match passed {
            PassedPosition::Nothing => (key, None),
            PassedPosition::To(bound) => (key, Some(bound)),
            PassedPosition::All => (successor(key), None),
        };
        let extent = Extent::Tokens {
            after: Token(token.0.saturating_sub(1)),
            to,
            from: (token, key),
            inside,
        };
        let read = self.replicated(select, run, consumer, extent, (level, Duration::ZERO))?;
        consume_listed(select, run, consumer, read.listed_by(lookups)).await
    }
}

/// From where on a page takes rows that indexes list. The rest of a partition that they list as a whole is read as a
/// partition.
fn listed_from(select: &SelectPlan, position: &Position, from: Token) -> CandidatesFrom {
    let (key, passed) = match position {
        Position::Start => (&[][..], PassedPosition::Nothing),
        Position::BehindPartition { key } => (&key[..], PassedPosition::All),
        Position::BehindRow { key, .. } if select.restrictions.indexes_list_partitions() => {
            (&key[..], PassedPosition::All)
        }
        Position::BehindRow { key, clustering } => (&key[..], PassedPosition::To(Bound::after(clustering))),
    };
    let token = token_of(key);
    if *position == Position::Start || token < from {
        return CandidatesFrom::token(from);
    }
    CandidatesFrom {
        token,
        key: key.to_vec(),
        passed,
    }
}

/// Blocks of which the first was read already.
struct Begun<R> {
    first: Option<PartitionBlock>,
    rest: R,
}

impl<R: BlockSource> BlockSource for Begun<R> {
    async fn next_block(&mut self) -> Result<Option<PartitionBlock>, QueryError> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.rest.next_block().await,
        }
    }

    async fn skip_partition(&mut self) -> Result<(), QueryError> {
        self.rest.skip_partition().await
    }

    fn page_ended(&mut self, block: PartitionBlock) {
        self.rest.page_ended(block);
    }
}

/// Gives the rows that are listed to the consumer, until it has enough.
async fn consume_listed(
    select: &SelectPlan,
    run: &Execution,
    consumer: &mut Consumer<impl RowSink>,
    mut rest: impl BlockSource,
) -> Result<Flow, QueryError> {
    run.with(|ctx| consumer.begin_scan(select, ctx))?;
    let first = rest.next_block().await?;
    if let Position::BehindRow { key, .. } = consumer.position()
        && first.as_ref().is_none_or(|block| block.key() != key)
    {
        // Of the partition in which the page before ended nothing more is listed.
        consumer.leave_partition();
    }
    consume_scan(select, run, consumer, &mut Begun { first, rest }).await
}
