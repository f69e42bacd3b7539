//! Requests between nodes.
//!
//! Each shard has an [`Rpc`]. When it calls a shard of another node for the first time, it connects to it, and all
//! requests of this pair of shards use that connection, but for the control verbs, which have one of their own; the
//! other shard's own requests use others. A connection begins with a hello that names cluster, nodes and shards and
//! agrees on features and compression (`hello`); then it carries frames (`frame`), which may be compressed a write at a
//! time (`codec`) and encrypted (`tls`). The shard that accepts a connection hands it to the shard that the hello
//! names.
//!
//! - [`Rpc::call`] sends a request and resolves to its answer; [`Rpc::send`] sends a message without an answer;
//!   [`Rpc::ask`] asks whichever node is at an address.
//! - [`Handler`] answers at once or with a future, which then runs as a task.
//! - A request carries its deadline by the clock of the node that answers it (`clock`). What is late is not run.
//! - All that is queued in one turn of the shard leaves in one write.
//!
//! Invariants:
//! - Every queue has a limit in [`Limits`]. Beyond it requests are refused by value or the connection is not read; so a
//!   node that does not read or does not answer costs its callers a bounded memory and fails only the calls made to it.
//! - A request is sent at most once, and runs once even if it arrives twice, unless its verb may be repeated. Errors
//!   say whether it may have run.
//! - What a peer sends never panics: it ends its connection with a sentence in the log.
//!
//! An [`Rpc`] lives on one shard and is found there by the others as a shard local; it sees its node's identity and
//! nothing of the cluster.

mod calls;
mod channel;
mod clock;
mod codec;
mod config;
mod error;
mod frame;
#[doc(hidden)]
pub mod fuzz;
mod hello;
mod hello_slots;
mod link;
mod outbox;
mod parts;
mod secret;
mod server;
mod spares;
mod tls;

pub use calls::AnswerTaker;
pub use codec::Compression;
pub use config::{
    ANSWER_BYTES_MAX, BODY_BYTES_MAX, CONNECTIONS_MAX, Config, HANDLING_BYTES_MAX, HANDLING_MAX, HELLOS_MAX,
    IN_FLIGHT_BYTES_MAX, IN_FLIGHT_MAX, LONG_ANSWER_BYTES_MAX, LONG_WAITING_BYTES_MAX, Limits, NodeAddress,
    OUTBOX_BYTES_MAX, PART_BYTES, Peer, TlsFiles, WAITING_BYTES_MAX, WAITING_MAX,
};
pub use error::{RemoteError, RemoteErrorKind, RpcError, StartError};
pub use frame::TraceId;
pub use link::{Call, Sent};
pub use secret::{JoinSecret, SECRET_BYTES_MIN};
pub use server::{Caller, Handler, Later, Reply, Request, Responder};
pub use tls::Tls;

use calls::{Taker, Ticket};
use codec::Codec;
use error::Ended;
use hello::Lane;
use hello_slots::HelloSlots;
use link::{AnswerTo, Link, add};
use logging::LineLimit;
use runtime::net::{ListenOptions, TcpListener};
use runtime::{Instant, Notify};
use server::Served;
use spares::Spares;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use uuid::Uuid;

/// A body from so many bytes on has memory of its own, which later ones use again ([`Rpc::buffer`]).
pub const LONG_BODY_BYTES: usize = 64 << 10;

/// Addresses of members that are remembered.
const MEMBER_ADDRESSES_MAX: usize = 4096;

/// That connections cannot be accepted is logged once in so long.
const ACCEPT_LOG_PERIOD: Duration = Duration::from_secs(60);

/// What a request is for, as its header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Purpose {
    /// The number by which the handler knows what to do.
    pub verb: u16,
    /// The trace of the request that it is a part of.
    pub trace: Option<TraceId>,
}

impl Purpose {
    /// Bytes that the body of the frame has before that of the request.
    #[inline]
    fn bytes(self) -> usize {
        self.trace.map_or(0, |id| id.len())
    }
}

impl From<u16> for Purpose {
    fn from(verb: u16) -> Self {
        Self { verb, trace: None }
    }
}

/// A link that serves one question.
struct Once(Rc<Link>);

impl Drop for Once {
    fn drop(&mut self) {
        self.0.fail(&Ended::Closed, Duration::ZERO);
    }
}

