//! One operation: from the bytes of its request to the bytes of its answer, in a preemptible task.

use std::rc::Rc;
use std::time::Duration;

use front::{Principal, RunningRequest, RunningTask, SlowRequest};
use http::{Head, Progress, Request, RequestReader};
use runtime::{Instant, Permit};
use stdx::preempt;

use crate::answer::{Answer, Style};
use crate::connection::{Connection, LIMITS};
use crate::encoding::{self, Coding};
use crate::sigv4::Claim;
use crate::{ApiRequest, Refusal, Settings};

/// Of the body of a request, so many bytes are kept for lists of what runs and what was slow.
const TEXT_BYTES_MAX: usize = 500;

/// What an operation asks, as far as lists of running and slow requests show it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The number of the request on its connection.
    pub number: u64,
    pub operation: Rc<str>,
    /// The beginning of its body, if that was not compressed.
    body: Rc<str>,
}

impl Asked {
    fn text(&self) -> String {
        format!("{} {}", self.operation, self.body)
    }

    /// How it is shown.
    pub(crate) fn running(&self, queued: Duration, running: Duration) -> RunningRequest {
        RunningRequest {
            name: format!("request {}", self.number),
            queued,
            running,
            text: self.text(),
        }
    }
}

/// What a task gets of a request.
pub(crate) enum Received {
    /// The body of a short one.
    Body(Vec<u8>),
    /// All bytes of a long one.
    Request(Vec<u8>),
}

impl Received {
    /// The body, with preemption points.
    fn body(self) -> Vec<u8> {
        match self {
            Self::Body(body) => body,
            Self::Request(bytes) => match RequestReader::new(LIMITS).next(&bytes) {
                Ok(Progress::Whole(request)) => request.body.to_vec(),
                // It was whole when the reader took it.
                Ok(Progress::Partial(_)) | Err(_) => Vec::new(),
            },
        }
    }
}

/// An operation that was read and has no task yet. It owns nothing of the body.
pub(crate) struct Call {
    operation: String,
    style: Style,
    coding: Option<Coding>,
    /// Bytes of the body once it is decompressed, at most.
    decompressed_bytes: usize,
    /// Its signature, if that is checked.
    claim: Option<Claim>,
    /// Those of the moment when it was read.
    settings: Rc<Settings>,
    came: Instant,
}

impl Call {
    /// Checks what can be checked before the request has memory.
    pub(crate) fn of(
        operation: String,
        request: &Request<'_>,
        (claim, settings): (Option<Claim>, Rc<Settings>),
    ) -> Result<Self, Refusal> {
        let head: &Head<'_> = &request.head;
        let coding = encoding::of_request(head)?;
        let decompressed_bytes = match coding {
            // The length of gzip is at its end, which may be anywhere in chunks.
            Some(coding) => match &request.body {
                http::Body::Plain(body) => encoding::decompressed_bytes_max(coding, body)?,
                http::Body::Chunked { .. } => encoding::BODY_BYTES_MAX,
            },
            None => 0,
        };
        Ok(Self {
            operation,
            style: Style::of(head),
            coding,
            decompressed_bytes,
            claim,
            settings,
            came: runtime::now(),
        })
    }

    /// The memory that it takes with a body of so many bytes.
    pub(crate) fn bytes(&self, body_bytes: usize) -> usize {
        let bytes = body_bytes + self.decompressed_bytes;
        if bytes >= front::LONG_REQUEST_BYTES {
            front::long_request_bytes(bytes)
        } else {
            bytes + front::TASK_BYTES
        }
    }
}

impl Connection {
    /// Begins a task for an operation. The connection's turn is given back when the answer is in the outbox.
    pub(crate) fn begin(self: &Rc<Self>, call: Call, received: Received, memory: Permit, turn: Permit) {
        let connection = Rc::clone(self);
        self.session.spawn(Some(memory), |permits| async move {
            let _permits = permits;
            let body = preempt::allowed(|| received.body());
            let asked = Asked {
                number: connection.next_number(),
                operation: call.operation.as_str().into(),
                body: beginning(&body, call.coding).into(),
            };
            let task = RunningTask::new(asked.clone(), (call.came, runtime::now()));
            let running = connection.running.hold(task);
            connection.server.counts.count_operation(&call.operation);
            let (style, came) = (call.style.clone(), call.came);
            let answer = match connection.execute(call, body).await {
                Ok(answer) => answer,
                Err(refusal) => Answer::refusal(&refusal),
            };
            connection.send(answer, &style);
            drop(running);
            connection.note(came.elapsed(), &asked);
            drop(turn);
        });
    }

    async fn execute(&self, call: Call, body: Vec<u8>) -> Result<Answer, Refusal> {
        let deadline = call.came + call.settings.timeout;
        let principal = match &call.claim {
            None => Principal::anonymous(),
            Some(claim) => self.authorize(claim, &body, (&call.settings, deadline)).await?,
        };
        let body = match call.coding {
            None => body,
            Some(coding) => preempt::allowed(|| encoding::decompress(coding, &body, call.decompressed_bytes))?,
        };
        let request = ApiRequest {
            operation: call.operation,
            body,
            principal,
            client: self.session.peer,
            deadline,
        };
        let answer = self.server.parts.api.execute(request).await;
        Ok(Answer::json(answer.status, answer.body))
    }

    /// Hands an answer to the outbox.
    pub(crate) fn send(&self, answer: Answer, style: &Style) {
        self.server.counts.count_answer(answer.status);
        let (mut head, mut body) = answer.encode(style, &self.server.settings(), runtime::wall_clock_us());
        self.session.outbox.push(&mut head);
        self.session.outbox.push(&mut body);
    }

    fn note(&self, took: Duration, asked: &Asked) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.server.counts.latencies.add(us, 1);
        // The log has it; there is no table for slow requests of this API.
        let _ = self.session.note_slow(took, || SlowRequest {
            kind: "DynamoDB operation",
            text: asked.text(),
            parameters: Vec::new(),
            tables: Vec::new(),
        });
    }
}

/// The beginning of a body as text; nothing of one that is compressed.
fn beginning(body: &[u8], coding: Option<Coding>) -> String {
    let bytes = match coding {
        None => &body[..body.len().min(TEXT_BYTES_MAX)],
        Some(_) => &[],
    };
    String::from_utf8_lossy(bytes).into_owned()
}
