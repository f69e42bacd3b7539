//! One connection: a reader that executes, a writer that sends.
//!
//! The reader takes what the socket has, executes every whole frame in it, commits the log, and hands the answers to
//! the outbox; requests that must wait are tasks that hand in their answers when they have them. The writer sends
//! whatever the outbox holds with one write. Nothing that is not committed ever reaches the outbox.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use cql_protocol::{Extensions, FrameError, FrameHeader, Limits, Opcode, Splitter};
use query::QueryError;
use runtime::net::TcpStream;
use runtime::{Group, JoinHandle, Permit, Semaphore};

use crate::admission::Uninitialized;
use crate::clients::Client;
use crate::dispatch::{Batch, Taken};
use crate::handshake::{Started, handshake};
use crate::input::{Input, Unread};
use crate::outbox::{Outbox, write};
use crate::pending::Pending;
use crate::respond::{Reply, frame_error};
use crate::startup::TabletsRouting;
use crate::{ANSWER_BYTES_MAX, IN_FLIGHT_MAX, Server};

/// What a connection may decompress into without taking room.
const SCRATCH_BYTES_FREE: usize = 4 << 10;

/// Longer bodies are decompressed on a thread of the pool: a megabyte takes a millisecond and more.
const SHORT_BODY_BYTES: usize = 256 << 10;

/// How large the first answer of a waiting request is taken to be: of several rows, and of one.
pub(crate) const ROWS_BYTES_FIRST: usize = 1 << 20;
pub(crate) const ROW_BYTES_FIRST: usize = 16 << 10;

/// Answers of one socket read are handed to the outbox when they are so long.
const BATCH_BYTES_MAX: usize = 256 << 10;

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
    /// How large the next such answer is taken to be, as the ones before: of one row, of a page, of a SELECT without
    /// pages.
    pub(crate) row_estimate: Cell<usize>,
    pub(crate) page_estimate: Cell<usize>,
    pub(crate) unpaged_estimate: Cell<usize>,
    /// Room that the next request takes: it was waited for.
    pub(crate) granted: Cell<Option<Permit>>,
    /// Prepared conditional statements carry the mark.
    pub(crate) lwt_mark: bool,
    /// When answers have the location of the tablet.
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
}

/// Serves a connection to its end.
pub(crate) async fn run(
    server: &Rc<Server>,
    (mut stream, peer): (TcpStream, SocketAddr),
    uninitialized: Uninitialized,
) {
    // A connection of the maintenance socket has no such option, and sends at once.
    let _ = stream.set_nodelay(true);
    let client = server
        .options
        .clients
        .open(server.engine.coordinator.shard().id().0, peer);
    client.set_group(server.drivers_group);
    let mut splitter = Splitter::new(Limits {
        frame_bytes_max: server.options.frame_bytes_max,
        scratch_bytes_free: SCRATCH_BYTES_FREE,
        short_body_bytes: SHORT_BODY_BYTES,
        ..Limits::default()
    });
    let started = handshake(server, &mut stream, &mut splitter, &uninitialized, &client);
    if let Some(Some(started)) = server.until_drain(started).await {
        uninitialized.become_ready();
        serve(server, (stream, peer), splitter, started, &client).await;
    }
}

/// Serves a connection from READY to its end.
async fn serve(
    server: &Rc<Server>,
    (stream, peer): (TcpStream, SocketAddr),
    mut splitter: Splitter,
    started: Started,
    client: &Client,
) {
    let Started { version, agreed, input } = started;
    let outbox = Outbox::new(&server.unsent_room, peer, version, agreed.framing);
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
        row_estimate: Cell::new(ROW_BYTES_FIRST),
        page_estimate: Cell::new(ROWS_BYTES_FIRST),
        unpaged_estimate: Cell::new(ROWS_BYTES_FIRST),
        granted: Cell::new(None),
        lwt_mark: agreed.lwt_mark,
        tablets_routing: agreed.tablets_routing,
        takes_empty_pages: agreed.takes_empty_pages,
        rate_limit_error: agreed.rate_limit_error,
        is_drivers: Cell::new(true),
        warned_of_use: Cell::new(false),
        pending: Pending::default(),
    });
    server.note_connection(&connection);
    let mut is_read = !input.is_empty();
    let mut input = Input::new(input);
    let ended = loop {
        // A client that does not read its answers, or asks more than may wait, is not read from.
        if !outbox.is_free(0) || connection.in_flight.available() == 0 {
            let turn = async {
                outbox.has_room(0).await;
                drop(connection.in_flight.acquire(1).await);
            };
            if let Err(unread) = input.wait(&mut reader, turn).await {
                break Some(unread);
            }
            // More may have come than the splitter knows.
            is_read = true;
        }
        if outbox.is_closed() || server.draining.get() {
            break None;
        }
        if let Err(unread) = input.make_room(server, &mut splitter).await {
            break Some(unread);
        }
        // What followed STARTUP is read already.
        if !std::mem::take(&mut is_read) {
            if let Err(unread) = input.read(&mut reader, server, &splitter).await {
                break Some(unread);
            }
            // Others may have taken the room meanwhile.
            outbox.has_room(0).await;
            if outbox.is_closed() {
                break None;
            }
        }
        match connection.execute(&mut splitter, &mut input, (client, &writing)).await {
            Ok(consumed) => {
                let left = input.bytes().len() - consumed;
                // The frame is here, and has no room to be decompressed.
                is_read = splitter.wanted_scratch_bytes() > 0 && left >= splitter.wanted_bytes();
                input.consume(consumed, &mut splitter);
            }
            Err(error) => {
                let mut frame = Vec::new();
                frame_error(&mut frame, &error);
                outbox.push(&mut frame);
                break None;
            }
        }
    };
    if let Some(unread) = ended {
        connection.end_input(unread);
    }
    drop(input);
    // What was read is answered, if the client still takes it.
    drop(connection.in_flight.acquire(IN_FLIGHT_MAX).await);
    outbox.finish();
    writing.await;
}

