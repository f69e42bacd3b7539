//! The calling side: one link for each lane to each shard of each peer that this shard calls.
//!
//! A link connects when it is first called and has no connection; calls made until then wait in its queue. When
//! connecting fails or the connection ends, all its calls fail at once, and for a while that doubles with each failure
//! the link fails calls without trying. There is no task while there is no connection.

use crate::calls::{Calls, GivenUp, Notice, Taker, Ticket};
use crate::channel::{Channel, Input};
use crate::clock::Clock;
use crate::config::Peer;
use crate::error::{Ended, RemoteError, RpcError};
use crate::frame::{Header, Kind};
use crate::hello::{Agreement, Answer, Hello, Lane, PROTOCOL_VERSION, Proof, unseal};
use crate::outbox::{Drain, Outbox, write};
use crate::secret::{self, JoinSecret, Side};
use crate::{Purpose, Rpc};
use runtime::net::TcpStream;
use runtime::{Instant, Sleep};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use uuid::Uuid;

/// Where a link is with its connection.
enum Phase {
    /// None; not to be tried before `retry_at`.
    Idle {
        retry_at: Instant,
        refused: Option<Rc<str>>,
    },
    /// A task connects.
    Connecting,
    /// There is one.
    Connected {
        outbox: Rc<Outbox>,
        features: Rc<[String]>,
        host: Uuid,
    },
}

/// The receiver of the answer to a request.
pub(crate) enum AnswerTo {
    /// A one-way message has none.
    OneWay,
    /// A task that polls the call.
    Task,
    Taker(Taker),
}

impl AnswerTo {
    fn taker(self) -> Option<Taker> {
        match self {
            Self::Taker(taker) => Some(taker),
            Self::OneWay | Self::Task => None,
        }
    }
}

/// What is counted of a link.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) calls: Cell<u64>,
    pub(crate) one_way: Cell<u64>,
    pub(crate) timeouts: Cell<u64>,
    pub(crate) overloads: Cell<u64>,
    pub(crate) disconnects: Cell<u64>,
    /// Of connections that have ended.
    pub(crate) sent_bytes: Cell<u64>,
    pub(crate) received_bytes: Cell<u64>,
}

pub(crate) fn add(counter: &Cell<u64>, by: u64) {
    counter.set(counter.get() + by);
}

/// One shard of a peer.
pub(crate) struct Link {
    pub(crate) peer: Peer,
    pub(crate) shard: u32,
    pub(crate) lane: Lane,
    calls: RefCell<Calls>,
    phase: RefCell<Phase>,
    /// Failures since the last established connection.
    failures: Cell<u32>,
    /// What was logged of the present outage: the same reason is not logged as a warning twice.
    told: RefCell<String>,
    /// Grows with each connection that is begun or ended, so that a task that connects sees that its connection is not
    /// needed any more.
    epoch: Cell<u64>,
    pub(crate) counters: Counters,
}

impl Link {
    pub(crate) fn new(peer: Peer, shard: u32, lane: Lane, limits: &crate::Limits) -> Rc<Self> {
        Rc::new(Self {
            peer,
            shard,
            lane,
            calls: RefCell::new(Calls::new(limits)),
            phase: RefCell::new(Phase::Idle {
                retry_at: Instant::from_nanos(0),
                refused: None,
            }),
            failures: Cell::new(0),
            told: RefCell::default(),
            epoch: Cell::new(0),
            counters: Counters::default(),
        })
    }

    fn outbox(&self) -> Option<Rc<Outbox>> {
        match &*self.phase.borrow() {
            Phase::Connected { outbox, .. } => Some(outbox.clone()),
            _ => None,
        }
    }

    pub(crate) fn features(&self) -> Option<Rc<[String]>> {
        match &*self.phase.borrow() {
            Phase::Connected { features, .. } => Some(features.clone()),
            _ => None,
        }
    }

    /// The node at the other end.
    pub(crate) fn host(&self) -> Option<Uuid> {
        match &*self.phase.borrow() {
            Phase::Connected { host, .. } => Some(*host),
            _ => None,
        }
    }

