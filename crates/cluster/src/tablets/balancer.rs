//! The leader's care for where tablets are: every copy that a replication wants, away from nodes that leave, and even
//! among nodes and shards.
//!
//! It plans again when the metadata or the set of live nodes has changed, and now and then, because tablets grow. What
//! a plan wants becomes commands; a plan from which nothing follows is not made again before something changes, and
//! takes a tenth of the time at most where changes come all the time ([`pause_behind`]). How even it is depends on the
//! bytes of the tablets, which each node is asked for; so does whether a table is split or merged.
//!
//! An operator can switch off what only makes it more even, splits and merges among it (`Command::Balance`). What a
//! replication or a node that leaves needs continues.

use crate::config::Splits;
use crate::error::ChangeError;
use crate::metadata::Metadata;
use crate::metadata::command::Command;
use crate::service::Cluster;
use crate::tablets::balance_report::TableBalance;
use crate::tablets::convert::{Conversion, RING_CUT};
use crate::tablets::planning::{Planned, Situation};
use crate::tablets::survey::Survey;
use runtime::Instant;
use schema::TableId;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use topology::{HostId, Limits, TabletMap};

/// The longest pause between two looks; changes wake the leader before.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// After a plan of which no command was applied.
const RETRY: Duration = Duration::from_millis(250);

/// Where several nodes leave, none is removed before it has been seen to leave for so long: one that others need looks
/// whether they do, and stays (`leaving.rs`). One that has nothing would be gone before.
const REMOVAL_WAIT: Duration = Duration::from_secs(5);

/// How often it is looked whether members have cut what is to be split.
const CUT_LOOK: Duration = Duration::from_secs(5);

/// How the leader balances, as its operator set it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Balancing {
    /// A table is split when its tablets have more than twice these bytes on average, and merged when they have less
    /// than half; 0: neither for its size.
    pub tablet_bytes_goal: u64,
    /// Tablets grow: where nothing was to be done, it is planned again after this time.
    pub plan_interval: Duration,
}

impl Default for Balancing {
    fn default() -> Self {
        Self {
            tablet_bytes_goal: 5 << 30,
            plan_interval: Duration::from_secs(60),
        }
    }
}

/// What the last plans were made from.
#[derive(Default)]
struct Past {
    /// The metadata and the live nodes of which nothing followed, since when, and how long that counts.
    settled: Option<(u64, BTreeSet<HostId>, Instant, Duration)>,
    survey: Option<(Arc<Survey>, BTreeSet<HostId>, Instant)>,
    /// How it was balanced.
    balancing: Option<Balancing>,
    /// Tables that are to be split or to be cut otherwise, for which members cut their sstables first.
    splits: Splits,
    /// What cannot be done, as it was logged last.
    lacks: Vec<String>,
    /// Splits and merges that were proposed and not confirmed in time, with the metadata before them.
    unconfirmed: Vec<(Arc<Metadata>, Command)>,
    /// Since when nodes are seen to leave.
    leaving: BTreeMap<HostId, Instant>,
}

impl Past {
    /// Logs what has changed since the last plan: what cannot be done, and which tables are to be split.
    fn tell(&mut self, metadata: &Metadata, lacks: Vec<String>, splits: &Splits) {
        if lacks != self.lacks {
            for why in &lacks {
                log::warn!("tablets are not where they should be: {why}");
            }
            self.lacks = lacks;
        }
        for (table, tablet_count) in splits.iter().filter(|split| !self.splits.contains(split)) {
            let name = metadata.table_name(*table);
            match *tablet_count {
                RING_CUT => log::info!("table {name} is to be on the token ring: nodes cut its sstables first"),
                count => log::info!("table {name} is to have {count} tablets: nodes cut its sstables first"),
            }
        }
    }
}

