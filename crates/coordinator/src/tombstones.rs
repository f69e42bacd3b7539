//! How long tombstones are kept: until no replica can lack them.
//!
//! Model. A deletion that a replica missed, and that no hint will bring, must stay on the other replicas: when they
//! purge its tombstone, the older row of that replica is the newest that any replica has, and a read repairs it back.
//! Every write has a coordinator, which knows what its replicas missed. So each node keeps a *report*: up to a second
//! (`until`) all writes that it coordinated have reached their replicas, or hints wait for them, or the replica and the
//! seconds in question are named as a *span*. It makes the report durable, then sends it to all others. A replica may
//! purge what was deleted in a second only when every member has reported beyond it and no report has it in a span of
//! another node. That is any other node, not only the tablet's other replicas: when a tablet moves, its new replica
//! lacks what the replica lacked that it was copied from. A node that is down does not report, and holds what was
//! deleted since its last report.
//!
//! - What waits as a hint is a span from the oldest hint on, for as long as it waits. So is what waits as a part of a
//!   logged batch, for all nodes.
//! - A repair of all replicas of a tablet ends the spans of what was missed before it, for that tablet.
//! - A node that did not stop in order may have lost hints, and requests that were under way: its next run reports all
//!   nodes as having missed writes between its last durable report and its start.
//! - A node that has lost its data or its log with a directory, as its operator accepted, reports that it missed all
//!   writes until its start; one that has lost its hints and the ledger reports the same of all nodes.
//! - A node that has lost an sstable, because it is damaged, reports the same of itself: when it is set aside, and at a
//!   start that finds one whose loss is not accepted.
//! - When a node is removed, the others take over what it reported, and add a span for all nodes since its last report.
//!   A node that leaves and gives its data to others reports once more when it has ended all requests. The others wait
//!   for that report, and count the node as a member until then; without it they add the span after some minutes.
//! - When a node is down for longer than hints are kept, the cluster agrees that what it holds for others is forgotten:
//!   it hands over nothing of it when it comes back, and replicas take nothing that it began before. It counts as
//!   missed, from the node's last report to a second a minute before the agreement. So for a tablet whose replicas all
//!   say that they have the fence, the node does not hold tombstones any more that a repair covers.
//! - Apart from that a span ends only when an operator says that its node has everything. When that node is removed,
//!   its spans become those of all nodes: others may have copied tablets from it, before it was lost or when it left.
//!
//! Shard 0 keeps the ledger (`hints/src/ledger.rs`); every shard has what follows from it for its compactions. See
//! docs/dev/tombstones.md.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hints::{CLOCK_MARGIN_SECONDS, Hints, HintsError, Ledger, Missed, Report, Spans};
use replica::{TableStore, TokenRange, TombstoneHold};
use schema::TableId;
use stdx::planted::{self, Bug};
use topology::{HostId, NodeNumber, NodeState, Replica, Tablet, WriteTargets};

use crate::handoff::Handoff;
use crate::message::Malformed;
use crate::{ClusterView, Context, Coordinator, Forgotten, Verb, on_all_shards, on_metadata_shard, spawn};

/// How often a node makes its report durable and sends it.
const REPORT_PERIOD: Duration = Duration::from_secs(20);
/// How long a report may take to a peer.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a node that stops waits for the others to take its last report.
const LAST_REPORT_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the others wait for the last report of a node that left with hand-over, counted from the second until which
/// its previous report is complete. During the wait they hold tombstones written since that second, as if the node were
/// a member.
const DEPARTURE_WAIT_SECONDS: u32 = 300;
/// By how much clocks may differ, and a request be late, in seconds.
pub(crate) const MARGIN_SECONDS: u32 = CLOCK_MARGIN_SECONDS;
/// [`MARGIN_SECONDS`] in microseconds.
pub(crate) const MARGIN_US: i64 = MARGIN_SECONDS as i64 * 1_000_000;
/// Before anything was written. 0 says that nothing is held.
const FIRST_SECOND: u32 = 1;
/// A report that is older than this holds tombstones back, which is shown to the operator.
const REPORT_AGE_MAX: u32 = 300;

/// What follows from all reports.
#[derive(Default)]
struct Holds {
    /// Every member but those below has reported what was written before this second.
    until: u32,
    missed: Missed,
    /// What nodes miss for a while: hints or parts of batches wait for them.
    waiting: Missed,
    /// Members whose hints are forgotten, and that have not reported since they know it.
    forgotten: Vec<ForgottenHolds>,
    /// The fence of each member that has said it.
    fences: BTreeMap<HostId, u64>,
}

