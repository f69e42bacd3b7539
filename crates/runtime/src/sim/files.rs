//! Files of the simulated node that runs the caller: the disk with time, chance and the faults that a test asked for.
//!
//! Each operation takes virtual time. A counted fault strikes *in* an operation: a failing one has no effect, a
//! crashing or torn write leaves a part of its bytes in the kernel; after a crash the process is gone.

use super::disk::{FileNumber, Open};
use super::faults::{DiskErrors, when_awake};
use super::world::{SimulatedNode, World, world_and_node};
use super::{CrashKind, NodeId, SimulatedCrash};
use crate::fs::{DirEntry, DiskSpace, OpenOptions};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

const QUICK: (Duration, Duration) = (Duration::from_micros(2), Duration::from_micros(60));
const SYNC: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(3));

/// Whether an operation changes what is left after a crash; only those count towards `crash_after_file_ops`.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Look,
    Change,
    Write,
    Sync,
}

/// An open file of a simulated node. Only numbers, so that it may cross threads like a real one.
pub(crate) struct SimulatedFile {
    node: NodeId,
    incarnation: u64,
    number: FileNumber,
    writable: bool,
    readable: bool,
    holds_lock: AtomicBool,
}

/// The node, after time has passed and no fault has struck.
fn begin(kind: Kind, what: &str) -> io::Result<(Rc<World>, Rc<SimulatedNode>)> {
    let (world, node) = world_and_node();
    if !node.alive.get() {
        return Err(gone());
    }
    let (least, most) = if kind == Kind::Sync { SYNC } else { QUICK };
    world.advance(world.latency(least, most) + node.faults.delay.get());
    world.note(what, &[u64::from(node.id.0)]);
    let fails = match node.faults.errors.get() {
        _ if node.faults.are_suspended.get() => false,
        None => false,
        Some(DiskErrors::Writes) => kind != Kind::Look,
        Some(DiskErrors::All) => true,
    };
    if fails {
        return Err(io::Error::from_raw_os_error(libc::EIO));
    }
    if let Some(error) = node.faults.strike(&node.faults.failure) {
        return Err(io::Error::new(error, format!("simulated failure of {what}")));
    }
    if kind != Kind::Look
        && let Some(crash) = node.faults.strike(&node.faults.crash)
    {
        if kind != Kind::Write {
            return Err(die(&node, crash));
        }
        // The write itself tears first; see `SimulatedFile::write`.
        node.crashing.set(Some(crash));
    }
    Ok((world, node))
}

fn gone() -> io::Error {
    io::Error::other("the simulated process has crashed")
}

/// Ends the process of the node here and now. Unwinds to the main loop of the simulation; where that is not possible,
/// every operation fails from here on.
pub(crate) fn die(node: &SimulatedNode, crash: CrashKind) -> io::Error {
    node.crashing.set(Some(crash));
    node.alive.set(false);
    if cfg!(panic = "unwind") && !std::thread::panicking() {
        std::panic::resume_unwind(Box::new(SimulatedCrash));
    }
    gone()
}

impl SimulatedFile {
    pub(crate) fn open(path: &Path, options: OpenOptions) -> io::Result<Self> {
        let creates = options.create || options.create_new || options.truncate;
        let (_, node) = begin(if creates { Kind::Change } else { Kind::Look }, "open")?;
        let how = Open {
            create: options.create,
            create_new: options.create_new,
            truncate: options.truncate,
        };
        let number = node.disk.borrow_mut().open(path, how)?;
        Ok(Self {
            node: node.id,
            incarnation: node.incarnation.get(),
            number,
            writable: options.write,
            readable: options.read,
            holds_lock: AtomicBool::new(false),
        })
    }

