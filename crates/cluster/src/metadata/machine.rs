//! The state machine of the metadata group: applies commands, keeps the file, notifies the listener.
//!
//! A command is acknowledged after it is in the file and the listener has taken its effect over. A disk that fails is
//! tried again until it takes the file: the node lags, and acknowledges nothing. A rejected command changes only what
//! is remembered of rejections; it is not worth a sync, because applying it again after a restart rejects it again; it
//! is written to the file with the next one.

use crate::config::{Drain, Listener, Local};
use crate::metadata::Metadata;
use crate::metadata::bytes::Malformed;
use crate::metadata::command::Command;
use crate::metadata::file::{MetadataFile, Written};
use crate::metadata::history::Histories;
use crate::ring::RingState;
use consensus::StateMachine;
use record::Known;
use runtime::{Notify, Semaphore};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use topology::{HostId, Selector};

/// How long a failing disk is left alone.
const RETRY_WRITE: Duration = Duration::from_millis(500);

/// The present metadata. Lives on shard 0.
pub(crate) struct Machine {
    /// Taken by the one task that applies.
    file: RefCell<Option<MetadataFile>>,
    written: Cell<Written>,
    metadata: RefCell<Arc<Metadata>>,
    durable_index: Cell<u64>,
    /// The last index whose effect the listener has taken over.
    taken_index: Cell<u64>,
    /// Requests that were routed by an older version all shards of this node refuse.
    taken_fence: Cell<u64>,
    /// Changes whose older requests may still run.
    draining: Rc<RefCell<BTreeSet<u64>>>,
    /// Changes whose older requests did not end in time.
    undrained: Rc<Cell<Option<Undrained>>>,
    /// The histories of the last commands.
    pub(crate) histories: RefCell<Histories>,
    listener: Rc<dyn Listener>,
    /// This node.
    host_id: HostId,
    /// What this node reads of records.
    known: Known,
    /// Held while this node removes data of ranges of the token ring that it is about to own.
    pub(crate) removals: Semaphore,
    /// Notified after each change.
    pub(crate) changed: Rc<Notify>,
    /// Notified when something changes that this node knows of the members.
    pub(crate) members_changed: Notify,
    /// Why the file cannot be written at the moment.
    pub(crate) disk_error: RefCell<Option<String>>,
    /// Why what a member sent cannot be read, until something that was agreed on is applied.
    pub(crate) unreadable: RefCell<Option<String>>,
}

/// Changes of which older requests may still be under way on this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Undrained {
    /// The first of them.
    pub(crate) first: u64,
    /// The last of them: requests from before it may still run.
    pub(crate) last: u64,
}

impl Machine {
    /// With metadata that is durable.
    pub(crate) fn new(
        (dir, host_id): (PathBuf, HostId),
        metadata: Arc<Metadata>,
        listener: Rc<dyn Listener>,
        known: Known,
    ) -> Self {
        let mut histories = Histories::default();
        histories.push(metadata.index, metadata.history);
        Self {
            file: RefCell::new(Some(MetadataFile::new(dir))),
            histories: RefCell::new(histories),
            written: Cell::default(),
            durable_index: Cell::new(metadata.index),
            taken_index: Cell::new(metadata.index),
            taken_fence: Cell::new(metadata.fence),
            draining: Rc::default(),
            undrained: Rc::default(),
            metadata: RefCell::new(metadata),
            listener,
            host_id,
            known,
            removals: Semaphore::new(1),
            changed: Rc::new(Notify::new()),
            members_changed: Notify::new(),
            disk_error: RefCell::default(),
            unreadable: RefCell::default(),
        }
    }

    pub(crate) fn metadata(&self) -> Arc<Metadata> {
        self.metadata.borrow().clone()
    }

    /// The last index whose effect all shards have taken over, or that had none; requests from before it have ended
    /// here, or are refused everywhere.
    pub(crate) fn taken_index(&self) -> u64 {
        let undrained = self.undrained.get().map(|undrained| undrained.first);
        let draining = self.draining.borrow().first().copied();
        let first = [undrained, draining].into_iter().flatten().min();
        first.map_or(self.taken_index.get(), |first| self.taken_index.get().min(first - 1))
    }

    /// The version before which this node refuses requests, on all its shards: that of its metadata, once the shards
    /// have them.
    pub(crate) fn taken_fence(&self) -> u64 {
        self.taken_fence.get()
    }

    /// The changes that do not count as taken over because older requests did not end in time.
    pub(crate) fn undrained(&self) -> Option<Undrained> {
        self.undrained.get()
    }

    /// Requests from before these changes have ended, or are refused everywhere.
    pub(crate) fn set_drained(&self, undrained: Undrained) {
        if self.undrained.get() == Some(undrained) {
            self.undrained.set(None);
            self.changed.notify_all();
        }
    }

    /// What keeping the metadata has cost.
    pub(crate) fn written(&self) -> Written {
        self.written.get()
    }

    /// Takes the value after a command of the log, or another altogether.
    async fn take(&self, next: Metadata, command: Option<&[u8]>) {
        let next = Arc::new(next);
        let index = next.index;
        self.unreadable.take();
        self.keep(&next, command).await;
        self.durable_index.set(index);
        let former = self.metadata.replace(next.clone());
        self.members_changed.notify_all();
        let enabled = next.topology.enabled_features();
        let enabled: Vec<&str> = enabled
            .difference(former.topology.enabled_features())
            .map(String::as_str)
            .collect();
        if !enabled.is_empty() {
            log::info!("enabled features that all members have: {}", enabled.join(", "));
        }
        if self.removals.available() == 0 && self.is_written_as_next_owner(&next) {
            // It was started again, and removes for a stage that has passed.
            drop(self.removals.acquire(1).await);
        }
        let drain = self.listener.changed(next.clone()).await;
        self.draining.borrow_mut().insert(index);
        self.taken_index.set(index);
        self.taken_fence.set(next.fence);
        self.changed.notify_all();
        // A fence moves no data: older requests may keep running beside it.
        let is_fence = next.fence > former.fence;
        self.wait_for_older_requests(index, drain, is_fence);
    }