impl Connection {
    /// Executes the whole frames of what was read: how many bytes they are.
    async fn execute(
        self: &Rc<Self>,
        splitter: &mut Splitter,
        input: &mut Input,
        (client, writing): (&Client, &JoinHandle<()>),
    ) -> Result<usize, FrameError> {
        let unsent = &self.server.unsent_room;
        let mut batch = Batch::of(unsent.spare());
        let (mut consumed, mut requests) = (0, 0);
        let end = loop {
            match splitter.next(input.bytes(), &mut consumed) {
                Ok(Some(frame)) => {
                    requests += 1;
                    let mut has_waited = false;
                    loop {
                        match self.frame(&frame, &mut batch) {
                            Taken::Done => break,
                            Taken::FirstOfUser => {
                                self.finish_batch(&mut batch);
                                self.is_drivers.set(false);
                                client.set_group(Group::STATEMENT);
                                writing.set_group(Group::STATEMENT);
                                runtime::continue_in(Group::STATEMENT).await;
                            }
                            Taken::NeedsRoom(bytes) => {
                                self.finish_batch(&mut batch);
                                let room = self.server.request_room.acquire(bytes).await;
                                self.granted.set(Some(room));
                                has_waited = true;
                            }
                        }
                    }
                    if has_waited {
                        // It was answered at once after all.
                        self.granted.set(None);
                    }
                    if self.in_flight.available() == 0 {
                        self.finish_batch(&mut batch);
                        drop(self.in_flight.acquire(1).await);
                    } else if batch.bytes() > BATCH_BYTES_MAX {
                        self.finish_batch(&mut batch);
                        self.outbox.has_room(0).await;
                    }
                }
                Ok(None) => match splitter.take_long_body() {
                    None => break Ok(consumed),
                    Some(body) => {
                        self.finish_batch(&mut batch);
                        splitter.put_long_body(input.decompress(body, consumed).await);
                    }
                },
                Err(error) if error.resumes => {
                    requests += 1;
                    self.finish_batch(&mut batch);
                    let mut frame = Vec::new();
                    frame_error(&mut frame, &error);
                    self.outbox.push(&mut frame);
                    // A client that sends nothing but long frames reads its refusals, too.
                    self.outbox.has_room(0).await;
                }
                Err(error) => break Err(error),
            }
        };
        self.finish_batch(&mut batch);
        unsent.give_back(batch.out);
        self.server.requests.set(self.server.requests.get() + requests);
        client.add_requests(requests);
        end
    }

    /// The client is not read any more.
    fn end_input(&self, unread: Unread) {
        let (bytes, message) = match unread {
            // A node that drains has ended the input itself, and its client waits for answers.
            Unread::Ended if self.outbox.ends_input() => return,
            Unread::Ended => return self.outbox.abandon(),
            Unread::NoRoom(bytes) => (bytes, "the node has no room for it: other requests of its size arrive"),
            Unread::Late(bytes) => (bytes, "it did not arrive in time"),
        };
        let server = &self.server;
        if server.unread.admits() {
            log::warn!(
                "the connection of {} is closed in the middle of a request that takes {bytes} bytes: {message}",
                self.peer
            );
        }
        let mut out = Vec::new();
        let reply = Reply::to(&FrameHeader {
            version: self.outbox.version(),
            flags: 0,
            stream: 0,
            opcode: Opcode::Options,
            body_bytes: 0,
        });
        let message = format!("The connection ends in the middle of a request that takes {bytes} bytes: {message}");
        reply.error(&mut out, &QueryError::Overloaded(message));
        self.outbox.push(&mut out);
    }
}