    fn begin(&self, kind: Kind, what: &str) -> io::Result<(Rc<World>, Rc<SimulatedNode>)> {
        let (world, node) = begin(kind, what)?;
        if node.id != self.node || node.incarnation.get() != self.incarnation {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        Ok((world, node))
    }

    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let (world, node) = self.begin(Kind::Look, "read")?;
        if !self.readable {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let count = node.disk.borrow().read(self.number, buffer, offset);
        if count > 0 && node.faults.strike(&node.faults.damaged_read).is_some() {
            let bit = world.below(count as u64 * 8);
            buffer[usize::try_from(bit / 8).expect("within a length")] ^= 1 << (bit % 8);
        }
        world.note("read", &[self.number, offset, count as u64]);
        Ok(count)
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (world, node) = self.begin(Kind::Write, "write")?;
        if !self.writable {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        world.note("write", &[self.number, offset, bytes.len() as u64]);
        let torn = || usize::try_from(world.below(bytes.len() as u64 + 1)).expect("within a length");
        if let Some(crash) = node.crashing.take() {
            node.disk.borrow_mut().write(self.number, &bytes[..torn()], offset)?;
            return Err(die(&node, crash));
        }
        if node.faults.strike(&node.faults.torn_write).is_some() {
            node.disk.borrow_mut().write(self.number, &bytes[..torn()], offset)?;
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        node.disk.borrow_mut().write(self.number, bytes, offset)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        let (world, node) = self.begin(Kind::Sync, "sync")?;
        let mut disk = node.disk.borrow_mut();
        if let Some(bytes) = node.faults.strike(&node.faults.failed_sync) {
            disk.fail_sync(self.number, bytes, |bound| world.below(bound));
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        disk.sync(self.number);
        Ok(())
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        let (_, node) = self.begin(Kind::Look, "length")?;
        let length = node.disk.borrow().len(self.number);
        Ok(length)
    }

    pub(crate) fn set_len(&self, length: u64) -> io::Result<()> {
        let (_, node) = self.begin(Kind::Change, "set length")?;
        node.disk.borrow_mut().set_len(self.number, length)
    }

    /// Space is promised by making the file that long.
    pub(crate) fn allocate(&self, length: u64) -> io::Result<()> {
        let (_, node) = self.begin(Kind::Change, "allocate")?;
        let mut disk = node.disk.borrow_mut();
        let longer = length.max(disk.len(self.number));
        disk.set_len(self.number, longer)
    }

    pub(crate) fn try_lock(&self) -> io::Result<bool> {
        let (_, node) = self.begin(Kind::Look, "lock")?;
        if self.holds_lock.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let locked = node.disk.borrow_mut().try_lock(self.number);
        self.holds_lock.store(locked, Ordering::Relaxed);
        Ok(locked)
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let Some(world) = super::world::try_world() else { return };
        let node = world.node(self.node);
        if node.runs(self.incarnation) {
            node.disk
                .borrow_mut()
                .close(self.number, self.holds_lock.load(Ordering::Relaxed));
        }
    }
}

/// Runs a blocking operation as an asynchronous one: it happens at a later time, even if the future is dropped.
pub(crate) async fn later<T: 'static>(operation: impl FnOnce() -> T + 'static) -> T {
    let world = world_and_node().0;
    let delay = world.latency(QUICK.0, QUICK.1);
    happen(delay, Duration::ZERO, operation).await
}

/// Runs a sync as an asynchronous operation, while other tasks keep running. By chance it covers only what was written
/// before it began, or also what was written until it was done.
pub(crate) async fn sync_later<T: 'static>(sync: impl FnOnce() -> T + 'static) -> T {
    let world = world_and_node().0;
    let took = world.latency(SYNC.0, SYNC.1);
    let before = if world.below(2) == 0 { took } else { Duration::ZERO };
    happen(before, took - before, sync).await
}

/// The operation happens `before` from now; the waiting task gets its result `after` that.
async fn happen<T: 'static>(before: Duration, after: Duration, operation: impl FnOnce() -> T + 'static) -> T {
    type Outcome<T> = Rc<RefCell<(Option<T>, Option<Waker>)>>;
    let (world, node) = world_and_node();
    let outcome: Outcome<T> = Rc::new(RefCell::new((None, None)));
    let (filled, id, incarnation) = (Rc::clone(&outcome), node.id, node.incarnation.get());
    let finish = move |value: T| {
        let waiter = {
            let mut outcome = filled.borrow_mut();
            outcome.0 = Some(value);
            outcome.1.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    };
    let begin = move |world: &Rc<World>| {
        let still_there = Rc::clone(world);
        super::run_on_node(world, id, incarnation, move || {
            let value = operation();
            if after.is_zero() {
                finish(value);
            } else {
                let end = move |world: &Rc<World>| super::run_on_node(world, id, incarnation, move || finish(value));
                still_there.after(after, move |world| when_awake(world, id, end));
            }
        });
    };
    world.after(before, move |world| when_awake(world, id, begin));
    drop((world, node));
    poll_fn(|context| {
        let mut outcome = outcome.borrow_mut();
        match outcome.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                outcome.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

pub(crate) fn create_dir_all(path: &Path) -> io::Result<()> {
    let (_, node) = begin(Kind::Change, "create directory")?;
    node.disk.borrow_mut().create_dir_all(path)
}

pub(crate) fn read_dir(path: &Path) -> io::Result<Vec<DirEntry>> {
    let (_, node) = begin(Kind::Look, "list")?;
    let names = node.disk.borrow().read_dir(path)?;
    Ok(names
        .into_iter()
        .map(|(name, len)| DirEntry {
            name,
            is_dir: len.is_none(),
            len: len.unwrap_or(0),
        })
        .collect())
}

pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (_, node) = begin(Kind::Change, "rename")?;
    node.disk.borrow_mut().rename(from, to)
}

pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    let (_, node) = begin(Kind::Change, "remove")?;
    node.disk.borrow_mut().remove_file(path)
}

pub(crate) fn remove_dir_all(path: &Path) -> io::Result<()> {
    let (_, node) = begin(Kind::Change, "remove directory")?;
    node.disk.borrow_mut().remove_dir_all(path)
}

pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    let (_, node) = begin(Kind::Sync, "sync directory")?;
    node.disk.borrow_mut().sync_dir(path)
}

pub(crate) fn exists(path: &Path) -> bool {
    let (_, node) = world_and_node();
    node.alive.get() && node.disk.borrow().exists(path)
}

pub(crate) fn hard_link(original: &Path, link: &Path) -> io::Result<()> {
    let (_, node) = begin(Kind::Change, "link")?;
    node.disk.borrow_mut().hard_link(original, link)
}

pub(crate) fn disk_space() -> io::Result<DiskSpace> {
    let (_, node) = begin(Kind::Look, "available")?;
    let space = node.disk.borrow().space();
    Ok(space)
}
