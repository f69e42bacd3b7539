//! Repairs at low priority, all the time: nobody has to schedule them.
//!
//! Each shard looks after the ranges of which its node is the first replica. The one whose replicas were last known to be equal longest ago is repaired first, when that is longer
//! ago than the threshold. A repair rests for [`REST`] times as long as it works, so a shard spends a fortieth of its time on it at most. A range with a replica that is
//! down waits; the others go on.
//!
//! When the replicas of a range are equal, all of them note up to which second ([`replica::RepairedRange`]); docs/dev/tombstones.md has what follows from it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use query::Engine;
use repair::Mode;
use replica::TokenRange;
use runtime::{Group, Instant};
use schema::TableId;
use schema::record::TOMBSTONE_GC;
use tasks::Origin;
use types::Token;

use crate::repairs::{Part, parts, repair_part, tables_of_users};

/// A repair rests for so many times as long as it works.
const REST: u32 = 40;
/// How often a shard looks for ranges that are due.
const LOOK_PERIOD: Duration = Duration::from_secs(15);
/// How long a range waits after a repair of it failed.
const RETRY_PAUSE: Duration = Duration::from_mins(5);
/// Most ranges that are begun at one look.
const RANGES_AT_ONCE: usize = 64;

/// Repairs what is due, for ever; to be run on each shard of a node that is in its cluster. `threshold`: how long ago the replicas of a range may have been known to be equal.
pub(crate) async fn run(engine: Rc<Engine>, threshold: Duration) {
    let mut waits: BTreeMap<(TableId, Token), Instant> = BTreeMap::new();
    loop {
        runtime::sleep(LOOK_PERIOD).await;
        waits.retain(|_, until| *until > runtime::now());
        for part in due(&engine, threshold, &waits) {
            // It may have been repaired, or moved, meanwhile.
            if !is_due(&engine, &part, oldest_allowed(threshold)) {
                continue;
            }
            let origin = Origin::Node;
            let repairing = {
                let part = part.clone();
                runtime::spawn_in(Group::BACKGROUND, async move {
                    repair_part(&part, Mode::Repair, REST, &origin).await
                })
            };
            if let Err(why) = repairing.await {
                log::debug!("a range is not repaired yet: {why}");
                waits.insert(key(&part), runtime::now() + RETRY_PAUSE);
            }
        }
    }
}

fn key(part: &Part) -> (TableId, Token) {
    (part.table, part.range.to)
}

/// A range whose replicas were equal at this second or later is not due.
fn oldest_allowed(threshold: Duration) -> u32 {
    let now = u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0);
    now.saturating_sub(u32::try_from(threshold.as_secs()).unwrap_or(u32::MAX))
}

fn repaired_until(engine: &Engine, table: TableId, range: TokenRange) -> u32 {
    let store = engine.shard.store(table);
    store.map_or(u32::MAX, |store| store.repaired_until(range))
}

fn is_due(engine: &Engine, part: &Part, oldest: u32) -> bool {
    repaired_until(engine, part.table, part.range) < oldest
}

/// The ranges that this shard repairs now, the one that has waited longest first.
fn due(engine: &Rc<Engine>, threshold: Duration, waits: &BTreeMap<(TableId, Token), Instant>) -> Vec<Part> {
    if !runtime::is_clock_trusted() {
        return Vec::new();
    }
    let (view, oldest) = (engine.coordinator.view(), oldest_allowed(threshold));
    // A node of an earlier release does not take part.
    if !view.topology.enabled_features().contains(TOMBSTONE_GC) {
        return Vec::new();
    }
    let shard = engine.shard.id().0;
    let is_live = |part: &Part| part.others.iter().all(|(node, _)| engine.coordinator.is_live(*node));
    let mut due: Vec<(u32, Part)> = Vec::new();
    for table in tables_of_users(engine) {
        let Some(route) = view.route(table.id) else { continue };
        let of_table = parts(&view, &route.map, table.id, None, |_| true);
        let mine = of_table
            .into_iter()
            .filter(|part| u32::from(part.shard) == shard && part.is_here_first && part.is_whole());
        let ready = mine.filter(|part| part.unknown.is_none() && is_live(part) && !waits.contains_key(&key(part)));
        due.extend(
            ready
                .map(|part| (repaired_until(engine, table.id, part.range), part))
                .filter(|(until, _)| *until < oldest),
        );
    }
    due.sort_by_key(|(until, part)| (*until, part.table, part.range.to));
    due.truncate(RANGES_AT_ONCE);
    due.into_iter().map(|(_, part)| part).collect()
}
