//! Work that runs near the data: the shards that have the rows work, all at once, and only what they find travels.
//!
//! The work is cut into spans of tokens ([`NearWork::spread`]). Each shard that reads some is asked for its spans in
//! steps: an answer has what was found in the spans that are done, and how far the next one is. What is found in one
//! span is joined in token order. Every step has `range_request_timeout` to be answered in, however many there are: a
//! large table takes its time, and an error comes that long after the last progress. When the future of
//! [`NearWork::run`] is dropped, because the client left or the statement's time is up, no shard is asked again.
//!
//! A replica that fails, or does not answer in its part of that time, is skipped: its spans continue at the next
//! replica from where they were, and last of all here, whose error the client receives.
//!
//! What a span's shard reads, it reads at the request's level: it asks other replicas for digests, and reconciles what
//! differs. So the result has seen what any read at that level has seen.
//!
//! A step ends when its spans do, or when [`STEP_MAX`] has passed. So no answer is late because there is much to read,
//! and a coordinator whose answer is late knows that something is wrong.

mod gather;
mod message;
pub(crate) mod spread;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use mutation::Bound;
use runtime::Instant;
use stdx::bytes::{Reader, Truncated};
use types::Token;

use crate::{Context, Coordinator, CoordinatorError};

pub use gather::{Near, ResultLimits};
pub use message::{decode_answer, encode_answer, get_replicas_error, put_replicas_error};
#[doc(hidden)]
pub use message::{decode_request, encode_request};

/// How long a step works before it says how far it is.
const STEP_MAX: Duration = Duration::from_secs(1);

/// Tokens to work on: all above `after`, up to `to`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// Exclusive start; the lowest token is before all.
    pub after: Token,
    /// Inclusive end.
    pub to: Token,
    /// Where in them the work continues; None at their beginning.
    pub place: Option<ResumePoint>,
}

/// The position after what is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResumePoint {
    /// The first partition to come.
    pub from: (Token, Vec<u8>),
    /// In the middle of it: after this bound, and whether it had rows before.
    pub inside: Option<(Bound, bool)>,
}

/// When a step ends.
#[derive(Clone, Copy, Debug)]
pub struct StepTime {
    /// From then on it says how far it is.
    pub until: Instant,
    /// How long one round of its reads waits for other replicas.
    pub round: Duration,
}

/// How much was found.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Amount {
    /// Results, of which a page takes a limited number.
    pub results: u64,
    /// The memory that they take, about.
    pub bytes: usize,
}

/// The bytes are not a message of this kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl From<Truncated> for Malformed {
    fn from(_: Truncated) -> Self {
        Self
    }
}

/// Work over ranges of tokens.
pub trait Work: Clone + Send + 'static {
    /// What is found in a span.
    type Output: Send + 'static;
    /// Why it fails.
    type Error: From<CoordinatorError> + std::fmt::Display + Send + 'static;

    /// The number of this kind of work in messages.
    const KIND: u8;

    /// What shards do, as a trace says it.
    const ACTIVITY: &'static str;

    /// What other nodes are sent; None when they cannot do it: then this shard does what is theirs.
    fn encode(&self) -> Option<Vec<u8>>;

    /// The work that another node has sent; the error says why it is not done here.
    fn decode(bytes: &[u8]) -> Result<Self, String>;

    /// Works on a span on the shard that runs this, until its end, or until time is up or much is found: then it says
    /// where to continue.
    fn run(
        &self,
        span: &Span,
        time: StepTime,
    ) -> impl Future<Output = Result<(Self::Output, Option<ResumePoint>), Self::Error>>;

    /// Joins what was found after `known` in the same span to it.
    fn join(&self, known: &mut Self::Output, more: Self::Output) -> Result<(), Self::Error>;

    /// How much that is.
    fn amount(&self, found: &Self::Output) -> Amount;

    /// Whether the work fails so wherever it is done.
    fn is_final(error: &Self::Error) -> bool;

    /// The error of work that is not done, with the reason.
    fn refused(reason: String) -> Self::Error;

    /// Packs what was found.
    fn put_found(&self, found: &Self::Output, out: &mut Vec<u8>);

    /// Unpacks it.
    ///
    /// # Errors
    /// When the bytes are something else.
    fn get_found(&self, reader: &mut Reader<'_>) -> Result<Self::Output, Malformed>;

    /// Packs an error; what it has no form for it may pack as its text.
    fn put_error(error: &Self::Error, out: &mut Vec<u8>);

    /// Unpacks it.
    ///
    /// # Errors
    /// When the bytes are something else.
    fn get_error(reader: &mut Reader<'_>) -> Result<Self::Error, Malformed>;
}

/// What a step has found.
#[derive(Clone, Debug)]
pub struct StepFound<F> {
    /// In each span that is done, in their order.
    pub done: Vec<F>,
    /// In the span after them, as far as it went.
    pub begun: Option<(F, ResumePoint)>,
}

/// Answers requests of other nodes for a kind of work.
type Server = Box<dyn Fn(Vec<u8>, Instant) -> Pin<Box<dyn Future<Output = Vec<u8>>>>>;

/// The work near the data that one shard has done by others, and does for them.
pub struct NearWork {
    context: Rc<Context>,
    /// What this shard does for other nodes, by kind.
    servers: RefCell<BTreeMap<u8, Server>>,
}

/// Works on spans one after the other, as many as there is time for, and something of the first at least.
async fn step<W: Work>(
    context: &Context,
    work: &W,
    spans: &[Span],
    timeout: Duration,
) -> Result<StepFound<W::Output>, W::Error> {
    context.count(|m| m.aggregate_parts += 1);
    let time = StepTime {
        until: runtime::now() + STEP_MAX.min(timeout / 4),
        round: timeout / 2,
    };
    let mut done = Vec::with_capacity(spans.len());
    for span in spans {
        if !done.is_empty() && runtime::now() >= time.until {
            break;
        }
        let (found, place) = work.run(span, time).await?;
        if let Some(place) = place {
            let begun = Some((found, place));
            return Ok(StepFound { done, begun });
        }
        done.push(found);
    }
    Ok(StepFound { done, begun: None })
}

impl NearWork {
    pub(crate) fn new(context: Rc<Context>) -> Self {
        Self {
            context,
            servers: RefCell::default(),
        }
    }

    /// Has this shard do a kind of work for other nodes.
    pub fn serve<W: Work>(&self) {
        let serve = |body: Vec<u8>, deadline: Instant| -> Pin<Box<dyn Future<Output = Vec<u8>>>> {
            Box::pin(async move { message::serve::<W>(&Coordinator::local().context, &body, deadline).await })
        };
        self.servers.borrow_mut().insert(W::KIND, Box::new(serve));
    }

    /// The answer of this shard to a request of another node for work; None when it does not do such work.
    pub(crate) fn answer(&self, body: &[u8], deadline: Instant) -> Option<Pin<Box<dyn Future<Output = Vec<u8>>>>> {
        let kind = message::kind_of(body)?;
        let servers = self.servers.borrow();
        servers.get(&kind).map(|serve| serve(body.to_vec(), deadline))
    }
}