impl Cluster {
    /// Plans moves of tablets while this node leads the group. Spawn this; it ends when the node stops.
    pub(crate) async fn run_balancer(self: Rc<Self>) {
        let mut past = Past::default();
        while !self.is_stopping.get() {
            let changed = self.machine.members_changed.notified();
            if self.leads() {
                let begun = runtime::now();
                match self.balance(&mut past).await {
                    Outcome::Changed => continue,
                    Outcome::Failed => {
                        self.rest(RETRY).await;
                        continue;
                    }
                    Outcome::Waits => {}
                    Outcome::Settled => self.rest(pause_behind(begun.elapsed(), LOOK_INTERVAL)).await,
                }
            } else {
                past = Past::default();
            }
            let _ = runtime::timeout(LOOK_INTERVAL, changed).await;
        }
    }

    async fn balance(&self, past: &mut Past) -> Outcome {
        self.remove_those_that_left(past).await;
        self.forget_reached_goals().await;
        let metadata = self.metadata();
        self.count_late(past, &metadata);
        let live = self.live();
        let balancing = self.balancing.get();
        if past.balancing.replace(balancing) != Some(balancing) {
            past.settled = None;
        }
        let is_settled = |(index, nodes, at, life): &(u64, BTreeSet<HostId>, Instant, Duration)| {
            *index == metadata.index && *nodes == live && at.elapsed() < *life
        };
        let has_nothing = metadata.tablets.is_empty() && !metadata.has_conversions();
        if has_nothing || past.settled.as_ref().is_some_and(is_settled) {
            return Outcome::Settled;
        }
        let survey = self.fresh_survey(&metadata, &live, past).await;
        let is_certain = survey.fits(&metadata);
        let situation = Situation {
            survey: survey.clone(),
            live: live.clone(),
            full: live.iter().copied().filter(|host| self.is_full(*host)).collect(),
            would_leave: None,
            tablet_bytes_goal: balancing.tablet_bytes_goal,
        };
        let planned = runtime::offload({
            let metadata = metadata.clone();
            move || metadata.plan_moves(&situation, &Limits::default())
        })
        .await;
        let splits = splits_of(&metadata, &planned);
        self.note_balance(&metadata, &survey, &planned);
        past.tell(&metadata, planned.lacks, &splits);
        let is_due = |command: &Command| match command {
            Command::Resize {
                table, tablet_count, ..
            } if splits.contains(&(*table, *tablet_count)) => survey.is_cut(*table, *tablet_count),
            Command::Convert { table, step } => metadata.is_due(*table, *step, &survey),
            _ => true,
        };
        let (due, waiting): (Vec<Command>, Vec<Command>) = planned.commands.into_iter().partition(is_due);
        past.splits = splits;
        if due.is_empty() {
            let life = if waiting.is_empty() {
                balancing.plan_interval
            } else {
                CUT_LOOK.min(balancing.plan_interval / 2)
            };
            // While some member follows a split, it is not known whether another one is needed. Members that do not
            // know yet what is to be cut are notified at once.
            let is_told = survey.asked_for(&past.splits);
            past.settled = (is_certain && is_told).then(|| (metadata.index, live, runtime::now(), life));
            return match (is_told, waiting.is_empty()) {
                (false, _) => Outcome::Changed,
                (true, false) => Outcome::Waits,
                (true, true) => Outcome::Settled,
            };
        }
        self.propose_all(past, &metadata, due).await
    }

    async fn propose_all(&self, past: &mut Past, metadata: &Arc<Metadata>, commands: Vec<Command>) -> Outcome {
        let mut outcome = Outcome::Failed;
        for command in commands {
            let told = resized(metadata, &command).or_else(|| converted(metadata, &command));
            match self.propose(command.clone()).await {
                Ok(_) => {
                    outcome = Outcome::Changed;
                    self.balance_report.borrow_mut().done.count(metadata, &command);
                    if let Some(what) = told {
                        log::info!("{what}");
                    }
                }
                Err(error) => {
                    log::debug!("tablets do not begin to move yet: {error}");
                    let is_new = |(_, known): &(Arc<Metadata>, Command)| *known != command;
                    let is_resize = matches!(command, Command::Resize { .. });
                    if is_resize && matches!(error, ChangeError::Timeout(_)) && past.unconfirmed.iter().all(is_new) {
                        past.unconfirmed.push((metadata.clone(), command));
                    }
                }
            }
        }
        outcome
    }

