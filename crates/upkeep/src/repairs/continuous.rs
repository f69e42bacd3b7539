//! Repairs at low priority, all the time, so that operators need not schedule them.
//!
//! Each shard looks after the ranges of which its node is the first replica. The one whose replicas were last known to
//! be equal longest ago is repaired first, when that is longer ago than the threshold. A repair rests for [`REST`]
//! times as long as it works, so a shard spends a hundred and twentieth of its time on its own ranges, and twice that
//! on those of the two other replicas. A range with a replica that is down waits; the others are repaired.
//!
//! An operator may request that tables are repaired now, on all nodes (`ceto nodetool cluster repair`): each node is
//! asked, again and again, until none has a range left that was not repaired since. Requested ranges come before all
//! others, and a request ends the pause of ranges whose last repair failed.
//!
//! Repairs are incremental (docs/dev/incremental-repair.md): once in thirty days everything of a range is read.
//!
//! When the replicas of a range are equal, all of them note up to which second ([`replica::RepairedRange`]);
//! docs/dev/tombstones.md has what follows from it.

use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use coordinator::ClusterView;
use query::Engine;
use repair::{IncrementalMode, Left, Mode, RepairRequest};
use replica::{TableStore, TokenRange};
use runtime::{Group, Instant, Notify, ShardId};
use schema::{Table, TableId};
use tasks::Origin;
use topology::Replica;
use types::Token;

use super::own_ranges::OwnRanges;
use super::part::{Part, RepairOptions, parts, repair_part};
use super::selected;
use crate::tables_of_users;

/// A repair rests for so many times as long as it works.
const REST: u32 = 120;
/// The longest rest between two ranges.
const REST_MAX: Duration = Duration::from_mins(1);
/// How often a shard looks for ranges that are due.
const LOOK_PERIOD: Duration = Duration::from_secs(15);
/// How long a range waits after a repair of it failed.
const RETRY_PAUSE: Duration = Duration::from_mins(5);
/// How long a range that an operator waits for is left alone after a repair of it failed.
const WANTED_RETRY_PAUSE: Duration = Duration::from_secs(5);
/// How long ago everything of a range was read last, at most; between, repairs read what was written since.
const FULL_PERIOD: Duration = Duration::from_hours(30 * 24);
/// Most ranges that are begun at one look.
const RANGES_AT_ONCE: usize = 64;

/// What operators want of a shard beyond what is due.
#[derive(Default)]
struct Wants {
    /// Repairs of a table count that began at this second or later.
    since: RefCell<BTreeMap<TableId, u32>>,
    /// How.
    modes: RefCell<BTreeMap<TableId, IncrementalMode>>,
    /// Why the last repair of a range of a table failed.
    failures: RefCell<BTreeMap<TableId, String>>,
    /// The tables that were requested since the shard last chose ranges.
    requested: RefCell<BTreeSet<TableId>>,
    changed: Notify,
}

impl Wants {
    fn local() -> Rc<Self> {
        runtime::local().unwrap_or_else(|| {
            let wants = Rc::new(Self::default());
            runtime::set_local(Rc::clone(&wants));
            wants
        })
    }
}

/// A range that is to be repaired.
struct Due {
    part: Part,
    /// Up to which second its replicas are known to be equal.
    until: u32,
    /// An operator waits for it.
    is_wanted: bool,
}

/// Repairs what is due and what operators request. Spawn this on each shard of a node that is in its cluster; it never
/// returns. `threshold`: how long ago the replicas of a range may have been known to be equal, at this moment; None:
/// only what operators request is repaired. A repair that has begun continues.
pub async fn run(engine: Rc<Engine>, threshold: impl Fn() -> Option<Duration>) {
    let wants = Wants::local();
    let mut waits: BTreeMap<(TableId, Token), Instant> = BTreeMap::new();
    loop {
        if wants.requested.borrow().is_empty() {
            let _ = runtime::timeout(LOOK_PERIOD, wants.changed.notified()).await;
        }
        forget_waits(&mut waits, &wants.requested.take(), runtime::now());
        for due in due(&engine, threshold(), &waits) {
            if !due.is_wanted && !wants.requested.borrow().is_empty() {
                break;
            }
            // It may have been repaired or moved since then, or not be due any more because options have changed.
            let until = compared_until(&engine, due.part.table, due.part.range);
            let (oldest, _) = oldest_allowed(&engine, due.part.table, threshold());
            if until > due.until || until >= oldest {
                continue;
            }
            let key = key(&due.part);
            let rest = if due.is_wanted { 0 } else { REST };
            let wanted = wants
                .modes
                .borrow()
                .get(&due.part.table)
                .copied()
                .filter(|_| due.is_wanted);
            let how = RepairOptions {
                mode: Mode::Repair,
                incremental: wanted.unwrap_or(IncrementalMode::Incremental),
                full_after: Some(FULL_PERIOD),
                rest,
            };
            let repairing = async move { repair_part(&due.part, how, &Origin::Node).await };
            let began = runtime::now();
            let repaired = runtime::spawn_in(Group::BACKGROUND, repairing).await;
            let elapsed = runtime::now().saturating_duration_since(began);
            // To begin and to end a repair is work too, and most of it where a range is small.
            let worked = match &repaired {
                Ok(repaired) => elapsed.saturating_sub(repaired.rested),
                Err(_) => Duration::ZERO,
            };
            if let Err(why) = repaired {
                log::debug!("a range is not repaired yet: {why}");
                wants.failures.borrow_mut().insert(key.0, why.to_string());
                let pause = if due.is_wanted { WANTED_RETRY_PAUSE } else { RETRY_PAUSE };
                waits.insert(key, runtime::now() + pause);
            }
            // What operators want is not waited with.
            let pause = worked.saturating_mul(rest).min(REST_MAX);
            let _ = runtime::timeout(pause, wants.changed.notified()).await;
        }
    }
}

