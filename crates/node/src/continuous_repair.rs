//! Repairs at low priority, all the time: nobody has to schedule them.
//!
//! Each shard looks after the ranges of which its node is the first replica. The one whose replicas were last known to be equal longest ago is repaired first, when that is longer
//! ago than the threshold. A repair rests for [`REST`] times as long as it works, so a shard spends a hundred and twentieth of its time on its own ranges, and twice that on those of the two other replicas. A range with a replica that is
//! down waits; the others go on.
//!
//! An operator may want tables repaired now, on all nodes (`ceto nodetool cluster repair`): each node is asked, again and again, until none has a range left that was not repaired since.
//!
//! Repairs are incremental (docs/dev/incremental-repair.md): once in thirty days everything of a range is read.
//!
//! When the replicas of a range are equal, all of them note up to which second ([`replica::RepairedRange`]); docs/dev/tombstones.md has what follows from it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use coordinator::ClusterView;
use query::Engine;
use repair::{IncrementalMode, Left, Mode, Wanted};
use replica::TokenRange;
use runtime::{Group, Instant, Notify, ShardId};
use schema::TableId;
use schema::record::TOMBSTONE_GC;
use tasks::Origin;
use types::Token;

use crate::repairs::{How, Part, parts, repair_part, tables_of_users};
use crate::selected_repairs;

/// A repair rests for so many times as long as it works.
const REST: u32 = 120;
/// The longest rest between two ranges.
const REST_MAX: Duration = Duration::from_mins(1);
/// How often a shard looks for ranges that are due.
const LOOK_PERIOD: Duration = Duration::from_secs(15);
/// How long a range waits after a repair of it failed.
const RETRY_PAUSE: Duration = Duration::from_mins(5);
/// The same where an operator waits for it.
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

/// Repairs what is due and what operators want, for ever; to be run on each shard of a node that is in its cluster. `threshold`: how long ago the replicas of a range may have
/// been known to be equal; None: only operators have ranges repaired.
pub(crate) async fn run(engine: Rc<Engine>, threshold: Option<Duration>) {
    let wants = Wants::local();
    let mut waits: BTreeMap<(TableId, Token), Instant> = BTreeMap::new();
    loop {
        let _ = runtime::timeout(LOOK_PERIOD, wants.changed.notified()).await;
        waits.retain(|_, until| *until > runtime::now());
        for due in due(&engine, threshold, &waits) {
            // It may have been repaired, or moved, meanwhile.
            if repaired_until(&engine, due.part.table, due.part.range) > due.until {
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
            let how = How {
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
    let wanted = since.map_or(0, |since| since.saturating_sub(engine.coordinator.late_write_seconds()));
    (usual.max(wanted), wanted > 0)
}

fn repaired_until(engine: &Engine, table: TableId, range: TokenRange) -> u32 {
    let store = engine.shard.store(table);
    store.map_or(u32::MAX, |store| store.repaired_until(range))
}

/// The ranges of a table that this shard repairs.
fn own_parts(engine: &Engine, view: &ClusterView, table: TableId) -> Vec<Part> {
    let Some(route) = view.route(table) else {
        return Vec::new();
    };
    let shard = engine.shard.id().0;
    let parts = parts(view, &route.map, table, None, |_| true);
    let is_own = |part: &Part| u32::from(part.shard) == shard && part.is_here_first;
    parts.into_iter().filter(is_own).collect()
}

/// How long ago the ranges that this shard repairs were repaired.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Ages {
    /// Of the range that was repaired longest ago; 0 when none was.
    pub(crate) oldest_seconds: u64,
    /// Ranges that were never repaired.
    pub(crate) never: u64,
}

/// How long ago the ranges of users' tables were repaired that this shard repairs.
pub(crate) fn ages(engine: &Engine) -> Ages {
    let view = engine.coordinator.view();
    let now = u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0);
    let mut ages = Ages::default();
    for table in tables_of_users(engine) {
        for part in own_parts(engine, &view, table.id) {
            match repaired_until(engine, table.id, part.range) {
                0 => ages.never += 1,
                until => ages.oldest_seconds = ages.oldest_seconds.max(u64::from(now.saturating_sub(until))),
            }
        }
    }
    ages
}

/// The ranges that this shard repairs now: those that operators wait for, then the one that has waited longest.
fn due(engine: &Engine, threshold: Option<Duration>, waits: &BTreeMap<(TableId, Token), Instant>) -> Vec<Due> {
    let view = engine.coordinator.view();
    // A node of an earlier release does not take part.
    if !runtime::is_clock_trusted() || !view.topology.enabled_features().contains(TOMBSTONE_GC) {
        return Vec::new();
    }
    let is_live = |part: &Part| part.others.iter().all(|(node, _)| engine.coordinator.is_live(*node));
    let mut all: Vec<Due> = Vec::new();
    for table in tables_of_users(engine) {
        let (oldest, is_wanted) = oldest_allowed(engine, table.id, threshold);
        if oldest == 0 {
            continue;
        }
        let own = own_parts(engine, &view, table.id).into_iter();
        let ready = own.filter(|part| part.is_whole() && part.unknown.is_none() && is_live(part));
        let ready = ready.filter(|part| !waits.contains_key(&key(part)));
        let with_second = ready.map(|part| Due {
            until: repaired_until(engine, table.id, part.range),
            part,
            is_wanted,
        });
        all.extend(with_second.filter(|due| due.until < oldest));
    }
    all.sort_by_key(|due| (!due.is_wanted, due.until, due.part.table, due.part.range.to));
    all.truncate(RANGES_AT_ONCE);
    all
}

/// Has all shards of this node repair what an operator wants, and tells what is left.
pub(crate) async fn want(wanted: Wanted) -> Left {
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

fn want_here(wanted: &Wanted) -> Left {
    let (engine, wants) = (Engine::local(), Wants::local());
    let view = engine.coordinator.view();
    if let Some(selected) = &wanted.selected {
        return selected_repairs::want_here(&engine, &view, wanted, selected);
    }
    let mut left = Left::default();
    for table in &wanted.tables {
        let before = wants.since.borrow().get(table).copied().unwrap_or(0);
        if before < wanted.since {
            wants.since.borrow_mut().insert(*table, wanted.since);
            let mode = wanted.mode.unwrap_or(IncrementalMode::Incremental);
            wants.modes.borrow_mut().insert(*table, mode);
            wants.failures.borrow_mut().remove(table);
        }
        let (oldest, _) = oldest_allowed(&engine, *table, None);
        let own = own_parts(&engine, &view, *table);
        let is_left = |part: &&Part| repaired_until(&engine, *table, part.range) < oldest;
        let here = own.iter().filter(is_left).count() as u64;
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
