//! How this node is, by its own judgement, and what follows: whether its wall clock is right, whether its commitlog
//! takes writes, and whether its disks have room.
//!
//! **Clock.** Detector messages carry the sender's wall clock. [`topology::ClockJudge`] compares this node's with those
//! of its peers and with the steady clock, four times a second; it reports to `runtime` how far the clock is believed,
//! and `runtime::wall_clock_us` follows no jump. A node whose clock is far off leaves service as if it stopped, keeps
//! listening to its peers' clocks, and returns when its own is right again.
//!
//! **Writes.** A node whose log refuses writes says so in its messages. It stays up, because it answers reads;
//! coordinators send it no writes.
//!
//! **Disks.** A node says how full its disks are. One whose disks are full stays up, answers reads and takes deletes;
//! coordinators send it no data.

use crate::service::Cluster;
use runtime::ClockBelief;
use std::rc::Rc;
use std::time::Duration;
use stdx::planted::{self, Bug};
use topology::{ClockDoubt, ClockState, ClockVerdict, DiskLevel};

/// Between two looks at the clock, and at whether the node is to leave service or return.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

impl Cluster {
    /// Judges the clock until the node stops.
    pub(crate) async fn run_clock(self: Rc<Self>) {
        while !self.is_stopping.get() {
            self.judge_clock();
            self.rest(LOOK_INTERVAL).await;
        }
    }

    fn judge_clock(&self) {
        let (own_us, steady_us) = (runtime::clock_offset_us(), runtime::steady_clock_us());
        let has_peers = self.metadata().topology.members().nth(1).is_some();
        let mut clock = self.peers.clock.borrow_mut();
        let limit = clock.limits().suspect;
        let believe = |offset_us, is_trusted| {
            runtime::believe_clock(ClockBelief {
                offset_us,
                limit,
                is_trusted,
            });
        };
        if planted::is_planted(Bug::UntrustedClock) {
            return believe(own_us, true);
        }
        let (before, verdict) = clock.judge(own_us, steady_us, has_peers);
        believe(verdict.believed_us, verdict.state.is_trusted());
        if before != verdict.state {
            say(before, &verdict);
        }
    }

    /// What this node makes of its wall clock.
    #[must_use]
    pub fn clock(&self) -> ClockVerdict {
        self.peers.clock.borrow().verdict()
    }

    /// An operator's word that the wall clock is right as it is now: data expires by it again, after a step too.
    ///
    /// # Errors
    /// When most of the nodes that this one hears say otherwise.
    pub fn confirm_clock(&self) -> Result<(), String> {
        let (own_us, steady_us) = (runtime::clock_offset_us(), runtime::steady_clock_us());
        let confirmed = self.peers.clock.borrow_mut().confirm(own_us, steady_us);
        confirmed.map_err(|ahead_us| {
            format!(
                "The wall clock is {} of the median of the nodes that this one hears. Correct it, or theirs: one operator's word does not outvote them.",
                off_by(ahead_us)
            )
        })?;
        log::warn!("an operator confirmed the wall clock");
        self.judge_clock();
        Ok(())
    }

    /// Makes the node leave service until it is restarted: its clients are sent away, and the other nodes take it for
    /// down.
    pub fn retire(&self) {
        self.is_retired.set(true);
    }

    /// Whether the node takes requests. It does not while its wall clock is far off, and once it has retired.
    #[must_use]
    pub fn is_in_service(&self) -> bool {
        self.is_in_service.get()
    }

    /// Leaves service and returns to it as the clock and the disks demand, until the node stops.
    pub(crate) async fn run_service(self: Rc<Self>) {
        while !self.is_stopping.get() && !self.is_departing.get() {
            let is_out = self.is_retired.get() || self.clock().state == ClockState::OutOfService;
            // A node that does not serve yet has nothing to leave.
            if is_out && self.is_in_service.get() && self.is_open.get() {
                self.leave_service().await;
            } else if !is_out && !self.is_in_service.get() {
                self.return_to_service().await;
            }
            self.rest(LOOK_INTERVAL).await;
        }
    }

    async fn leave_service(&self) {
        self.is_in_service.set(false);
        self.hand_over().await;
        self.is_open.set(false);
        if !self.peers.is_leaving.replace(true) {
            self.peers.say_goodbye().await;
        }
        self.listener.set_in_service(false).await;
    }

    async fn return_to_service(self: &Rc<Self>) {
        self.greeted.borrow_mut().clear();
        self.told_serving.borrow_mut().clear();
        self.peers.is_leaving.set(false);
        self.meet_peers().await;
        if self.is_departing.get() {
            return;
        }
        self.listener.set_in_service(true).await;
        self.is_in_service.set(true);
        log::info!("the node is back in service");
        self.open();
    }

    /// Whether the commitlog takes writes; if not, why. The others hear of it at once.
    pub async fn set_write_trouble(&self, trouble: Option<String>) {
        let takes = trouble.is_none();
        if self.peers.takes_writes.replace(takes) == takes {
            return;
        }
        match trouble {
            Some(reason) => log::error!("this node takes no writes, and reports that to the other nodes: {reason}"),
            None => log::info!("this node takes writes again"),
        }
        self.listener.takes_writes(self.config.host_id, takes);
        self.peers.broadcast();
        if !takes {
            self.hand_over().await;
        }
    }

    /// How full this node's disks are.
    #[must_use]
    pub fn disk_level(&self) -> DiskLevel {
        self.peers.disk.get()
    }

    /// Takes over how full this node's disks are. The others hear of it at once.
    pub fn set_disk_level(&self, level: DiskLevel) {
        if self.peers.disk.replace(level) == level {
            return;
        }
        self.listener.disk_level(self.config.host_id, level);
        self.peers.broadcast();
    }
}

/// How far a clock is off, in words.
fn off_by(ahead_us: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "it is shown with one digit of seconds")]
    let seconds = ahead_us.unsigned_abs() as f64 / 1e6;
    let direction = if ahead_us >= 0 { "ahead" } else { "behind" };
    format!("{seconds:.1} s {direction}")
}

/// Logs a change of state for the operator, and what to do.
fn say(before: ClockState, verdict: &ClockVerdict) {
    let off = off_by(verdict.ahead_us);
    match verdict.state {
        ClockState::Trusted if before == ClockState::Suspect(ClockDoubt::Unheard) => {
            log::info!("the wall clock is confirmed");
        }
        ClockState::Trusted => log::warn!("the wall clock is trusted again ({off})"),
        ClockState::Suspect(ClockDoubt::Unheard) => {}
        ClockState::Suspect(ClockDoubt::Stepped) => log::warn!(
            "the wall clock has stepped: it is {off} of where it should be, and is not trusted. The node keeps the time of before, no data expires for \
             good and no tombstone is purged. Set the clock right; if it is right now, run: ceto nodetool confirmclock"
        ),
        ClockState::Suspect(ClockDoubt::Outvoted) => log::warn!(
            "the wall clock is {off} of the other nodes, and is not trusted. The node keeps their time, no data expires permanently and no tombstone is \
             purged. Set the clock right: check NTP on this node"
        ),
        ClockState::OutOfService => log::warn!(
            "the wall clock is {off} of the other nodes: the node leaves service until it is right. Check NTP on this node; the node returns by itself"
        ),
    }
}