/// Forgets the pauses after failures that are over, and those of ranges that an operator now requests: their reason may
/// have gone.
fn forget_waits(waits: &mut BTreeMap<(TableId, Token), Instant>, requested: &BTreeSet<TableId>, now: Instant) {
    waits.retain(|(table, _), until| *until > now && !requested.contains(table));
}

fn key(part: &Part) -> (TableId, Token) {
    (part.table, part.range.to)
}

/// A range of which the replicas were equal at this second or later is not due; and whether an operator says so.
fn oldest_allowed(engine: &Engine, table: TableId, threshold: Option<Duration>) -> (u32, bool) {
    let now = u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0);
    let usual = threshold.map_or(0, |threshold| {
        now.saturating_sub(u32::try_from(threshold.as_secs()).unwrap_or(u32::MAX))
    });
    // A repair counts for what was written some time before it began.
    let since = Wants::local().since.borrow().get(&table).copied();
    let wanted = since.map_or(0, |since| {
        since.saturating_sub(engine.coordinator.context.timeouts().late_write_seconds())
    });
    (usual.max(wanted), wanted > 0)
}

fn compared_until(engine: &Engine, table: TableId, range: TokenRange) -> u32 {
    let store = engine.coordinator.context.shard.store(table);
    store.map_or(u32::MAX, |store| store.compared_until(range))
}

/// The ranges that this shard repairs, kept between looks.
#[derive(Default)]
struct Own(RefCell<BTreeMap<TableId, OwnOfTable>>);

struct OwnOfTable {
    /// Detects when the shard has a new instance of the table.
    store: Weak<TableStore>,
    ranges: OwnRanges,
}

impl Own {
    fn local() -> Rc<Self> {
        runtime::local().unwrap_or_else(|| {
            let own = Rc::new(Self::default());
            runtime::set_local(Rc::clone(&own));
            own
        })
    }

    /// Calls a function with the ranges of a table as they are now; None when the cluster does not have the table.
    fn with<T>(
        &self,
        engine: &Engine,
        view: &ClusterView,
        table: TableId,
        look: impl FnOnce(&OwnRanges) -> T,
    ) -> Option<T> {
        let route = view.route(table)?;
        let store = engine.coordinator.context.shard.store(table);
        let until = |range: TokenRange| store.as_ref().map_or(u32::MAX, |store| store.compared_until(range));
        let identity = store.as_ref().map_or_else(Weak::new, Rc::downgrade);
        let repaired = store
            .as_ref()
            .map_or_else(Vec::new, |store| store.take_repaired_changes());
        let mut all = self.0.borrow_mut();
        let own = match all.entry(table) {
            Entry::Occupied(known) if known.get().store.ptr_eq(&identity) => {
                let known = known.into_mut();
                known.ranges.follow(&route.map, &repaired, &until);
                known
            }
            entry => {
                let here = Replica {
                    node: view.me,
                    shard: u16::try_from(engine.coordinator.context.shard.id().0)
                        .expect("a node has at most 65,535 shards"),
                };
                let ranges = OwnRanges::new(&route.map, here, &until);
                entry
                    .insert_entry(OwnOfTable {
                        store: identity,
                        ranges,
                    })
                    .into_mut()
            }
        };
        Some(look(&own.ranges))
    }

    /// Forgets the tables that are gone.
    fn retain(&self, tables: &[Arc<Table>]) {
        let mut all = self.0.borrow_mut();
        if all.len() > tables.len() {
            let ids: BTreeSet<TableId> = tables.iter().map(|table| table.id).collect();
            all.retain(|id, _| ids.contains(id));
        }
    }
}

/// How long ago the ranges that this shard repairs were repaired.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Ages {
    /// Of the range that was repaired longest ago; 0 when none was.
    pub oldest_seconds: u64,
    /// Ranges that were never repaired.
    pub never: u64,
}

