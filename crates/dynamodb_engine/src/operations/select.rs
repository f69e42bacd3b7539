//! Query and Scan.

use std::rc::Rc;
use std::sync::Arc;

use dynamodb::answer::{CapacityKind, Page};
use dynamodb::capacity::{Consistency, read_units};
use dynamodb::request::{Query, ReadItems, ReturnConsumedCapacity, Scan, Select, SortRange as SortCondition};
use dynamodb::{Error, Item};
use stdx::preempt;
use types::Token;

use super::consumed;
use super::item::projected_json;
use crate::read::{Extent, FoundItem, Items, SortRange};
use crate::service::Service;
use crate::system_table;
use crate::table::{ItemTable, key_bytes};

/// What a page of a Query or Scan returns.
pub(super) struct Selected {
    /// JSON of each.
    items: Vec<Vec<u8>>,
    count: usize,
    scanned: usize,
    bytes: usize,
    last: Option<Item>,
}

impl Service {
    pub(super) async fn query(self: &Rc<Self>, request: Query) -> Result<Vec<u8>, Error> {
        if system_table::is_named(request.read.table.name()) {
            return Box::pin(self.query_system(request)).await;
        }
        let table = self.table(request.read.table.name())?;
        let range = request.key_range(&table.definition)?;
        let (key, sort) = match range.partition.as_slice() {
            [value] => (key_bytes(value)?, sort_range(&range.sort)?),
            _ => return Err(Error::validation("Query key condition not supported")),
        };
        let extent = Extent::Partition {
            key,
            range: sort,
            is_reversed: !request.forward,
        };
        self.answer_page(&table, &request.read, &extent).await
    }

    pub(super) async fn scan(self: &Rc<Self>, request: Scan) -> Result<Vec<u8>, Error> {
        if system_table::is_named(request.read.table.name()) {
            return Box::pin(self.scan_system(request)).await;
        }
        let table = self.table(request.read.table.name())?;
        request.check(&table.definition)?;
        let (first, last) = segment(request.segment);
        let starts_outside = || {
            let start = request.read.start.as_ref()?;
            let token = table.key_of(start).ok()?.token();
            (token < first || token > last).then_some(())
        };
        if starts_outside().is_some() {
            return Err(Error::validation(
                "The provided starting key is invalid: Invalid ExclusiveStartKey. Please use ExclusiveStartKey with correct Segment. TotalSegments and Segment",
            ));
        }
        self.answer_page(&table, &request.read, &Extent::Tokens(first, last))
            .await
    }

    async fn answer_page(
        self: &Rc<Self>,
        table: &Arc<ItemTable>,
        read: &ReadItems,
        extent: &Extent,
    ) -> Result<Vec<u8>, Error> {
        let selected = self.select(table, read, extent).await?;
        Ok(preempt::allowed(|| page_of(read, &selected)))
    }

    async fn select(
        self: &Rc<Self>,
        table: &Arc<ItemTable>,
        read: &ReadItems,
        extent: &Extent,
    ) -> Result<Selected, Error> {
        let level = Self::read_level(read.consistent_read);
        let mut after = read.start.as_ref().map(|start| table.key_of(start)).transpose()?;
        let mut limit = read.limit;
        loop {
            let page = self.read_page(table, extent, after.as_ref(), limit, level).await?;
            // A page of rows that are no items is not one of the API.
            if page.items.is_empty() && page.has_more && page.last.is_some() {
                after = page.last;
                limit = read.limit;
                continue;
            }
            return preempt::allowed(|| selected(read, page));
        }
    }
}

/// The answer to a Query or Scan.
pub(super) fn page_of(read: &ReadItems, selected: &Selected) -> Vec<u8> {
    let mut out = Vec::new();
    let mut page = Page::begin(&mut out, read.select == Some(Select::Count));
    for item in &selected.items {
        preempt::point();
        page.item(item);
    }
    (selected.items.len()..selected.count).for_each(|_| page.count());
    let units = read_units(selected.bytes, Consistency::of(read.consistent_read));
    let capacity = consumed(&read.table, units, CapacityKind::Undivided);
    let last = selected.last.as_ref();
    page.end(selected.scanned as u64, last, &capacity, read.consumed_capacity);
    out
}

fn selected(read: &ReadItems, page: Items<'_>) -> Result<Selected, Error> {
    let last = page.last_key.filter(|_| page.has_more);
    filtered(read, page.items, last)
}

/// What a request returns of the items that were read.
pub(super) fn filtered(read: &ReadItems, found: Vec<FoundItem<'_>>, last: Option<Item>) -> Result<Selected, Error> {
    let scanned = found.len();
    let filter = read
        .filter
        .as_ref()
        .map(|filter| Ok((filter, filter.bind(&read.substitutions)?)));
    let filter = filter.transpose()?;
    let (mut items, mut count, mut bytes) = (Vec::new(), 0, 0);
    for mut found in found {
        preempt::point();
        if read.consumed_capacity != ReturnConsumedCapacity::None {
            bytes += found.bytes()?;
        }
        if let Some((filter, bindings)) = &filter {
            let item = found.into_item()?;
            if !filter.expression.tree.holds(&item, bindings) {
                continue;
            }
            found = FoundItem::Item(item);
        }
        count += 1;
        if read.select != Some(Select::Count) {
            let json = projected_json(read.projection.as_ref(), &read.substitutions, found)?;
            preempt::push(&mut items, json);
        }
    }
    Ok(Selected {
        items,
        count,
        scanned,
        bytes,
        last,
    })
}

/// The bounds of the sort key.
pub(super) fn sort_range(condition: &SortCondition) -> Result<SortRange, Error> {
    let bound = |value, inclusive| Ok::<_, Error>(Some((key_bytes(value)?, inclusive)));
    let (lower, upper) = match condition {
        SortCondition::All => (None, None),
        SortCondition::Equal(value) => (bound(value, true)?, bound(value, true)?),
        SortCondition::Less(value) => (None, bound(value, false)?),
        SortCondition::LessOrEqual(value) => (None, bound(value, true)?),
        SortCondition::Greater(value) => (bound(value, false)?, None),
        SortCondition::GreaterOrEqual(value) => (bound(value, true)?, None),
        SortCondition::Between(low, high) => (bound(low, true)?, bound(high, true)?),
        SortCondition::BeginsWith(prefix) => {
            let prefix = key_bytes(prefix)?;
            let upper = successor(&prefix).map(|end| (end, false));
            (Some((prefix, true)), upper)
        }
    };
    Ok(SortRange { lower, upper })
}

/// The least bytes that are above all that begin with these; None if there are none.
pub(super) fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let at = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut end = prefix[..=at].to_vec();
    end[at] += 1;
    Some(end)
}

/// The tokens of a segment: a part of the ring.
fn segment(segment: Option<(u32, u32)>) -> (Token, Token) {
    let Some((number, total)) = segment else {
        return (Token(i64::MIN), Token(i64::MAX));
    };
    let (number, total) = (u128::from(number), u128::from(total.max(1)));
    let ring = 1_u128 << 64;
    let begin = |number: u128| ring * number / total;
    let token = |place: u128| {
        let place = i128::try_from(place).unwrap_or(i128::MAX) + i128::from(i64::MIN);
        Token(i64::try_from(place).unwrap_or(i64::MAX))
    };
    (token(begin(number)), token(begin(number + 1) - 1))
}
