//! One connection: a reader that executes, a writer that sends.
//!
//! The reader takes what the socket has, executes every whole frame in it, commits the log, and hands the answers to the
//! outbox; requests that must wait are tasks that hand in their answers when they have them. The writer sends whatever
//! the outbox holds with one write. Nothing that is not committed ever reaches the outbox.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use cql_protocol::{ClusterEvent, Extensions, Framing, Limits, ProtocolVersion, Splitter, encode_wire, write_event};
use runtime::net::{TcpStream, WriteHalf};
use runtime::{Group, Notify, Semaphore};
use stdx::probe;

use crate::admission::Uninitialized;
use crate::clients::Client;
use crate::dispatch::{Batch, Taken};
use crate::handshake::{Started, handshake};
use crate::pending::Pending;
use crate::respond::frame_error;
use crate::startup::TabletsRouting;
use crate::{ANSWER_BYTES_MAX, IN_FLIGHT_MAX, OUTBOX_BYTES_MAX, Server};

/// A read buffer begins with this size and returns to it.
const INPUT_BYTES: usize = 16 << 10;

/// How large the first answer of a waiting request is taken to be.
const ANSWER_BYTES_FIRST: usize = 1 << 20;

/// What a connection agreed on and has set.
pub(crate) struct Connection {
    pub(crate) server: Rc<Server>,
    /// The client's address; that of an operator at the maintenance socket is 0.0.0.0.
    pub(crate) peer: SocketAddr,
    pub(crate) outbox: Rc<Outbox>,
    pub(crate) keyspace: RefCell<Option<Rc<str>>>,
    pub(crate) extensions: Extensions,
    pub(crate) in_flight: Semaphore,
    /// Bytes that the answers of waiting requests may come to.
    pub(crate) answers: Semaphore,
    /// How large the next such answer is taken to be: as the ones before.
    pub(crate) answer_estimate: Cell<usize>,
    /// Prepared conditional statements carry the mark.
    pub(crate) lwt_mark: bool,
    /// When answers carry where the tablet stands.
    pub(crate) tablets_routing: TabletsRouting,
    /// The client knows the error of a partition's limit.
    pub(crate) rate_limit_error: bool,
    /// The client asks for the next page after an empty one.
    pub(crate) takes_empty_pages: bool,
    /// It has asked nothing so far but what drivers ask to know the cluster, and its tasks run in the group for that.
    pub(crate) is_drivers: Cell<bool>,
    /// The client was warned that it prepares statements which depend on its USE.
    pub(crate) warned_of_use: Cell<bool>,
    /// Requests that wait for other replicas.
    pub(crate) pending: Pending,
    /// An answer in the making; kept for its memory.
    pub(crate) answer: RefCell<Vec<u8>>,
}

/// Answers on their way to a client.
pub(crate) struct Outbox {
    frames: RefCell<Vec<u8>>,
    version: Cell<ProtocolVersion>,
    framing: Cell<Framing>,
    filled: Notify,
    drained: Notify,
    closed: Cell<bool>,
    /// The client ended the connection: it waits for no answers.
    client_gone: Cell<bool>,
    gone: Notify,
    /// The reader has ended: the writer ends when everything is sent.
    finishing: Cell<bool>,
    /// No further requests are to be read: the writer tells the socket, which wakes the reader.
    ends_input: Cell<bool>,
}