/// A member whose hints are forgotten.
#[derive(Clone, Copy)]
struct ForgottenHolds {
    host: HostId,
    /// It has reported what was written before this second.
    until: u32,
    /// Since when something waited there for others; `until` if nothing did.
    since: u32,
    forgotten: Forgotten,
}

/// One shard's part; the ledger is on shard 0.
pub struct Tombstones {
    context: Rc<Context>,
    hints: Rc<Handoff>,
    holds: RefCell<Arc<Holds>>,
    ledger: RefCell<Option<Ledger>>,
    is_told: Cell<bool>,
    /// The run ends: each report may be its last.
    is_ending: Cell<bool>,
    /// One at a time replaces the ledger's file.
    renewing: runtime::Semaphore,
}

/// What a node has lost permanently with one of its directories, as its operator accepted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AcceptedLoss {
    /// Any write that the node has acknowledged: sstables or the commitlog.
    pub writes: bool,
    /// Its hints and its ledger.
    pub hints: bool,
}

/// A reason for which tombstones are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldTombstones {
    /// The node that reported it.
    pub reporter: HostId,
    /// The node that may have missed writes; None: all may, since the reporter has not reported for long.
    pub target: Option<HostId>,
    /// What was deleted in these seconds is kept.
    pub first: u32,
    /// The last of them.
    pub last: u32,
}

fn now_seconds() -> u32 {
    u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0)
}

/// Members that coordinate writes.
fn coordinators(view: &ClusterView) -> impl Iterator<Item = HostId> + '_ {
    let members = view.topology.members();
    members
        .filter(|node| node.state != NodeState::Joining && !view.topology.is_lost(node))
        .map(|node| node.host_id)
}

/// The fence that a node has reported; 0 when it has reported none.
fn fence_of(view: &ClusterView, holds: &Holds, node: NodeNumber) -> u64 {
    let host = view.topology.numbered(node).map(|node| node.host_id);
    host.and_then(|host| holds.fences.get(&host).copied()).unwrap_or(0)
}

/// The tablets that have some of these tokens, with those of their tokens.
fn tablets_of(view: &ClusterView, table: TableId, range: TokenRange) -> Vec<(Tablet<'_>, TokenRange)> {
    let Some(route) = view.route(table) else {
        return Vec::new();
    };
    let map = &route.map;
    let with_tokens = map.tablets().filter_map(|tablet| {
        let (after, to) = map.token_range(tablet.id)?;
        let tokens = TokenRange {
            after: after.max(range.after),
            to: to.min(range.to),
        };
        // Around the end of the ring `to` is not above `after`.
        let is_whole_ring = after >= to;
        let is_apart = !is_whole_ring && tokens.after >= tokens.to;
        (!is_apart).then_some((tablet, if is_whole_ring { range } else { tokens }))
    });
    with_tokens.collect()
}

impl Holds {
    /// Up to which second every write has reached its replicas or is known to have been missed, as all members report:
    /// nothing older is on its way, as a request, a hint or a part of a batch, to a tablet of which all replicas have
    /// `fence`.
    fn complete_until(&self, fence: u64) -> u32 {
        let waiting = self.waiting.values().flat_map(Spans::iter).map(|span| *span.start());
        let forgotten = self.forgotten.iter().map(|holds| {
            if fence >= holds.forgotten.version {
                holds.forgotten.before
            } else {
                holds.since.min(holds.until)
            }
        });
        waiting.chain(forgotten).fold(self.until, u32::min)
    }

