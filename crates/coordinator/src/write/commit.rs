//! Acknowledgements that wait for the log.
//!
//! What one turn of the shard applies, for its own clients' writes and for other nodes, shares one write of the log to
//! the kernel, and in batch mode one sync: the first acknowledgement wakes the committer, which runs when the tasks
//! that are ready before it have had their turn.
//!
//! Invariant: nothing is acknowledged before the log that has it was handed to the kernel.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use commitlog::{LogMark, LogPlace, ReplayPosition};
use rpc::{RemoteError, Responder};
use runtime::Signal;

use crate::cas::acceptor::PhaseCaller;
use crate::cas::message::PaxosAnswer;
use crate::service::ReplicaError;
use crate::verbs::remote;
use crate::write::apply::{acknowledges_by_sync, commit, durable};
use crate::write::flight::Flight;
use crate::{Writes, spawn};

/// What to notify when an applied mutation is in the log.
pub(crate) enum Acknowledgement {
    /// A write of this shard's clients: its target of this number is this shard.
    Write(Rc<Flight>, u32),
    /// Another node.
    Peer(Responder),
    /// The leader that made an acceptor learn a decision.
    Learned(PhaseCaller),
}

impl Acknowledgement {
    fn tell(self, result: Result<(), ReplicaError>) {
        match self {
            Self::Write(flight, number) => flight.applied_here(number, result),
            Self::Peer(responder) => {
                let answer: Result<Vec<u8>, RemoteError> = result.map(|()| Vec::new()).map_err(remote);
                responder.answer(answer);
            }
            Self::Learned(whom) => whom.tell(result.map(|()| PaxosAnswer::Done)),
        }
    }
}

/// One shard's acknowledgements that wait for the next write of the log.
#[derive(Default)]
pub(crate) struct GroupCommit {
    waiting: RefCell<Vec<Acknowledgement>>,
    /// From before the first of them was applied.
    mark: Cell<LogMark>,
    /// The log position of the last of them.
    position: Cell<Option<ReplayPosition>>,
    wake: Signal,
    is_running: Cell<bool>,
}

impl Writes {
    /// Sends an acknowledgement as soon as the log has committed what it has at a place.
    pub(crate) fn acknowledge_committed(self: &Rc<Self>, place: LogPlace, acknowledgement: Acknowledgement) {
        let commits = &self.commits;
        let is_first = {
            let mut waiting = commits.waiting.borrow_mut();
            waiting.push(acknowledgement);
            waiting.len() == 1
        };
        // What was applied before is acknowledged again when it is asked for again: its position is an earlier one.
        commits.position.set(commits.position.get().max(Some(place.position)));
        if !is_first {
            return;
        }
        commits.mark.set(place.mark);
        if commits.is_running.replace(true) {
            commits.wake.ring();
        } else {
            spawn(run(Rc::downgrade(self)));
        }
    }
}

/// Commits what waits, again and again, as long as the component lives.
async fn run(writes: Weak<Writes>) {
    let mut waiting = Vec::new();
    while let Some(this) = writes.upgrade() {
        let commits = &this.commits;
        commits.wake.wait_until(|| !commits.waiting.borrow().is_empty()).await;
        std::mem::swap(&mut waiting, &mut *commits.waiting.borrow_mut());
        let committed = commit(&this.context.shard, commits.mark.get());
        let position = commits
            .position
            .get()
            .filter(|_| acknowledges_by_sync(&this.context.shard));
        match (committed, position) {
            (Ok(()), Some(position)) => {
                let (shard, waiting) = (Rc::clone(&this.context.shard), std::mem::take(&mut waiting));
                spawn(async move {
                    let synced = durable(&shard, position).await;
                    waiting.into_iter().for_each(|whom| whom.tell(synced.clone()));
                });
            }
            (result, _) => waiting.drain(..).for_each(|whom| whom.tell(result.clone())),
        }
    }
}