impl Outbox {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            frames: RefCell::default(),
            version: Cell::new(ProtocolVersion::HIGHEST),
            framing: Cell::new(Framing::Plain),
            filled: Notify::new(),
            drained: Notify::new(),
            closed: Cell::new(false),
            client_gone: Cell::new(false),
            gone: Notify::new(),
            finishing: Cell::new(false),
            ends_input: Cell::new(false),
        })
    }

    /// Hands over whole answer frames; `frames` is empty afterwards.
    #[inline]
    pub(crate) fn push(&self, frames: &mut Vec<u8>) {
        if frames.is_empty() {
            return;
        }
        probe::step(|| format!("connection: {} bytes of answers go to the writer", frames.len()));
        let mut waiting = self.frames.borrow_mut();
        if waiting.is_empty() {
            std::mem::swap(&mut *waiting, frames);
        } else {
            waiting.extend_from_slice(frames);
        }
        frames.clear();
        self.filled.notify_one();
    }

    pub(crate) fn event(&self, event: &ClusterEvent<'_>) {
        let mut frame = Vec::new();
        write_event(&mut frame, self.version.get(), event);
        self.push(&mut frame);
    }

    /// What waits to be sent.
    #[cfg(test)]
    pub(crate) fn take(&self) -> Vec<u8> {
        self.frames.take()
    }

    /// Waits until the client has read enough for more answers, or is gone.
    pub(crate) async fn has_room(&self) {
        while self.frames.borrow().len() > OUTBOX_BYTES_MAX && !self.closed.get() {
            self.drained.notified().await;
        }
    }

    /// The node drains: a reader that waits for requests waits no more.
    pub(crate) fn end_input(&self) {
        self.ends_input.set(true);
        self.filled.notify_all();
    }

    /// The result of a read that may take long; None, and the work is dropped, when the client is gone before.
    pub(crate) async fn unless_gone<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut gone = pin!(self.gone.notified());
        if self.client_gone.get() {
            return None;
        }
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => gone.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// The client is gone.
    fn abandon(&self) {
        self.client_gone.set(true);
        self.gone.notify_all();
    }

    fn close(&self) {
        self.closed.set(true);
        self.abandon();
        self.filled.notify_all();
        self.drained.notify_all();
    }
}

/// Sends what the outbox holds until the connection ends.
async fn write(outbox: Rc<Outbox>, mut half: WriteHalf) {
    let (mut buffer, mut scratch) = (Vec::new(), Vec::new());
    loop {
        while outbox.frames.borrow().is_empty() {
            if outbox.closed.get() || outbox.finishing.get() {
                let _ = half.shutdown(std::net::Shutdown::Both);
                return;
            }
            if outbox.ends_input.take() {
                let _ = half.shutdown(std::net::Shutdown::Read);
            }
            outbox.filled.notified().await;
        }
        std::mem::swap(&mut *outbox.frames.borrow_mut(), &mut buffer);
        encode_wire(outbox.framing.get(), &mut buffer, &mut scratch);
        let (result, sent) = half.write_all(buffer).await;
        buffer = sent;
        buffer.clear();
        if buffer.capacity() > OUTBOX_BYTES_MAX {
            buffer = Vec::new();
        }
        outbox.drained.notify_all();
        if result.is_err() {
            outbox.close();
            return;
        }
    }
}

/// Serves a connection to its end.
pub(crate) async fn run(
    server: &Rc<Server>,
    (mut stream, peer): (TcpStream, SocketAddr),
    uninitialized: Uninitialized,
) {
    // A connection of the maintenance socket has no such option, and sends at once.
    let _ = stream.set_nodelay(true);
    let client = server.options.clients.open(server.engine.shard.id().0, peer);
    client.set_group(server.drivers_group);
    let mut splitter = Splitter::new(Limits {
        frame_bytes_max: server.options.frame_bytes_max,
        ..Limits::default()
    });
    let started = handshake(server, &mut stream, &mut splitter, &uninitialized, &client);
    if let Some(Some(started)) = server.until_drain(started).await {
        uninitialized.become_ready();
        serve(server, (stream, peer), splitter, started, &client).await;
    }
}

