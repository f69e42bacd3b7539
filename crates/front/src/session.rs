//! A client's connection after its handshake: what it may have in flight, its memory, and when it is read.
//!
//! A front door embeds a [`Session`] in its connection and calls its methods. The reader task asks [`Session::read`]
//! for more input, executes what is whole, and hands answers to the outbox; a request that must wait takes a permit and
//! memory first ([`Session::try_begin`], [`Session::spawn`]). If there is none, the reader waits for it
//! ([`Session::wait_for_memory`]) and takes the request once more: a waiting request is in the read buffer, and the
//! connection is not read.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use runtime::net::{ReadHalf, WriteHalf};
use runtime::{Group, JoinHandle, Permit, Semaphore};

use crate::Front;
use crate::client_memory::FIRST_REQUEST_BYTES_MAX;
use crate::clients::Client;
use crate::input::{Framer, Input, Unread};
use crate::outbox::{self, Encoder, Outbox};
use crate::principal::Principal;
use crate::tls::SharedTls;

/// How long a client may take for its part of a handshake, all its pauses together. Twice what drivers allow us for
/// ours.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// Requests of one connection that may wait for disk or other shards.
pub const IN_FLIGHT_MAX: usize = 1024;
/// Bytes of answers that may wait for a client to read them.
pub const OUTBOX_BYTES_MAX: usize = 4 << 20;
/// Bytes that the answers of a connection's waiting requests may take, by estimate.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;

/// What a request that runs has besides its bytes: a task.
pub const TASK_BYTES: usize = 4 << 10;
/// What a request that other replicas work on has besides its bytes: an entry of what is in flight.
pub const PENDING_BYTES: usize = 512;
/// A shorter request takes less than a slice to be decoded and bound.
pub const LONG_REQUEST_BYTES: usize = 8 << 10;
/// What a suspended task is charged for its stack.
const STACK_BYTES: usize = 32 << 10;

/// What a long request of so many bytes takes while a task decodes and executes it: the request, a copy of it or its
/// values, and a stack.
#[must_use]
pub const fn long_request_bytes(bytes: usize) -> usize {
    2 * bytes + TASK_BYTES + STACK_BYTES
}

/// See the module.
pub struct Session {
    /// What all sessions of the shard share.
    pub front: Rc<Front>,
    /// The client's address; that of an operator at the maintenance socket is 0.0.0.0.
    pub peer: SocketAddr,
    /// The user or role that it acts for.
    pub principal: Principal,
    /// Answers on their way.
    pub outbox: Rc<Outbox>,
    in_flight: Semaphore,
    /// Bytes that the answers of waiting requests may take.
    pub(crate) answers: Semaphore,
    /// Memory that the next request takes: it was waited for.
    granted: Cell<Option<Permit>>,
    /// It has asked nothing so far but what drivers ask to know the cluster, and its tasks run in the group for that.
    is_drivers: Cell<bool>,
}

/// The task that sends a session's answers.
pub struct Writer(JoinHandle<()>);

impl Session {
    /// Begins a session, in the drivers' group, and the task that sends its answers.
    pub fn begin(
        front: &Rc<Front>,
        peer: SocketAddr,
        principal: Principal,
        (writer, encoder): (WriteHalf, impl Encoder),
    ) -> (Self, Writer) {
        Self::begin_secured(front, peer, principal, (writer, encoder, None))
    }

    /// As [`Session::begin`], of a connection that may have TLS.
    pub fn begin_secured(
        front: &Rc<Front>,
        peer: SocketAddr,
        principal: Principal,
        (writer, encoder, tls): (WriteHalf, impl Encoder, Option<SharedTls>),
    ) -> (Self, Writer) {
        let outbox = Outbox::new(&front.memory.unsent, peer);
        let writing = runtime::spawn(outbox::write(outbox.clone(), writer, (encoder, tls)));
        let session = Self {
            front: front.clone(),
            peer,
            principal,
            outbox,
            in_flight: Semaphore::new(IN_FLIGHT_MAX),
            answers: Semaphore::new(ANSWER_BYTES_MAX),
            granted: Cell::new(None),
            is_drivers: Cell::new(true),
        };
        (session, Writer(writing))
    }

    /// Waits until the session may have more requests and reads more of its input; with `has_input` it reads only what
    /// comes while it waits. False: the session ends, because its client is gone or the node drains.
    ///
    /// # Errors
    /// When the connection is not read further.
    pub async fn read(
        &self,
        input: &mut Input,
        reader: &mut ReadHalf,
        framer: &mut impl Framer,
        mut has_input: bool,
    ) -> Result<bool, Unread> {
        // A client that does not read its answers, or asks more than may wait, is not read from.
        if !self.outbox.is_free(0) || self.is_full() {
            let turn = async {
                self.outbox.until_free(0).await;
                self.turn().await;
            };
            input.wait(reader, turn).await?;
            // More may have come than the framer knows.
            has_input = true;
        }
        if self.outbox.is_closed() || self.front.is_draining() {
            return Ok(false);
        }
        input.reserve(&self.front.memory, framer).await?;
        if has_input {
            return Ok(true);
        }
        input.read(reader, &self.front.memory, framer).await?;
        // Others may have taken the memory in the meantime.
        self.outbox.until_free(0).await;
        Ok(!self.outbox.is_closed())
    }