    /// What the replicas of a tablet are known to have, as a node sees it; a repair has made them equal up to the
    /// second `repaired`, and all of them have `fence`.
    ///
    /// Which replicas missed a write does not matter: a tablet moves, and its new replica lacks what the replica lacked
    /// that it was copied from. A repair that began later has brought what was missed permanently. What waits may
    /// arrive after the repair.
    fn of(&self, me: HostId, repaired: u32, fence: u64) -> TombstoneHold {
        let mut of_others = Spans::default();
        let mut from = self.until;
        let mut watermark = u32::MAX;
        let mut miss = |host: &HostId, span: &RangeInclusive<u32>| {
            // What was written before `repaired` all replicas have: but for one that has lost, with a directory, also
            // what it had then.
            let is_loss = *span.start() <= FIRST_SECOND;
            let first = if is_loss {
                *span.start()
            } else {
                (*span.start()).max(repaired)
            };
            if *span.end() >= repaired {
                watermark = watermark.min(first);
                if *host != me {
                    of_others.add(first, *span.end());
                }
            }
        };
        for (host, spans) in &self.missed {
            spans.iter().for_each(|span| miss(host, span));
        }
        let mut still_waiting = Vec::new();
        for holds in &self.forgotten {
            let before = holds.forgotten.before;
            if fence >= holds.forgotten.version {
                from = from.min(before);
                // Any node may have missed what is forgotten.
                miss(&holds.host, &(holds.since..=before));
            } else {
                from = from.min(holds.until);
                still_waiting.push(holds.since);
            }
        }
        for (host, spans) in &self.waiting {
            for span in spans.iter() {
                watermark = watermark.min(*span.start());
                if *host != me {
                    of_others.add(*span.start(), *span.end());
                }
            }
        }
        let from = still_waiting.into_iter().fold(from, u32::min);
        TombstoneHold {
            from,
            spans: of_others.iter().cloned().collect(),
            watermark: watermark.min(from),
            repaired,
        }
    }
}

impl Tombstones {
    pub(crate) fn new(context: Rc<Context>, hints: Rc<Handoff>) -> Self {
        Self {
            context,
            hints,
            holds: RefCell::default(),
            ledger: RefCell::default(),
            is_told: Cell::default(),
            is_ending: Cell::default(),
            renewing: runtime::Semaphore::new(1),
        }
    }

    /// Makes compactions of this shard ask what other replicas may have missed. Nothing is purged before all members
    /// have reported.
    pub(crate) fn hold(self: &Rc<Self>) {
        let tombstones = Rc::downgrade(self);
        let hold = move |table, range| match tombstones.upgrade() {
            Some(tombstones) => tombstones.hold_of(table, range),
            None => TombstoneHold::UNKNOWN,
        };
        self.context.shard.hold_tombstones(Box::new(hold));
    }

    fn hold_of(&self, table: TableId, range: TokenRange) -> TombstoneHold {
        let view = self.context.view();
        let Some(store) = self.context.shard.store(table) else {
            return TombstoneHold::UNKNOWN;
        };
        let holds = Arc::clone(&self.holds.borrow());
        let tablets = tablets_of(&view, table, range);
        let is_only_here = |(tablet, _): &(Tablet<'_>, _)| {
            let targets = WriteTargets::new(tablet);
            targets.all().all(|replica| replica.node == view.me)
        };
        let is_alone = tablets.iter().all(is_only_here);
        if tablets.is_empty() || is_alone && planted::is_planted(Bug::NothingWaitsForOneCopy) {
            // A table of this node alone: no other node writes to it.
            return TombstoneHold::ALONE;
        }
        let (mut repaired, mut fence) = (u32::MAX, u64::MAX);
        for (tablet, tokens) in tablets {
            for replica in WriteTargets::new(&tablet).all() {
                fence = fence.min(fence_of(&view, &holds, replica.node));
            }
            if tablet.read_replicas().iter().any(|replica| replica.node == view.me) {
                repaired = repaired.min(store.repaired_until(tokens));
            }
        }
        if is_alone {
            // No other replica can lack a deletion. But a write from before it may still come, from any node.
            return TombstoneHold {
                spans: Vec::new(),
                ..holds.of(view.with(|_, me| me), u32::MAX, fence)
            };
        }
        holds.of(view.with(|_, me| me), repaired, fence)
    }

    /// Up to which second nothing is on its way to the replicas of a range any more: a repair that begins now makes
    /// them equal up to there at most. See docs/dev/tombstones.md.
    #[must_use]
    pub fn complete_until(&self, table: TableId, range: TokenRange) -> u32 {
        let (view, holds) = (self.context.view(), Arc::clone(&self.holds.borrow()));
        let mut fence = u64::MAX;
        for (tablet, _) in tablets_of(&view, table, range) {
            for replica in WriteTargets::new(&tablet).all() {
                fence = fence.min(fence_of(&view, &holds, replica.node));
            }
        }
        if planted::is_planted(Bug::RepairOutrunsWrites) {
            u32::MAX
        } else {
            holds.complete_until(fence)
        }
    }

