//! Which ranges of tables this node repairs, and how one is repaired: by an operator's word (`requested.rs`) or
//! continuously.

use std::fmt;
use std::time::Duration;

use coordinator::ClusterView;
use logging::LineLimit;
use query::Engine;
use repair::{IncrementalMode, Marks, Mode, Participant, RepairError, Repaired, Request};
use replica::{RepairedRange, TableStore, TokenRange};
use rpc::Rpc;
use runtime::ShardId;
use schema::TableId;
use tasks::Origin;
use topology::{Boundaries, NodeNumber, Replica, ReplicaList, TabletMap};
use types::Token;

use crate::second;

/// How often a range is repaired again that something in passing got in the way of.
const ATTEMPTS: u32 = 3;
/// How often a range is planned that moves to other replicas again and again.
const PLANS_MAX: u32 = 5;
/// The pause between two attempts.
const ATTEMPT_PAUSE: Duration = Duration::from_secs(2);

/// A range of a table that this node repairs.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) table: TableId,
    pub(super) range: TokenRange,
    /// The shard here that has it.
    pub(super) shard: u16,
    /// The other replicas that are meant, with their nodes.
    pub(super) others: Vec<(NodeNumber, Participant)>,
    /// Whether this node is the first of its replicas.
    pub(super) is_here_first: bool,
    /// A replica that cannot be asked: its node's address is not known.
    pub(super) unknown: Option<NodeNumber>,
    /// All replicas of the range, where none comes or goes and all are meant. When they are the same after the repair,
    /// all are equal.
    whole: Option<ReplicaList>,
}

/// The ranges of a table of which this node has a replica, in token order; `is_meant` says with which other replicas
/// they are repaired.
pub(super) fn parts(
    view: &ClusterView,
    map: &TabletMap,
    table: TableId,
    bounds: Option<(i64, i64)>,
    is_meant: impl Fn(&Replica) -> bool,
) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let is_ring = matches!(map.boundaries(), Boundaries::LastTokens(_));
    let is_ring_changing = view.topology.has_ring_change();
    let (first, last) = bounds.unwrap_or((Token::MIN.0, Token::MAX.0));
    for tablet in map.tablets_within((Token(first), Token(last))) {
        let replicas = tablet.read_replicas();
        let Some(mine) = replicas.iter().find(|replica| replica.node == view.me) else {
            continue;
        };
        let Some(range) = map.token_range(tablet.id).and_then(|range| within(range, bounds)) else {
            continue;
        };
        let mut others = Vec::new();
        let (mut unknown, mut are_all_meant) = (None, true);
        for replica in replicas.iter().filter(|replica| replica.node != view.me) {
            if !is_meant(replica) {
                are_all_meant = false;
                continue;
            }
            match view.peer(replica.node) {
                Some(peer) => {
                    let shard = u32::from(replica.shard);
                    others.push((replica.node, Participant { peer, shard }));
                }
                None => unknown = Some(replica.node),
            }
        }
        if others.is_empty() && unknown.is_none() {
            continue;
        }
        let is_whole = are_all_meant && tablet.transition.is_none() && !is_ring_changing;
        let part = Part {
            table,
            range,
            shard: mine.shard,
            others,
            is_here_first: replicas.first().is_some_and(|first| first.node == view.me),
            unknown,
            whole: is_whole.then(|| replicas.iter().copied().collect()),
        };
        match parts.last_mut() {
            // Ranges of the token ring with the same owners are one. Tablets are repaired one by one, so that each can
            // be marked.
            Some(last) if is_ring && last.continues_in(&part) => last.range.to = part.range.to,
            _ => parts.push(part),
        }
    }
    parts
}

impl Part {
    fn continues_in(&self, next: &Self) -> bool {
        self.range.to == next.range.after
            && self.shard == next.shard
            && self.whole == next.whole
            && self.is_here_first == next.is_here_first
            && self.unknown == next.unknown
            && self.others == next.others
    }

    /// Whether this shard and the other participants still have all of the range.
    fn is_current(&self, view: &ClusterView) -> bool {
        // Of a table that is gone the repair itself says so.
        let Some(route) = view.route(self.table) else {
            return true;
        };
        let here = Replica {
            node: view.me,
            shard: self.shard,
        };
        let others = self.others.iter().map(|(node, other)| (*node, other.shard));
        let participants: Vec<(NodeNumber, u32)> = std::iter::once((here.node, u32::from(here.shard)))
            .chain(others)
            .collect();
        let mut tablets = route.map.tablets_within((self.range.after, self.range.to));
        tablets.all(|tablet| {
            let replicas = tablet.read_replicas();
            let has = |(node, shard): &(NodeNumber, u32)| {
                replicas
                    .iter()
                    .any(|replica| replica.node == *node && u32::from(replica.shard) == *shard)
            };
            participants.iter().all(has)
        })
    }

