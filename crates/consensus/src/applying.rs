//! The applying task: calls the machine, in the order of the log.

use crate::apply::{Applied, ProposalId, decode_proposal};
use crate::config::StateMachine;
use raft::eraftpb::{Entry, EntryType, Snapshot};
use runtime::Notify;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// What is to be done, in this order.
pub(crate) enum Work {
    Entry(Entry),
    Restore(Snapshot),
    Snapshot,
}

/// What was done, in this order.
pub(crate) enum Done {
    Applied {
        index: u64,
        /// The proposal that was applied here for the first time.
        proposal: Option<ProposalId>,
        /// The context of a membership entry.
        change: Option<Vec<u8>>,
    },
    Restored {
        snapshot: Snapshot,
        known: Applied,
    },
    Snapshotted {
        index: u64,
        data: Vec<u8>,
    },
    /// The machine is ahead of the log that is replayed to it: a snapshot would be of another index.
    NotYet,
}

/// The two queues between member task and applying task.
pub(crate) struct Applying {
    work: RefCell<VecDeque<Work>>,
    done: RefCell<VecDeque<Done>>,
    wake: Notify,
    is_stopping: Cell<bool>,
}

impl Applying {
    pub(crate) fn new() -> Self {
        Self {
            work: RefCell::default(),
            done: RefCell::default(),
            wake: Notify::new(),
            is_stopping: Cell::new(false),
        }
    }

    pub(crate) fn push(&self, work: Work) {
        self.work.borrow_mut().push_back(work);
        self.wake.notify_all();
    }

    pub(crate) fn push_entries(&self, entries: Vec<Entry>) {
        for entry in entries {
            self.push(Work::Entry(entry));
        }
    }

    pub(crate) fn take_done(&self) -> Option<Done> {
        self.done.borrow_mut().pop_front()
    }

    pub(crate) fn has_done(&self) -> bool {
        !self.done.borrow().is_empty()
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.set(true);
        self.wake.notify_all();
    }

    /// Applies until it is stopped.
    pub(crate) async fn run(self: Rc<Self>, machine: Rc<dyn StateMachine>, member: Notify) {
        let kept = machine.applied();
        let mut applied = Applied::default();
        let mut last = 0;
        while !self.is_stopping.get() {
            let wake = self.wake.notified();
            let Some(work) = self.work.borrow_mut().pop_front() else {
                wake.await;
                continue;
            };
            let done = match work {
                Work::Entry(entry) => {
                    last = entry.index;
                    apply(&entry, &mut applied, &*machine, kept).await
                }
                Work::Restore(snapshot) => {
                    last = snapshot.get_metadata().index;
                    match Applied::decode(&snapshot.data) {
                        Ok((known, bytes)) => {
                            applied = known.clone();
                            if last > kept {
                                machine.restore(last, bytes).await;
                            }
                            Done::Restored { snapshot, known }
                        }
                        Err(malformed) => {
                            // Receiver and store have checked it: this is a bug, and to continue would spread it.
                            panic!("a snapshot that was accepted cannot be read: {malformed}")
                        }
                    }
                }
                Work::Snapshot if last < kept => Done::NotYet,
                Work::Snapshot => Done::Snapshotted {
                    index: last,
                    data: applied.encode(&machine.snapshot()),
                },
            };
            self.done.borrow_mut().push_back(done);
            member.notify_all();
        }
    }
}

async fn apply(entry: &Entry, applied: &mut Applied, machine: &dyn StateMachine, kept: u64) -> Done {
    let index = entry.index;
    if entry.entry_type != EntryType::EntryNormal {
        return Done::Applied {
            index,
            proposal: None,
            change: Some(entry.context.to_vec()),
        };
    }
    // A leader's first entry is empty, and so is a membership change that was refused.
    let Some((id, settled_below, command)) = decode_proposal(&entry.data) else {
        return Done::Applied {
            index,
            proposal: None,
            change: None,
        };
    };
    let is_first = applied.admit(id, settled_below, index);
    if is_first && index > kept {
        machine.apply(index, command).await;
    }
    Done::Applied {
        index,
        proposal: is_first.then_some(id),
        change: None,
    }
}