    /// Begins a run: what an earlier one that did not stop in order may have lost, and what is lost with a directory,
    /// is counted as missed. Once this returns that is durable. To be called on shard 0, before clients are let in.
    ///
    /// # Errors
    /// When the ledger cannot be read or replaced.
    pub async fn begin_reports(&self, lost: AcceptedLoss) -> Result<(), String> {
        let Some(hints) = self.hints.kept() else { return Ok(()) };
        let loaded = hints.load_ledger().await.map_err(|e| e.to_string())?;
        let (is_first, mut ledger) = (loaded.is_none(), loaded.unwrap_or_default());
        let now = now_seconds();
        if is_first {
            ledger.own.until = now;
        } else if !ledger.own.is_final {
            // A power loss takes what the log had not synced.
            let unsynced = u32::try_from(self.context.shard.log.unsynced_max().as_secs()).unwrap_or(u32::MAX);
            let since = ledger.own.until.saturating_sub(unsynced).max(FIRST_SECOND + 1);
            log::warn!(
                "the node did not stop in order: tombstones of {} s until its start are kept until an operator releases them (nodetool \
                 listmissedwrites)",
                now.saturating_sub(since)
            );
            let view = self.context.view();
            for node in view.topology.members() {
                let missed = ledger.own.missed.entry(node.host_id).or_default();
                missed.add(since, end_of_loss(now));
            }
        }
        let lost = AcceptedLoss {
            writes: lost.writes || self.lacks_sstables(),
            ..lost
        };
        count_lost(&mut ledger, &self.context.view(), lost, now);
        ledger.own.is_final = false;
        hints.save_ledger(&ledger).await.map_err(|e| e.to_string())?;
        *self.ledger.borrow_mut() = Some(ledger);
        Ok(())
    }

    /// Whether a table here counts lost deletions: other replicas may have them, and it promises to keep them.
    fn counts_losses(&self, store: &TableStore) -> bool {
        let table = store.table();
        table.options.late_write_seconds() > 0 && self.context.with_view(|view| view.route(table.id).is_some())
    }

    /// Whether an sstable is set aside whose loss is not accepted, of a table that counts losses.
    fn lacks_sstables(&self) -> bool {
        let stores = self.context.shard.stores();
        stores
            .iter()
            .any(|store| !store.is_whole.get() && self.counts_losses(store))
    }

    /// Notes that this node may lack whatever was written to it until now: an sstable of a table was set aside. An
    /// older one may still have what its deletions had hidden. The next report says so.
    pub(crate) fn note_loss(&self, table: TableId) {
        let store = self.context.shard.store(table);
        let is_counted = store.is_some_and(|store| self.counts_losses(&store));
        if let Some(hints) = self.hints.kept().filter(|_| is_counted) {
            let me = self.context.view().with(|_, me| me);
            hints.miss(
                me,
                i64::from(FIRST_SECOND) * 1_000_000,
                runtime::wall_clock_us() + MARGIN_US,
            );
        }
    }

    /// Makes durable which losses the shards of this node have noted until now, and notifies the other nodes. Call this
    /// before a loss is accepted: from then on this node answers reads without what it has lost.
    ///
    /// # Errors
    /// When the ledger cannot be replaced.
    pub async fn report_loss() -> Result<(), String> {
        on_metadata_shard(|| async {
            let tombstones = Rc::clone(&Coordinator::local().tombstones);
            let is_begun = tombstones.ledger.borrow().is_some();
            if is_begun {
                tombstones.report_now().await
            } else {
                Ok(())
            }
        })
        .await
    }

    async fn report_now(&self) -> Result<(), String> {
        let report = self.renew_report().await.map_err(|e| e.to_string())?;
        self.send_report(&report, REPORT_TIMEOUT).await;
        self.share_holds().await;
        Ok(())
    }

    /// Reports what this node's writes have missed; never returns. Run this on shard 0 once the node is in its cluster.
    pub async fn run_reports(self: Rc<Self>) {
        loop {
            match self.renew_report().await {
                Ok(report) => self.send_report(&report, REPORT_TIMEOUT).await,
                Err(e) => log::warn!("{e}; no tombstone is purged that is younger than the last report"),
            }
            self.share_holds().await;
            runtime::sleep(REPORT_PERIOD).await;
        }
    }