    /// Counts what was not confirmed in time and has happened since.
    fn count_late(&self, past: &mut Past, metadata: &Metadata) {
        let count = |metadata: &Metadata, table| metadata.tablets.get(&table).map(|map| map.tablet_count());
        past.unconfirmed.retain(|(before, command)| {
            let Command::Resize {
                table, tablet_count, ..
            } = command
            else {
                return false;
            };
            let now = count(metadata, *table);
            if now == Some(*tablet_count) {
                self.balance_report.borrow_mut().done.count(before, command);
            }
            now == count(before, *table)
        });
    }

    fn is_full(&self, host: HostId) -> bool {
        !self.peers.disk_level(host).takes_growth()
    }

    /// Keeps the balance report of this plan for operators.
    fn note_balance(&self, metadata: &Metadata, survey: &Survey, planned: &Planned) {
        let bytes_goal = self.balancing.get().tablet_bytes_goal;
        let table = |(id, map): (&TableId, &Arc<TabletMap>)| {
            let figures = survey.of(*id, map);
            let bytes = figures.map_or(&[][..], |figures| &figures.bytes);
            let wanted = planned.wanted.get(id).copied();
            let is_split = wanted.is_some_and(|wanted| wanted > map.tablet_count());
            TableBalance {
                table: *id,
                tablets: map.tablet_count(),
                wanted: wanted.unwrap_or(map.tablet_count()),
                least: planned
                    .least
                    .get(id)
                    .copied()
                    .unwrap_or_else(|| metadata.tablet_counts(*id, bytes_goal).least),
                average_bytes: bytes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes))
                    / u64::from(map.tablet_count()),
                largest_bytes: bytes.iter().max().copied().unwrap_or(0),
                hottest: figures.map_or(0.0, |figures| figures.load.iter().copied().fold(0.0, f32::max)),
                uncut: survey.uncut(*id).filter(|_| is_split),
            }
        };
        let mut report = self.balance_report.borrow_mut();
        report.tables = metadata.tablets.iter().map(table).collect();
        report.lacks.clone_from(&planned.lacks);
        report.tablet_bytes_goal = bytes_goal;
        [report.bytes, report.load] = planned.deviations;
    }

    /// Removes nodes that leave and have nothing left.
    async fn remove_those_that_left(&self, past: &mut Past) {
        let metadata = self.metadata();
        if metadata.leaving().next().is_none() {
            return past.leaving.clear();
        }
        let now = runtime::now();
        let since = |host_id| (host_id, past.leaving.get(&host_id).copied().unwrap_or(now));
        past.leaving = metadata.leaving().map(|(_, node)| since(node.host_id)).collect();
        for (number, node) in metadata.leaving() {
            let host_id = node.host_id;
            if past.leaving.len() > 1 && now - past.leaving[&host_id] < REMOVAL_WAIT {
                continue;
            }
            // A command that is sure to be rejected would fill the log. Others get its vote first: when it is gone they
            // decide without it.
            if metadata.has_given_all(number)
                && !self.votes(number)
                && let Err(error) = self.propose(Command::RemoveNode { host_id }).await
            {
                log::debug!("node {host_id} has given everything away and is not removed yet: {error}");
            }
        }
    }

    /// Makes the group forget the former options of keyspaces that have reached their present ones.
    async fn forget_reached_goals(&self) {
        for command in self.metadata().reached() {
            if let Err(error) = self.propose(command).await {
                log::debug!("what a keyspace was before it was altered is not forgotten yet: {error}");
            }
        }
    }

    /// What members say of their tablets, not older than half of the time between two plans, or than a moment while
    /// they cut.
    async fn fresh_survey(&self, metadata: &Metadata, live: &BTreeSet<HostId>, past: &mut Past) -> Arc<Survey> {
        let life = self.balancing.get().plan_interval / 2;
        let life = if past.splits.is_empty() {
            life
        } else {
            life.min(CUT_LOOK)
        };
        let splits = &past.splits;
        let is_fresh = |(survey, nodes, at): &&(Arc<Survey>, BTreeSet<HostId>, Instant)| {
            nodes == live && at.elapsed() < life && survey.fits(metadata) && survey.asked_for(splits)
        };
        if let Some((survey, ..)) = past.survey.as_ref().filter(is_fresh) {
            return survey.clone();
        }
        let former = past.survey.take();
        let former = former.as_ref().map(|(survey, ..)| &**survey);
        let survey = Arc::new(self.survey(metadata, live, splits, former).await);
        past.survey = Some((survey.clone(), live.clone(), runtime::now()));
        survey
    }

    /// The average size that tablets should have, in bytes, as configured on this node.
    #[must_use]
    pub fn tablet_bytes_goal(&self) -> u64 {
        self.balancing.get().tablet_bytes_goal
    }

    /// Takes over how the leader balances; it counts while this node leads.
    pub fn set_balancing(&self, balancing: Balancing) {
        self.balancing.set(balancing);
        self.machine.members_changed.notify_all();
    }

    /// Switches moves for balance on or off, for the whole cluster.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub async fn set_balanced(&self, is_balanced: bool) -> Result<(), ChangeError> {
        self.propose(Command::Balance { is_balanced }).await?;
        Ok(())
    }
}

