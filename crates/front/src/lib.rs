//! The front: what the server of every client protocol needs, and which protocol it is does not matter here.
//!
//! A *front door* (`cql_server` is one) speaks a protocol on top of it: it makes requests of bytes, executes them, and
//! writes answers. From here it has
//!
//! - [`listeners`]: ports, the maintenance socket, headers of proxies, and the hand-over of connections to other
//!   shards;
//! - admission: how many connections are let in, and how many handshakes are at work ([`Accepted`]);
//! - [`Session`]: a connection after its handshake, with its principal, its requests in flight and its memory;
//! - [`Memory`]: the shard's limits of requests, frames, results and unsent answers ([`ClientMemory`]);
//! - [`Outbox`] and [`Input`]: answers on their way, and what was read and not executed;
//! - [`Slots`], [`RunningRequest`], [`SlowRequest`], [`RequestTrace`], [`Counts`]: requests in flight, those that are
//!   listed, logged, traced and counted;
//! - [`Tls`]: encrypted connections;
//! - [`Session::permits`]: the one place that refuses a request to a principal.
//!
//! Lives on each shard; all front doors of the shard share one [`Front`]. Accepting, handshakes, and connections that
//! only their drivers have used so far run in a group of few shares, [`DRIVERS_GROUP`]: however many come, those that
//! work are served first.

mod admission;
mod answers;
mod client_memory;
mod clients;
mod counts;
#[doc(hidden)]
pub mod fuzz;
mod input;
pub mod listeners;
mod node_state;
mod outbox;
mod principal;
mod proxied;
mod proxy_header;
mod running;
mod session;
mod slots;
mod slow;
mod tls;
mod trace;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use logging::LineLimit;
use runtime::{Group, Notify};

use admission::Admission;
use proxied::Headers;

pub use admission::{Arrivals, UNINITIALIZED_MAX, Uninitialized};
pub use answers::{AnswerSize, ROW_BYTES_FIRST};
pub use client_memory::{ClientMemory, LITTLE_UNSENT_BYTES, Memory, SplitMemory, UnsentMemory};
pub use clients::{Client, ClientInfo, Clients, Listed};
pub use counts::{Counts, OWNER_EVERY, increment};
pub use input::{Framer, Input, Unread};
pub use listeners::{Accepted, Door, Endpoints, Listeners, MaintenanceSocket};
pub use node_state::{NodeState, SlowThreshold, TraceProbability};
pub use outbox::{Encoder, Outbox, Plain};
pub use principal::{ANONYMOUS, Access, Operation, Permissions, Principal, Unauthorized};
pub use running::{RunningRequest, RunningTask};
pub use session::{
    ANSWER_BYTES_MAX, HANDSHAKE_TIME_MAX, IN_FLIGHT_MAX, LONG_REQUEST_BYTES, OUTBOX_BYTES_MAX, PENDING_BYTES, Session,
    TASK_BYTES, Writer, long_request_bytes,
};
pub use slots::{Slot, Slots};
pub use slow::{SlowRequest, shortened};
pub use tls::{SharedTls, Tls, TlsFiles, TlsSession};
pub use trace::RequestTrace;

/// The scheduling group of what drivers do for themselves, and its shares: a sixth of the processor while requests want
/// all of it.
pub const DRIVERS_GROUP: (&str, u32) = ("sl:driver", 200);
/// Default of the handshakes of a shard that work at once.
pub const HANDSHAKES_MAX: usize = 8;

/// That connections cannot be accepted is logged once in so long.
const ACCEPT_LOG_PERIOD: Duration = Duration::from_secs(60);

/// How the front is set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Connections of a shard.
    pub connections_max: usize,
    /// Those of them that may work for their handshake at once.
    pub handshakes_max: usize,
    /// Those of them whose handshake may be under way.
    pub uninitialized_max: usize,
    /// How many shards the node has.
    pub shards: u32,
    /// What of the shard's memory clients may take.
    pub memory: ClientMemory,
}

/// A connection after its handshake, as the front knows it.
pub trait Connection {
    /// Its session.
    fn session(&self) -> &Session;

    /// Shows its requests that wait or run. The name of each is the client's number for it.
    fn running(&self, show: &mut dyn FnMut(RunningRequest));
}

/// Listens for a front door again.
type Reopen = Box<dyn Fn() -> io::Result<()>>;