    /// Ends a run: nothing was lost if no write is under way any more. To be called on shard 0 while the other shards
    /// still answer. Reports that are due while the node flushes say the same.
    pub async fn end_reports(&self) {
        self.is_ending.set(true);
        match self.renew_report().await {
            Ok(report) => self.send_report(&report, LAST_REPORT_TIMEOUT).await,
            Err(e) => log::warn!("{e}; the next start takes this node for one that did not stop in order"),
        }
    }

    /// Makes durable what is known now, and gives it back as others may have it.
    async fn renew_report(&self) -> Result<Report, HintsError> {
        let is_begun = self.ledger.borrow().is_some();
        let Some(hints) = self.hints.kept().filter(|_| is_begun) else {
            return Ok(Report::default());
        };
        let _alone = self.renewing.acquire(1).await;
        let is_last = self.is_ending.get();
        let (view, now) = (self.context.view(), now_seconds());
        let mut until = now.saturating_sub(self.context.timeouts().late_write_seconds());
        let of_shards = on_all_shards(|coordinator, hints: Option<Rc<Hints>>| async move {
            let hints = hints?;
            let in_progress = || (coordinator.writes.flights.oldest_us(), coordinator.batches.oldest_us());
            // A write that ends during the sync may leave a hint that is not synced.
            let before = in_progress();
            let synced = hints.sync(None).await;
            let under_way = coordinator.writes.flights.under_way();
            let after = in_progress();
            let earliest = |one: Option<i64>, other: Option<i64>| one.into_iter().chain(other).min();
            let (oldest, of_batches) = (earliest(before.0, after.0), earliest(before.1, after.1));
            let fence = coordinator.context.with_view(|view| coordinator.context.fence(view));
            Some((
                synced,
                hints.take_missed(),
                (hints.waiting_since(), of_batches),
                (under_way, oldest, fence),
            ))
        });
        let (mut waiting, mut result, mut under_way) = (BTreeMap::new(), Ok(()), 0);
        let mut is_busy = false;
        let mut fence = u64::MAX;
        let parts = of_shards.await;
        let mut ledger = self.ledger.borrow().clone().unwrap_or_default();
        for (synced, missed, (since, of_batches), (count, oldest, fence_there)) in parts.into_iter().flatten() {
            result = result.and(synced);
            under_way += count;
            let oldest = oldest.map(|us| u32::try_from((us - MARGIN_US) / 1_000_000).unwrap_or(0));
            is_busy |= oldest.is_some();
            until = until.min(oldest.unwrap_or(u32::MAX));
            fence = fence.min(fence_there);
            for (host, spans) in missed {
                ledger.own.missed.entry(host).or_default().extend(&spans);
            }
            // Any node may miss a part of a batch that has not ended.
            let of_batches = of_batches
                .into_iter()
                .flat_map(|us| view.topology.members().map(move |node| (node.host_id, us - MARGIN_US)));
            for (host, since_us) in since.into_iter().chain(of_batches) {
                let since = u32::try_from(since_us / 1_000_000).unwrap_or(0);
                let least = waiting.entry(host).or_insert(since);
                *least = since.min(*least);
            }
        }
        inherit(&mut ledger, &view, now);
        count_forgotten(&mut ledger.own, &view, (fence, &waiting));
        if result.is_ok() {
            ledger.own.is_final = is_last && under_way == 0 && !is_busy;
            let until = if ledger.own.is_final { now } else { until };
            ledger.own.until = ledger.own.until.max(until);
        }
        *self.ledger.borrow_mut() = Some(ledger.clone());
        hints.save_ledger(&ledger).await?;
        result?;
        let report = Report { waiting, ..ledger.own };
        let me = view.with(|_, me| me);
        if let Some(ledger) = &mut *self.ledger.borrow_mut() {
            // With what waits, which the file does not need to have: the next run finds the hints.
            ledger.others.insert(me, report.clone());
        }
        Ok(report)
    }

