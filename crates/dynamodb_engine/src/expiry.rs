//! Items that expire: those whose TTL attribute is a number of seconds since 1970 that has passed.
//!
//! A node looks through what it has, and deletes an item by a conditional write that looks again: an item whose time
//! was put off since then stays. As with the service, an item whose time is more than five years ago stays, because the
//! number is then probably no time.

use std::rc::Rc;
use std::sync::Arc;

use dynamodb::{AttributeValue, Error, Item};
use stdx::planted::{self, Bug};
use stdx::preempt;
use topology::Consistency;
use types::Token;

use crate::modify::{Change, Modification};
use crate::read::Pages;
use crate::service::Service;
use crate::table::ItemTable;

/// An item that expired so long ago stays; seconds.
const PAST_MAX: i64 = 5 * 365 * 86_400;
/// Items of one step: a change of where data is waits for each read that began before it.
const STEP_ITEMS: u32 = 1_000;

/// What a look has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExpiredItems {
    /// Items that were looked at.
    pub looked_at: u64,
    /// Items that were deleted.
    pub deleted: u64,
}

/// Deletes an item if it has expired.
struct Expire {
    attribute: String,
    now: i64,
}

impl Expire {
    fn has_expired(&self, item: &Item) -> bool {
        let Some(AttributeValue::N(number)) = item.get(&self.attribute) else {
            return false;
        };
        // Digits after the point do not count.
        let text = number.to_string();
        let whole = text.split('.').next().unwrap_or_default();
        whole
            .parse()
            .is_ok_and(|at: i64| at < self.now && self.now.saturating_sub(at) <= PAST_MAX)
    }
}

impl Modification for Expire {
    fn decide(&self, old: Option<&Item>) -> Result<Change<'_>, Error> {
        let is_unseen = planted::is_planted(Bug::ExpiredUnseen);
        let has_expired = old.is_some_and(|item| is_unseen || self.has_expired(item));
        Ok(if has_expired { Change::Expire } else { Change::Keep })
    }

    fn unread(&self) -> Option<Change<'_>> {
        None
    }
}

impl Service {
    /// The tables whose items expire.
    pub fn expiring_tables(&self) -> Vec<Arc<ItemTable>> {
        let tables = self
            .table_names()
            .into_iter()
            .filter_map(|name| self.find_table(&name).ok().flatten());
        tables
            .filter(|table| table.definition.ttl_attribute.is_some())
            .collect()
    }

    /// Deletes the items of a range of tokens that have expired by the table's attribute of now.
    ///
    /// # Errors
    /// When too few replicas answer, or an item cannot be deleted: the others are.
    pub async fn expire_items(
        self: &Rc<Self>,
        table: &Arc<ItemTable>,
        range: (Token, Token),
    ) -> Result<ExpiredItems, Error> {
        let (mut counts, mut failed) = (ExpiredItems::default(), None);
        let mut pages = Pages::new(table, range, STEP_ITEMS, Consistency::LocalOne);
        loop {
            // Since the last page the attribute may have become another one, or the table.
            let now = self
                .find_table(&table.name)?
                .filter(|now| now.table.id == table.table.id);
            let Some(attribute) = now.and_then(|now| now.definition.ttl_attribute.clone()) else {
                return Ok(counts);
            };
            let now = runtime::wall_clock_us() / 1_000_000;
            let expire = Arc::new(Expire { attribute, now });
            let Some(found) = pages.next(self).await? else {
                return failed.map_or(Ok(counts), Err);
            };
            counts.looked_at += found.len() as u64;
            for found in found {
                let item = match preempt::allowed(|| found.into_item()) {
                    Ok(item) => item,
                    // The others do not wait for it.
                    Err(error) => {
                        failed = Some(error);
                        continue;
                    }
                };
                if !expire.has_expired(&item) {
                    continue;
                }
                match self.modify_always(table, table.key_of(&item)?, expire.clone()).await {
                    Ok(modified) => counts.deleted += u64::from(modified.old.is_some() && modified.new.is_none()),
                    Err(error) => failed = Some(error),
                }
            }
        }
    }
}