    /// Why it cannot be repaired now: one of its replicas cannot be asked.
    pub(super) fn obstacle(&self, engine: &Engine) -> Option<String> {
        let is_down = |(node, _): &&(NodeNumber, Participant)| !engine.coordinator.context.is_live(*node);
        let down = self.others.iter().find(is_down);
        let down = down.map(|(_, other)| other.peer.host_id.to_string());
        let unknown = || self.unknown.map(|node| format!("number {}", node.0));
        down.or_else(unknown)
            .map(|node| format!("node {node} has a copy and is down"))
    }

    /// Whether all replicas are meant, and none comes or goes.
    pub(super) fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// Whether the replicas are still those that it was made with, and none comes or goes.
    fn has_the_same_replicas(&self, view: &ClusterView) -> bool {
        let Some((whole, route)) = self.whole.as_ref().zip(view.route(self.table)) else {
            return false;
        };
        let of_table = parts(
            view,
            &route.map,
            self.table,
            Some((self.range.after.0, self.range.to.0)),
            |_| true,
        );
        match &of_table[..] {
            [now] => now.range == self.range && now.whole.as_ref() == Some(whole),
            _ => false,
        }
    }
}

/// What of a range is in another one.
fn within((after, to): (Token, Token), bounds: Option<(i64, i64)>) -> Option<TokenRange> {
    let (first, last) = bounds.map_or((after, to), |(first, last)| (Token(first), Token(last)));
    let range = TokenRange {
        after: after.max(first),
        to: to.min(last),
    };
    (range.after < range.to).then_some(range)
}

/// How a range is repaired.
#[derive(Clone, Copy, Debug)]
pub(super) struct RepairOptions {
    /// Whether differences are only counted.
    pub(super) mode: Mode,
    /// What is done with marks of sstables, where there can be any.
    pub(super) incremental: IncrementalMode,
    /// Marked sstables are read as well where they were read so long ago.
    pub(super) full_after: Option<Duration>,
    /// It rests for so many times as long as it works.
    pub(super) rest: u32,
}

impl RepairOptions {
    /// What a repair of a part does with marks: only the whole of a tablet on all its replicas is marked.
    fn marks(&self, part: &Part, engine: &Engine) -> Option<Marks> {
        let is_here = || {
            engine
                .coordinator
                .context
                .shard
                .store(part.table)
                .is_some_and(|store| store.is_one_tablet(part.range))
        };
        let can = self.mode == Mode::Repair
            && self.incremental != IncrementalMode::Disabled
            && part.is_whole()
            && has_tablets(engine, part.table)
            && is_here()
            && runtime::is_clock_trusted();
        let full_before = self.full_after.map_or(0, |after| {
            let after = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
            (runtime::wall_clock_us() / 1_000).saturating_sub(after)
        });
        can.then_some(Marks {
            reads_all: self.incremental == IncrementalMode::Full,
            full_before,
        })
    }
}

/// Whether a table has tablets of its own: of ranges of the token ring nothing is marked.
pub fn has_tablets(engine: &Engine, table: TableId) -> bool {
    let has_own = |view: &ClusterView| view.route(table).is_some_and(|route| route.has_own_tablets);
    engine.coordinator.context.with_view(has_own)
}

/// Why a range is not repaired.
pub(super) enum NotRepaired {
    /// It has moved to other replicas since: what [`parts`] now returns for it can be repaired.
    Moved,
    /// A sentence.
    Failed(String),
}