    async fn send_report(&self, report: &Report, timeout: Duration) {
        let until = runtime::now() + timeout;
        let (view, body) = (self.context.view(), report.encode());
        let numbers = coordinators(&view).filter_map(|host| view.topology.number(host));
        // A node that has left no longer learns which members are up. One that ends for another reason asks those that
        // are: a copy of a member's directory, which is refused, must not speak for that member.
        let own = view.topology.numbered(view.me);
        let has_left = own.is_none_or(|node| matches!(node.state, NodeState::Leaving | NodeState::Left));
        let asks_all = has_left && self.is_ending.get();
        let is_asked = |node: &NodeNumber| asks_all || self.context.is_live(*node);
        let others: Vec<NodeNumber> = numbers.filter(|node| *node != view.me && is_asked(node)).collect();
        let sent = others.into_iter().map(|node| {
            let (view, body) = (view.clone(), body.clone());
            runtime::spawn(async move {
                let replica = Replica { node, shard: 0 };
                // One that does not take it holds its tombstones, and gets the next.
                let _ = Coordinator::local()
                    .context
                    .call(&view, replica, Verb::Report, body, until)
                    .await;
            })
        });
        for sent in sent.collect::<Vec<_>>() {
            sent.await;
        }
    }

    /// Takes what another node reports.
    pub(crate) fn take_report(self: &Rc<Self>, from: HostId, body: &[u8]) -> Result<(), Malformed> {
        let report = Report::decode(body).ok_or(Malformed("a report of missed writes"))?;
        if let Some(ledger) = &mut *self.ledger.borrow_mut() {
            ledger.others.insert(from, report);
        }
        let tombstones = Rc::clone(self);
        spawn(async move { tombstones.share_holds().await });
        Ok(())
    }

    /// Makes all shards of this node obey what is reported.
    async fn share_holds(&self) {
        let view = self.context.view();
        let holds = match &*self.ledger.borrow() {
            Some(ledger) => Arc::new(holds_of(ledger, &view)),
            None => return,
        };
        on_all_shards(move |coordinator, _| {
            let holds = holds.clone();
            async move { *coordinator.tombstones.holds.borrow_mut() = holds }
        })
        .await;
        // Members that never reported are new: that is no loss.
        let is_held = self.held().iter().any(|held| held.first > 0);
        if is_held && !self.is_told.replace(is_held) {
            log::warn!(
                "replicas may have missed deletions: their tombstones are kept beyond the grace period (nodetool listmissedwrites)"
            );
        }
        self.is_told.set(is_held);
    }

    /// Why tombstones are kept beyond the grace period, as shard 0 knows it.
    #[must_use]
    pub fn held(&self) -> Vec<HeldTombstones> {
        let view = self.context.view();
        let (me, now) = (view.with(|_, me| me), now_seconds());
        let Some(ledger) = self.ledger.borrow().clone() else {
            return Vec::new();
        };
        let mut held = Vec::new();
        for reporter in coordinators(&view) {
            // What this node knows itself is newer than its last report, which may be of an earlier run.
            let own = (reporter == me).then_some(&ledger.own);
            let report = own.or_else(|| ledger.others.get(&reporter));
            let until = report.map_or(0, |report| report.until);
            if until + REPORT_AGE_MAX < now && reporter != me {
                held.push(HeldTombstones {
                    reporter,
                    target: None,
                    first: until,
                    last: now,
                });
            }
            for (target, spans) in report.into_iter().flat_map(|report| &report.missed) {
                held.extend(spans.iter().map(|span| HeldTombstones {
                    reporter,
                    target: Some(*target),
                    first: *span.start(),
                    last: *span.end(),
                }));
            }
        }
        held
    }

    /// Takes an operator's word that a node, or every node, has all that this node reports it to have missed. To be
    /// called on shard 0.
    ///
    /// # Errors
    /// When the ledger cannot be replaced.
    pub async fn release(&self, target: Option<HostId>) -> Result<(), String> {
        // What shards have noted until now is meant too.
        self.renew_report().await.map_err(|e| e.to_string())?;
        if let Some(ledger) = &mut *self.ledger.borrow_mut() {
            let is_meant = |host: &HostId| target.is_none_or(|target| target == *host);
            ledger.own.missed.retain(|host, _| !is_meant(host));
        }
        self.report_now().await
    }
}

/// Where the span of a loss that is noted now ends: what is lost may be a deletion that a coordinator made whose clock
/// is ahead.
fn end_of_loss(now: u32) -> u32 {
    now.saturating_add(CLOCK_MARGIN_SECONDS)
}

/// Counts what is lost with a directory as missed: by this node whatever was written until now, or by all nodes
/// whatever hints may have waited for them.
fn count_lost(ledger: &mut Ledger, view: &ClusterView, lost: AcceptedLoss, now: u32) {
    let me = view.with(|_, me| me);
    for node in view.topology.members() {
        if lost.hints || lost.writes && node.host_id == me {
            let missed = ledger.own.missed.entry(node.host_id).or_default();
            missed.add(FIRST_SECOND, end_of_loss(now));
        }
    }
}

