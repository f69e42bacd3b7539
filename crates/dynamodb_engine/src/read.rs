//! Reads of items.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dynamodb::value::{json, size};
use dynamodb::{Error, ErrorKind, Item};
use plan::restrict::{ClusteringBound, ClusteringRestriction, PartitionRestriction, Restrictions, TokenBound};
use plan::{Execution, Operand, OwnedBound, Plan, RowSink, Select, SelectPlan};
use query::engine::{PagingState, Position};
use query::{Outcome, Page, PointOutcome, QueryError, Request};
use stdx::planted::{self, Bug};
use topology::Consistency;
use types::Token;

use crate::lock::{Intent, Lock};
use crate::modify::LOCKED_MAX;
use crate::record::State;
use crate::row::{ReadRow, bytes_of, item_of, json_of, key_item};
use crate::service::{Service, of_engine};
use crate::table::{ItemKey, ItemTable};
use crate::transaction::SETTLING_MAX;

/// How long a lock without a record is left to its transaction by reads.
const BEGIN_WAIT: Duration = Duration::from_secs(1);
/// The most items of a page that a request does not limit: those of a megabyte of the smallest ones.
const PAGE_ROWS_MAX: u32 = 100_000;

/// The rows of a read: of each the values of the key, the map of attributes, and the lock.
#[derive(Debug, Default)]
pub struct Rows {
    rows: Vec<ReadRow>,
    values: Vec<Option<Vec<u8>>>,
    bytes: usize,
}

impl RowSink for Rows {
    fn value(&mut self, value: Option<&[u8]>) {
        self.bytes += value.map_or(0, <[u8]>::len);
        self.values.push(value.map(<[u8]>::to_vec));
    }

    fn end_row(&mut self) {
        let lock = self.values.pop().flatten();
        let attributes = self.values.pop().flatten();
        let key = self.values.drain(..).flatten().collect();
        stdx::preempt::push(&mut self.rows, ReadRow { key, attributes, lock });
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Which items of a partition, by their sort key. `begins_with` and an exclusive start are bounds too.
#[derive(Clone, Debug, Default)]
pub struct SortRange {
    /// From where on: the serialised value, and whether it is inside.
    pub lower: Option<(Vec<u8>, bool)>,
    /// Up to where.
    pub upper: Option<(Vec<u8>, bool)>,
}

/// Which items a page is of.
#[derive(Clone, Debug)]
pub enum Extent {
    /// Those of one partition.
    Partition {
        /// Its serialised key.
        key: Vec<u8>,
        /// Which of them.
        range: SortRange,
        /// Whether they come in descending order of the sort key.
        is_reversed: bool,
    },
    /// Those of a range of tokens, in the order of the ring.
    Tokens(Token, Token),
}

/// An item that was read. Most are answered as they are: from their row, with no item in between.
#[derive(Debug)]
pub enum FoundItem<'t> {
    /// A row without a lock.
    Row(&'t ItemTable, ReadRow),
    /// What the transaction that has locked its row makes of it, or a row of another table.
    Item(Item),
}

impl FoundItem<'_> {
    /// The item.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn into_item(self) -> Result<Item, Error> {
        match self {
            // A row without a lock is an item.
            Self::Row(table, row) => Ok(item_of(table, &row)?.unwrap_or_default()),
            Self::Item(item) => Ok(item),
        }
    }

    /// Its JSON.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn json(&self) -> Result<Vec<u8>, Error> {
        match self {
            Self::Row(table, row) => json_of(table, row),
            Self::Item(item) => {
                let mut out = Vec::new();
                json::write_item(&mut out, item);
                Ok(out)
            }
        }
    }

    /// Its size in bytes, as the API counts it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn bytes(&self) -> Result<usize, Error> {
        match self {
            Self::Row(table, row) => bytes_of(table, row),
            Self::Item(item) => Ok(size::item_bytes(item)),
        }
    }
}

/// Items that were read in one go.
#[derive(Debug)]
pub struct Items<'t> {
    /// The rows that are items, in order.
    pub items: Vec<FoundItem<'t>>,
    /// The key of the last of them.
    pub last_key: Option<Item>,
    /// Whether there may be more after the last row.
    pub has_more: bool,
    /// The key of the last row that was read, if it is no item and there may be more.
    pub last: Option<ItemKey>,
}

/// The items of a range of tokens, page by page.
pub(crate) struct Pages<'t> {
    table: &'t ItemTable,
    extent: Extent,
    limit: u32,
    level: Consistency,
    /// The last row of the page before.
    after: Option<ItemKey>,
    is_first: bool,
}

impl<'t> Pages<'t> {
    /// `range`: both ends are inside; `limit`: rows of a page.
    pub(crate) fn new(table: &'t ItemTable, range: (Token, Token), limit: u32, level: Consistency) -> Self {
        Self {
            table,
            extent: Extent::Tokens(range.0, range.1),
            limit,
            level,
            after: None,
            is_first: true,
        }
    }