/// The same from READY on.
async fn serve(
    server: &Rc<Server>,
    (stream, peer): (TcpStream, SocketAddr),
    mut splitter: Splitter,
    started: Started,
    client: &Client,
) {
    let Started { version, agreed, input } = started;
    let outbox = Outbox::new();
    outbox.version.set(version);
    outbox.framing.set(agreed.framing);
    splitter.start(version, agreed.framing);
    let (mut reader, writer) = stream.into_split();
    let writing = runtime::spawn(write(outbox.clone(), writer));
    let connection = Rc::new(Connection {
        server: server.clone(),
        peer,
        outbox: outbox.clone(),
        keyspace: RefCell::default(),
        extensions: Extensions {
            result_metadata_id: agreed.result_metadata_id,
            tablet_version_block: agreed.tablets_routing == TabletsRouting::V2,
        },
        in_flight: Semaphore::new(IN_FLIGHT_MAX),
        answers: Semaphore::new(ANSWER_BYTES_MAX),
        answer_estimate: Cell::new(ANSWER_BYTES_FIRST),
        lwt_mark: agreed.lwt_mark,
        tablets_routing: agreed.tablets_routing,
        takes_empty_pages: agreed.takes_empty_pages,
        rate_limit_error: agreed.rate_limit_error,
        is_drivers: Cell::new(true),
        warned_of_use: Cell::new(false),
        pending: Pending::default(),
        answer: RefCell::default(),
    });
    server.note_connection(&connection);
    let mut is_read = !input.is_empty();
    let mut input = with_room(input);
    let mut batch = Batch::default();
    loop {
        // A client that does not read its answers, or asks more than may wait, is not read from.
        outbox.has_room().await;
        if connection.in_flight.available() == 0 {
            drop(connection.in_flight.acquire(1).await);
        }
        if outbox.closed.get() || server.draining.get() {
            break;
        }
        // What came behind STARTUP is read already.
        if !std::mem::take(&mut is_read) {
            let wanted = splitter.wanted_bytes().saturating_sub(input.len()).max(1);
            if input.capacity() - input.len() < wanted.min(INPUT_BYTES) || input.capacity() - input.len() == 0 {
                // Room grows with what has arrived, not with what a header promises.
                input.reserve(wanted.min(input.len().max(INPUT_BYTES)));
            }
            let (result, filled) = reader.read(input).await;
            input = filled;
            if !matches!(result, Ok(n) if n > 0) {
                // A node that drains has ended the input itself, and its client waits for answers.
                if !outbox.ends_input.get() {
                    outbox.abandon();
                }
                break;
            }
            if outbox.closed.get() {
                break;
            }
        }
        let (mut consumed, mut requests) = (0, 0);
        let end = loop {
            match splitter.next(&input, &mut consumed) {
                Ok(Some(frame)) => {
                    requests += 1;
                    if connection.frame(&frame, &mut batch) == Taken::FirstOfUser {
                        connection.finish_batch(&mut batch);
                        connection.is_drivers.set(false);
                        client.set_group(Group::STATEMENT);
                        writing.set_group(Group::STATEMENT);
                        runtime::continue_in(Group::STATEMENT).await;
                        connection.frame(&frame, &mut batch);
                    }
                    if connection.in_flight.available() == 0 {
                        connection.finish_batch(&mut batch);
                        drop(connection.in_flight.acquire(1).await);
                    } else if batch.bytes() > OUTBOX_BYTES_MAX {
                        connection.finish_batch(&mut batch);
                        outbox.has_room().await;
                    }
                }
                Ok(None) => break None,
                Err(error) if error.resumes => {
                    requests += 1;
                    connection.finish_batch(&mut batch);
                    let mut frame = Vec::new();
                    frame_error(&mut frame, &error);
                    outbox.push(&mut frame);
                }
                Err(e) => break Some(e),
            }
        };
        connection.finish_batch(&mut batch);
        server.requests.set(server.requests.get() + requests);
        client.add_requests(requests);
        if let Some(error) = end {
            let mut frame = Vec::new();
            frame_error(&mut frame, &error);
            outbox.push(&mut frame);
            break;
        }
        input.drain(..consumed);
        if input.is_empty() && input.capacity() > INPUT_BYTES * 4 {
            input = Vec::with_capacity(INPUT_BYTES);
        }
    }
    // What was read is answered, if the client still takes it.
    drop(connection.in_flight.acquire(IN_FLIGHT_MAX).await);
    outbox.finishing.set(true);
    outbox.filled.notify_all();
    writing.await;
}

/// A read buffer that begins with these bytes.
fn with_room(bytes: Vec<u8>) -> Vec<u8> {
    let mut input = Vec::with_capacity(INPUT_BYTES.max(bytes.len() + 1));
    input.extend_from_slice(&bytes);
    input
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use runtime::sim::Simulation;

    use super::*;

    #[test]
    fn a_long_read_ends_when_its_client_is_gone_and_not_before() {
        let mut sim = Simulation::new(1);
        let node = sim.add_node(1);
        sim.start(node, |_| {
            Box::pin(async {
                let outbox = Outbox::new();
                let slow = || async {
                    runtime::sleep(Duration::from_secs(60)).await;
                    "rows"
                };
                assert_eq!(outbox.unless_gone(slow()).await, Some("rows"));
                let leaving = outbox.clone();
                drop(runtime::spawn(async move {
                    runtime::sleep(Duration::from_secs(1)).await;
                    leaving.abandon();
                }));
                let began = runtime::now();
                assert_eq!(outbox.unless_gone(slow()).await, None, "somebody waits for the rows");
                assert!(began.elapsed() < Duration::from_secs(2), "it was read on for nobody");
                assert_eq!(outbox.unless_gone(slow()).await, None, "it was begun for nobody");
            })
        });
        assert!(sim.run_until_ended(node, Duration::from_secs(300)), "it did not end");
    }
}
