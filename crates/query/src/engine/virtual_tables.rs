//! Reads of virtual tables. Their rows are computed on the shard that the client is connected to, and pass through the
//! same consumer as stored ones, so restrictions, order, limits, pages, functions and aggregates are those of all
//! reads.

use std::rc::Rc;

use mutation::{Column as MutationColumn, Mutation, MutationItem, PartitionBlock, RowView};
use plan::restrict::Partitions;
use plan::{BindContext, Execution, PageSink, RowSink, SelectPlan, WritePlan};
use system_tables::{
    BlockLimits, PartitionBlocks, Reader, ScanBlocks, VirtualTable, Wanted, WrittenRow, modification_unsupported,
};
use types::Token;
use types::token::token_of;

use super::page::{Consumer, Flow};
use super::paging_state::Position;
use super::read::{
    BLOCK_BYTES, BlockSource, Page, consume_partition, consume_scan, end_page, keys_read, slices_left, successor,
};
use super::{Engine, Request};
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
    /// Reads a page of a virtual table. Each page gathers the facts again.
    pub(super) async fn read_virtual<S: PageSink>(
        self: &Rc<Self>,
        source: &dyn VirtualTable,
        select: &SelectPlan,
        run: &Execution,
        request: &Request,
    ) -> Result<Page<S>, QueryError> {
        let (mut consumer, _waiting) = self.consumer::<S>(select, run, request)?;
        let open = |wanted| {
            let schema = self.schema();
            Reader::open(
                source,
                select.table.clone(),
                system_tables::Request { schema, wanted },
                run.now_us,
            )
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

impl Engine {
    /// Gives rows of a virtual table other values. Only this node has them, so no consistency level matters.
    pub(super) async fn write_virtual(&self, plan: &WritePlan, run: &Execution) -> Result<(), QueryError> {
        let Some(table) = self.node.system_tables.virtual_table(plan.table.id) else {
            return Err(QueryError::invalid(modification_unsupported(
                &plan.table.keyspace,
                &plan.table.name,
            )));
        };
        let run = &*plan.read_json(run)?;
        let rows = run.with(|ctx| self.written_rows(plan, ctx))?;
        if rows.is_empty() {
            return Ok(());
        }
        table.source.write(rows).await.map_err(QueryError::Invalid)
    }

    /// What a statement gives to which rows. Virtual tables that take writes have neither clustering columns nor
    /// multi-cell ones.
    fn written_rows(&self, plan: &WritePlan, ctx: &BindContext<'_>) -> Result<Vec<WrittenRow>, QueryError> {
        let table = &plan.table;
        let timestamp = self.clock.timestamp(ctx.now_us);
        let mut rows = Vec::new();
        for (_, key) in plan.keys(ctx)? {
            let mut packed = Vec::new();
            if !plan.pack(&key, timestamp, ctx, &self.clock, None, &mut packed)? {
                continue;
            }
            let mutation = Mutation::new(&packed).expect("it was packed just now");
            let mut columns = Vec::new();
            for item in mutation.items() {
                let MutationItem::Row { row, .. } = item else { continue };
                let row = RowView::new(row).expect("it was packed just now");
                for (id, column) in row.columns(&table.layout) {
                    let MutationColumn::Simple(cell) = column else { continue };
                    let Some(named) = table.columns.iter().find(|column| usize::from(column.id.0) == id) else {
                        continue;
                    };
                    columns.push((named.name.clone(), (!cell.dead).then(|| cell.value.to_vec())));
                }
            }
            rows.push(WrittenRow { key, columns });
        }
        Ok(rows)
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
