//! How a participant is asked, and when a repair ends before its time.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rpc::{Call, Peer, Rpc};
use runtime::Notify;
use tasks::JobControl;

use crate::error::{Refusal, RepairError};
use crate::message::{Malformed, decode_answer};
use crate::repairs::Repairs;

/// How long a request may take: a participant with little bandwidth makes it wait. That the participant is gone shows
/// by its connection.
const TIMEOUT: Duration = Duration::from_mins(2);
/// How often a request is made again before its participant counts as gone.
const RETRIES: u32 = 5;
/// The pause before the first repetition; each further one is twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Another replica of the range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Participant {
    /// Its node.
    pub peer: Peer,
    /// Which of the node's shards.
    pub shard: u32,
}

impl Participant {
    pub(crate) fn refused(&self, refusal: Refusal) -> RepairError {
        RepairError::Refused {
            host: self.peer.host_id,
            shard: self.shard,
            refusal,
        }
    }

    pub(crate) fn malformed(&self, malformed: Malformed) -> RepairError {
        RepairError::Malformed {
            host: self.peer.host_id,
            reason: malformed.0,
        }
    }

    /// The content of an answer.
    pub(crate) fn content<'a>(&self, answer: &'a [u8]) -> Result<&'a [u8], RepairError> {
        match decode_answer(answer) {
            Ok(Ok(content)) => Ok(content),
            Ok(Err(refusal)) => Err(self.refused(refusal)),
            Err(malformed) => Err(self.malformed(malformed)),
        }
    }
}

/// When a repair is to end before its time.
pub(crate) struct Stop {
    pub(crate) control: JobControl,
    /// The caller has given up, or a part of the repair has failed.
    is_over: Cell<bool>,
    /// Why the first part failed.
    pub(crate) failure: RefCell<Option<RepairError>>,
    changed: Notify,
}

impl Stop {
    pub(crate) fn new(control: JobControl) -> Rc<Self> {
        Rc::new(Self {
            control,
            is_over: Cell::new(false),
            failure: RefCell::default(),
            changed: Notify::new(),
        })
    }

    pub(crate) fn end(&self) {
        self.is_over.set(true);
        self.changed.notify_all();
    }

    /// Ends the repair with an error, unless it has one.
    pub(crate) fn fail(&self, error: RepairError) {
        self.failure.borrow_mut().get_or_insert(error);
        self.end();
    }

    pub(crate) fn check(&self) -> Result<(), RepairError> {
        if self.is_over.get() || self.control.is_aborted() {
            Err(RepairError::Aborted)
        } else {
            Ok(())
        }
    }

    /// The future's output, or the error that ends the repair.
    pub(crate) async fn or<T>(&self, future: impl Future<Output = T>) -> Result<T, RepairError> {
        let mut aborted = pin!(self.control.aborted());
        let mut over = pin!(self.changed.notified());
        let mut future = pin!(future);
        poll_fn(|context| {
            let is_changed = aborted.as_mut().poll(context).is_ready() || over.as_mut().poll(context).is_ready();
            if is_changed || self.check().is_err() {
                return Poll::Ready(Err(RepairError::Aborted));
            }
            future.as_mut().poll(context).map(Ok)
        })
        .await
    }
}

/// Asks participants, again where a request fails in passing.
pub(crate) struct Asking {
    pub(crate) rpc: Rc<Rpc>,
    pub(crate) repairs: Rc<Repairs>,
    pub(crate) stop: Rc<Stop>,
}

impl Asking {
    pub(crate) fn call(&self, participant: &Participant, verb: u16, body: &[u8]) -> Call {
        self.repairs.count(|metrics| metrics.sent_bytes += body.len() as u64);
        let Participant { peer, shard } = participant;
        self.rpc.call(peer, *shard, verb, body.to_vec(), TIMEOUT)
    }

    /// The answer to a request that was made.
    pub(crate) async fn answer(
        &self,
        participant: &Participant,
        (verb, body): (u16, &[u8]),
        first: Call,
    ) -> Result<Vec<u8>, RepairError> {
        let (mut call, mut pause) = (first, RETRY_PAUSE);
        for attempt in 0.. {
            match self.stop.or(call).await? {
                Ok(answer) => {
                    self.repairs
                        .count(|metrics| metrics.received_bytes += answer.len() as u64);
                    return Ok(answer);
                }
                Err(error) if attempt < RETRIES && error.is_passing() => {}
                Err(error) => {
                    return Err(RepairError::Unreachable {
                        host: participant.peer.host_id,
                        shard: participant.shard,
                        error,
                    });
                }
            }
            self.stop.or(runtime::sleep(pause)).await?;
            pause *= 2;
            call = self.call(participant, verb, body);
        }
        unreachable!("attempts are counted")
    }
}
