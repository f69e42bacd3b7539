//! The handle of a running member: what the node asks of it. It lives on shard 0 and puts events into the inbox of the
//! member task (`driver.rs`).

use crate::answer::Answer;
use crate::applying::Applying;
use crate::config::{COMMAND_BYTES_MAX, Options, Part, Start, StateMachine, Transport};
use crate::driver;
use crate::error::{MembershipError, ProposeError, ReadError, StartError};
use crate::group::{is_reached, voters_after};
use crate::members::{Change, VOTERS_MAX};
use crate::status::Status;
use runtime::{Instant, Notify};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Messages that wait for the member task; the network may lose the others.
const INBOX_MESSAGES_MAX: usize = 4096;
/// Bytes of those.
const INBOX_BYTES_MAX: usize = 64 << 20;
/// Proposals and reads that may wait for their outcome; others are refused.
const WAITING_MAX: usize = 1024;
/// A running member. Clones are the same member.
#[derive(Clone)]
pub struct Consensus(Rc<Shared>);

/// What the handle and the two tasks of a member share.
pub(crate) struct Shared {
    pub(crate) inbox: RefCell<VecDeque<Event>>,
    pub(crate) messages: Cell<usize>,
    pub(crate) message_bytes: Cell<usize>,
    pub(crate) waiting: Cell<usize>,
    pub(crate) wake: Notify,
    pub(crate) applying: Rc<Applying>,
    pub(crate) status: RefCell<Status>,
    /// Notified of another configuration or leader.
    pub(crate) configured: Notify,
    pub(crate) is_stopping: Cell<bool>,
    pub(crate) ended: Notify,
    pub(crate) has_ended: Cell<bool>,
}

impl Shared {
    /// Of a member that has not begun.
    pub(crate) fn new() -> Self {
        Self {
            inbox: RefCell::default(),
            messages: Cell::new(0),
            message_bytes: Cell::new(0),
            waiting: Cell::new(0),
            wake: Notify::new(),
            applying: Rc::new(Applying::new()),
            status: RefCell::default(),
            configured: Notify::new(),
            is_stopping: Cell::new(false),
            ended: Notify::new(),
            has_ended: Cell::new(false),
        }
    }
}

/// What the handle asks of the member task.
pub(crate) enum Event {
    Message {
        from: u64,
        bytes: Vec<u8>,
    },
    Propose {
        command: Vec<u8>,
        deadline: Instant,
        answer: Answer<Result<u64, ProposeError>>,
    },
    Change(Vec<Change>),
    HandOver(Vec<u64>),
    Part(Part),
    Read {
        deadline: Instant,
        answer: Answer<Result<u64, ReadError>>,
    },
}