    /// The next items; None after the last ones. Other tasks run in between.
    ///
    /// # Errors
    /// As [`Service::read_item`].
    pub(crate) async fn next(&mut self, service: &Rc<Service>) -> Result<Option<Vec<FoundItem<'t>>>, Error> {
        if !self.is_first {
            if self.after.is_none() {
                return Ok(None);
            }
            runtime::give_way().await;
        }
        self.is_first = false;
        let (limit, after) = (Some(self.limit), self.after.take());
        let page = service
            .read_page(self.table, &self.extent, after.as_ref(), limit, self.level)
            .await?;
        if page.has_more {
            let last = page.last_key.map(|key| self.table.key_of(&key)).transpose()?;
            self.after = page.last.or(last);
        }
        Ok(Some(page.items))
    }
}

fn execution(values: Vec<OwnedBound>) -> Execution {
    Execution {
        values,
        now_us: runtime::wall_clock_us(),
        now_in_seconds: None,
        random: runtime::random_u64(),
    }
}

impl Service {
    /// The item of a key.
    ///
    /// # Errors
    /// When too few replicas answer, or the item cannot be read.
    pub async fn read_item(
        self: &Rc<Self>,
        table: &ItemTable,
        key: &ItemKey,
        level: Consistency,
    ) -> Result<Option<Item>, Error> {
        let found = self.find_item(table, key, level).await?;
        found.map(FoundItem::into_item).transpose()
    }

    /// As [`Service::read_item`]; the item may be left as its row has it.
    ///
    /// # Errors
    /// As [`Service::read_item`].
    pub async fn find_item<'t>(
        self: &Rc<Self>,
        table: &'t ItemTable,
        key: &ItemKey,
        level: Consistency,
    ) -> Result<Option<FoundItem<'t>>, Error> {
        match self.read_stored(table, key, level).await? {
            Some(row) if row.lock.is_some() => {
                let item = Box::pin(self.read_locked(table, key, row)).await?;
                Ok(item.map(FoundItem::Item))
            }
            row => Ok(row.map(|row| FoundItem::Row(table, row))),
        }
    }

    /// The item of a row that has a lock: what its transaction makes of it, if that is committed, else what was there
    /// before. Reads of single items so keep the order of transactions.
    async fn read_locked(
        self: &Rc<Self>,
        table: &ItemTable,
        key: &ItemKey,
        mut row: ReadRow,
    ) -> Result<Option<Item>, Error> {
        for _ in 0..LOCKED_MAX {
            let Some(lock) = row.lock.as_deref().and_then(Lock::decode) else {
                return item_of(table, &row);
            };
            let state = self.recorded_state(lock.transaction.as_bytes()).await?;
            match state {
                _ if planted::is_planted(Bug::UnseenCommit) => return item_of(table, &row),
                State::Committed => {
                    return match lock.intent {
                        Intent::Keep => item_of(table, &row),
                        Intent::Put(item) => Ok(Some(item)),
                        Intent::Delete => Ok(None),
                    };
                }
                State::Pending { .. } | State::Aborted => return item_of(table, &row),
                State::Absent => {}
            }
            // It has not begun, or was over before the record was looked for: then the lock is gone.
            let Some(again) = self.read_stored(table, key, Consistency::LocalQuorum).await? else {
                return Ok(None);
            };
            if again.lock == row.lock {
                self.settle_later(table, key, lock);
                return item_of(table, &again);
            }
            row = again;
        }
        Err(Error::new(
            ErrorKind::InternalServerError,
            "The item takes part in one transaction after the other; try again",
        ))
    }

    /// Takes away a lock whose transaction has not begun after a second: nothing else may ever write the item.
    fn settle_later(self: &Rc<Self>, table: &ItemTable, key: &ItemKey, lock: Lock) {
        if self.settling.get() >= SETTLING_MAX {
            return;
        }
        self.settling.set(self.settling.get() + 1);
        let (service, name, key) = (self.clone(), table.name.clone(), key.clone());
        drop(runtime::spawn(async move {
            runtime::sleep(BEGIN_WAIT).await;
            if let Ok(Some(table)) = service.find_table(&name)
                && let Err(error) = service.settle(&table, &key, &lock).await
            {
                log::debug!(
                    "transaction {} has left a lock without a record: {error}",
                    lock.transaction
                );
            }
            service.settling.set(service.settling.get() - 1);
        }));
    }

    async fn read_stored(
        self: &Rc<Self>,
        table: &ItemTable,
        key: &ItemKey,
        level: Consistency,
    ) -> Result<Option<ReadRow>, Error> {
        let values = [Some(key.partition.as_slice()), key.sort()];
        let values = values
            .into_iter()
            .flatten()
            .map(|value| OwnedBound::Value(value.to_vec()));
        let run = execution(values.collect());
        let mut rows = Rows::default();
        let now = run.with_unpreempted(|ctx| self.engine.read_now(&table.point, ctx, level, &mut rows));
        if let PointOutcome::Rows(_) = now.map_err(of_engine)? {
            return Ok(rows.rows.pop());
        }
        let request = Request {
            level,
            ..Request::default()
        };
        let mut page = self.page(&table.point, &run, &request).await.map_err(of_engine)?;
        Ok(page.sink.rows.pop())
    }

    async fn page(
        self: &Rc<Self>,
        plan: &Arc<SelectPlan>,
        run: &Execution,
        request: &Request,
    ) -> Result<Page<Rows>, QueryError> {
        match self
            .engine
            .execute_plan(&Plan::Select(plan.clone()), run, request)
            .await?
        {
            Outcome::Rows(page) => Ok(page),
            _ => Err(QueryError::Server("a read gave no rows".to_owned())),
        }
    }

    /// A page of items: at most `limit` rows, and as many as a page of results may have. `after`: the row after which
    /// it begins, which is in the extent.
    ///
    /// # Errors
    /// As [`Service::read_item`].
    pub async fn read_page<'t>(
        self: &Rc<Self>,
        table: &'t ItemTable,
        extent: &Extent,
        after: Option<&ItemKey>,
        limit: Option<u32>,
        level: Consistency,
    ) -> Result<Items<'t>, Error> {
        let plan = Arc::new(plan_of(table, extent).map_err(|e| of_engine(e.into()))?);
        let run = execution(Vec::new());
        let position = after.map(|key| match &key.clustering {
            clustering if clustering.is_empty() => Position::BehindPartition {
                key: key.partition.clone(),
            },
            clustering => Position::BehindRow {
                key: key.partition.clone(),
                clustering: clustering.clone(),
            },
        });
        let rows_max = limit.unwrap_or(PAGE_ROWS_MAX);
        let request = Request {
            level,
            page_rows: Some(rows_max),
            paging_state: position.map(|position| PagingState::begin_after(position, table.table.id).encode()),
            takes_empty_pages: true,
            ..Request::default()
        };
        let page = self.page(&plan, &run, &request).await.map_err(of_engine)?;
        self.items_of(table, page, rows_max).await
    }

    async fn items_of<'t>(
        self: &Rc<Self>,
        table: &'t ItemTable,
        page: Page<Rows>,
        rows_max: u32,
    ) -> Result<Items<'t>, Error> {
        // The service does not look further when it has as many as were asked for.
        let has_more = page.paging_state.is_some() || page.rows >= rows_max;
        let position = page.paging_state.as_deref().map(PagingState::decode);
        let position = position.transpose().map_err(of_engine)?.map(|state| state.position);
        let last = match position {
            Some(Position::BehindRow { key, clustering }) => Some(ItemKey {
                partition: key,
                clustering,
            }),
            Some(Position::BehindPartition { key }) => Some(ItemKey {
                partition: key,
                clustering: Vec::new(),
            }),
            Some(Position::Start) | None => None,
        };
        let mut items = Vec::with_capacity(page.sink.rows.len());
        for row in page.sink.rows {
            if row.lock.is_some() {
                let key = table.key_of_row(&row.key);
                let item = Box::pin(self.read_locked(table, &key, row)).await?;
                items.extend(item.map(FoundItem::Item));
            } else {
                stdx::preempt::push(&mut items, FoundItem::Row(table, row));
            }
        }
        let last_key = match items.last() {
            Some(FoundItem::Row(_, row)) => Some(key_item(table, &row.key)?),
            Some(FoundItem::Item(item)) => Some(table.key_item(item)),
            None => None,
        };
        Ok(Items {
            items,
            last_key,
            has_more,
            last,
        })
    }
}