/// How long ago the ranges of users' tables were repaired that this shard repairs.
#[must_use]
pub fn ages(engine: &Engine) -> Ages {
    let (view, own) = (engine.coordinator.context.view(), Own::local());
    let now = u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0);
    let tables = tables_of_users(engine);
    own.retain(&tables);
    let mut ages = Ages::default();
    for table in tables {
        let of_table = own.with(engine, &view, table.id, |own| (own.never(), own.oldest()));
        let (never, oldest) = of_table.unwrap_or_default();
        ages.never += never;
        let age = oldest.map_or(0, |oldest| now.saturating_sub(oldest));
        ages.oldest_seconds = ages.oldest_seconds.max(u64::from(age));
    }
    ages
}

/// The parts of a range that this shard repairs, as they are now.
fn own_parts(engine: &Engine, view: &ClusterView, table: TableId, range: TokenRange) -> Vec<Part> {
    let Some(route) = view.route(table) else {
        return Vec::new();
    };
    let shard = engine.coordinator.context.shard.id().0;
    let mut parts = parts(view, &route.map, table, Some((range.after.0, range.to.0)), |_| true);
    parts.retain(|part| u32::from(part.shard) == shard && part.is_here_first);
    parts
}

/// The ranges that this shard repairs now: those that operators wait for, then the one that has waited longest.
fn due(engine: &Engine, threshold: Option<Duration>, waits: &BTreeMap<(TableId, Token), Instant>) -> Vec<Due> {
    let view = engine.coordinator.context.view();
    if !runtime::is_clock_trusted() {
        return Vec::new();
    }
    let own = Own::local();
    let is_ready = |part: &Part| part.is_whole() && part.obstacle(engine).is_none() && !waits.contains_key(&key(part));
    let mut all: Vec<Due> = Vec::new();
    for table in tables_of_users(engine) {
        let (oldest, is_wanted) = oldest_allowed(engine, table.id, threshold);
        if oldest == 0 {
            continue;
        }
        let of_table = own.with(engine, &view, table.id, |own| -> Vec<Due> {
            // The first that can be repaired are enough. Others are looked at only while a replica is down, or a range
            // waits.
            let parts = own.before(oldest).flat_map(|(until, range)| {
                let parts = own_parts(engine, &view, table.id, range);
                parts.into_iter().map(move |part| (until, part))
            });
            let ready = parts.filter(|(_, part)| is_ready(part)).take(RANGES_AT_ONCE);
            let due = ready.map(|(until, part)| Due { part, until, is_wanted });
            due.collect()
        });
        all.extend(of_table.unwrap_or_default());
    }
    all.sort_by_key(|due| (!due.is_wanted, due.until, due.part.table, due.part.range.to));
    all.truncate(RANGES_AT_ONCE);
    all
}

/// Makes all shards of this node repair what an operator requested, and returns what is left.
pub async fn want(wanted: RepairRequest) -> Left {
    let mut left = Left::default();
    for shard in 0..runtime::shard_count() {
        let wanted = wanted.clone();
        let of_shard = runtime::submit_to(ShardId(shard), move || want_here(&wanted)).await;
        left.ranges += of_shard.ranges;
        if left.failure.is_empty() {
            left.failure = of_shard.failure;
        }
    }
    left
}

fn want_here(wanted: &RepairRequest) -> Left {
    let (engine, wants) = (Engine::local(), Wants::local());
    let view = engine.coordinator.context.view();
    if let Some(selection) = &wanted.selected {
        return selected::want_here(&engine, &view, wanted, selection);
    }
    let mut left = Left::default();
    for table in &wanted.tables {
        let before = wants.since.borrow().get(table).copied().unwrap_or(0);
        if before < wanted.since {
            wants.since.borrow_mut().insert(*table, wanted.since);
            let mode = wanted.mode.unwrap_or(IncrementalMode::Incremental);
            wants.modes.borrow_mut().insert(*table, mode);
            wants.failures.borrow_mut().remove(table);
            wants.requested.borrow_mut().insert(*table);
        }
        let (oldest, _) = oldest_allowed(&engine, *table, None);
        let here = Own::local().with(&engine, &view, *table, |own| own.before(oldest).count() as u64);
        let here = here.unwrap_or(0);
        if here == 0 {
            continue;
        }
        left.ranges += here;
        if let Some(failure) = wants.failures.borrow().get(table) {
            left.failure.clone_from(failure);
        }
    }
    if left.ranges > 0 {
        wants.changed.notify_all();
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_request_ends_the_pauses_of_its_table_and_of_no_other() {
        let table = |number| TableId(Uuid::from_u128(number));
        let now = Instant::from_nanos(1_000_000_000);
        let later = now + RETRY_PAUSE;
        let mut waits = BTreeMap::from([
            ((table(1), Token(5)), later),
            ((table(2), Token(5)), later),
            ((table(2), Token(9)), now),
        ]);
        forget_waits(&mut waits, &BTreeSet::new(), now);
        assert_eq!(waits.len(), 2, "one pause is over");
        forget_waits(&mut waits, &BTreeSet::from([table(1)]), now);
        assert_eq!(waits, BTreeMap::from([((table(2), Token(5)), later)]));
    }
}