impl fmt::Display for NotRepaired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved => f.write_str("the range went to other replicas while it was repaired"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// Repairs a range on the shard that has it. Where all replicas are equal then, all of them know it.
///
/// # Errors
/// [`NotRepaired`].
pub(super) async fn repair_part(part: &Part, how: RepairOptions, origin: &Origin) -> Result<Repaired, NotRepaired> {
    let mut attempt = 1;
    loop {
        match attempt_part(part, how, origin).await {
            Err(Failure::Repair(_))
                if !Engine::local()
                    .coordinator
                    .context
                    .with_view(|view| part.is_current(view)) =>
            {
                return Err(NotRepaired::Moved);
            }
            Err(Failure::Repair(error)) if error.is_passing() && attempt < ATTEMPTS => {
                attempt += 1;
                runtime::sleep(ATTEMPT_PAUSE).await;
            }
            Err(Failure::Repair(error)) => return Err(NotRepaired::Failed(error.to_string())),
            Err(Failure::Here(why)) => return Err(NotRepaired::Failed(why.to_owned())),
            Ok(repaired) => return Ok(repaired),
        }
    }
}

/// A range in a plan: parts that can be repaired, and why others cannot.
pub(super) type Planned = (Vec<Part>, Vec<String>);

/// Repairs a range with the replicas that it has when its turn comes. `plan` returns its parts at that moment; it is
/// asked again where a part goes to other replicas while it is repaired. One result for each part.
pub(super) async fn repair_range(
    range: TokenRange,
    how: RepairOptions,
    origin: &Origin,
    plan: impl Fn(TokenRange) -> Planned,
) -> Vec<Result<Repaired, String>> {
    let (mut left, mut plans, mut done) = (vec![range], 0, Vec::new());
    while let Some(range) = left.pop() {
        plans += 1;
        let (now, failures) = plan(range);
        done.extend(failures.into_iter().map(Err));
        for part in now {
            let (range, origin) = (part.range, origin.clone());
            let shard = ShardId(u32::from(part.shard));
            let repairing = move || async move { repair_part(&part, how, &origin).await };
            match runtime::submit_async_to(shard, repairing).await {
                Err(NotRepaired::Moved) if plans < PLANS_MAX => left.push(range),
                repaired => done.push(repaired.map_err(|why| why.to_string())),
            }
        }
    }
    done
}

enum Failure {
    /// Nothing was begun.
    Here(&'static str),
    Repair(RepairError),
}

thread_local! {
    /// Repairs that could mark nothing.
    static UNMARKED: LineLimit = const { LineLimit::new(|lines| log::warn!("{lines} more repairs that mark nothing are not logged")) };
}

/// Says of a repair that is to mark that it will mark nothing, because nothing may be said of the time.
fn warn_of_clock(store: &TableStore, how: RepairOptions) {
    let wants_marks = how.mode == Mode::Repair && how.incremental != IncrementalMode::Disabled;
    if wants_marks && !runtime::is_clock_trusted() && UNMARKED.with(LineLimit::admits) {
        let table = store.table();
        log::warn!(
            "a repair of {}.{} makes replicas equal and marks nothing, and tombstones stay as long as before: this node has not compared its clock with \
             those of the others yet",
            table.keyspace,
            table.name
        );
    }
}

async fn attempt_part(part: &Part, how: RepairOptions, origin: &Origin) -> Result<Repaired, Failure> {
    let engine = Engine::local();
    let rpc = runtime::local::<Rpc>();
    let rpc = rpc.ok_or(Failure::Here("this node has no connections to others"))?;
    let store = engine.coordinator.context.shard.store(part.table);
    let store = store.ok_or(Failure::Here("the table was dropped"))?;
    warn_of_clock(&store, how);
    let others: Vec<Participant> = part.others.iter().map(|(_, other)| *other).collect();
    let request = Request {
        table: part.table,
        range: part.range,
        others,
        now: second(runtime::wall_clock_us()),
        mode: how.mode,
        rest: how.rest,
        marks: how.marks(part, &engine),
    };
    // What is on its way now, or waits for a replica, may have reached none of them when the repair reads: it does not
    // count as repaired.
    let complete = engine.coordinator.tombstones.complete_until(part.table, part.range);
    let task = repair::kinds::repair_range(&engine.coordinator.context.shard, &store, part.range, origin);
    let repaired = repair::repair(&rpc, &engine.coordinator.context.shard, &request, &task).await;
    task.end(&repaired);
    let repaired = repaired.map_err(Failure::Repair)?;
    let is_equal = how.mode == Mode::Repair
        && engine
            .coordinator
            .context
            .with_view(|view| part.has_the_same_replicas(view));
    if is_equal && runtime::is_clock_trusted() {
        let compared =
            second(repaired.began_at).saturating_sub(engine.coordinator.context.timeouts().late_write_seconds());
        let equal = RepairedRange {
            table: part.table,
            range: part.range,
            until: compared.min(complete),
            compared,
        };
        let mode = match (request.marks, repaired.is_incremental) {
            (None, _) => IncrementalMode::Disabled,
            (Some(_), true) => IncrementalMode::Incremental,
            (Some(_), false) => IncrementalMode::Full,
        };
        repair::tell_equal(&rpc, &request.others, equal, mode).await;
    }
    Ok(repaired)
}