    /// Whether this node acknowledges writes of ranges of the ring that it is about to own, and must not remove data
    /// there any more.
    fn is_written_as_next_owner(&self, metadata: &Metadata) -> bool {
        let is_written = |ring: &RingState| ring.stage.writes() != Selector::Old;
        let me = metadata.topology.number(self.host_id);
        metadata.ring.as_ref().is_some_and(is_written) && me.is_some_and(|me| metadata.ring_gainers().contains(&me))
    }

    /// Notes beside what follows when the requests from before a change have ended.
    fn wait_for_older_requests(&self, index: u64, drain: Drain, is_fence: bool) {
        let (draining, undrained) = (self.draining.clone(), self.undrained.clone());
        let changed = self.changed.clone();
        drop(runtime::spawn(async move {
            let is_drained = drain.0.await;
            if !is_drained && !is_fence {
                let (first, last) = undrained.get().map_or((index, index), |u| (u.first, u.last));
                undrained.set(Some(Undrained {
                    first: first.min(index),
                    last: last.max(index),
                }));
            }
            draining.borrow_mut().remove(&index);
            changed.notify_all();
        }));
    }

    /// Makes it durable, however long that takes.
    async fn keep(&self, next: &Metadata, command: Option<&[u8]>) {
        let mut file = self.file.take().expect("one command is applied at a time");
        loop {
            let kept = match command {
                Some(command) => file.change(next.index, command, next).await,
                None => file.replace(next).await,
            };
            let Err(error) = kept else {
                break;
            };
            let error = format!("{}: {error}", file.path().display());
            if self.disk_error.borrow().is_none() {
                log::error!("metadata is not acknowledged until it can be written: {error}");
            }
            *self.disk_error.borrow_mut() = Some(error);
            runtime::sleep(RETRY_WRITE).await;
        }
        if self.disk_error.take().is_some() {
            log::info!("metadata can be written again");
        }
        self.written.set(file.written);
        *self.file.borrow_mut() = Some(file);
    }

    /// A member sent what this node does not read. That does not end the node, because any peer could send it. But
    /// while the leader sends it again, this node takes no change of the metadata.
    fn note_unreadable(&self, what: &str, error: &Malformed) -> String {
        let error = error.to_string();
        if self.unreadable.borrow().as_ref() != Some(&error) {
            log::error!(
                "a {what} of the metadata that another member sent cannot be read here ({error}). This node applies nothing of it and no later change: \
                 start the node with the release of the others"
            );
            *self.unreadable.borrow_mut() = Some(error.clone());
        }
        error
    }

    /// What was agreed on cannot be understood here, so nothing that follows can be either.
    async fn give_up(&self, reason: String) {
        log::error!("{reason}");
        self.listener.fatal(reason);
        std::future::pending::<()>().await;
    }
}

impl StateMachine for Machine {
    fn applied(&self) -> u64 {
        self.durable_index.get()
    }

    fn apply<'a>(&'a self, index: u64, command: &'a [u8]) -> Local<'a, ()> {
        Box::pin(async move {
            let now = self.metadata();
            let decoded = match Command::decode(command, &self.known) {
                Ok(command) => command,
                Err(error) => {
                    let reason = format!(
                        "the cluster agreed on a change that this release cannot read ({error}); start the node with the release of the others"
                    );
                    return self.give_up(reason).await;
                }
            };
            let outcome = now.apply(index, &decoded);
            let is_rejected = outcome.is_err();
            let next = now.step(index, command, outcome);
            self.histories.borrow_mut().push(index, next.history);
            if is_rejected {
                if let Some(file) = &mut *self.file.borrow_mut() {
                    file.note(index, command);
                }
                *self.metadata.borrow_mut() = Arc::new(next);
                self.taken_index.set(index);
            } else {
                self.take(next, Some(command)).await;
            }
        })
    }

    fn check_command(&self, command: &[u8]) -> Result<(), String> {
        Command::decode(command, &self.known)
            .map(drop)
            .map_err(|e| self.note_unreadable("change", &e))
    }

    fn check_snapshot(&self, index: u64, snapshot: &[u8]) -> Result<(), String> {
        let next = Metadata::decode(snapshot, &self.known).map_err(|e| self.note_unreadable("snapshot", &e))?;
        let (ours, theirs) = (self.metadata().topology.cluster_id(), next.topology.cluster_id());
        if ours != theirs {
            return Err(format!("it is of cluster {theirs}, and this one is {ours}"));
        }
        if next.index > index {
            return Err(format!(
                "it holds the state at {} where the log is at {index}",
                next.index
            ));
        }
        Ok(())
    }

    fn snapshot(&self) -> Vec<u8> {
        self.metadata().encode()
    }

    fn restore<'a>(&'a self, _index: u64, snapshot: &'a [u8]) -> Local<'a, ()> {
        Box::pin(async move {
            match Metadata::decode(snapshot, &self.known) {
                Ok(next) if next == *self.metadata() => {}
                Ok(next) => {
                    self.histories.borrow_mut().reset(next.index, next.history);
                    self.take(next, None).await;
                }
                Err(error) => {
                    let reason = format!(
                        "the cluster's metadata cannot be read by this release ({error}); start the node with the release of the others"
                    );
                    self.give_up(reason).await;
                }
            }
        })
    }
}