    /// Connects if there is no connection and it may be tried. If it may not, the error is the reason.
    fn prepare(self: &Rc<Self>, rpc: &Rc<Rpc>, now: Instant) -> Result<(), RpcError> {
        if let Phase::Idle { retry_at, refused } = &*self.phase.borrow() {
            if *retry_at > now {
                return Err(match refused {
                    Some(reason) => RpcError::Refused(reason.to_string()),
                    None => RpcError::Disconnected { may_have_run: false },
                });
            }
        } else {
            return Ok(());
        }
        *self.phase.borrow_mut() = Phase::Connecting;
        self.epoch.set(self.epoch.get() + 1);
        drop(runtime::spawn(run(rpc.clone(), self.clone(), self.epoch.get())));
        Ok(())
    }

    /// Takes up a request: sends it or puts it in line. `None` of one-way messages. `write` appends the body, of so
    /// many bytes.
    #[inline]
    pub(crate) fn begin(
        self: &Rc<Self>,
        rpc: &Rc<Rpc>,
        (purpose, deadline): (Purpose, Instant),
        (bytes, write): (usize, impl FnOnce(&mut Vec<u8>)),
        answer: AnswerTo,
    ) -> Result<Option<Ticket>, RpcError> {
        let now = runtime::now();
        self.prepare(rpc, now)?;
        let mut calls = self.calls.borrow_mut();
        let is_one_way = matches!(answer, AnswerTo::OneWay);
        if let Phase::Connected { outbox, .. } = &*self.phase.borrow()
            && if is_one_way {
                calls.may_pass(bytes, outbox.bytes())
            } else {
                calls.may_send_at_once(bytes, outbox.bytes())
            }
        {
            let ticket = (!is_one_way).then(|| calls.start(deadline, bytes, answer.taker()));
            push_request(outbox, ticket, purpose, deadline, write);
            return Ok(ticket);
        }
        let mut body = Vec::with_capacity(bytes);
        write(&mut body);
        let ticket = calls
            .enqueue(now, deadline, purpose, body, is_one_way, answer.taker())
            .inspect_err(|_| add(&self.counters.overloads, 1))?;
        Ok((!is_one_way).then_some(ticket))
    }

    /// Sends from the line as much as goes.
    fn admit(&self) {
        let Some(outbox) = self.outbox() else { return };
        let mut calls = self.calls.borrow_mut();
        if calls.waiting == 0 || outbox.is_closed() {
            return;
        }
        let (now, mut notices) = (runtime::now(), Vec::new());
        while let Some(next) = calls.next(now, outbox.bytes(), &mut notices) {
            push_request(&outbox, next.ticket, next.purpose, next.deadline, |out| {
                out.extend_from_slice(&next.body);
            });
        }
        drop(calls);
        notices.into_iter().for_each(Notice::deliver);
    }

    /// Ends the connection, if there is one, and all calls. A next call connects again, after `pause`.
    pub(crate) fn fail(&self, why: &Ended, pause: Duration) {
        self.epoch.set(self.epoch.get() + 1);
        let refused: Option<Rc<str>> = match why {
            Ended::Refused(reason) => Some(reason.as_str().into()),
            Ended::Tls(reason) => Some(format!("TLS: {reason}").into()),
            _ => None,
        };
        let idle = Phase::Idle {
            retry_at: runtime::now() + pause,
            refused: refused.clone(),
        };
        let phase = std::mem::replace(&mut *self.phase.borrow_mut(), idle);
        if let Phase::Connected { outbox, .. } = phase {
            outbox.close(Ended::Closed);
            add(&self.counters.disconnects, 1);
            add(&self.counters.sent_bytes, outbox.sent_bytes.get());
            add(&self.counters.received_bytes, outbox.received_bytes.get());
        }
        let notices = self.calls.borrow_mut().fail_all(refused.as_deref());
        notices.into_iter().for_each(Notice::deliver);
    }

    /// The next call tries to connect, whatever failed before.
    pub(crate) fn retry_now(&self) {
        self.failures.set(0);
        if let Phase::Idle { retry_at, .. } = &mut *self.phase.borrow_mut() {
            *retry_at = Instant::from_nanos(0);
        }
    }

    /// The caller does not wait for the call any more.
    fn give_up(&self, ticket: Ticket, outbox_bytes_max: usize) -> GivenUp {
        let given_up = self.calls.borrow_mut().give_up(ticket);
        if given_up == GivenUp::InFlight {
            // A peer that takes nothing is not notified either: it will find the deadline in the request.
            if let Some(outbox) = self.outbox()
                && outbox.bytes() < outbox_bytes_max
            {
                outbox.push_plain(Kind::Cancel, ticket.id());
            }
            self.admit();
        }
        given_up
    }

