//! Client routes: where clients reach the nodes through a proxy, by private connection. `system.client_routes` shows
//! them.
//!
//! A *connection* is a way into the network of the nodes, say an endpoint of AWS PrivateLink, with an id that its
//! operator chose. A *route* says at which address and ports the proxy of a connection leads to a node. The operator of
//! the proxies keeps the routes true; the cluster stores them and notifies clients when they change. The node of a
//! route need not be a member: its routes may exist before it joins, and stay when it has left.
//!
//! Invariants: a route has an address and at least one port; no port is 0; there are [`CLIENT_ROUTES_MAX`] routes at
//! most; a text has [`TEXT_BYTES_MAX`] bytes at most. So metadata have 9 MiB of them in the worst case, and some 100
//! bytes for each in the usual one.

use crate::metadata::{Metadata, Rejected};
use record::{Field, Message, Of, RecordError};
use schema::record::uuid;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// Most client routes of a cluster. A change beyond it is rejected.
pub const CLIENT_ROUTES_MAX: usize = 16_384;
/// Longest id of a connection and longest address, in bytes of UTF-8. The longest name of a host has 253.
const TEXT_BYTES_MAX: usize = 255;

/// Which route: that of a connection to a node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientRouteKey {
    /// The connection, by the id that its operator chose.
    pub connection_id: String,
    /// The node.
    pub host_id: Uuid,
}

/// Where a proxy leads to a node. A port is missing where the proxy does not offer its protocol.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ClientRoute {
    /// The name or address of the proxy.
    pub address: String,
    /// For CQL.
    pub port: Option<u16>,
    /// For CQL by TLS.
    pub tls_port: Option<u16>,
    /// For Alternator.
    pub alternator_port: Option<u16>,
    /// For Alternator by HTTPS.
    pub alternator_https_port: Option<u16>,
}

/// Routes by connection and node.
pub type ClientRoutes = BTreeMap<ClientRouteKey, ClientRoute>;

/// A change of client routes. It is applied all or not at all.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ClientRoutesChange {
    /// Routes that are these from now on, whether they were there or not.
    pub put: ClientRoutes,
    /// Routes that are gone from now on, whether they were there or not.
    pub removed: BTreeSet<ClientRouteKey>,
}

/// The routes that differ between `before` and `after`, or are in one of them only.
#[must_use]
pub fn changed_client_routes(before: &ClientRoutes, after: &ClientRoutes) -> Vec<ClientRouteKey> {
    let gone = before.keys().filter(|key| !after.contains_key(key));
    let other = after.iter().filter(|(key, route)| before.get(key) != Some(route));
    let changed: BTreeSet<&ClientRouteKey> = gone.chain(other.map(|(key, _)| key)).collect();
    changed.into_iter().cloned().collect()
}

impl Metadata {
    pub(crate) fn change_client_routes(&mut self, change: &ClientRoutesChange) -> Result<(), Rejected> {
        let invalid = |why| Rejected::Invalid { why };
        let routes = Arc::make_mut(&mut self.client_routes);
        for key in &change.removed {
            routes.remove(key);
        }
        for (key, route) in &change.put {
            check(key, route).map_err(invalid)?;
            routes.insert(key.clone(), route.clone());
        }
        match routes.len() {
            0..=CLIENT_ROUTES_MAX => Ok(()),
            routes => Err(invalid(format!(
                "there would be {routes} client routes; {CLIENT_ROUTES_MAX} are the most"
            ))),
        }
    }
}

fn check(key: &ClientRouteKey, route: &ClientRoute) -> Result<(), String> {
    let texts = [("connection_id", &key.connection_id), ("address", &route.address)];
    for (name, text) in texts {
        match text.len() {
            0 => return Err(format!("the {name} of a client route is empty")),
            1..=TEXT_BYTES_MAX => {}
            bytes => {
                return Err(format!(
                    "the {name} of a client route has {bytes} bytes; {TEXT_BYTES_MAX} are the most"
                ));
            }
        }
    }
    let ports: Vec<u16> = route.ports().into_iter().flatten().collect();
    match ports.as_slice() {
        [] => Err(format!(
            "the client route of connection '{}' to node {} needs a port",
            key.connection_id, key.host_id
        )),
        ports if ports.contains(&0) => Err("a port of a client route is 0; ports begin at 1".to_owned()),
        _ => Ok(()),
    }
}

impl ClientRoute {
    fn ports(&self) -> [Option<u16>; 4] {
        [
            self.port,
            self.tls_port,
            self.alternator_port,
            self.alternator_https_port,
        ]
    }
}