/// A peer's host id as a number, which is compared faster than its bytes and in the same order; its shard; the lane.
type LinkKey = (u128, u32, Lane);

/// The keys of all links to a peer.
fn keys_of(host_id: Uuid) -> RangeInclusive<LinkKey> {
    let host = host_id.as_u128();
    (host, 0, Lane::Data)..=(host, u32::MAX, Lane::Control)
}

/// One shard's end of the connections to other nodes. See the module.
pub struct Rpc {
    pub(crate) config: Config,
    /// Those of the configuration that are not hidden.
    pub(crate) features: Vec<String>,
    pub(crate) tls: RefCell<Option<Tls>>,
    pub(crate) handler: Option<Rc<dyn Handler>>,
    pub(crate) codec: Rc<RefCell<Codec>>,
    pub(crate) spares: Rc<Spares>,
    links: RefCell<BTreeMap<LinkKey, Rc<Link>>>,
    /// By node and shard; those that asked for any node at this address by no node and a number.
    pub(crate) served: RefCell<BTreeMap<(Uuid, u32, Lane), Rc<Served>>>,
    pub(crate) asked: Cell<u32>,
    pub(crate) hellos: HelloSlots,
    /// Addresses that peers of this node have connected from.
    member_addresses: RefCell<BTreeSet<IpAddr>>,
    pub(crate) accept_failures: LineLimit,
    pub(crate) hellos_closed: LineLimit,
    pub(crate) stopped: Cell<bool>,
    stop: Notify,
    address: Option<SocketAddr>,
    tls_address: Option<SocketAddr>,
}

/// What is known of the connection to one shard of a peer. Counts are since the link was made.
#[derive(Clone, Debug)]
pub struct LinkMetrics {
    /// The peer.
    pub host_id: Uuid,
    /// Its shard.
    pub shard: u32,
    /// It is for the control verbs.
    pub is_control: bool,
    /// There is a connection.
    pub is_connected: bool,
    /// Calls made.
    pub calls: u64,
    /// One-way messages taken up.
    pub one_way: u64,
    /// Calls that had no answer in time.
    pub timeouts: u64,
    /// Calls and messages that were refused because too much waited.
    pub overloads: u64,
    /// Connections that ended.
    pub disconnects: u64,
    /// Bytes sent, as they are on the wire.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Calls sent and not answered.
    pub in_flight: usize,
    /// Bytes of their requests.
    pub in_flight_bytes: usize,
    /// Requests not sent.
    pub waiting: usize,
    /// Bytes of those.
    pub waiting_bytes: usize,
    /// Bytes that the kernel has not taken.
    pub outbox_bytes: usize,
}

/// What is known of a connection that a peer made to this shard.
#[derive(Clone, Debug)]
pub struct ServedMetrics {
    /// The peer.
    pub host_id: Uuid,
    /// Its shard.
    pub shard: u32,
    /// It is for the control verbs.
    pub is_control: bool,
    /// Requests and messages received.
    pub requests: u64,
    /// Those whose deadline passed before they were done.
    pub expired: u64,
    /// Those that arrived again and were not handled.
    pub repeated: u64,
    /// Those that run as tasks.
    pub handling: usize,
    /// Bytes of their requests.
    pub handling_bytes: usize,
    /// Bytes of answers that the kernel has not taken.
    pub outbox_bytes: usize,
    /// Bytes sent, as they are on the wire.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

impl Rpc {
    /// Accepts connections on this shard and answers with `handler`. Called once on every shard, each with the same
    /// configuration: a connection is handed to the shard it is for by whichever shard accepts it. Reads the files of
    /// TLS, blocking.
    ///
    /// # Errors
    /// When an address cannot be listened at, or the certificates cannot be used.
    pub fn start(config: Config, handler: Rc<dyn Handler>) -> Result<Rc<Self>, StartError> {
        let listen = |address: SocketAddr| {
            let options = ListenOptions {
                reuse_port: true,
                ..ListenOptions::default()
            };
            let bound = TcpListener::bind(address, options).and_then(|listener| Ok((listener.local_addr()?, listener)));
            bound.map_err(|error| StartError::Listen(address, error))
        };
        if config.listen_tls.is_some() && config.tls.is_none() {
            return Err(StartError::Tls("the TLS port needs a certificate".to_owned()));
        }
        let plain = config.listen.map(listen).transpose()?;
        let encrypted = config.listen_tls.map(listen).transpose()?;
        let mut rpc = Self::new(config, Some(handler))?;
        rpc.address = plain.as_ref().map(|(address, _)| *address);
        rpc.tls_address = encrypted.as_ref().map(|(address, _)| *address);
        let rpc = Rc::new(rpc);
        runtime::set_local(rpc.clone());
        for (listening, is_tls) in [(plain, false), (encrypted, true)] {
            if let Some((_, listener)) = listening {
                drop(runtime::spawn(server::accept(rpc.clone(), listener, is_tls)));
            }
        }
        Ok(rpc)
    }