    /// What is in flight, and what waits: counts and bytes of requests.
    pub(crate) fn load(&self) -> Load {
        let calls = self.calls.borrow();
        let outbox = self.outbox();
        Load {
            is_connected: outbox.is_some(),
            in_flight: calls.in_flight,
            in_flight_bytes: calls.in_flight_bytes,
            waiting: calls.waiting,
            waiting_bytes: calls.waiting_bytes,
            outbox_bytes: outbox.as_ref().map_or(0, |outbox| outbox.bytes()),
            sent_bytes: outbox.as_ref().map_or(0, |outbox| outbox.sent_bytes.get()),
            received_bytes: outbox.as_ref().map_or(0, |outbox| outbox.received_bytes.get()),
        }
    }

    fn receive(&self, input: &mut Input, clock: &Clock, answer_bytes_max: usize) -> Result<(), Ended> {
        // Frames that left in one write carry one time.
        let mut heard = None;
        while let Some(frame) = input.next()? {
            if heard.replace(frame.header.time) != Some(frame.header.time) {
                clock.hear(frame.header.time, input.read_at());
            }
            let id = frame.header.id;
            let result = match frame.header.kind {
                Kind::Response => {
                    let taker = self.calls.borrow_mut().answered(id);
                    if let Some(taker) = taker {
                        taker.give(Ok(input.body(&frame)));
                        continue;
                    }
                    Ok(input.take_body(&frame))
                }
                Kind::Error => Err(RpcError::Remote(RemoteError::decode(input.body(&frame)))),
                Kind::Pong => continue,
                Kind::Part => {
                    let added = self
                        .calls
                        .borrow_mut()
                        .add_part(id, input.body(&frame), answer_bytes_max);
                    added.map_err(|bytes| {
                        Ended::Garbage(format!(
                            "an answer of {bytes} bytes, where {answer_bytes_max} are the most"
                        ))
                    })?;
                    continue;
                }
                other => return Err(Ended::Garbage(format!("{other:?} came where an answer was expected"))),
            };
            let notice = self.calls.borrow_mut().complete(id, result);
            if let Some(notice) = notice {
                notice.deliver();
            }
        }
        self.admit();
        Ok(())
    }
}

/// See [`Link::load`].
pub(crate) struct Load {
    pub(crate) is_connected: bool,
    pub(crate) in_flight: usize,
    pub(crate) in_flight_bytes: usize,
    pub(crate) waiting: usize,
    pub(crate) waiting_bytes: usize,
    pub(crate) outbox_bytes: usize,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
}

impl Link {
    /// Logs that there is no connection; only for debugging, if that was already logged for this reason.
    fn tell_outage(&self, ended: &Ended) {
        let (reason, mut told) = (ended.to_string(), self.told.borrow_mut());
        let Peer { host_id, address, .. } = self.peer;
        if *told == reason {
            log::debug!(
                "no connection to shard {} of node {address} ({host_id}): {reason}",
                self.shard
            );
        } else {
            log::warn!(
                "no connection to shard {} of node {address} ({host_id}): {reason}. It is tried again and again",
                self.shard
            );
            *told = reason;
        }
    }

    fn tell_connected(&self) {
        if !std::mem::take(&mut *self.told.borrow_mut()).is_empty() {
            let Peer { host_id, address, .. } = self.peer;
            log::info!("shard {} of node {address} ({host_id}) is connected again", self.shard);
        }
    }
}

impl Drain for Link {
    fn drained(&self) {
        self.admit();
    }
}

#[inline]
fn push_request(
    outbox: &Outbox,
    ticket: Option<Ticket>,
    Purpose { verb, trace }: Purpose,
    deadline: Instant,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let header = Header {
        kind: if ticket.is_some() { Kind::Request } else { Kind::OneWay },
        is_traced: trace.is_some(),
        verb,
        time: 0,
        id: ticket.map_or(0, Ticket::id),
    };
    outbox.push_until(deadline, header, |out| {
        if let Some(id) = trace {
            out.extend_from_slice(&id);
        }
        write(out);
    });
}

