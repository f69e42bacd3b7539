//! Periodic flushes of the tables that ask for them: `memtable_flush_period_in_ms`.
//!
//! Whatever is in a memtable of such a table when its period ends is flushed, so nothing stays in memory alone for
//! longer than the period and the time that the flush takes. One task of the shard waits for the next period that ends.
//! While no table has the option it waits for a schema that has, without a timer.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use runtime::Instant;
use schema::{Table, TableId};

use crate::shard::Shard;

/// When which table is flushed.
#[derive(Default)]
struct Periods {
    /// The period of each table that has one, and when it ends.
    tables: BTreeMap<TableId, (Duration, Instant)>,
}

impl Periods {
    /// Takes over the periods that tables have now. One that is new or another begins now.
    fn follow(&mut self, wanted: impl Iterator<Item = (TableId, Duration)>, now: Instant) {
        let known = std::mem::take(&mut self.tables);
        self.tables = wanted
            .map(|(id, period)| match known.get(&id) {
                Some(&(same, end)) if same == period => (id, (period, end)),
                _ => (id, (period, now + period)),
            })
            .collect();
    }

    /// When the next period ends.
    fn next(&self) -> Option<Instant> {
        self.tables.values().map(|(_, end)| *end).min()
    }

    /// The tables whose period has ended; their next one begins now.
    fn take_ended(&mut self, now: Instant) -> Vec<TableId> {
        let mut ended = Vec::new();
        for (id, (period, end)) in &mut self.tables {
            if *end <= now {
                *end = now + *period;
                ended.push(*id);
            }
        }
        ended
    }
}

/// The period of a table that has one.
pub(crate) fn period_of(table: &Table) -> Option<Duration> {
    let millis = u64::try_from(table.options.memtable_flush_period_in_ms).ok()?;
    (millis > 0).then(|| Duration::from_millis(millis))
}

impl Shard {
    /// Flushes tables as often as they say. Spawn this; it never returns.
    pub async fn flush_periodically(self: Rc<Self>) {
        let mut periods = Periods::default();
        loop {
            let changed = self.flush_period_changed.notified();
            let stores = self.stores();
            let wanted = stores.iter().filter_map(|store| {
                let table = store.table();
                Some((table.id, period_of(&table)?))
            });
            periods.follow(wanted, runtime::now());
            let Some(next) = periods.next() else {
                changed.await;
                continue;
            };
            if runtime::timeout_at(next, changed).await.is_ok() {
                continue;
            }
            for id in periods.take_ended(runtime::now()) {
                self.flush_table(id).await;
            }
        }
    }

    async fn flush_table(self: &Rc<Self>, id: TableId) {
        let Some(store) = self.store(id) else { return };
        for tablet in store.tablets().iter() {
            if !tablet.has_unflushed() {
                continue;
            }
            if let Err(e) = self.flush(&store, tablet).await {
                let table = store.table();
                log::warn!(
                    "cannot flush {}.{} after its memtable_flush_period_in_ms: {e}",
                    table.keyspace,
                    table.name
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_period_ends_and_begins_again_and_one_that_is_changed_begins_anew() {
        let id = |n| TableId(Uuid::from_u128(n));
        let seconds = Duration::from_secs;
        let start = Instant::from_nanos(0);
        let mut periods = Periods::default();
        assert_eq!(periods.next(), None, "no timer where no table has the option");
        periods.follow([(id(1), seconds(10)), (id(2), seconds(3))].into_iter(), start);
        assert_eq!(periods.next(), Some(start + seconds(3)));
        assert_eq!(periods.take_ended(start + seconds(2)), []);
        assert_eq!(periods.take_ended(start + seconds(4)), [id(2)]);
        assert_eq!(
            periods.next(),
            Some(start + seconds(7)),
            "three seconds after the flush"
        );
        // A schema that leaves the first as it is, and makes the other longer.
        periods.follow(
            [(id(1), seconds(10)), (id(2), seconds(60))].into_iter(),
            start + seconds(5),
        );
        assert_eq!(periods.next(), Some(start + seconds(10)));
        assert_eq!(periods.take_ended(start + seconds(65)), [id(1), id(2)]);
        periods.follow([].into_iter(), start + seconds(65));
        assert_eq!(periods.next(), None);
    }
}
