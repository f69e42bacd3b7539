//! One connection: a reader that executes, a writer that sends.
//!
//! The reader takes what the socket has, executes every whole frame in it, commits the log, and hands the answers to
//! the outbox; requests that must wait are tasks that hand in their answers when they have them. The writer sends
//! whatever the outbox holds with one write. Nothing that is not committed ever reaches the outbox.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use cql_protocol::{
    Extensions, FRAME_HEADER_BYTES, FrameError, FrameHeader, Framing, Limits, Opcode, ProtocolVersion, Splitter,
    encode_wire,
};
use front::{Accepted, AnswerSize, Client, Encoder, Framer, Input, Principal, RunningRequest, Session, Writer};
use query::QueryError;

use crate::Server;
use crate::dispatch::{Batch, FrameOutcome};
use crate::handshake::{Started, handshake};
use crate::pending::Pending;
use crate::respond::{Reply, frame_error};
use crate::startup::{StartupOptions, TabletsRouting};

/// What a connection may decompress into without reserving memory.
const SCRATCH_BYTES_FREE: usize = 4 << 10;

/// Longer bodies are decompressed on a thread of the pool: a megabyte takes a millisecond and more.
const SHORT_BODY_BYTES: usize = 256 << 10;

/// Answers of one socket read are handed to the outbox when they are so long.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// After so many bytes of requests a connection asks whether others wait: some ten EXECUTEs, or one long QUERY. To ask
/// after each costs more than the smallest requests have to spare.
const UNASKED_BYTES_MAX: usize = 1 << 10;

/// What a connection agreed on and has set.
pub(crate) struct Connection {
    pub(crate) session: Session,
    pub(crate) server: Rc<Server>,
    version: ProtocolVersion,
    pub(crate) keyspace: RefCell<Option<Rc<str>>>,
    pub(crate) extensions: Extensions,
    /// How large the next answer of a waiting request is taken to be: of one row, of a page, of a SELECT without pages.
    pub(crate) row_size: AnswerSize,
    pub(crate) page_size: AnswerSize,
    pub(crate) unpaged_size: AnswerSize,
    /// Prepared conditional statements carry the mark.
    pub(crate) lwt_mark: bool,
    /// When answers have the location of the tablet.
    pub(crate) tablets_routing: TabletsRouting,
    /// The client knows the error of a partition's limit.
    pub(crate) rate_limit_error: bool,
    /// The client asks for the next page after an empty one.
    pub(crate) takes_empty_pages: bool,
    /// The client was warned that it prepares statements which depend on its USE.
    pub(crate) warned_of_use: Cell<bool>,
    /// Requests that wait for other replicas, and those that tasks work on.
    pub(crate) pending: Pending,
}

/// The splitter of a connection, as its input asks it.
pub(crate) struct Frames(pub(crate) Splitter);

impl Framer for Frames {
    fn wanted_bytes(&self) -> usize {
        self.0.wanted_bytes()
    }

    fn wanted_scratch_bytes(&self) -> usize {
        self.0.wanted_scratch_bytes()
    }

    fn allow_scratch(&mut self, bytes: usize) {
        self.0.allow_scratch(bytes);
    }

    fn release_scratch(&mut self) {
        self.0.release_scratch();
    }

    fn has_scratch(&self) -> bool {
        self.0.has_scratch()
    }
}

/// How the answers of a connection are encoded.
#[derive(Clone, Copy)]
struct WireEncoder(Framing);

impl Encoder for WireEncoder {
    fn is_plain(self) -> bool {
        self.0 == Framing::Plain
    }

    fn encode(self, answers: &mut Vec<u8>, scratch: &mut Vec<u8>) {
        encode_wire(self.0, answers, scratch);
    }
}

/// Serves a connection to its end.
pub(crate) async fn run(server: &Rc<Server>, accepted: Accepted) {
    let Accepted {
        mut stream,
        peer,
        client,
        uninitialized,
    } = accepted;
    let mut splitter = Splitter::new(Limits {
        frame_bytes_max: server.options.frame_bytes_max,
        scratch_bytes_free: SCRATCH_BYTES_FREE,
        short_body_bytes: SHORT_BODY_BYTES,
        ..Limits::default()
    });
    let started = handshake(server, &mut stream, &mut splitter, &uninitialized, &client);
    let Some(Some(Started {
        version,
        startup,
        input,
    })) = server.front.until_drain(started).await
    else {
        return;
    };
    uninitialized.become_ready();
    splitter.start(version, startup.framing);
    let (mut reader, writer) = stream.into_split();
    let answers = (writer, WireEncoder(startup.framing));
    let (session, writer) = Session::begin(&server.front, peer, Principal::anonymous(), answers);
    let connection = Connection::new(server, session, (version, &startup));
    server.front.note_connection(&connection);
    let session = &connection.session;
    // What followed STARTUP is read already.
    let mut has_input = !input.is_empty();
    let (mut input, mut frames) = (Input::new(input), Frames(splitter));
    loop {
        match session.read(&mut input, &mut reader, &mut frames, has_input).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(unread) => {
                if let Some(message) = session.end_input(unread) {
                    connection.refuse_input(message);
                }
                break;
            }
        }
        match connection.execute(&mut frames.0, &mut input, (&client, &writer)).await {
            Ok(consumed) => {
                let left = input.bytes().len() - consumed;
                // The frame is here, and has no memory to be decompressed.
                has_input = frames.0.wanted_scratch_bytes() > 0 && left >= frames.0.wanted_bytes();
                input.consume(consumed, &mut frames);
            }
            Err(error) => {
                let mut frame = Vec::new();
                frame_error(&mut frame, &error);
                session.outbox.push(&mut frame);
                break;
            }
        }
    }
    drop(input);
    session.end(writer).await;
}