/// Connects and serves the connection to its end.
async fn run(rpc: Rc<Rpc>, link: Rc<Link>, epoch: u64) {
    let limits = &rpc.config.limits;
    let ended = match runtime::timeout(limits.hello_timeout, connect(&rpc, &link)).await {
        Err(_) => Ended::Silent,
        Ok(Err(ended)) => ended,
        Ok(Ok(_)) if link.epoch.get() != epoch => return,
        Ok(Ok(connected)) => {
            link.failures.set(0);
            link.tell_connected();
            serve(&rpc, &link, epoch, connected).await
        }
    };
    if link.epoch.get() != epoch {
        // It was ended from this side, and the waiting calls were notified.
        return;
    }
    let failures = link.failures.get();
    link.failures.set(failures.saturating_add(1));
    let pause = limits.retry_after.saturating_mul(1 << failures.min(16));
    let pause = pause.min(limits.retry_after_max);
    let Peer { host_id, address, .. } = link.peer;
    if host_id.is_nil() {
        // A caller that asks for whichever node is there expects no particular node, and reports the failure itself.
        log::debug!("no connection to {address}: {ended}");
    } else {
        link.tell_outage(&ended);
    }
    link.fail(&ended, pause);
}

/// A channel whose hello was accepted, and how.
struct Connected {
    channel: Channel,
    agreed: Agreement,
    /// When the answer had come.
    heard: Instant,
}

async fn connect(rpc: &Rpc, link: &Link) -> Result<Connected, Ended> {
    let stream = TcpStream::connect(link.peer.address).await?;
    let session = match (&*rpc.tls.borrow(), link.peer.tls) {
        (_, false) => None,
        (Some(tls), true) => Some(tls.connect(link.peer.address.ip())?),
        (None, true) => return Err(Ended::Tls("this node has no certificate".to_owned())),
    };
    let mut channel = Channel::new(stream, session);
    channel.handshake().await?;
    let hello = Hello {
        version: PROTOCOL_VERSION,
        cluster_name: rpc.config.cluster_name.clone(),
        source_host: rpc.config.host_id,
        source_shard: runtime::shard().0,
        lane: link.lane,
        target_host: link.peer.host_id,
        target_shard: link.shard,
        features: rpc.features.clone(),
        compression: if link.peer.compress {
            rpc.config.compression.clone()
        } else {
            Vec::new()
        },
        has_secret: rpc.config.join_secret.is_some(),
    };
    let sealed = hello.encode();
    let message = unseal(&sealed);
    channel.send(sealed).await?;
    let mut answer = channel.receive_message(Answer::decode, false).await?;
    if let Some(secret) = &rpc.config.join_secret {
        answer = show_secret(secret, &mut channel, &message, answer).await?;
    }
    let agreed = answer.agreed().map_err(Ended::Refused)?;
    Ok(Connected {
        channel,
        agreed,
        heard: runtime::now(),
    })
}

/// Shows the other end that this one knows the secret, and looks whether that one does.
async fn show_secret(
    secret: &JoinSecret,
    channel: &mut Channel,
    hello: &[u8],
    answer: Answer,
) -> Result<Answer, Ended> {
    let unknown = || {
        Ended::Refused(
            "the node does not show that it knows the cluster's join_secret: give all nodes the same one".to_owned(),
        )
    };
    let challenge = match answer {
        Answer::Challenge(challenge) => challenge,
        Answer::Refused(reason) => return Err(Ended::Refused(reason)),
        Answer::Accepted { .. } => return Err(unknown()),
    };
    let nonce = secret::nonce();
    let code = secret.code(Side::Caller, &challenge, &nonce, hello);
    channel.send(Proof { nonce, code }.encode()).await?;
    let answer = channel.receive_message(Answer::decode, false).await?;
    if let Answer::Accepted { code, .. } = &answer {
        let is_shown = code.is_some_and(|code| secret.is_code(&code, Side::Callee, &challenge, &nonce, hello));
        if !is_shown {
            return Err(unknown());
        }
    }
    Ok(answer)
}

async fn serve(rpc: &Rc<Rpc>, link: &Rc<Link>, epoch: u64, connected: Connected) -> Ended {
    let limits = &rpc.config.limits;
    let Connected { channel, agreed, heard } = connected;
    let outbox = Outbox::new(Clock::of_caller(heard));
    let (mut input, half, wire) = channel.into_frames(rpc, &outbox, agreed.compression);
    *link.phase.borrow_mut() = Phase::Connected {
        outbox: outbox.clone(),
        features: agreed.features.into(),
        host: agreed.host,
    };
    drop(runtime::spawn(write(outbox.clone(), half, wire, link.clone())));
    drop(runtime::spawn(watch(outbox.clone(), limits.ping_interval)));
    link.admit();
    loop {
        if let Err(ended) = input.fill().await {
            outbox.close(ended);
        } else if link.epoch.get() == epoch
            && let Err(ended) = link.receive(&mut input, &outbox.clock, limits.long_answer_bytes_max)
        {
            outbox.close(ended);
        }
        if outbox.is_closed() || link.epoch.get() != epoch {
            return outbox.take_reason();
        }
    }
}