/// The tables whose sstables are to be cut, because they are to be split, or go from the token ring to tablets or back.
fn splits_of(metadata: &Metadata, planned: &Planned) -> Splits {
    let split = |command: &Command| match command {
        Command::Resize {
            table, tablet_count, ..
        } if metadata.tablets.get(table)?.tablet_count() < *tablet_count => Some((*table, *tablet_count)),
        Command::Convert {
            table,
            step: Conversion::Begin { tablet_count },
        } => Some((*table, *tablet_count)),
        Command::Convert {
            table,
            step: Conversion::Cut { .. },
        } => Some((*table, RING_CUT)),
        _ => None,
    };
    planned.commands.iter().filter_map(split).collect()
}

/// What a split or a merge changes, in words.
fn resized(metadata: &Metadata, command: &Command) -> Option<String> {
    let Command::Resize {
        table, tablet_count, ..
    } = command
    else {
        return None;
    };
    let before = metadata.tablets.get(table)?.tablet_count();
    let name = metadata.table_name(*table);
    Some(format!(
        "table {name} has {tablet_count} tablets now, before it had {before}"
    ))
}

/// What a step from the token ring to tablets, or back, changes, in words.
fn converted(metadata: &Metadata, command: &Command) -> Option<String> {
    let Command::Convert { table, step } = command else {
        return None;
    };
    let name = metadata.table_name(*table);
    Some(match step {
        Conversion::Begin { tablet_count } => {
            format!("table {name} leaves the token ring and is to have {tablet_count} tablets")
        }
        Conversion::Align { .. } => format!("table {name} has left the token ring"),
        Conversion::Cut { .. } => format!("tablets of table {name} move to where the token ring has them"),
        Conversion::End { .. } => format!("table {name} is on the token ring"),
    })
}

/// What became of a plan.
enum Outcome {
    /// Something of it was agreed on.
    Changed,
    /// Nothing was.
    Failed,
    /// Members cut their sstables for it, and say when they have.
    Waits,
    /// It has no steps.
    Settled,
}

/// How long to rest after a look at everything that found nothing to do, and took so long: nine times that, and no
/// longer than `most`. Changes in quick succession, as of a client that makes thousands of tables, are looked at
/// together.
#[must_use]
pub fn pause_behind(took: Duration, most: Duration) -> Duration {
    took.saturating_mul(9).min(most)
}