/// Says that all shards have a fence. Where the cluster has forgotten what this node held for others, that counts as
/// missed from here on: since its last report that did not know it, or since the oldest of what waited then.
fn count_forgotten(own: &mut Report, view: &ClusterView, (fence, waiting): (u64, &BTreeMap<HostId, u32>)) {
    if let Some(forgotten) = view.own_forgotten()
        && own.fence < forgotten.version
        && fence >= forgotten.version
    {
        let since = waiting
            .values()
            .copied()
            .fold(own.until, u32::min)
            .min(forgotten.before);
        for node in view.topology.members() {
            own.missed.entry(node.host_id).or_default().add(since, forgotten.before);
        }
    }
    own.fence = own.fence.max(fence);
}

/// Whether a node is a member that has not been given up: one that an operator has given up does not come back.
fn remains(view: &ClusterView, host: HostId) -> bool {
    let node = view.topology.node(host);
    node.is_some_and(|node| node.state != NodeState::Left && !view.topology.is_lost(node))
}

/// Whether the last report of a node that left with hand-over may still come.
fn is_awaited(view: &ClusterView, host: HostId, report: &Report, now: u32) -> bool {
    let node = view.topology.node(host);
    let gave_its_data = node.is_some_and(|node| node.state == NodeState::Left && !view.topology.is_lost(node));
    gave_its_data && !report.is_final && now < report.until.saturating_add(DEPARTURE_WAIT_SECONDS)
}

/// Takes over the reports of nodes that are no longer members, except those whose last report may still come. What such
/// a node has missed becomes a miss of every member, also if the node is lost: others may have copied tablets from it
/// before, and lack the same.
fn inherit(ledger: &mut Ledger, view: &ClusterView, now: u32) {
    let is_member = |host: &HostId| remains(view, *host);
    let members: Vec<HostId> = view.topology.members().map(|node| node.host_id).collect();
    let is_gone = |host: &HostId, report: &mut Report| !is_member(host) && !is_awaited(view, *host, report, now);
    let gone: BTreeMap<HostId, Report> = ledger.others.extract_if(.., is_gone).collect();
    for report in gone.into_values() {
        for (host, spans) in &report.all() {
            ledger.own.missed.entry(*host).or_default().extend(spans);
        }
        if !report.is_final {
            for host in &members {
                let missed = ledger.own.missed.entry(*host).or_default();
                missed.add(report.until, end_of_loss(now));
            }
        }
    }
    let left: Missed = ledger.own.missed.extract_if(.., |host, _| !is_member(host)).collect();
    if planted::is_planted(Bug::LostNodeTakesSpans) {
        return;
    }
    for spans in left.values() {
        for host in &members {
            let missed = ledger.own.missed.entry(*host).or_default();
            missed.extend(spans);
        }
    }
}

fn holds_of(ledger: &Ledger, view: &ClusterView) -> Holds {
    let mut holds = Holds {
        until: u32::MAX,
        ..Holds::default()
    };
    // The reports of nodes that are gone count until this node has taken them over.
    let gone = ledger.others.keys().copied().filter(|host| !remains(view, *host));
    for host in coordinators(view).chain(gone) {
        let report = ledger.others.get(&host);
        let until = report.map_or(0, |report| report.until);
        if let Some(report) = report {
            holds.fences.insert(host, report.fence);
            for (target, spans) in &report.missed {
                holds.missed.entry(*target).or_default().extend(spans);
            }
        }
        let is_behind = |forgotten: &Forgotten| report.is_none_or(|report| report.fence < forgotten.version);
        if let Some(forgotten) = view.forgotten_of(host).filter(is_behind) {
            let waiting = report.into_iter().flat_map(|report| report.waiting.values());
            let since = waiting.copied().fold(until, u32::min).max(FIRST_SECOND);
            holds.forgotten.push(ForgottenHolds {
                host,
                until,
                since: since.min(forgotten.before),
                forgotten,
            });
            continue;
        }
        holds.until = holds.until.min(until);
        if let Some(report) = report {
            for (target, since) in &report.waiting {
                holds.waiting.entry(*target).or_default().add(*since, report.until);
            }
        }
    }
    holds
}

#[cfg(test)]
mod tests;
