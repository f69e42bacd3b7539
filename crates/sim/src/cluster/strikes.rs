//! How faults strike the nodes of a cluster, and how they are ended.

use std::path::Path;
use std::time::Duration;

use runtime::StopPoint;
use runtime::sim::{CrashKind, DiskErrors, FailedSync, NodeId, Stop};

use super::clients::Phase;
use super::faults::Fault;
use super::scenario::{CLOCK_ERROR_MAX, CLOCK_JUMP_MAX, CLOCK_STEP_MAX, Run, SLICE};
use crate::story::files_below;

/// How long a disk is whole again before an operator starts its node again.
const HEALED_DISK_WAIT: Duration = Duration::from_millis(500);
/// Three of four pauses are shorter; the others last up to a minute.
const SHORT_PAUSE: Duration = Duration::from_secs(9);
/// How long an operator waits for a node.
const ORDER_WAIT_MAX: Duration = Duration::from_mins(2);
/// The tables of which sstables may be damaged.
const TABLES: [&str; 11] = ["r", "a", "b", "t", "e", "n", "l", "l$paxos", "w", "u", "u$paxos"];
/// The tables of which tablets move.
const MOVED_TABLES: [&str; 9] = ["r", "a", "b", "t", "e", "n", "l", "w", "u"];
/// How often losses are accepted and everything is read: reads of everything may find damage that no request met
/// before.
const ACCEPT_PASSES: usize = 2;