impl front::Connection for Connection {
    fn session(&self) -> &Session {
        &self.session
    }

    fn running(&self, show: &mut dyn FnMut(RunningRequest)) {
        self.pending.each(show);
    }
}

impl Connection {
    /// A connection to which READY was sent.
    fn new(server: &Rc<Server>, session: Session, (version, startup): (ProtocolVersion, &StartupOptions)) -> Rc<Self> {
        Rc::new(Self {
            session,
            server: server.clone(),
            version,
            keyspace: RefCell::default(),
            extensions: Extensions {
                result_metadata_id: startup.result_metadata_id,
                tablet_version_block: startup.tablets_routing == TabletsRouting::V2,
            },
            row_size: AnswerSize::of_row(),
            page_size: AnswerSize::of_rows(),
            unpaged_size: AnswerSize::of_rows(),
            lwt_mark: startup.lwt_mark,
            tablets_routing: startup.tablets_routing,
            takes_empty_pages: startup.takes_empty_pages,
            rate_limit_error: startup.rate_limit_error,
            warned_of_use: Cell::new(false),
            pending: Pending::default(),
        })
    }

    /// Executes the whole frames of what was read: how many bytes they are.
    async fn execute(
        self: &Rc<Self>,
        splitter: &mut Splitter,
        input: &mut Input,
        (client, writer): (&Client, &Writer),
    ) -> Result<usize, FrameError> {
        let (session, unsent) = (&self.session, &self.server.front.memory.unsent);
        let mut batch = Batch::of(unsent.spare());
        let (mut consumed, mut requests, mut unasked_bytes) = (0, 0, 0);
        let end = loop {
            match splitter.next(input.bytes(), &mut consumed) {
                Ok(Some(frame)) => {
                    requests += 1;
                    let mut has_waited = false;
                    loop {
                        match self.frame(&frame, &mut batch) {
                            FrameOutcome::Done => break,
                            FrameOutcome::FirstOfUser => {
                                self.finish_batch(&mut batch);
                                session.leave_drivers_group(client, writer).await;
                            }
                            FrameOutcome::NeedsMemory(bytes) => {
                                self.finish_batch(&mut batch);
                                session.wait_for_memory(bytes).await;
                                has_waited = true;
                            }
                        }
                    }
                    if has_waited {
                        // It was answered at once after all.
                        session.return_memory();
                    }
                    unasked_bytes += FRAME_HEADER_BYTES + frame.body.len();
                    if session.is_full() {
                        self.finish_batch(&mut batch);
                        session.turn().await;
                    } else if batch.bytes() > BATCH_BYTES_MAX {
                        self.finish_batch(&mut batch);
                        session.outbox.until_free(0).await;
                    } else if unasked_bytes > UNASKED_BYTES_MAX {
                        unasked_bytes = 0;
                        self.give_way(&mut batch).await;
                    }
                }
                Ok(None) => match splitter.take_long_body() {
                    None => break Ok(consumed),
                    Some(body) => {
                        self.finish_batch(&mut batch);
                        let body = input.offload(move |bytes| body.decompress(&bytes[consumed..])).await;
                        splitter.put_long_body(body);
                    }
                },
                Err(error) if error.resumes => {
                    requests += 1;
                    self.finish_batch(&mut batch);
                    let mut frame = Vec::new();
                    frame_error(&mut frame, &error);
                    session.outbox.push(&mut frame);
                    // A client that sends nothing but long frames reads its refusals, too.
                    session.outbox.until_free(0).await;
                    self.give_way(&mut batch).await;
                }
                Err(error) => break Err(error),
            }
        };
        self.finish_batch(&mut batch);
        unsent.give_back(batch.out);
        let frames = &self.server.counts.frames;
        frames.set(frames.get() + requests);
        client.add_requests(requests);
        end
    }

    /// Lets other tasks run if the slice is over: a read of the socket may have tens of thousands of requests, in
    /// compressed segments of equal frames. Not before: each batch is a write of the log, and of the socket.
    async fn give_way(self: &Rc<Self>, batch: &mut Batch) {
        if runtime::is_preemption_due() {
            self.finish_batch(batch);
            runtime::yield_now().await;
        }
    }

    /// Answers with the reason why nothing more is read from the client.
    fn refuse_input(&self, message: String) {
        let mut out = Vec::new();
        let reply = Reply::to(&FrameHeader {
            version: self.version,
            flags: 0,
            stream: 0,
            opcode: Opcode::Options,
            body_bytes: 0,
        });
        reply.error(&mut out, &QueryError::Overloaded(message));
        self.session.outbox.push(&mut out);
    }

    /// The version of the protocol that was agreed on.
    pub(crate) fn version(&self) -> ProtocolVersion {
        self.version
    }
}
