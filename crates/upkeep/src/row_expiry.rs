//! Looks for rows whose TTL column says that they have expired, and has them deleted; docs/dev/row-expiry.md.
//!
//! Each shard makes a *pass* once in a period: it looks through the ranges of which it is the first replica that lives,
//! table by table. A range that could not be looked through is tried again sooner.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use coordinator::ClusterView;
use query::{Engine, ExpiredRows};
use runtime::Notify;
use schema::{Table, TableId};
use topology::{Replica, TabletMap};
use types::Token;

use crate::tables_of_users;

/// How long a shard waits that has no clock to go by, and before it tries again what failed.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// A shard's passes.
#[derive(Default)]
struct Passes {
    period: Cell<Duration>,
    changed: Notify,
    counts: Cell<RowExpiryCounts>,
}

/// What passes have done on a shard.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RowExpiryCounts {
    /// Passes that ended.
    pub passes: u64,
    /// Tables that were looked through.
    pub tables: u64,
    /// Rows that were looked at.
    pub looked_at: u64,
    /// Rows that were deleted.
    pub deleted: u64,
    /// Ranges that could not be looked through.
    pub failures: u64,
}

/// Tokens `after < token <= to` of a table.
type TableRange = (TableId, (Token, Token));

impl Passes {
    fn local() -> Rc<Self> {
        runtime::local().unwrap_or_else(|| {
            let passes = Rc::new(Self::default());
            runtime::set_local(Rc::clone(&passes));
            passes
        })
    }

    fn count(&self, count: impl FnOnce(&mut RowExpiryCounts)) {
        let mut counts = self.counts.get();
        count(&mut counts);
        self.counts.set(counts);
    }
}

/// What the passes of this shard have done.
#[must_use]
pub fn counts() -> RowExpiryCounts {
    runtime::local::<Passes>().map_or_else(RowExpiryCounts::default, |passes| passes.counts.get())
}

/// Sets how long it is from the beginning of a pass of this shard to that of the next, also for the one that is waited
/// for.
pub fn set_period(period: Duration) {
    let passes = Passes::local();
    if passes.period.replace(period) != period {
        passes.changed.notify_all();
    }
}

/// Makes passes; never returns. Run this on each shard of a node that is in its cluster.
pub async fn run(engine: Rc<Engine>, period: Duration) {
    let passes = Passes::local();
    passes.period.set(period);
    loop {
        let began = runtime::now();
        let mut failed = pass(&engine, &passes, None).await;
        loop {
            let left = (began + passes.period.get()).saturating_duration_since(runtime::now());
            if left.is_zero() {
                break;
            }
            let pause = if failed.is_empty() { left } else { left.min(RETRY_PAUSE) };
            let waited = runtime::timeout(pause, passes.changed.notified()).await;
            if waited.is_err() && !failed.is_empty() {
                failed = pass(&engine, &passes, Some(&failed)).await;
            }
        }
    }
}

/// Looks through all that is this shard's, or through these ranges. The answer are the ranges that could not be looked
/// through.
async fn pass(engine: &Rc<Engine>, passes: &Passes, only: Option<&[TableRange]>) -> Vec<TableRange> {
    let mut failed = Vec::new();
    // Which moments have passed is not known; rows that have not expired would be lost.
    while !runtime::is_clock_trusted() {
        runtime::sleep(RETRY_PAUSE).await;
    }
    for table in tables_of_users(engine).iter().filter(|table| table.row_ttl.is_some()) {
        let of_table = |ranges: &[TableRange]| -> Vec<(Token, Token)> {
            let ranges = ranges.iter().filter(|(id, _)| *id == table.id);
            ranges.map(|(_, range)| *range).collect()
        };
        let ranges = match only {
            Some(only) => of_table(only),
            None => own_ranges(engine, table),
        };
        let before = failed.len();
        let mut why = None;
        for range in ranges {
            match look_through(engine, table, range).await {
                Ok(rows) => passes.count(|counts| {
                    counts.looked_at += rows.looked_at;
                    counts.deleted += rows.deleted;
                }),
                Err(error) => {
                    why = Some(error);
                    failed.push((table.id, range));
                }
            }
        }
        passes.count(|counts| {
            counts.tables += u64::from(only.is_none());
            counts.failures += (failed.len() - before) as u64;
        });
        if let Some(why) = why {
            log::warn!(
                "expired rows of {}.{} stay in {} ranges of shard {} until they can be deleted: {why}",
                table.keyspace,
                table.name,
                failed.len() - before,
                runtime::shard().0
            );
        }
    }
    passes.count(|counts| counts.passes += u64::from(only.is_none()));
    failed
}

/// Looks through a range, if the table still is as it was.
async fn look_through(
    engine: &Rc<Engine>,
    table: &Arc<Table>,
    range: (Token, Token),
) -> Result<ExpiredRows, query::QueryError> {
    let is_current = |table: &Arc<Table>| {
        let schema = engine.schema();
        schema
            .table_by_id(table.id)
            .is_some_and(|now| now.row_ttl == table.row_ttl)
    };
    if is_current(table) {
        engine.expire_rows(table, range).await
    } else {
        Ok(ExpiredRows::default())
    }
}

/// The ranges of a table of which this shard is the first replica that lives: tokens `after < token <= to`.
#[must_use]
pub fn own_ranges(engine: &Engine, table: &Table) -> Vec<(Token, Token)> {
    let view = engine.coordinator.context.view();
    let Some(route) = view.route(table.id) else {
        return Vec::new();
    };
    ranges_of(&view, &route.map, &|replica| {
        engine.coordinator.context.is_live(replica.node)
    })
}

/// The ranges of a table of which this shard is the first replica of its datacenter that lives: tokens
/// `after < token <= to`. For what is ordered in one datacenter.
#[must_use]
pub fn own_ranges_in_datacenter(engine: &Engine, table: &Table) -> Vec<(Token, Token)> {
    let view = engine.coordinator.context.view();
    let Some(route) = view.route(table.id) else {
        return Vec::new();
    };
    ranges_of(&view, &route.map, &|replica| {
        let is_here = view.locality.datacenter(replica.node) == view.locality.local_datacenter();
        is_here && engine.coordinator.context.is_live(replica.node)
    })
}

fn ranges_of(view: &ClusterView, map: &TabletMap, is_live: &dyn Fn(&Replica) -> bool) -> Vec<(Token, Token)> {
    let here = Replica {
        node: view.me,
        shard: u16::try_from(runtime::shard().0).unwrap_or(u16::MAX),
    };
    let mut ranges = Vec::new();
    for tablet in map.tablets_within((Token::MIN, Token::MAX)) {
        let replicas = tablet.read_replicas();
        let first = replicas
            .iter()
            .find(|replica| replica.node == here.node || is_live(replica));
        if first == Some(&here) {
            ranges.extend(map.token_range(tablet.id));
        }
    }
    ranges
}
