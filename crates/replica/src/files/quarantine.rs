//! Sstables in which damage is found while the node runs, and what is quarantined.
//!
//! A read or a compaction that meets damage marks the sstable as *suspect* and raises the alarm. A task of the shard
//! ([`Shard::watch_damage`]) then reads the whole sstable again. If nothing is wrong any more, the damage was on the
//! way and not in the file, and the sstable is trusted again. Else its files are moved aside as at a start
//! (`sstable/src/directory/quarantine.rs`), and it is *missing* until an operator accepts the loss or the table is
//! truncated.
//!
//! Invariants
//! - The sstable leaves the version and becomes missing in one step, when its mark is durable: no read goes without it
//!   and is answered.
//! - While its files move no compaction or snapshot uses them, and no truncation or drop of the table removes them.
//! - A loss is accepted by the mark on disk first, then in memory.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use runtime::{Instant, Notify};
use schema::TableId;
use sstable::{Component, Quarantined, Reader};
use tasks::{Origin, Task};

use crate::kinds;
use crate::shard::Shard;
use crate::tablets::tablet::{TableStore, Tablet};

/// How long the task waits before it looks again at an sstable that could neither be read nor moved.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// How often reads that fail are logged.
const UNREADABLE_PERIOD: Duration = Duration::from_secs(10);

/// What has changed about the quarantined sstables of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuarantineChange {
    /// One became missing.
    Missing,
    /// The loss was accepted.
    Accepted,
}

/// Called with a table of which an sstable became missing on this shard, or of which a loss was accepted.
pub type OnQuarantine = Box<dyn Fn(TableId, QuarantineChange)>;

/// What became of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskFailure {
    /// An sstable is not what was written; it was moved aside.
    Corruption,
    /// The disk could not read or write a place.
    Io,
}

/// Called with what became of a disk and a sentence about it.
pub type OnDiskFailure = Box<dyn Fn(DiskFailure, &str)>;

/// Wakes the task that looks into damage.
#[derive(Default)]
pub(crate) struct DamageAlarm {
    is_raised: Cell<bool>,
    changed: Notify,
    /// When a file was last logged that could not be opened or read, though it is not damaged.
    unreadable_logged: Cell<Option<Instant>>,
}

impl std::fmt::Debug for DamageAlarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DamageAlarm({})", self.is_raised.get())
    }
}

impl DamageAlarm {
    pub(crate) fn raise(&self) {
        self.is_raised.set(true);
        self.changed.notify_all();
    }

    /// Logs that a file cannot be read though nothing says that it is damaged (no permission, too many open files): at
    /// most once in [`UNREADABLE_PERIOD`], as each read of it fails.
    pub(crate) fn log_unreadable(&self, error: &sstable::Error) {
        let now = runtime::now();
        let is_due = |at: Instant| now.saturating_duration_since(at) >= UNREADABLE_PERIOD;
        if self.unreadable_logged.get().is_none_or(is_due) {
            self.unreadable_logged.set(Some(now));
            log::error!("a read fails: {error}");
        }
    }

    async fn wait(&self) {
        while !self.is_raised.replace(false) {
            self.changed.notified().await;
        }
    }
}

impl Tablet {
    /// Waits until no sstable of the tablet is being moved aside.
    pub(crate) async fn wait_for_quarantine(&self) {
        drop(self.quarantine_turn.acquire(1).await);
    }

    fn suspects(&self) -> Vec<Arc<Reader>> {
        self.with_version(|v| v.sstables.iter().filter(|r| r.is_suspect()).cloned().collect())
    }

    pub(crate) fn has(&self, reader: &Arc<Reader>) -> bool {
        self.with_version(|v| v.sstables.iter().any(|other| Arc::ptr_eq(other, reader)))
    }
}

impl TableStore {
    /// Takes over what is quarantined of the table on this node.
    pub(crate) fn set_quarantined(&self, quarantined: &[Quarantined]) {
        for tablet in self.tablets().iter() {
            tablet.set_missing(quarantined, None);
        }
        self.is_whole.set(quarantined.iter().all(|q| q.is_accepted));
    }
}

impl Shard {
    /// Sets what is called when the quarantined sstables change: other shards of the node answer for the table too.
    pub fn on_quarantine(&self, told: OnQuarantine) {
        *self.on_quarantine.borrow_mut() = Some(told);
    }

    /// Sets what is called when a disk fails.
    pub fn on_disk_failure(&self, told: OnDiskFailure) {
        *self.on_disk_failure.borrow_mut() = Some(told);
    }

    /// Reports a failed disk.
    pub(crate) fn tell_of_disk(&self, failure: DiskFailure, reason: &str) {
        if failure == DiskFailure::Io {
            self.disk_failures.set(self.disk_failures.get() + 1);
        }
        if let Some(told) = &*self.on_disk_failure.borrow() {
            told(failure, reason);
        }
    }

    /// How often the disk could not read or write a place since the start.
    pub fn disk_failures(&self) -> u64 {
        self.disk_failures.get()
    }

    /// How many sstables were moved aside since the start.
    pub fn sstables_lost(&self) -> u64 {
        self.sstables_lost.get()
    }