impl Run<'_> {
    /// Something strikes one node, or two.
    pub(super) fn strike(&mut self) {
        let faults = self.scenario.faults.list();
        if faults.is_empty() {
            return;
        }
        self.clients.begin_fault();
        for _ in 0..1 + self.chance.below(2) {
            let fault = faults[self.index(faults.len())];
            let members = self.clients.members();
            let node = members[self.index(members.len())];
            log::info!("simulation: {fault:?} strikes node {node}");
            if self.strike_with(fault, node) {
                self.faults_by_kind[fault as usize] += 1;
            }
        }
    }

    pub(super) fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.chance.below(bound as u64)).expect("below a length")
    }

    /// Whether it could.
    fn strike_with(&mut self, fault: Fault, node: usize) -> bool {
        let machine = self.cluster.machine(node);
        match fault {
            Fault::Kill | Fault::PowerLoss => {
                let kind = if fault == Fault::Kill {
                    CrashKind::Kill
                } else {
                    CrashKind::PowerLoss
                };
                if self.chance.once_in(2) {
                    self.cluster.crash(node, kind);
                } else {
                    self.may_end[node] = true;
                    let operations = self.chance.below(400);
                    self.cluster.sim.crash_after_file_ops(machine, operations, kind);
                }
            }
            Fault::Blackout => {
                for node in self.clients.members() {
                    self.cluster.crash(node, CrashKind::PowerLoss);
                }
            }
            Fault::Restart => {
                if self.cluster.is_running(node) {
                    self.may_end[node] = true;
                    self.cluster.sim.terminate(machine);
                }
            }
            Fault::Split => {
                let (to_others, from_others) = [(false, false), (false, true), (true, false)][self.index(3)];
                self.cluster.set_links(node, to_others, from_others);
            }
            Fault::BadLink => {
                let delay = self.chance.millis(800);
                let lost = self.chance.below(300_000);
                self.cluster.set_link_quality(node, delay, lost);
            }
            Fault::WrongClock => {
                let most = i64::try_from(CLOCK_ERROR_MAX.as_micros()).expect("seconds");
                let skew = i64::try_from(self.chance.below(most.unsigned_abs() * 2)).expect("seconds") - most;
                self.cluster.sim.set_clock_skew_us(machine, self.clock_us[node] + skew);
            }
            Fault::SlowDisk => {
                let delay = self.chance.millis(20);
                self.cluster.sim.set_disk_delay(machine, delay);
            }
            Fault::FullDisk => {
                self.may_end[node] = true;
                let room = self.chance.below(100 << 10);
                self.cluster.set_disk_room(node, Some(room));
            }
            Fault::FailingOperation => {
                self.may_end[node] = true;
                self.must_restart[node] = true;
                let operations = self.chance.below(400);
                self.cluster
                    .sim
                    .fail_file_op_after(machine, operations, std::io::ErrorKind::Other);
            }
            Fault::Reorder => self.reordered[node] = true,
            Fault::Reshard => {
                let shards = 1 + self.chance.below(u64::from(self.scenario.shards_max) + 1);
                let shards = u32::try_from(shards).expect("few shards");
                self.cluster.set_shards(node, shards);
                if self.cluster.is_running(node) {
                    self.may_end[node] = true;
                    self.cluster.sim.terminate(machine);
                }
            }
            Fault::WideSplit => {
                let size = self.cluster.size();
                let datacenter = self.clients.layout.datacenter(node);
                let is_apart = |other: usize| match self.clients.layout.datacenters() {
                    1 => (other + size - node) % size < size / 2,
                    _ => self.clients.layout.datacenter(other) == datacenter,
                };
                let (apart, rest): (Vec<usize>, Vec<usize>) = (0..size).partition(|other| is_apart(*other));
                self.cluster.split(&apart, &rest);
            }
            Fault::FailedSync
            | Fault::BrokenDisk
            | Fault::TornWrite
            | Fault::DamagedRead
            | Fault::BitRot
            | Fault::Pause
            | Fault::ClockJump
            | Fault::StopPoint => self.strike_deeper(fault, node, machine),
            Fault::Move => self.move_tablets(node),
            Fault::Outage => return self.begin_outage(node),
            Fault::Leave | Fault::Replacement | Fault::Replication | Fault::Kind | Fault::Repair => {
                return self.begin_operation(fault, node);
            }
        }
        true
    }

    /// A node crashes, and stays down until the round is over. One at a time: of two that miss the same deletion no
    /// majority has it.
    fn begin_outage(&mut self, node: usize) -> bool {
        if self.outage.is_some() {
            return false;
        }
        let kind = if self.scenario.faults.power_losses && self.chance.once_in(2) {
            CrashKind::PowerLoss
        } else {
            CrashKind::Kill
        };
        self.cluster.crash(node, kind);
        self.outage = Some(node);
        true
    }

    /// The faults of disks, clocks and processes that last, or come at a chosen moment.
    fn strike_deeper(&mut self, fault: Fault, node: usize, machine: NodeId) {
        match fault {
            Fault::FailedSync => {
                (self.may_end[node], self.must_restart[node]) = (true, true);
                let bytes = [FailedSync::Dropped, FailedSync::Cleaned, FailedSync::KeptDirty][self.index(3)];
                let syncs = self.chance.below(60);
                self.cluster.sim.fail_sync_after(machine, syncs, bytes);
            }
            Fault::BrokenDisk => {
                (self.may_end[node], self.must_restart[node]) = (true, true);
                let errors = [DiskErrors::Writes, DiskErrors::All][self.index(2)];
                self.cluster.sim.set_disk_errors(machine, Some(errors));
            }
            Fault::TornWrite => {
                (self.may_end[node], self.must_restart[node]) = (true, true);
                let writes = self.chance.below(200);
                self.cluster.sim.tear_write_after(machine, writes);
            }
            // One that is starting reads its log, in which damage is a hole: it would lose what it has acknowledged.
            Fault::DamagedRead if self.cluster.is_running(node) && !self.may_end[node] => {
                let reads = self.chance.below(60);
                self.cluster.sim.damage_read_after(machine, reads);
            }
            Fault::BitRot => {
                // Two replicas that lack the same rows are more than three copies survive.
                let node = *self.rotten.get_or_insert(node);
                if self.chance.once_in(2) {
                    (self.may_end[node], self.must_restart[node]) = (true, true);
                }
                self.rot(self.cluster.machine(node));
            }
            Fault::Pause => {
                let time = self.chance.millis(12_000);
                // A quarter of them for up to a minute: longer than any margin within which a request must come.
                let beyond = time.saturating_sub(SHORT_PAUSE);
                let time = if beyond.is_zero() { time } else { beyond * 20 };
                self.cluster.sim.pause_for(machine, time);
            }
            Fault::ClockJump => {
                let most = [CLOCK_JUMP_MAX, CLOCK_STEP_MAX][self.index(2)].as_micros() as u64;
                let jump = self.chance.below(most * 2).cast_signed() - most.cast_signed();
                // From where it was right, so that no clock goes further and further.
                self.clock_us[node] = jump;
                self.cluster.sim.set_clock_skew_us(machine, jump);
            }
            Fault::StopPoint => {
                self.may_end[node] = true;
                let any = StopPoint::ALL[self.index(StopPoint::ALL.len())];
                let point = self.scenario.stop_point.unwrap_or(any);
                let stop = match self.chance.below(3) {
                    0 => Stop::Pause(self.chance.millis(6000)),
                    1 if self.scenario.faults.power_losses => Stop::Crash(CrashKind::PowerLoss),
                    _ => Stop::Crash(CrashKind::Kill),
                };
                let passes = self
                    .chance
                    .below(if self.scenario.stop_point.is_some() { 4 } else { 20 });
                log::info!("simulation: {stop:?} at {point:?}, after {passes} passes");
                self.cluster.sim.stop_at(machine, point, passes, stop);
            }
            _ => {}
        }
    }

    /// Moves tablets of a node to other shards of it, or to other nodes, some at the same time.
    fn move_tablets(&mut self, node: usize) {
        self.clients.history.borrow_mut().begin_move();
        let members = self.clients.members();
        let hosts: Vec<String> = members.into_iter().filter_map(|node| self.host_id(node)).collect();
        for _ in 0..1 + self.chance.below(8) {
            let table = MOVED_TABLES[self.index(MOVED_TABLES.len())];
            let token = self.chance.below(u64::MAX).cast_signed();
            let shard = self.chance.below(u64::from(self.scenario.shards_max.max(2)));
            let mut wanted = format!("ks=k&table={table}&token={token}&dst_shard={shard}");
            if self.chance.once_in(2) && !hosts.is_empty() {
                wanted += &format!("&dst_host={}", hosts[self.index(hosts.len())]);
            }
            self.cluster
                .order(node, &format!("POST /ceto/tasks/move_tablet?{wanted}"));
        }
    }

    /// The identity of a node, as its directory has it.
    pub(super) fn host_id(&mut self, node: usize) -> Option<String> {
        let machine = self.cluster.machine(node);
        let read = || runtime::fs::read(Path::new("/ceto/host_id"));
        let bytes = self.cluster.sim.on_node(machine, read).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Changes a bit of one of a node's sstables.
    fn rot(&mut self, machine: NodeId) {
        let mut files = self
            .cluster
            .sim
            .on_node(machine, || files_below(Path::new("/ceto/data"), "-Data.db"));
        if files.is_empty() {
            return;
        }
        let file = files.swap_remove(self.index(files.len()));
        let at = self.cluster.sim.rot(machine, &file);
        log::info!("simulation: a bit of {} changes: {at:?}", file.display());
    }

    /// Ends all faults, and starts what has stopped.
    pub(super) fn heal(&mut self) {
        self.outage = None;
        for node in self.clients.members() {
            let machine = self.cluster.machine(node);
            self.cluster.set_links(node, true, true);
            self.reordered[node] = false;
            self.cluster.set_link_quality(node, Duration::ZERO, 0);
            // A clock that has jumped a little stays where it is. One that is far off keeps its node out of service
            // until an operator sets it right; the node returns by itself then.
            if u128::from(self.clock_us[node].unsigned_abs()) > CLOCK_STEP_MAX.as_micros() {
                self.clock_us[node] = 0;
            }
            self.cluster.sim.set_clock_skew_us(machine, self.clock_us[node]);
            self.cluster.sim.set_disk_errors(machine, None);
            while self.cluster.sim.is_paused(machine) {
                self.cluster.sim.run_for(SLICE);
            }
            self.cluster.sim.set_disk_delay(machine, Duration::ZERO);
            self.cluster.set_disk_room(node, None);
            self.cluster.sim.clear_file_faults(machine);
            if std::mem::take(&mut self.must_restart[node]) {
                // A log whose sync failed says so beside its segments, as soon as the disk takes that.
                self.cluster.sim.run_for(HEALED_DISK_WAIT);
                self.cluster.crash(node, CrashKind::Kill);
            }
            // One that is ending must have time to.
            if self.may_end[node] && self.cluster.is_running(node) {
                self.cluster.sim.run_until_ended(machine, Duration::from_secs(2));
            }
            if !self.cluster.is_running(node) {
                self.cluster.restart(node);
                self.may_end[node] = false;
            }
        }
    }
}

impl Run<'_> {
    /// The operator of a node with damaged sstables accepts the loss, and reads everything at ALL: the other replicas
    /// have what is missing.
    pub(super) fn accept_loss(&mut self) -> Result<(), String> {
        let Some(node) = self.rotten else { return Ok(()) };
        for _ in 0..ACCEPT_PASSES {
            for table in TABLES {
                let request = format!("DELETE /storage_service/quarantined/k?cf={table}");
                self.cluster.order(node, &request);
                let mut answer = None;
                self.wait_for(ORDER_WAIT_MAX, "a node did not accept a loss", |run| {
                    answer = run.cluster.take_answer(node);
                    answer.is_some()
                })?;
                let answer = answer.flatten().unwrap_or_default();
                if !answer.contains(" 200 ") {
                    return Err(format!("{request}: {answer}"));
                }
            }
            self.clients.phase.set(Phase::Repair);
            let is_done = |run: &mut Self| run.clients.phase.get() != Phase::Repair;
            self.wait_for(ORDER_WAIT_MAX, "the reads that repair replicas did not end", is_done)?;
            self.clients.phase.set(Phase::Rest);
        }
        Ok(())
    }
}
