//! `system.clients` and `system_views.clients`: the connected clients, in ScyllaDB's and in Cassandra's columns.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use front::{ClientInfo, Clients};
use system_tables::{
    Builder, Content, Definition, Opening, Options, Partitions, Request, Rows, Value, VirtualTable, ready,
};

static OF_SCYLLADB: Definition = Definition {
    keyspace: "system",
    cql: "clients (address inet, port int, client_type text, client_options frozen<map<text, text>>, \
     connection_stage text, driver_name text, driver_version text, hostname text, protocol_version int, \
     scheduling_group text, shard_id int, ssl_cipher_suite text, ssl_enabled boolean, ssl_protocol text, \
     username text, PRIMARY KEY (address, port, client_type))",
    options: Options::NO_GRACE,
};

static OF_CASSANDRA: Definition = Definition {
    keyspace: "system_views",
    cql: "clients (address inet, port int, client_options frozen<map<text, text>>, connection_stage text, \
     driver_name text, driver_version text, hostname text, protocol_version int, request_count bigint, \
     ssl_cipher_suite text, ssl_enabled boolean, ssl_protocol text, username text, PRIMARY KEY (address, port))",
    options: Options::USUAL,
};

/// Registers the tables of a node's clients.
pub fn register_system_tables(tables: &mut Builder, clients: &Arc<Clients>) {
    for (definition, fill) in [(&OF_SCYLLADB, of_scylladb as Fill), (&OF_CASSANDRA, of_cassandra)] {
        tables.virtual_table(Arc::new(ClientTable {
            definition,
            fill,
            clients: clients.clone(),
        }));
    }
}

/// Adds the row of a client.
type Fill = fn(&ClientInfo, &mut Rows<'_>);

/// A table of clients. A partition is an address.
struct ClientTable {
    definition: &'static Definition,
    fill: Fill,
    clients: Arc<Clients>,
}

impl VirtualTable for ClientTable {
    fn definition(&self) -> &'static Definition {
        self.definition
    }

    fn open(&self, _: Request) -> Opening<'_> {
        ready(content(self.clients.list(), self.fill))
    }
}

/// The content that shows these clients.
fn content(clients: Vec<ClientInfo>, fill: Fill) -> impl Content {
    let mut by_address: BTreeMap<IpAddr, Vec<ClientInfo>> = BTreeMap::new();
    for client in clients {
        by_address.entry(client.address).or_default().push(client);
    }
    for clients in by_address.values_mut() {
        clients.sort_by_key(|client| client.port);
    }
    ClientContent {
        addresses: by_address.into_iter().collect(),
        fill,
    }
}

struct ClientContent {
    /// Clients by port.
    addresses: Vec<(IpAddr, Vec<ClientInfo>)>,
    fill: Fill,
}

impl Content for ClientContent {
    fn partitions(&self, partitions: &mut Partitions) {
        for (number, (address, _)) in self.addresses.iter().enumerate() {
            partitions.add(number, &[Value::Inet(*address)]);
        }
    }

    fn rows(&self, partition: usize, rows: &mut Rows<'_>) {
        for client in &self.addresses[partition].1 {
            if rows.is_full() {
                return;
            }
            if rows.wants(&[Value::Int(i32::from(client.port))]) {
                (self.fill)(client, rows);
            }
        }
    }
}

fn protocol_version(client: &ClientInfo) -> Value<'_> {
    client
        .protocol_version
        .map_or(Value::Null, |v| Value::Int(i32::from(v)))
}

/// The TLS protocol and the cipher suite.
fn tls(client: &ClientInfo) -> (Value<'_>, Value<'_>) {
    match &client.tls {
        Some((protocol, cipher)) => (Value::Text(protocol), Value::Text(cipher)),
        None => (Value::Null, Value::Null),
    }
}

fn of_scylladb(client: &ClientInfo, rows: &mut Rows<'_>) {
    let (protocol, cipher) = tls(client);
    rows.push(&[
        ("address", Value::Inet(client.address)),
        ("port", Value::Int(i32::from(client.port))),
        ("client_type", Value::Text(&client.protocol.to_ascii_lowercase())),
        ("client_options", Value::TextMap(&client.client_options)),
        // Cassandra writes it in small letters.
        (
            "connection_stage",
            Value::Text(&client.connection_stage.to_ascii_uppercase()),
        ),
        ("driver_name", Value::text(client.driver_name.as_deref())),
        ("driver_version", Value::text(client.driver_version.as_deref())),
        ("hostname", Value::Text(&client.hostname)),
        ("protocol_version", protocol_version(client)),
        ("scheduling_group", Value::Text(&client.scheduling_group)),
        ("shard_id", Value::count(client.shard)),
        ("ssl_cipher_suite", cipher),
        ("ssl_enabled", Value::Boolean(client.tls.is_some())),
        ("ssl_protocol", protocol),
        ("username", Value::Text(&client.username)),
    ]);
}

