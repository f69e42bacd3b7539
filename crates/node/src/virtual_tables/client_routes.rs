//! `system.client_routes`: where clients reach the nodes through proxies, by private connection. All nodes have the
//! same; it is changed by the REST API alone.

use std::ops::Range;
use std::sync::Arc;

use ::cluster::{ClientRoute, ClientRouteKey};
use system_tables::{Content, Definition, Opening, Options, Partitions, Request, Rows, Value, VirtualTable, ready};

use super::info::About;

static CLIENT_ROUTES: Definition = Definition {
    keyspace: "system",
    cql: "client_routes (connection_id text, host_id uuid, address text, port int, tls_port int, alternator_port int, \
     alternator_https_port int, PRIMARY KEY (connection_id, host_id))",
    options: Options::NO_GRACE,
};

/// The table. A partition is a connection.
pub(super) struct Table(pub(super) Arc<About>);

impl VirtualTable for Table {
    fn definition(&self) -> &'static Definition {
        &CLIENT_ROUTES
    }

    fn open(&self, request: Request) -> Opening<'_> {
        let routes = self.0.info().client_routes.clone();
        let wanted = routes
            .iter()
            .filter(|(key, _)| request.wanted.includes(key.connection_id.as_bytes()));
        let routes: Vec<(ClientRouteKey, ClientRoute)> =
            wanted.map(|(key, route)| (key.clone(), route.clone())).collect();
        let mut connections: Vec<Range<usize>> = Vec::new();
        for (number, (key, _)) in routes.iter().enumerate() {
            match connections.last_mut() {
                Some(last) if routes[last.start].0.connection_id == key.connection_id => last.end = number + 1,
                _ => connections.push(number..number + 1),
            }
        }
        ready(Routes { routes, connections })
    }
}

struct Routes {
    /// By connection and node.
    routes: Vec<(ClientRouteKey, ClientRoute)>,
    /// Which of them are of each connection.
    connections: Vec<Range<usize>>,
}

impl Content for Routes {
    fn partitions(&self, partitions: &mut Partitions) {
        for (number, connection) in self.connections.iter().enumerate() {
            let (key, _) = &self.routes[connection.start];
            partitions.add(number, &[Value::Text(&key.connection_id)]);
        }
    }

    fn rows(&self, partition: usize, rows: &mut Rows<'_>) {
        let port = |port: Option<u16>| port.map_or(Value::Null, |port| Value::Int(i32::from(port)));
        for (key, route) in &self.routes[self.connections[partition].clone()] {
            rows.push(&[
                ("connection_id", Value::Text(&key.connection_id)),
                ("host_id", Value::Uuid(key.host_id)),
                ("address", Value::Text(&route.address)),
                ("port", port(route.port)),
                ("tls_port", port(route.tls_port)),
                ("alternator_port", port(route.alternator_port)),
                ("alternator_https_port", port(route.alternator_https_port)),
            ]);
        }
    }
}