/// Pings when nothing comes, and closes when that brings nothing either.
async fn watch(outbox: Rc<Outbox>, interval: Duration) {
    let (mut seen, mut pinged) = (outbox.received_bytes.get(), false);
    loop {
        runtime::sleep(interval).await;
        if outbox.is_closed() {
            return;
        }
        let received = outbox.received_bytes.get();
        if received != seen {
            (seen, pinged) = (received, false);
        } else if pinged {
            outbox.close(Ended::Silent);
            return;
        } else {
            pinged = true;
            outbox.push_plain(Kind::Ping, 0);
        }
    }
}

/// A call whose answer an [`crate::AnswerTaker`] is given. Dropping this changes nothing.
pub struct Sent {
    link: Rc<Link>,
    ticket: Ticket,
    outbox_bytes_max: usize,
}

impl Sent {
    pub(crate) fn new(link: Rc<Link>, ticket: Ticket, outbox_bytes_max: usize) -> Self {
        Self {
            link,
            ticket,
            outbox_bytes_max,
        }
    }

    /// Cancels the call: its taker is not given anything any more. A request that is not sent never is; if it is sent,
    /// the peer is notified that the answer is not awaited. Returns whether it may have run.
    pub fn give_up(self) -> bool {
        let given_up = self.link.give_up(self.ticket, self.outbox_bytes_max);
        if given_up != GivenUp::Done {
            add(&self.link.counters.timeouts, 1);
        }
        given_up == GivenUp::InFlight
    }
}

/// A call that waits for its answer. Dropping it cancels it: a request that is not sent never is; if it is sent, the
/// peer is notified, which stops a request that runs there as a task. A caller that needs it to run to its end keeps
/// the call until it resolves.
#[must_use = "a call that is dropped is cancelled"]
pub struct Call(State);

enum State {
    Waiting {
        link: Rc<Link>,
        ticket: Ticket,
        /// None: the caller that polls it looks at the time.
        timer: Option<Sleep>,
        outbox_bytes_max: usize,
    },
    Failed(RpcError),
    Over,
}

impl Call {
    pub(crate) fn failed(error: RpcError) -> Self {
        Self(State::Failed(error))
    }

    pub(crate) fn waiting(link: Rc<Link>, ticket: Ticket, deadline: Instant, outbox_bytes_max: usize) -> Self {
        Self(State::Waiting {
            link,
            ticket,
            timer: Some(runtime::sleep_until(deadline)),
            outbox_bytes_max,
        })
    }

    /// Removes the timer, for a caller that awaits several calls until one deadline, and then drops those without an
    /// answer.
    pub fn without_timer(mut self) -> Self {
        if let State::Waiting { timer, .. } = &mut self.0 {
            *timer = None;
        }
        self
    }
}

impl Future for Call {
    type Output = Result<Vec<u8>, RpcError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.0 {
            State::Waiting {
                link,
                ticket,
                timer,
                outbox_bytes_max,
            } => {
                let known = link.calls.borrow_mut().poll(*ticket, context.waker());
                match known {
                    Some(result) => {
                        if matches!(result, Err(RpcError::Timeout { .. })) {
                            add(&link.counters.timeouts, 1);
                        }
                        result
                    }
                    None if timer.as_mut().is_some_and(|t| Pin::new(t).poll(context).is_ready()) => {
                        add(&link.counters.timeouts, 1);
                        Err(RpcError::Timeout {
                            may_have_run: link.give_up(*ticket, *outbox_bytes_max) == GivenUp::InFlight,
                        })
                    }
                    None => return Poll::Pending,
                }
            }
            State::Failed(_) | State::Over => match std::mem::replace(&mut self.0, State::Over) {
                State::Failed(error) => Err(error),
                _ => panic!("a call is polled after it was over"),
            },
        };
        self.0 = State::Over;
        Poll::Ready(result)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let State::Waiting {
            link,
            ticket,
            outbox_bytes_max,
            ..
        } = &self.0
        {
            link.give_up(*ticket, *outbox_bytes_max);
        }
    }
}
