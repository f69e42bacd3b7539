//! The CQL server: frames, prepared statements, answers, events.
//!
//! A front door on top of [`front`], which has its listeners, admission, sessions and memory. Each shard serves its
//! connections wholly: requests of one socket read are executed in a loop, their answers go into one buffer, the log is
//! committed once, and one write sends them ([`connection`]). What cannot be answered in one call becomes a task of the
//! connection, bounded in number and bytes.
//!
//! A frame above [`Options::frame_bytes_max`] ends its connection with an error. All other limits are the front's.

mod access;
mod batch;
mod cells;
mod client_tables;
mod connection;
mod counts;
mod dispatch;
mod events;
mod handshake;
mod long;
mod metadata;
mod pending;
mod prepare;
mod respond;
mod running;
mod slow;
mod startup;
mod tablets;
mod tracing;
mod values;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use cql_protocol::ClusterEvent;
use ddl::SchemaChange;
use front::{Accepted, Door, Endpoints, Front};
use query::Engine;
use schema::TableId;
use types::Token;

use events::Events;

pub use cells::{CellWriter, Cells};
pub use client_tables::register_system_tables;
pub use counts::Counts;
pub use cql_protocol::TabletRoute;
pub use events::MemberEvent;

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens.
    pub endpoints: Endpoints,
    /// The longest frame, in bytes.
    pub frame_bytes_max: usize,
    /// The node's identity, sent in SUPPORTED.
    pub host_id: uuid::Uuid,
    /// The partitioner's class name.
    pub partitioner: String,
    /// The CQL version, sent in SUPPORTED.
    pub cql_version: String,
    /// Whether clients may agree on `TABLETS_ROUTING_V2_EXPERIMENTAL`.
    pub tablets_routing_v2: bool,
}

/// The location of a statement's tablet, if its table has tablets, it names one partition, and this shard is none of
/// the tablet's replicas. Called for statements that this shard did not answer at once, on connections that request it.
pub type Routes = Box<dyn Fn(TableId, Token) -> Option<TabletRoute>>;

/// One shard's CQL server.
pub struct Server {
    pub(crate) front: Rc<Front>,
    pub(crate) engine: Rc<Engine>,
    pub(crate) options: Options,
    pub(crate) events: Events,
    /// Finds the location of a statement's tablet.
    pub(crate) routes: RefCell<Option<Routes>>,
    /// A partition key and a clustering key in the making; kept for their memory.
    pub(crate) key_scratch: RefCell<(Vec<u8>, Vec<u8>)>,
    pub(crate) counts: Counts,
}

impl Server {
    /// A server over an engine.
    pub fn new(engine: Rc<Engine>, front: Rc<Front>, options: Options) -> Rc<Self> {
        let server = Rc::new(Self {
            front,
            engine: engine.clone(),
            options,
            events: Events::default(),
            routes: RefCell::default(),
            key_scratch: RefCell::default(),
            counts: Counts::default(),
        });
        let listener = Rc::downgrade(&server);
        engine.set_listener(Box::new(move |change| {
            if let Some(server) = listener.upgrade() {
                server.tell(change);
            }
        }));
        server
    }

    /// What was counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Sets the function that finds where tablets are; without it clients are not notified.
    pub fn set_routes(&self, routes: Routes) {
        *self.routes.borrow_mut() = Some(routes);
    }

    /// Sends this shard's registered connections the event of a member; `native` is where clients reach it.
    pub fn member_changed(&self, event: MemberEvent, native: SocketAddr) {
        self.events.tell(&events::of_member(event, native));
    }

    /// Sends this shard's registered connections the event that client routes changed. `changed` has the connection id
    /// and the host id of each.
    pub fn client_routes_changed(&self, changed: &[(String, String)]) {
        events::client_routes(changed, |event| self.events.tell(event));
    }

    /// Sends registered connections the event of a schema change.
    fn tell(&self, change: &SchemaChange) {
        self.events.tell(&ClusterEvent::Schema(respond::schema_change(change)));
    }
}

impl Door for Server {
    fn front(&self) -> &Rc<Front> {
        &self.front
    }

    fn endpoints(&self) -> &Endpoints {
        &self.options.endpoints
    }

    async fn serve(self: Rc<Self>, connection: Accepted) {
        connection::run(&self, connection).await;
    }
}