/// A route, in a command and in the metadata; in a command without an address, one that is removed.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClientRouteRecord {
    #[prost(string, tag = "1")]
    connection_id: String,
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "2")]
    host_id: Vec<u8>,
    #[prost(string, optional, tag = "3")]
    address: Option<String>,
    #[prost(uint32, optional, tag = "4")]
    port: Option<u32>,
    #[prost(uint32, optional, tag = "5")]
    tls_port: Option<u32>,
    #[prost(uint32, optional, tag = "6")]
    alternator_port: Option<u32>,
    #[prost(uint32, optional, tag = "7")]
    alternator_https_port: Option<u32>,
}

/// A command.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ClientRoutesRecord {
    /// By connection and node, those that are removed first.
    #[prost(message, repeated, tag = "1")]
    routes: Vec<ClientRouteRecord>,
}

pub(crate) static ROUTE: Message = Message::new(
    "client route",
    &[
        Field::new(1, "connection_id", Of::Text),
        Field::new(2, "host_id", Of::Bytes),
        Field::new(3, "address", Of::Text),
        Field::new(4, "port", Of::U32),
        Field::new(5, "tls_port", Of::U32),
        Field::new(6, "alternator_port", Of::U32),
        Field::new(7, "alternator_https_port", Of::U32),
    ],
);
pub(crate) static ROUTES: Message = Message::new("client routes", &[Field::list(1, "routes", Of::Record(&ROUTE))]);

impl ClientRoutesRecord {
    pub(crate) fn of(change: &ClientRoutesChange) -> Self {
        let removed = change.removed.iter().map(ClientRouteRecord::of_key);
        let put = change.put.iter().map(ClientRouteRecord::of);
        Self {
            routes: removed.chain(put).collect(),
        }
    }

    pub(crate) fn change(self) -> Result<ClientRoutesChange, RecordError> {
        let mut change = ClientRoutesChange::default();
        for record in self.routes {
            match record.route()? {
                (key, Some(route)) => drop(change.put.insert(key, route)),
                (key, None) => drop(change.removed.insert(key)),
            }
        }
        Ok(change)
    }
}

impl ClientRouteRecord {
    fn of_key(key: &ClientRouteKey) -> Self {
        Self {
            connection_id: key.connection_id.clone(),
            host_id: key.host_id.as_bytes().to_vec(),
            ..Self::default()
        }
    }

    /// The record that the metadata stores.
    pub(crate) fn of((key, route): (&ClientRouteKey, &ClientRoute)) -> Self {
        let [port, tls_port, alternator_port, alternator_https_port] = route.ports().map(|port| port.map(u32::from));
        Self {
            address: Some(route.address.clone()),
            port,
            tls_port,
            alternator_port,
            alternator_https_port,
            ..Self::of_key(key)
        }
    }

    fn route(self) -> Result<(ClientRouteKey, Option<ClientRoute>), RecordError> {
        let port = |name: &str, port: Option<u32>| {
            let port = port.map(u16::try_from).transpose();
            port.map_err(|_| RecordError::damaged(format!("client route, {name}"), "it is no port"))
        };
        let key = ClientRouteKey {
            host_id: uuid(&self.host_id, "client route, host_id")?,
            connection_id: self.connection_id,
        };
        let mut route = ClientRoute {
            address: String::new(),
            port: port("port", self.port)?,
            tls_port: port("tls_port", self.tls_port)?,
            alternator_port: port("alternator_port", self.alternator_port)?,
            alternator_https_port: port("alternator_https_port", self.alternator_https_port)?,
        };
        match self.address {
            Some(address) => {
                route.address = address;
                Ok((key, Some(route)))
            }
            None if route == ClientRoute::default() => Ok((key, None)),
            None => Err(RecordError::damaged("client route, address", "it is missing")),
        }
    }