    /// Waits for `turn`, and reads a little ahead to see whether the client ends the connection.
    ///
    /// # Errors
    /// When it does.
    pub async fn wait(
        &self,
        input: &mut Input,
        reader: &mut ReadHalf,
        turn: impl Future<Output = ()>,
    ) -> Result<(), Unread> {
        input.wait(reader, turn).await
    }

    /// The client is not read any more. Returns the error that it receives, if its request found no memory.
    pub fn end_input(&self, unread: Unread) -> Option<String> {
        let (bytes, message) = match unread {
            // A node that drains has ended the input itself, and its client waits for answers.
            Unread::Ended if self.outbox.ends_input() => return None,
            Unread::Ended => {
                self.outbox.abandon();
                return None;
            }
            Unread::NoMemory(bytes) => (bytes, "the node has no room for it: other requests of its size arrive"),
            Unread::Late(bytes) => (bytes, "it did not arrive in time"),
        };
        if self.front.unread.admits() {
            log::warn!(
                "the connection of {} is closed in the middle of a request that takes {bytes} bytes: {message}",
                self.peer
            );
        }
        Some(format!(
            "The connection ends in the middle of a request that takes {bytes} bytes: {message}"
        ))
    }

    /// Ends the session: what was read is answered, if the client still takes it.
    pub async fn end(&self, writer: Writer) {
        drop(self.in_flight.acquire(IN_FLIGHT_MAX).await);
        self.outbox.finish();
        writer.0.await;
    }

    /// Whether as many requests wait as may.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.in_flight.available() == 0
    }

    /// Waits until one request more may wait.
    pub async fn turn(&self) {
        drop(self.in_flight.acquire(1).await);
    }

    /// Counts a request as in flight until the permit is dropped; None: as many wait as may.
    #[inline]
    pub fn try_in_flight(&self) -> Option<Permit> {
        self.in_flight.try_acquire(1)
    }

    /// Memory for a request of so many bytes: what it waited for, or what is free.
    #[inline]
    pub fn try_reserve(&self, bytes: usize) -> Option<Permit> {
        let granted = self.granted.take();
        granted
            .or_else(|| self.front.memory.requests.try_acquire(bytes))
            .or_else(|| self.reserve_first(bytes))
    }

    /// Memory for the only request of this connection where others have taken the usual memory.
    #[cold]
    fn reserve_first(&self, bytes: usize) -> Option<Permit> {
        let is_only = self.in_flight.available() == IN_FLIGHT_MAX && bytes <= FIRST_REQUEST_BYTES_MAX;
        is_only
            .then(|| self.front.memory.first_requests.try_acquire(bytes))
            .flatten()
    }

    /// Counts a request as in flight, with memory for so many bytes; both until the permits are dropped. None: it has
    /// to wait for one of them.
    #[inline]
    pub fn try_begin(&self, bytes: usize) -> Option<(Permit, Permit)> {
        Some((self.try_in_flight()?, self.try_reserve(bytes)?))
    }

    /// Waits in line for memory, which the next request then takes.
    pub async fn wait_for_memory(&self, bytes: usize) {
        self.granted.set(Some(self.front.memory.requests.acquire(bytes).await));
    }

    /// Gives memory back that was waited for and not taken.
    pub fn return_memory(&self) {
        self.granted.set(None);
    }

    /// Runs a request as a preemptible task, which holds its permits to the end.
    pub fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        memory: Option<Permit>,
        work: impl FnOnce((Option<Permit>, Option<Permit>)) -> F,
    ) {
        let is_long = memory
            .as_ref()
            .is_some_and(|memory| memory.units() >= LONG_REQUEST_BYTES);
        let work = work((self.try_in_flight(), memory));
        if is_long {
            drop(runtime::spawn(runtime::preemptible_long(work)));
        } else {
            drop(runtime::spawn(runtime::preemptible(work)));
        }
    }

    /// Whether the session has asked nothing so far but what drivers ask to know the cluster.
    #[inline]
    #[must_use]
    pub fn is_drivers(&self) -> bool {
        self.is_drivers.get()
    }

    /// The session has its first request of a user: its reader, which calls this, and its writer move to the group of
    /// statements.
    pub async fn leave_drivers_group(&self, client: &Client, writer: &Writer) {
        self.is_drivers.set(false);
        client.set_group(Group::STATEMENT);
        writer.0.set_group(Group::STATEMENT);
        runtime::continue_in(Group::STATEMENT).await;
    }
}
