//! Faults of a machine that a test asks for: of its disk, its clock, its processor, and at stop points.
//!
//! A counted fault strikes once, in the operation that finds its counter at zero. A lasting one holds until it is taken
//! back. The function that asks for a fault documents what it does; the table in `docs/dev/simulation.md` lists all
//! faults.

use super::world::{Inside, SimulatedNode, World, world_and_node};
use super::{CrashKind, NodeId, Simulation};
use crate::stop_point::StopPoint;
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// What becomes of the bytes that a failed sync should have made durable. Some of their sectors reach the disk all the
/// same, by chance. In each case the next sync of the file succeeds, as on Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailedSync {
    /// The kernel drops them: the file reads as it is on the disk.
    Dropped,
    /// The kernel keeps them as clean: the file reads as it was written, and no later sync writes them.
    Cleaned,
    /// The kernel keeps them as dirty: the next sync writes them.
    KeptDirty,
}

/// Which operations of a disk fail until it is healed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskErrors {
    /// Those that change or sync something.
    Writes,
    /// All.
    All,
}

/// What happens to the process that reaches a stop point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// It ends there.
    Crash(CrashKind),
    /// No shard of its machine runs for that long, once the turn of the shard has ended.
    Pause(Duration),
}

/// A fault, and how many operations come before the one that it strikes.
type Counted<T> = Cell<Option<(u64, T)>>;

#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) failure: Counted<io::ErrorKind>,
    pub(crate) crash: Counted<CrashKind>,
    pub(crate) failed_sync: Counted<FailedSync>,
    pub(crate) torn_write: Counted<()>,
    pub(crate) damaged_read: Counted<()>,
    pub(crate) stop: Cell<Option<(StopPoint, u64, Stop)>>,
    pub(crate) errors: Cell<Option<DiskErrors>>,
    /// What each operation takes longer.
    pub(crate) delay: Cell<Duration>,
    /// Whether a test looks at the disk, which no fault strikes.
    pub(crate) are_suspended: Cell<bool>,
}

impl Faults {
    fn clear_counted(&self) {
        self.failure.set(None);
        self.crash.set(None);
        self.failed_sync.set(None);
        self.torn_write.set(None);
        self.damaged_read.set(None);
        self.stop.set(None);
    }

    /// Counts an operation. The fault, if it strikes this one.
    pub(crate) fn strike<T: Copy>(&self, fault: &Counted<T>) -> Option<T> {
        if self.are_suspended.get() {
            return None;
        }
        let (left, kind) = fault.get()?;
        fault.set(left.checked_sub(1).map(|left| (left, kind)));
        (left == 0).then_some(kind)
    }
}

/// A simulated process is at a stop point.
pub(crate) fn reach(point: StopPoint) {
    let (world, node) = world_and_node();
    if node.faults.are_suspended.get() || !node.alive.get() {
        return;
    }
    let Some((wanted, left, stop)) = node.faults.stop.get() else {
        return;
    };
    if wanted != point {
        return;
    }
    let next = left.checked_sub(1).map(|left| (wanted, left, stop));
    node.faults.stop.set(next);
    if left > 0 {
        return;
    }
    world.note("stop point", &[u64::from(node.id.0), point as u64]);
    match stop {
        Stop::Crash(kind) => drop(super::files::die(&node, kind)),
        Stop::Pause(time) => pause(&world, &node, time),
    }
}

fn pause(world: &World, node: &SimulatedNode, time: Duration) {
    world.note("pause", &[u64::from(node.id.0)]);
    node.paused_until.set(world.now() + time);
}

/// Does something on a machine: at once, or when its pause ends.
pub(crate) fn when_awake(world: &Rc<World>, node: NodeId, action: impl FnOnce(&Rc<World>) + 'static) {
    let until = world.node(node).paused_until.get();
    if until <= world.now() {
        action(world);
    } else {
        world.at(until, move |world| when_awake(world, node, action));
    }
}

impl Simulation {
    /// Calls `f` as if the machine did, between two steps: to look at its disk, or to prepare it. Whether a process
    /// runs there does not matter; faults do not strike.
    pub fn on_node<R>(&mut self, node: NodeId, f: impl FnOnce() -> R) -> R {
        let machine = self.world.node(node);
        let _inside = Inside::enter(&self.world, Some(node));
        machine.faults.are_suspended.set(true);
        let alive = machine.alive.replace(true);
        let result = f();
        machine.alive.set(alive);
        machine.faults.are_suspended.set(false);
        result
    }