fn of_cassandra(client: &ClientInfo, rows: &mut Rows<'_>) {
    let (protocol, cipher) = tls(client);
    rows.push(&[
        ("address", Value::Inet(client.address)),
        ("port", Value::Int(i32::from(client.port))),
        ("client_options", Value::TextMap(&client.client_options)),
        ("connection_stage", Value::Text(&client.connection_stage)),
        ("driver_name", Value::text(client.driver_name.as_deref())),
        ("driver_version", Value::text(client.driver_version.as_deref())),
        ("hostname", Value::Text(&client.hostname)),
        ("protocol_version", protocol_version(client)),
        ("request_count", Value::BigInt(client.request_count)),
        ("ssl_cipher_suite", cipher),
        ("ssl_enabled", Value::Boolean(client.tls.is_some())),
        ("ssl_protocol", protocol),
        ("username", Value::Text(&client.username)),
    ]);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use system_tables::rows_of;

    use super::*;

    /// Shows clients that no connection of this test has.
    struct Shown(Fill, &'static Definition);

    impl VirtualTable for Shown {
        fn definition(&self) -> &'static Definition {
            self.1
        }

        fn open(&self, _: Request) -> Opening<'_> {
            ready(content(vec![client(40002, true), client(40001, false)], self.0))
        }
    }

    fn client(port: u16, tls: bool) -> ClientInfo {
        ClientInfo {
            protocol: "CQL",
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port,
            hostname: "localhost".to_owned(),
            username: "anonymous".to_owned(),
            connection_stage: "ready".to_owned(),
            shard: u32::from(tls),
            scheduling_group: if tls { "statement" } else { "sl:driver" }.to_owned(),
            protocol_version: Some(5),
            driver_name: (!tls).then(|| "a driver".to_owned()),
            driver_version: None,
            client_options: [("CQL_VERSION".to_owned(), "3.4.6".to_owned())].into(),
            request_count: 9,
            tls: tls.then(|| ("TLSv1.3".to_owned(), "TLS_AES_256_GCM_SHA384".to_owned())),
        }
    }

    fn lines(fill: Fill, definition: &'static Definition) -> Vec<String> {
        let schema = Arc::new(schema::Schema {
            version: uuid::Uuid::nil(),
            keyspaces: BTreeMap::new(),
        });
        let rows = rows_of(&Shown(fill, definition), &schema);
        let line = |row: system_tables::NamedRow| row.into_iter().map(|(_, value)| value).collect::<Vec<_>>().join(" ");
        rows.into_iter().map(line).collect()
    }

    #[test]
    fn scylladb_s_table_shows_clients_by_port_with_shard_and_group() {
        assert_eq!(
            lines(of_scylladb, &OF_SCYLLADB),
            [
                "'127.0.0.1' 40001 'cql' {'CQL_VERSION': '3.4.6'} 'READY' 'a driver' null 'localhost' 5 'sl:driver' 0 null false null 'anonymous'",
                "'127.0.0.1' 40002 'cql' {'CQL_VERSION': '3.4.6'} 'READY' null null 'localhost' 5 'statement' 1 'TLS_AES_256_GCM_SHA384' true 'TLSv1.3' \
                 'anonymous'",
            ]
        );
    }

    #[test]
    fn cassandra_s_table_shows_clients_by_port_with_their_requests() {
        assert_eq!(
            lines(of_cassandra, &OF_CASSANDRA),
            [
                "'127.0.0.1' 40001 {'CQL_VERSION': '3.4.6'} 'ready' 'a driver' null 'localhost' 5 9 null false null 'anonymous'",
                "'127.0.0.1' 40002 {'CQL_VERSION': '3.4.6'} 'ready' null null 'localhost' 5 9 'TLS_AES_256_GCM_SHA384' true 'TLSv1.3' 'anonymous'",
            ]
        );
    }
}