    /// Only calls others: for tools that are not nodes.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn client(config: Config) -> Result<Rc<Self>, StartError> {
        Self::new(config, None).map(Rc::new)
    }

    fn new(config: Config, handler: Option<Rc<dyn Handler>>) -> Result<Self, StartError> {
        Ok(Self {
            features: config.shown_features(),
            tls: RefCell::new(config.tls.as_ref().map(Tls::load).transpose()?),
            config,
            handler,
            codec: Rc::default(),
            spares: Rc::default(),
            links: RefCell::default(),
            served: RefCell::default(),
            asked: Cell::new(0),
            hellos: HelloSlots::default(),
            member_addresses: RefCell::default(),
            accept_failures: LineLimit::of((1, ACCEPT_LOG_PERIOD), |lines| {
                log::warn!("{lines} more times a connection from a node could not be accepted");
            }),
            hellos_closed: LineLimit::new(|lines| {
                log::warn!("{lines} more connections are closed that have not identified themselves");
            }),
            stopped: Cell::new(false),
            stop: Notify::new(),
            address: None,
            tls_address: None,
        })
    }

    /// Memory for a body of so many bytes, reused from earlier ones of [`LONG_BODY_BYTES`] and more. Their bytes are
    /// still in it, with zeros after them: the caller writes all of it.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Vec<u8> {
        self.spares.take(len)
    }

    /// Takes back the memory of an answer that has been read, for those that come.
    pub fn give_back(&self, buffer: Vec<u8>) {
        self.spares.give(buffer);
    }

    /// Where plain connections are accepted, with the port that was taken.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Where TLS connections are accepted.
    #[must_use]
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_address
    }

    /// Whether a connection from this address is probably one of a member: of a node that this one calls.
    pub(crate) fn is_member(&self, address: IpAddr) -> bool {
        let links = self.links.borrow();
        self.member_addresses.borrow().contains(&address)
            || links.values().any(|link| link.peer.address.ip() == address)
    }

    /// Notes the address from which a member has connected: it may differ from the one at which this node calls it.
    pub(crate) fn note_member(&self, host_id: Uuid, address: IpAddr) {
        let is_called = self.links.borrow().range(keys_of(host_id)).next().is_some();
        let mut addresses = self.member_addresses.borrow_mut();
        if is_called && addresses.len() < MEMBER_ADDRESSES_MAX {
            addresses.insert(address);
        }
    }

    /// The link to a shard; a peer that has another address than before gets a new one.
    fn link(&self, peer: &Peer, shard: u32, lane: Lane) -> Rc<Link> {
        let mut links = self.links.borrow_mut();
        let key = (peer.host_id.as_u128(), shard, lane);
        if let Some(link) = links.get(&key)
            && link.peer == *peer
        {
            return link.clone();
        }
        let link = Link::new(*peer, shard, lane, &self.config.limits);
        let former = links.insert(key, link.clone());
        drop(links);
        if let Some(former) = former {
            former.fail(&Ended::Closed, Duration::ZERO);
        }
        link
    }

    #[inline]
    fn begin(
        self: &Rc<Self>,
        (peer, shard): (&Peer, u32),
        (purpose, deadline): (Purpose, Instant),
        (bytes, write): (usize, impl FnOnce(&mut Vec<u8>)),
        answer: AnswerTo,
    ) -> Result<Option<(Rc<Link>, Ticket)>, RpcError> {
        let bytes_max = self.config.limits.body_bytes_max;
        let bytes = bytes + purpose.bytes();
        if bytes > bytes_max {
            return Err(RpcError::TooLarge { bytes, bytes_max });
        }
        if self.stopped.get() {
            return Err(RpcError::Disconnected { may_have_run: false });
        }
        let link = self.link(peer, shard, self.config.lane(purpose.verb));
        let counters = &link.counters;
        let is_one_way = matches!(answer, AnswerTo::OneWay);
        add(if is_one_way { &counters.one_way } else { &counters.calls }, 1);
        let ticket = link.begin(self, (purpose, deadline), (bytes, write), answer)?;
        Ok(ticket.map(|ticket| (link, ticket)))
    }

    /// Sends a request to a shard of a peer. It is on its way when this returns; the result is the answer, or why there
    /// is none. Dropping the [`Call`] cancels it.
    pub fn call(
        self: &Rc<Self>,
        peer: &Peer,
        shard: u32,
        purpose: impl Into<Purpose>,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Call {
        let deadline = runtime::now() + timeout;
        let body = (body.len(), |out: &mut Vec<u8>| out.extend_from_slice(&body));
        match self.begin((peer, shard), (purpose.into(), deadline), body, AnswerTo::Task) {
            Ok(begun) => {
                let (link, ticket) = begun.expect("only one-way messages have no ticket");
                Call::waiting(link, ticket, deadline, self.config.limits.outbox_bytes_max)
            }
            Err(error) => Call::failed(error),
        }
    }

    /// Sends a request; `taker` receives the answer, with the call's number. `write` appends the body, of so many
    /// bytes, to what goes to the socket. The call has no timer: the caller gives it up when its time is over.
    ///
    /// # Errors
    /// When it is not even tried; the taker is given nothing then.
    #[inline]
    pub fn call_for(
        self: &Rc<Self>,
        target: (&Peer, u32),
        (purpose, deadline): (Purpose, Instant),
        (bytes, write): (usize, impl FnOnce(&mut Vec<u8>)),
        (taker, number): (Rc<dyn AnswerTaker>, u32),
    ) -> Result<Sent, RpcError> {
        let answer = AnswerTo::Taker(Taker { taker, number });
        let (link, ticket) = self
            .begin(target, (purpose, deadline), (bytes, write), answer)?
            .expect("only one-way messages have no ticket");
        Ok(Sent::new(link, ticket, self.config.limits.outbox_bytes_max))
    }

    /// Sends a message that has no answer, at most once and without a promise; it is dropped if it cannot leave within
    /// the timeout.
    ///
    /// # Errors
    /// When it is not even tried.
    pub fn send(
        self: &Rc<Self>,
        peer: &Peer,
        shard: u32,
        verb: u16,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<(), RpcError> {
        let deadline = runtime::now() + timeout;
        let body = (body.len(), |out: &mut Vec<u8>| out.extend_from_slice(&body));
        self.begin((peer, shard), (verb.into(), deadline), body, AnswerTo::OneWay)
            .map(drop)
    }

    /// Asks whichever node is at an address, on its first shard, by a connection of its own. Returns the node that
    /// answered, and its answer.
    ///
    /// # Errors
    /// When no node answers, or the one that does talks to no node of this cluster.
    pub async fn ask(
        self: &Rc<Self>,
        place: NodeAddress,
        verb: u16,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<(Uuid, Result<Vec<u8>, RemoteError>), RpcError> {
        if self.stopped.get() {
            return Err(RpcError::Disconnected { may_have_run: false });
        }
        let peer = Peer {
            host_id: Uuid::nil(),
            address: place.address,
            tls: place.tls,
            compress: false,
        };
        let once = Once(Link::new(peer, 0, Lane::Data, &self.config.limits));
        let link = &once.0;
        let deadline = runtime::now() + timeout;
        let body = (body.len(), |out: &mut Vec<u8>| out.extend_from_slice(&body));
        let ticket = link.begin(self, (verb.into(), deadline), body, AnswerTo::Task)?;
        let ticket = ticket.expect("only one-way messages have no ticket");
        let answer = Call::waiting(link.clone(), ticket, deadline, self.config.limits.outbox_bytes_max).await;
        let answer = match answer {
            Ok(body) => Ok(body),
            Err(RpcError::Remote(error)) => Err(error),
            Err(error) => return Err(error),
        };
        match link.host() {
            Some(host) => Ok((host, answer)),
            None => Err(RpcError::Disconnected { may_have_run: true }),
        }
    }

    /// The features that both this node and the peer's shard have; `None` while there is no connection.
    #[must_use]
    pub fn features(&self, host_id: Uuid, shard: u32) -> Option<Rc<[String]>> {
        let links = self.links.borrow();
        let host = host_id.as_u128();
        let lanes = links.range((host, shard, Lane::Data)..=(host, shard, Lane::Control));
        lanes.filter_map(|(_, link)| link.features()).next()
    }

    /// Ends all connections with a peer, in both directions. Its calls fail; a next call connects again.
    pub fn disconnect(&self, host_id: Uuid) {
        let links: Vec<_> = {
            let mut links = self.links.borrow_mut();
            let keys: Vec<_> = links.range(keys_of(host_id)).map(|(key, _)| *key).collect();
            keys.iter().filter_map(|key| links.remove(key)).collect()
        };
        for link in links {
            link.fail(&Ended::Closed, Duration::ZERO);
        }
        let of_host = (host_id, 0, Lane::Data)..=(host_id, u32::MAX, Lane::Control);
        for (_, served) in self.served.borrow().range(of_host) {
            served.close();
        }
    }

    /// Makes the next call to a peer try to connect, however short ago that failed: the peer was seen alive.
    pub fn retry_now(&self, host_id: Uuid) {
        for (_, link) in self.links.borrow().range(keys_of(host_id)) {
            link.retry_now();
        }
    }

    /// Makes new connections use other certificates. Existing connections keep theirs.
    pub fn set_tls(&self, tls: Tls) {
        *self.tls.borrow_mut() = Some(tls);
        // A peer that refused the former certificate may take this one.
        for link in self.links.borrow().values() {
            link.retry_now();
        }
    }

    /// Closes the listeners and all connections. Calls fail from now on.
    pub fn stop(&self) {
        self.stopped.set(true);
        self.stop.notify_all();
        let links = std::mem::take(&mut *self.links.borrow_mut());
        for link in links.values() {
            link.fail(&Ended::Closed, Duration::ZERO);
        }
        for served in self.served.borrow().values() {
            served.close();
        }
    }

    /// The future's output, or `None` once the listeners are closed.
    pub(crate) async fn until_stopped<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut stopped = pin!(self.stop.notified());
        let mut future = pin!(future);
        poll_fn(|context| {
            if self.stopped.get() || stopped.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            future.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// The connections to others.
    #[must_use]
    pub fn link_metrics(&self) -> Vec<LinkMetrics> {
        let links = self.links.borrow();
        let metrics = links.values().map(|link| {
            let (load, counters) = (link.load(), &link.counters);
            LinkMetrics {
                host_id: link.peer.host_id,
                shard: link.shard,
                is_control: link.lane == Lane::Control,
                is_connected: load.is_connected,
                calls: counters.calls.get(),
                one_way: counters.one_way.get(),
                timeouts: counters.timeouts.get(),
                overloads: counters.overloads.get(),
                disconnects: counters.disconnects.get(),
                sent_bytes: counters.sent_bytes.get() + load.sent_bytes,
                received_bytes: counters.received_bytes.get() + load.received_bytes,
                in_flight: load.in_flight,
                in_flight_bytes: load.in_flight_bytes,
                waiting: load.waiting,
                waiting_bytes: load.waiting_bytes,
                outbox_bytes: load.outbox_bytes,
            }
        });
        metrics.collect()
    }

    /// The connections from others.
    #[must_use]
    pub fn served_metrics(&self) -> Vec<ServedMetrics> {
        let served = self.served.borrow();
        let metrics = served.values().map(|served| ServedMetrics {
            host_id: served.caller.host_id,
            shard: served.caller.shard,
            is_control: served.lane == Lane::Control,
            requests: served.requests.get(),
            expired: served.expired.get(),
            repeated: served.repeated.get(),
            handling: served.handling.get(),
            handling_bytes: served.handling_bytes.get(),
            outbox_bytes: served.outbox.bytes(),
            sent_bytes: served.outbox.sent_bytes.get(),
            received_bytes: served.outbox.received_bytes.get(),
        });
        metrics.collect()
    }
}