    /// The machine's wall clock is that many microseconds ahead.
    pub fn set_clock_skew_us(&mut self, node: NodeId, skew_us: i64) {
        self.world.node(node).skew_us.set(skew_us);
    }

    /// The machine's wall clock jumps by that many microseconds, back if they are negative, and continues from there.
    /// Its monotonic clock does not jump.
    pub fn jump_clock_us(&mut self, node: NodeId, by_us: i64) {
        let skew_us = &self.world.node(node).skew_us;
        skew_us.set(skew_us.get() + by_us);
    }

    /// No shard, job or file operation of the machine's process proceeds for that long, as if the process was stopped.
    /// Time, the network and the machine's kernel keep running: connections stay, and take bytes.
    pub fn pause_for(&mut self, node: NodeId, time: Duration) {
        pause(&self.world, &self.world.node(node), time);
    }

    /// Whether a pause of the machine has not ended yet.
    #[must_use]
    pub fn is_paused(&self, node: NodeId) -> bool {
        self.world.node(node).paused_until.get() > self.world.now()
    }

    /// When the process has passed the point `passes` times, it stops there the next time.
    pub fn stop_at(&mut self, node: NodeId, point: StopPoint, passes: u64, stop: Stop) {
        self.world.node(node).faults.stop.set(Some((point, passes, stop)));
    }

    /// After `operations` more file operations of the node, the next one fails, once, with no effect.
    pub fn fail_file_op_after(&mut self, node: NodeId, operations: u64, error: io::ErrorKind) {
        self.world.node(node).faults.failure.set(Some((operations, error)));
    }

    /// After `syncs` more syncs of files of the node, the next one fails, once, with an input/output error.
    pub fn fail_sync_after(&mut self, node: NodeId, syncs: u64, bytes: FailedSync) {
        self.world.node(node).faults.failed_sync.set(Some((syncs, bytes)));
    }

    /// After `writes` more writes to files of the node, the next one fails, once, with an input/output error, and has
    /// written a part of its bytes.
    pub fn tear_write_after(&mut self, node: NodeId, writes: u64) {
        self.world.node(node).faults.torn_write.set(Some((writes, ())));
    }

    /// After `reads` more reads of files of the node, the next one returns its bytes with one bit changed, once: what
    /// is on the disk is as it was.
    pub fn damage_read_after(&mut self, node: NodeId, reads: u64) {
        self.world.node(node).faults.damaged_read.set(Some((reads, ())));
    }

    /// Changes one bit of a file permanently, anywhere in it. Where, or None when it has no bytes.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn rot(&mut self, node: NodeId, path: &Path) -> io::Result<Option<u64>> {
        let machine = self.world.node(node);
        let mut disk = machine.disk.borrow_mut();
        disk.rot(path, |bound| self.world.below(bound))
    }

    /// Operations on the node's disk fail with an input/output error until this is taken back.
    pub fn set_disk_errors(&mut self, node: NodeId, errors: Option<DiskErrors>) {
        self.world.node(node).faults.errors.set(errors);
    }

    /// After `operations` more file operations that change or sync something, the process ends in the middle of the
    /// next one, wherever that is: in a task, a job or offloaded work. A write in that moment is torn.
    pub fn crash_after_file_ops(&mut self, node: NodeId, operations: u64, kind: CrashKind) {
        self.world.node(node).faults.crash.set(Some((operations, kind)));
    }

    /// Takes the counted faults back that have not struck, those at stop points too.
    pub fn clear_file_faults(&mut self, node: NodeId) {
        self.world.node(node).faults.clear_counted();
    }

    /// Each file operation of the node takes that much longer: a slow disk.
    pub fn set_disk_delay(&mut self, node: NodeId, delay: Duration) {
        self.world.node(node).faults.delay.set(delay);
    }

    /// The disk holds that many bytes of files; `None` is no limit.
    pub fn set_disk_capacity(&mut self, node: NodeId, bytes: Option<u64>) {
        self.world.node(node).disk.borrow_mut().set_capacity(bytes);
    }
}