impl Consensus {
    /// Starts a member: from its file, or else as `start` says. Blocks while it reads its file; then its tasks run on
    /// this shard.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(
        options: Options,
        start: Start,
        transport: Rc<dyn Transport>,
        machine: Rc<dyn StateMachine>,
    ) -> Result<Self, StartError> {
        driver::start(options, start, transport, machine).await.map(Self)
    }

    /// Takes a message that another member's transport sent. Beyond a limit messages are dropped, as a network may.
    pub fn receive(&self, from: u64, message: Vec<u8>) {
        let (messages, bytes) = (self.0.messages.get(), self.0.message_bytes.get());
        if messages < INBOX_MESSAGES_MAX && (messages == 0 || bytes + message.len() <= INBOX_BYTES_MAX) {
            self.0.messages.set(messages + 1);
            self.0.message_bytes.set(bytes + message.len());
            self.push(Event::Message { from, bytes: message });
        }
    }

    /// Proposes a command, from any member. When it returns an index, the command is committed there and applied on
    /// this node.
    ///
    /// # Errors
    /// [`ProposeError`], which says whether the command may have happened.
    pub async fn propose(&self, command: Vec<u8>, timeout: Duration) -> Result<u64, ProposeError> {
        if command.len() > COMMAND_BYTES_MAX {
            return Err(ProposeError::TooLarge {
                bytes: command.len(),
                bytes_max: COMMAND_BYTES_MAX,
            });
        }
        if self.0.is_stopping.get() {
            return Err(ProposeError::Shutdown);
        }
        if self.0.waiting.get() >= WAITING_MAX {
            return Err(ProposeError::Overloaded);
        }
        let answer = Answer::new();
        self.0.waiting.set(self.0.waiting.get() + 1);
        self.push(Event::Propose {
            command,
            deadline: runtime::now() + timeout,
            answer: answer.clone(),
        });
        answer.wait().await
    }

    /// Waits until this node has applied everything that was committed anywhere before the call; the index it has
    /// applied then.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn read_barrier(&self, timeout: Duration) -> Result<u64, ReadError> {
        if self.0.is_stopping.get() {
            return Err(ReadError::Shutdown);
        }
        if self.0.waiting.get() >= WAITING_MAX {
            return Err(ReadError::Overloaded);
        }
        let answer = Answer::new();
        self.0.waiting.set(self.0.waiting.get() + 1);
        self.push(Event::Read {
            deadline: runtime::now() + timeout,
            answer: answer.clone(),
        });
        answer.wait().await
    }

    /// Makes a node a member without a vote, unless it is a member.
    ///
    /// # Errors
    /// As [`Consensus::change_members`].
    pub async fn add_learner(&self, id: u64, timeout: Duration) -> Result<(), MembershipError> {
        let is_member = {
            let status = self.status();
            status.voters.contains(&id) && !status.is_joint
        };
        if is_member {
            return Ok(());
        }
        self.change_members(vec![Change::Learner(id)], timeout).await
    }

    /// Gives a member a vote. It should have caught up (see [`Status::lag`]): until it has, its vote only delays.
    ///
    /// # Errors
    /// As [`Consensus::change_members`].
    pub async fn promote(&self, id: u64, timeout: Duration) -> Result<(), MembershipError> {
        self.change_members(vec![Change::Voter(id)], timeout).await
    }

    /// Removes a member.
    ///
    /// # Errors
    /// As [`Consensus::change_members`].
    pub async fn remove(&self, id: u64, timeout: Duration) -> Result<(), MembershipError> {
        self.change_members(vec![Change::Remove(id)], timeout).await
    }

    /// Changes several members at once, through a joint configuration: no vote is lost between. Call it on a member
    /// that votes: the leader takes such requests from no other. Returns when this node's configuration is as
    /// requested. One call at a time on a node; calls on several nodes are taken one after the other.
    ///
    /// # Errors
    /// [`MembershipError`].
    pub async fn change_members(&self, changes: Vec<Change>, timeout: Duration) -> Result<(), MembershipError> {
        let mut seen = BTreeSet::new();
        if let Some(invalid) = changes
            .iter()
            .map(|change| change.id())
            .find(|id| *id == 0 || !seen.insert(*id))
        {
            return Err(MembershipError::InvalidId(invalid));
        }
        let deadline = runtime::now() + timeout;
        loop {
            let configured = self.0.configured.notified();
            let conf = self.0.status.borrow().conf();
            if is_reached(&conf, &changes) {
                return Ok(());
            }
            match voters_after(&conf, &changes).len() {
                0 if !conf.voters.is_empty() => return Err(MembershipError::NoVoter),
                count if count > VOTERS_MAX => return Err(MembershipError::TooManyVoters),
                _ => {}
            }
            if self.0.is_stopping.get() {
                return Err(MembershipError::Shutdown);
            }
            let left = deadline - runtime::now();
            if left.is_zero() {
                return Err(MembershipError::Timeout);
            }
            self.push(Event::Change(changes.clone()));
            // Woken by every change of the configuration; now and then anyway, for a proposal may be lost.
            let _ = runtime::timeout(left.min(Duration::from_secs(1)), configured).await;
        }
    }

    /// If this member leads, hands the leadership over to one of these members: one that votes, preferably the one that
    /// has most of the log. True when another member leads. During the transfer, proposals wait on all members. The
    /// releases of the candidates must support this.
    pub async fn hand_over(&self, candidates: Vec<u64>, timeout: Duration) -> bool {
        let deadline = runtime::now() + timeout;
        self.push(Event::HandOver(candidates));
        loop {
            let configured = self.0.configured.notified();
            let (id, leader) = {
                let status = self.0.status.borrow();
                (status.id, status.leader)
            };
            if leader.is_some_and(|leader| leader != id) {
                return true;
            }
            let left = deadline - runtime::now();
            if left.is_zero() || self.0.is_stopping.get() {
                return false;
            }
            let _ = runtime::timeout(left, configured).await;
        }
    }

    /// Lets the member take this part from now on.
    pub fn take_part(&self, part: Part) {
        self.push(Event::Part(part));
    }

    /// The state of this member.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.status.borrow().clone()
    }

    /// Stops the member: waiting calls fail with an error that says so, and the tasks end when the machine has finished
    /// what it is applying.
    pub async fn stop(&self) {
        self.0.is_stopping.set(true);
        self.0.wake.notify_all();
        self.0.configured.notify_all();
        loop {
            let ended = self.0.ended.notified();
            if self.0.has_ended.get() {
                return;
            }
            ended.await;
        }
    }

    fn push(&self, event: Event) {
        self.0.inbox.borrow_mut().push_back(event);
        self.0.wake.notify_all();
    }
}