fn plan_of(table: &ItemTable, extent: &Extent) -> Result<SelectPlan, plan::PlanError> {
    let constant = |bytes: &[u8]| Operand::Constant(bytes.into());
    let bound = |bound: &Option<(Vec<u8>, bool)>| {
        bound.as_ref().map(|(value, inclusive)| ClusteringBound {
            values: vec![constant(value)],
            tuple: None,
            inclusive: *inclusive,
        })
    };
    let (partition, clustering, reversed) = match extent {
        Extent::Partition {
            key,
            range,
            is_reversed,
        } => {
            let clustering =
                ClusteringRestriction::new(&table.table, Vec::new(), bound(&range.lower), bound(&range.upper))?;
            (PartitionRestriction::Key(vec![constant(key)]), clustering, *is_reversed)
        }
        Extent::Tokens(first, last) => {
            let token = |token: &Token| {
                Some(TokenBound {
                    value: constant(&token.0.to_be_bytes()),
                    inclusive: true,
                })
            };
            let tokens = PartitionRestriction::Token {
                start: token(first),
                end: token(last),
            };
            (tokens, ClusteringRestriction::default(), false)
        }
    };
    let restrictions = Restrictions {
        partition,
        clustering,
        filters: Vec::new(),
        indexed: Vec::new(),
    };
    let selection = ItemTable::selection(&table.table).map_err(plan::PlanError::Invalid)?;
    let mut select = Select::new(table.table.clone(), selection, restrictions);
    select.reversed = reversed;
    SelectPlan::new(select)
}