    /// Looks into damage that reads and compactions meet. Spawn this; it never returns.
    pub async fn watch_damage(self: Rc<Self>) {
        loop {
            self.alarm.wait().await;
            let mut is_told = false;
            while let Err(error) = self.look_into_damage().await {
                if !std::mem::replace(&mut is_told, true) {
                    log::error!("{error}; this is tried again until it succeeds");
                    self.tell_of_disk(DiskFailure::Io, &error);
                }
                runtime::sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Moves the suspect sstables of this shard aside that are damaged, and trusts the others again.
    ///
    /// # Errors
    /// When one could neither be read nor moved; the others are done.
    pub async fn look_into_damage(self: &Rc<Self>) -> Result<(), String> {
        let mut result = Ok(());
        for store in self.stores() {
            for tablet in store.tablets().iter() {
                for reader in tablet.suspects() {
                    let done = self.look_into(&store, tablet, &reader).await;
                    result = result.and(done);
                }
            }
        }
        result
    }

    async fn look_into(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        reader: &Arc<Reader>,
    ) -> Result<(), String> {
        let no_compaction = tablet.compaction_turn.acquire(1).await;
        let turn = self.quarantine_turn.acquire(1).await;
        let mut done = Ok(());
        // If the tablet has left, its next owner finds the damage again.
        if tablet.has(reader) && !tablet.has_left() && !store.dropped.get() {
            let _moving = tablet.quarantine_turn.acquire(1).await;
            let spec = kinds::of_tablet(&kinds::CHECK_SSTABLE, store, tablet, 1);
            let task = self.options.tasks.start(spec, &Origin::Node);
            done = self.trust_or_quarantine(store, tablet, reader, &task).await;
            task.end(&done);
        }
        drop((turn, no_compaction));
        self.compact_soon(store, tablet);
        done
    }

    pub(crate) async fn trust_or_quarantine(
        &self,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        reader: &Arc<Reader>,
        task: &Task,
    ) -> Result<(), String> {
        let (dir, descriptor) = (store.dir.clone(), reader.descriptor().clone());
        let work = move |_| -> Result<Option<(DiskFailure, Quarantined, Vec<Quarantined>)>, String> {
            let data = descriptor.path(Component::Data);
            let error = match sstable::read_twice(|| sstable::tool::verify(&data)) {
                Ok(_) => return Ok(None),
                Err(error) if error.is_damage() => error,
                Err(error) => return Err(error.to_string()),
            };
            let moved = |e| format!("{error}; moving the sstable aside: {e}");
            let moved = sstable::quarantine(&descriptor, &error).map_err(moved)?;
            let all = sstable::quarantined(&dir).map_err(|e| e.to_string())?;
            let failure = if error.is_disk_failure() {
                DiskFailure::Io
            } else {
                DiskFailure::Corruption
            };
            Ok(Some((failure, moved, all)))
        };
        let Some((failure, moved, all)) = task.run_job(work).await?? else {
            reader.trust();
            log::warn!(
                "{} was read again and is whole: the damage is not in the file. Check memory, controller and cables",
                reader.descriptor().path(Component::Data).display()
            );
            return Ok(());
        };
        // Its directory has no record any more.
        store.forget_marks((moved.first, moved.last));
        tablet.set_missing(&all, Some(reader));
        store.set_quarantined(&all);
        self.sstables_lost.set(self.sstables_lost.get() + 1);
        reader.evict_from(&self.cache);
        log::error!(
            "{}. The sstable was moved to {}; reads of tokens {} to {} are refused here until the loss is accepted",
            moved.reason,
            moved.dir.display(),
            moved.first.0,
            moved.last.0
        );
        self.tell_of_quarantine(store, QuarantineChange::Missing);
        self.tell_of_disk(failure, &moved.reason);
        Ok(())
    }

    fn tell_of_quarantine(&self, store: &TableStore, change: QuarantineChange) {
        if let Some(told) = &*self.on_quarantine.borrow() {
            told(store.table().id, change);
        }
    }

    /// Learns what is quarantined of a table, which another shard of the node has changed.
    ///
    /// # Errors
    /// When the table's directory cannot be read.
    pub async fn look_for_quarantined(&self, store: &TableStore) -> Result<(), String> {
        let _turn = self.quarantine_turn.acquire(1).await;
        let dir = store.dir.clone();
        let quarantined = runtime::offload(move || sstable::quarantined(&dir)).await;
        store.set_quarantined(&quarantined.map_err(|e| e.to_string())?);
        Ok(())
    }

    /// Accepts the loss of what the table's damaged sstables had: reads work without it, also after the next start. The
    /// files stay where they are. Returns their names.
    ///
    /// # Errors
    /// When that cannot be made durable: reads are refused as before.
    pub async fn accept_loss(self: &Rc<Self>, store: &Rc<TableStore>) -> Result<Vec<String>, String> {
        let turn = self.quarantine_turn.acquire(1).await;
        let dir = store.dir.clone();
        let work = move || -> Result<Vec<Quarantined>, sstable::Error> {
            let mut quarantined = sstable::quarantined(&dir)?;
            for quarantined in quarantined.iter_mut().filter(|q| !q.is_accepted) {
                sstable::accept(quarantined)?;
                quarantined.is_accepted = true;
            }
            Ok(quarantined)
        };
        let quarantined = runtime::offload(work).await.map_err(|e| e.to_string())?;
        store.set_quarantined(&quarantined);
        drop(turn);
        for tablet in store.tablets().iter() {
            self.compact_soon(store, tablet);
        }
        self.tell_of_quarantine(store, QuarantineChange::Accepted);
        Ok(quarantined.iter().map(Quarantined::name).collect())
    }
}
