//! Reads of virtual tables. Their rows are computed on the shard that the client is connected to, and pass through the same consumer as
//! stored ones, so restrictions, order, limits, pages, functions and aggregates are those of all reads.

use std::rc::Rc;

use mutation::PartitionBlock;
use plan::restrict::Partitions;
use plan::{Execution, PageSink, RowSink, SelectPlan};
use system_tables::{BlockLimits, PartitionBlocks, Reader, Request, ScanBlocks, VirtualTable, Wanted};
use types::Token;
use types::token::token_of;

use super::page::{Consumer, Flow, PageRequest, Position};
use super::read::{
    BLOCK_BYTES, BlockSource, Page, consume_partition, consume_scan, end_page, keys_read, slices_left, successor,
};
use super::{Engine, Params};
use crate::QueryError;

impl BlockSource for PartitionBlocks<'_> {
    async fn next_block(&mut self) -> Result<Option<PartitionBlock>, QueryError> {
        Ok(Self::next_block(self))
    }

    async fn skip_partition(&mut self) -> Result<(), QueryError> {
        Ok(())
    }
}

impl BlockSource for ScanBlocks<'_> {
    async fn next_block(&mut self) -> Result<Option<PartitionBlock>, QueryError> {
        Ok(Self::next_block(self))
    }

    async fn skip_partition(&mut self) -> Result<(), QueryError> {
        Self::skip_partition(self);
        Ok(())
    }
}

impl Engine {
    /// Reads a page of a virtual table. Each page gathers the facts anew.
    pub(super) async fn read_virtual<S: PageSink>(
        self: &Rc<Self>,
        source: &dyn VirtualTable,
        select: &SelectPlan,
        run: &Execution,
        params: &Params,
    ) -> Result<Page<S>, QueryError> {
        let request = PageRequest {
            rows: params.page_rows,
            state: params.paging_state.clone(),
        };
        let mut consumer = run.with(|ctx| Consumer::new(select, ctx, &request, S::default()))?;
        let waiting = self.patience(select, run, params.consistency)?;
        let _waiting = waiting.map(|(patience, waiting)| {
            consumer.set_patience(patience);
            waiting
        });
        let open = |wanted| {
            let schema = self.schema();
            Reader::open(source, select.table.clone(), Request { schema, wanted }, run.now_us)
        };
        let flow = match run.with(|ctx| select.restrictions.partition.partitions(&select.table, ctx))? {
            Partitions::None => Flow::Continue,
            Partitions::Keys(mut keys) => {
                let left = keys.split_off(keys_read(&keys, &consumer));
                let keys: Vec<Vec<u8>> = left.into_iter().map(|(_, key)| key).collect();
                let reader = open(Wanted::Keys(keys.clone().into())).await;
                read_keys(&reader, select, run, &mut consumer, keys).await?
            }
            Partitions::Tokens(from, to) => {
                let from = match consumer.position() {
                    Position::Start => from,
                    Position::BehindPartition { key } | Position::BehindRow { key, .. } => from.max(token_of(key)),
                };
                let reader = open(Wanted::Tokens(from, to)).await;
                read_tokens(&reader, select, run, &mut consumer, from).await?
            }
        };
        end_page(select, run, consumer, flow)
    }
}

fn limits<S: RowSink>(consumer: &Consumer<S>) -> BlockLimits {
    BlockLimits {
        rows: consumer.rows_wanted(),
        bytes: BLOCK_BYTES,
    }
}

async fn read_keys<S: RowSink>(
    reader: &Reader,
    select: &SelectPlan,
    run: &Execution,
    consumer: &mut Consumer<S>,
    keys: Vec<Vec<u8>>,
) -> Result<Flow, QueryError> {
    let mut flow = Flow::Continue;
    for key in keys {
        flow = read_partition(reader, select, run, consumer, key).await?;
        if matches!(flow, Flow::PageFull | Flow::Done) {
            break;
        }
    }
    Ok(flow)
}

async fn read_partition<S: RowSink>(
    reader: &Reader,
    select: &SelectPlan,
    run: &Execution,
    consumer: &mut Consumer<S>,
    key: Vec<u8>,
) -> Result<Flow, QueryError> {
    let slices = slices_left(select, run, consumer, &key)?;
    let mut blocks = reader.partition(key, slices, select.reversed, limits(consumer));
    consume_partition(select, run, consumer, &mut blocks).await
}

async fn read_tokens<S: RowSink>(
    reader: &Reader,
    select: &SelectPlan,
    run: &Execution,
    consumer: &mut Consumer<S>,
    from: Token,
) -> Result<Flow, QueryError> {
    let behind = |key: Vec<u8>| match token_of(&key) {
        token if token < from => (from, Vec::new()),
        token => (token, successor(key)),
    };
    let start = match consumer.position().clone() {
        Position::Start => (from, Vec::new()),
        Position::BehindPartition { key } => behind(key),
        Position::BehindRow { key, .. } => {
            let flow = read_partition(reader, select, run, consumer, key.clone()).await?;
            if matches!(flow, Flow::PageFull | Flow::Done) {
                return Ok(flow);
            }
            behind(key)
        }
    };
    run.with(|ctx| consumer.begin_scan(select, ctx))?;
    let mut blocks = reader.scan(start, limits(consumer));
    consume_scan(select, run, consumer, &mut blocks).await
}