    /// The route of the metadata.
    ///
    /// # Errors
    /// When it has no address.
    pub(crate) fn known(self) -> Result<(ClientRouteKey, ClientRoute), RecordError> {
        let missing = || RecordError::damaged("metadata, client_routes, address", "it is missing");
        let (key, route) = self.route()?;
        Ok((key, route.ok_or_else(missing)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::command::Command;
    use schema::Schema;
    use topology::Topology;

    fn key(connection_id: &str, node: u128) -> ClientRouteKey {
        ClientRouteKey {
            connection_id: connection_id.to_owned(),
            host_id: Uuid::from_u128(node),
        }
    }

    fn route(address: &str, port: u16) -> ClientRoute {
        ClientRoute {
            address: address.to_owned(),
            port: Some(port),
            ..ClientRoute::default()
        }
    }

    fn metadata() -> Metadata {
        let schema = Schema {
            version: Uuid::from_u128(1),
            keyspaces: BTreeMap::new(),
        };
        let topology = Topology::new("sea", Uuid::from_u128(5));
        Metadata::new(Arc::new(schema), topology)
    }

    fn after(metadata: &Metadata, change: ClientRoutesChange) -> Result<Metadata, String> {
        let applied = metadata.apply(9, &Command::ClientRoutes(change));
        applied.map_err(|why| why.to_string())
    }

    fn put(routes: impl IntoIterator<Item = (ClientRouteKey, ClientRoute)>) -> ClientRoutesChange {
        ClientRoutesChange {
            put: routes.into_iter().collect(),
            ..ClientRoutesChange::default()
        }
    }

    #[test]
    fn a_change_replaces_whole_routes_and_says_which_are_others() {
        let before = metadata();
        let tls = ClientRoute {
            tls_port: Some(2),
            ..route("a", 1)
        };
        let first = put([
            (key("c", 1), tls),
            (key("c", 2), route("a", 1)),
            (key("d", 1), route("b", 1)),
        ]);
        let one = after(&before, first.clone()).expect("three routes are put");
        assert_eq!(
            changed_client_routes(&before.client_routes, &one.client_routes),
            [key("c", 1), key("c", 2), key("d", 1)]
        );
        let second = ClientRoutesChange {
            removed: BTreeSet::from([key("d", 1), key("d", 7)]),
            ..put([(key("c", 1), route("a", 1)), (key("c", 2), route("a", 1))])
        };
        let two = after(&one, second).expect("one that is not there may be removed");
        assert_eq!(
            two.client_routes.get(&key("c", 1)),
            Some(&route("a", 1)),
            "the TLS port is gone"
        );
        assert_eq!(
            changed_client_routes(&one.client_routes, &two.client_routes),
            [key("c", 1), key("d", 1)],
            "a route that is put as it was is the same"
        );
        assert_eq!(one.client_routes.len(), 3, "what was before stays as it was");
    }

    #[test]
    fn a_change_that_has_one_bad_route_changes_nothing() {
        let cases = [
            (
                (key("", 1), route("a", 1)),
                "the connection_id of a client route is empty",
            ),
            ((key("c", 1), route("", 1)), "the address of a client route is empty"),
            (
                (key(&"c".repeat(256), 1), route("a", 1)),
                "the connection_id of a client route has 256 bytes; 255 are the most",
            ),
            (
                (key("c", 1), route(&"a".repeat(256), 1)),
                "the address of a client route has 256 bytes; 255 are the most",
            ),
            (
                (key("c", 1), route("a", 0)),
                "a port of a client route is 0; ports begin at 1",
            ),
            (
                (
                    key("c", 1),
                    ClientRoute {
                        port: None,
                        ..route("a", 0)
                    },
                ),
                "the client route of connection 'c' to node 00000000-0000-0000-0000-000000000001 needs a port",
            ),
        ];
        for (bad, expected) in cases {
            let change = put([(key("b", 1), route("a", 1)), bad]);
            assert_eq!(after(&metadata(), change), Err(expected.to_owned()));
        }
        let full = put((0..CLIENT_ROUTES_MAX).map(|node| (key("c", node as u128), route("a", 1))));
        let full = after(&metadata(), full).expect("as many as may be");
        let more = put([(key("d", 1), route("a", 1))]);
        assert_eq!(
            after(&full, more.clone()),
            Err("there would be 16385 client routes; 16384 are the most".to_owned())
        );
        let instead = ClientRoutesChange {
            removed: BTreeSet::from([key("c", 1)]),
            ..more
        };
        assert!(after(&full, instead).is_ok(), "one for another");
    }

    #[test]
    fn records_that_are_no_routes_are_damaged() {
        let good = ClientRouteRecord::of((&key("c", 1), &route("a", 65535)));
        assert_eq!(good.clone().known(), Ok((key("c", 1), route("a", 65535))));
        let bad = [
            ClientRouteRecord {
                port: Some(65536),
                ..good.clone()
            },
            ClientRouteRecord {
                host_id: vec![1],
                ..good.clone()
            },
            ClientRouteRecord { address: None, ..good },
        ];
        for record in bad {
            assert!(record.clone().known().is_err(), "{record:?}");
            let command = ClientRoutesRecord { routes: vec![record] };
            assert!(command.clone().change().is_err(), "{command:?}");
        }
    }
}