/// What the front doors of one shard share.
pub struct Front {
    /// What the shards of the node share.
    pub node: Arc<NodeState>,
    /// How it is set up.
    pub options: Options,
    /// What clients have taken of the shard's memory.
    pub memory: Memory,
    /// What is counted of their requests.
    pub counts: Counts,
    pub(crate) drivers_group: Group,
    admission: Rc<Admission>,
    connections: Cell<usize>,
    /// It takes no requests: the node is out of service, or ends.
    draining: Cell<bool>,
    /// It never takes any again.
    is_ending: Cell<bool>,
    drain_begins: Notify,
    /// Notified of the end of each connection while the node drains.
    connection_ended: Notify,
    /// The connections that are open, and some that were.
    begun: RefCell<Vec<Weak<dyn Connection>>>,
    doors: RefCell<Vec<Reopen>>,
    pub(crate) slow: LineLimit,
    pub(crate) accept_failures: LineLimit,
    /// Connections that were closed in the middle of a request.
    pub(crate) unread: LineLimit,
    pub(crate) headers: Headers,
}

impl Front {
    /// Of a shard without clients.
    #[must_use]
    pub fn new(node: Arc<NodeState>, options: Options) -> Rc<Self> {
        Rc::new(Self {
            node,
            options,
            memory: Memory::new(options.memory),
            counts: Counts::default(),
            drivers_group: Group::new(DRIVERS_GROUP.0, DRIVERS_GROUP.1),
            admission: Admission::new(options.handshakes_max, options.uninitialized_max),
            connections: Cell::new(0),
            draining: Cell::new(false),
            is_ending: Cell::new(false),
            drain_begins: Notify::new(),
            connection_ended: Notify::new(),
            begun: RefCell::default(),
            doors: RefCell::default(),
            slow: slow::limit(),
            accept_failures: LineLimit::of((1, ACCEPT_LOG_PERIOD), |lines| {
                log::warn!("{lines} more times a connection of a client could not be accepted");
            }),
            unread: LineLimit::new(|lines| {
                log::warn!("{lines} more connections are closed in the middle of a request");
            }),
            headers: Headers::default(),
        })
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.get()
    }

    /// What came of the connections that came.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        self.admission.arrivals()
    }

    /// Lets a connection in; None: it is to be closed at once.
    fn admit(&self) -> Option<Uninitialized> {
        let is_full = self.connections.get() >= self.options.connections_max;
        let uninitialized = self.admission.admit(is_full)?;
        self.connections.set(self.connections.get() + 1);
        Some(uninitialized)
    }

    /// A connection that was let in has ended.
    fn note_end(&self) {
        self.connections.set(self.connections.get() - 1);
        if self.draining.get() {
            self.connection_ended.notify_all();
        }
    }

    /// A connection's handshake is done: from now on it is listed and drained.
    pub fn note_connection<C: Connection + 'static>(&self, connection: &Rc<C>) {
        let mut begun = self.begun.borrow_mut();
        if begun.len() == begun.capacity() {
            begun.retain(|known| known.strong_count() > 0);
        }
        let weak = Rc::downgrade(connection);
        begun.push(weak);
    }

    /// The connections that are open and ready.
    pub(crate) fn open_connections(&self) -> Vec<Rc<dyn Connection>> {
        self.begun.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    fn note_door(&self, reopen: Reopen) {
        self.doors.borrow_mut().push(reopen);
    }

    /// Whether the node takes no requests.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// The result of a future; None when the node drains before.
    pub async fn until_drain<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut drain_begins = pin!(self.drain_begins.notified());
        let mut future = pin!(future);
        poll_fn(|context| {
            if self.draining.get() || drain_begins.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            future.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// Permanently stops accepting clients; [`Front::close`] does so for a while.
    pub async fn drain(&self, patience: Duration) {
        self.is_ending.set(true);
        self.close(patience).await;
    }

    /// Accepts clients again after [`Front::close`], unless the node ends.
    ///
    /// # Errors
    /// When another process listens at an address of a front door by now.
    pub fn reopen(&self) -> io::Result<()> {
        if self.is_ending.get() || !self.draining.get() {
            return Ok(());
        }
        self.draining.set(false);
        let opened = self.doors.borrow().iter().try_for_each(|reopen| reopen());
        opened.inspect_err(|_| self.draining.set(true))
    }

    /// Stops accepting and reading requests; what was read is answered, and then the connections end. Returns when all
    /// have, or after `patience`: a client may take no answers.
    pub async fn close(&self, patience: Duration) {
        self.draining.set(true);
        self.drain_begins.notify_all();
        for connection in self.open_connections() {
            connection.session().outbox.end_input();
        }
        let all_ended = async {
            loop {
                let ended = self.connection_ended.notified();
                if self.connections.get() == 0 {
                    return;
                }
                ended.await;
            }
        };
        if runtime::timeout(patience, all_ended).await.is_err() {
            log::warn!(
                "{} connections of clients are closed whose requests did not end, or that took no answers, in {} s",
                self.connections.get(),
                patience.as_secs()
            );
        }
    }
}
