//! The connected clients, as front doors and operators list them.
//!
//! Each shard has a list of its own connections and alone changes it: when a connection opens, is ready, changes what
//! it does, or closes. What shows clients reads all lists, so they have locks; no request of a client takes one.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use runtime::Group;

/// The connections of a node, by shard.
#[derive(Debug)]
pub struct Clients {
    shards: Vec<Mutex<Shard>>,
}

#[derive(Default, Debug)]
struct Shard {
    /// By numbers that grow.
    open: BTreeMap<u64, Arc<Client>>,
    opened: u64,
}

/// How far a connection has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Established,
    Ready,
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    protocol: &'static str,
    address: SocketAddr,
    shard: u32,
    requests: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    group: Group,
    protocol_version: Option<u8>,
    options: BTreeMap<String, String>,
    tls: Option<(String, String)>,
}

/// A connection, as it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientInfo {
    /// The protocol that it speaks.
    pub protocol: &'static str,
    /// The client's address.
    pub address: IpAddr,
    /// The client's port.
    pub port: u16,
    /// The shard that serves it.
    pub shard: u32,
    /// Its host name, or its address when it has none.
    pub hostname: String,
    /// The user that logged in; `anonymous` where no login is required.
    pub username: String,
    /// How far it came: `established`, `authenticating` or `ready`.
    pub connection_stage: String,
    /// The scheduling group that its requests run in.
    pub scheduling_group: String,
    /// The version of the protocol that it speaks, once it is ready.
    pub protocol_version: Option<u8>,
    /// What it said of itself in the handshake.
    pub driver_name: Option<String>,
    /// What it said of itself in the handshake.
    pub driver_version: Option<String>,
    /// All options of its handshake.
    pub client_options: BTreeMap<String, String>,
    /// How many requests it made.
    pub request_count: i64,
    /// TLS protocol and cipher suite of an encrypted connection.
    pub tls: Option<(String, String)>,
}

/// A connection that is listed until this is dropped.
#[derive(Debug)]
pub struct Listed {
    clients: Arc<Clients>,
    number: u64,
    client: Arc<Client>,
}

impl Clients {
    /// For a node with so many shards; no client is connected.
    pub fn new(shards: u32) -> Self {
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
        }
    }

    /// Lists a connection of a shard.
    pub fn open(self: &Arc<Self>, protocol: &'static str, shard: u32, address: SocketAddr) -> Listed {
        let client = Arc::new(Client {
            protocol,
            address,
            shard,
            requests: AtomicU64::new(0),
            state: Mutex::new(State {
                stage: Stage::Established,
                group: Group::STATEMENT,
                protocol_version: None,
                options: BTreeMap::new(),
                tls: None,
            }),
        });
        let mut list = self.lock(shard);
        list.opened += 1;
        let number = list.opened;
        list.open.insert(number, client.clone());
        drop(list);
        Listed {
            clients: Arc::clone(self),
            number,
            client,
        }
    }

    fn lock(&self, shard: u32) -> MutexGuard<'_, Shard> {
        self.shards[shard as usize]
            .lock()
            .expect("no thread panics while holding a list of connections")
    }

    /// All connections of the node.
    pub fn list(&self) -> Vec<ClientInfo> {
        let shards = 0..u32::try_from(self.shards.len()).unwrap_or(u32::MAX);
        shards
            .flat_map(|shard| self.lock(shard).open.values().cloned().collect::<Vec<_>>())
            .map(|client| client.info())
            .collect()
    }
}

impl Client {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(
            &mut self
                .state
                .lock()
                .expect("no thread panics while holding a connection's state"),
        );
    }

    /// It runs in this scheduling group from now on.
    pub fn set_group(&self, group: Group) {
        self.change(|state| state.group = group);
    }

    /// It is ready: this protocol version was agreed on, and these were the options of its handshake.
    pub fn started(&self, protocol_version: u8, options: BTreeMap<String, String>) {
        self.change(|state| {
            (state.protocol_version, state.options) = (Some(protocol_version), options);
            state.stage = Stage::Ready;
        });
    }

    /// It is encrypted, with this protocol and cipher suite.
    pub fn set_tls(&self, tls: Option<(String, String)>) {
        self.change(|state| state.tls = tls);
    }

    /// Counts requests. Only the connection's own shard does.
    #[inline]
    pub fn add_requests(&self, count: u64) {
        let before = self.requests.load(Ordering::Relaxed);
        self.requests.store(before + count, Ordering::Relaxed);
    }

    fn info(&self) -> ClientInfo {
        let state = self
            .state
            .lock()
            .expect("no thread panics while holding a connection's state");
        let address = self.address.ip().to_canonical();
        let stage = match state.stage {
            Stage::Established => "established",
            Stage::Ready => "ready",
        };
        ClientInfo {
            protocol: self.protocol,
            address,
            port: self.address.port(),
            shard: self.shard,
            hostname: address.to_string(),
            username: crate::ANONYMOUS.to_owned(),
            connection_stage: stage.to_owned(),
            scheduling_group: state.group.name(),
            protocol_version: state.protocol_version,
            driver_name: state.options.get("DRIVER_NAME").cloned(),
            driver_version: state.options.get("DRIVER_VERSION").cloned(),
            client_options: state.options.clone(),
            request_count: i64::try_from(self.requests.load(Ordering::Relaxed)).unwrap_or(i64::MAX),
            tls: state.tls.clone(),
        }
    }
}

impl Deref for Listed {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.clients.lock(self.client.shard).open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_listed_as_it_is_until_it_ends() {
        let clients = Arc::new(Clients::new(2));
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let (first, second) = (
            clients.open("CQL", 1, address(40001)),
            clients.open("CQL", 0, address(40002)),
        );
        first.started(5, [("DRIVER_NAME".to_owned(), "a driver".to_owned())].into());
        first.add_requests(2);
        first.add_requests(3);
        let listed = clients.list();
        let told: Vec<_> = listed
            .iter()
            .map(|c| {
                (
                    c.port,
                    c.shard,
                    &*c.connection_stage,
                    c.protocol_version,
                    c.request_count,
                )
            })
            .collect();
        assert_eq!(
            told,
            [(40002, 0, "established", None, 0), (40001, 1, "ready", Some(5), 5)]
        );
        assert_eq!(listed[1].driver_name.as_deref(), Some("a driver"));
        drop(second);
        assert_eq!(clients.list().len(), 1, "a connection that ended is still listed");
    }
}
