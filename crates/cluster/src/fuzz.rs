//! What the fuzzer of nodes' messages needs: real messages to begin with, and the decoders.

use crate::messages::wire::{self, Greeting, GreetingAnswer, Health, JoinAnswer, State, Who};
use crate::metadata::bytes::Malformed;
use crate::metadata::command::{Command, SchemaChange};
use crate::metadata::file;
use crate::metadata::{Metadata, Run};
use crate::operators::client_routes::{ClientRoute, ClientRouteKey, ClientRoutesChange};
use crate::tablets::balance_report::BalanceReport;
use record::Known;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use topology::{HostId, JoinRequest, Message, Node, NodeState, Topology, TopologyCommand};
use uuid::Uuid;

const HEALTH: Health = Health {
    clock_us: 1_700_000_000_000_000,
    is_clock_trusted: true,
    takes_writes: false,
    fence: 9,
    disk: topology::DiskLevel::Warning,
};

/// The verb and the body by which a node notifies another that it has left.
#[must_use]
pub fn has_left(address: SocketAddr) -> (u16, Vec<u8>) {
    let state = State {
        message: None,
        log_index: 7,
        schema_version: Uuid::from_u128(9),
        internode: address,
        has_left: true,
        health: HEALTH,
        lineage: None,
    };
    (wire::STATE, state.encode())
}

/// The verb and the body by which a node asks to join.
#[must_use]
pub fn join(request: &JoinRequest) -> (u16, Vec<u8>) {
    (wire::JOIN, wire::encode_join(request))
}

/// The verb of the group's messages.
pub const RAFT: u16 = wire::RAFT;

pub(crate) fn sample_request(address: SocketAddr) -> JoinRequest {
    JoinRequest {
        cluster_name: "sea".to_owned(),
        cluster_id: Some(Uuid::from_u128(5)),
        node: Node {
            host_id: HostId(Uuid::from_u128(1)),
            internode: address,
            native: address,
            native_shard_aware_port: Some(19042),
            location: topology::Location {
                datacenter: "dc".to_owned(),
                rack: "r".to_owned(),
            },
            shards: 2,
            tokens: vec![types::Token(-5), types::Token(9)],
            state: NodeState::Joining,
            features: BTreeSet::from(["a".to_owned()]),
            release: "1".to_owned(),
            loss: None,
        },
        wall_clock: std::time::Duration::from_secs(1),
        auto_bootstrap: true,
        joins_ring: false,
        replaces: Some(topology::Replaced::Host(HostId(Uuid::from_u128(9)))),
        ignored: vec![topology::Replaced::Address(address.ip())],
    }
}

/// One message of each kind, without its checksum.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let address = SocketAddr::from(([10, 0, 0, 1], 7000));
    let host = HostId(Uuid::from_u128(1));
    let ping = State {
        message: Some(Message::PingRequest { seq: 3, target: host }),
        log_index: 7,
        schema_version: Uuid::from_u128(9),
        internode: address,
        has_left: false,
        health: HEALTH,
        lineage: None,
    };
    let who = Who {
        incarnation: 4,
        cluster_id: Some(Uuid::from_u128(5)),
        peers: vec![(host, address)],
    };
    let greeted = GreetingAnswer {
        sees: true,
        is_open: false,
        live: BTreeSet::from([host]),
    };
    let tablet = crate::config::TabletBytes {
        table: schema::TableId(host.0),
        last: types::Token(-7),
        bytes: 300,
        load: Some(2.5),
    };
    let report = crate::config::TabletReport {
        tablets: vec![tablet],
        disk: Some(crate::config::Disk {
            capacity: 1000,
            used: 300,
        }),
        uncut: vec![(tablet.table, 70)],
    };
    let metadata = start();
    let keyspace = schema::Keyspace {
        name: "ks".to_owned(),
        replication: BTreeMap::new(),
        durable_writes: true,
        tablets: None,
        types: BTreeMap::new(),
        functions: BTreeMap::new(),
        aggregates: BTreeMap::new(),
        tables: BTreeMap::new(),
    };
    let next = schema::Schema {
        version: Uuid::from_u128(2),
        keyspaces: BTreeMap::from([("ks".to_owned(), Arc::new(keyspace))]),
    };
    let create = Command::Schema(SchemaChange::between(&metadata.schema, &next));
    let remove = Command::Topology(TopologyCommand::RemoveNode { host_id: host });
    let sealed = [
        ping.encode(),
        who.encode(),
        wire::encode_join(&sample_request(address)),
        JoinAnswer::Welcome(vec![1, 2, 3]).encode(),
        JoinAnswer::Later("later".to_owned()).encode(),
        wire::encode_load(9),
        wire::encode_tablet_report(&report),
        standing(tablet.table).encode(),
        wire::encode_splits(&vec![(tablet.table, 8)]),
        wire::encode_hosts(&[host]),
        Command::Exclude { hosts: vec![host] }.encode(),
        Command::Forget {
            host_id: host,
            before: 7,
        }
        .encode(),
        Command::ClientRoutes(sample_routes()).encode(),
        Greeting::Closed.encode(),
        greeted.encode(),
        wire::encode_run(Run { generation: 3, name: 5 }),
        metadata.encode(),
        create.encode(),
        remove.encode(),
    ];
    let without_checksum = |bytes: Vec<u8>| bytes[..bytes.len().saturating_sub(4)].to_vec();
    let mut seeds: Vec<Vec<u8>> = sealed.into_iter().map(without_checksum).collect();
    // Changes of the metadata file.
    for command in [create.encode(), remove.encode()] {
        let mut change = 8_u64.to_be_bytes().to_vec();
        change.extend_from_slice(&u32::try_from(command.len()).expect("short").to_be_bytes());
        change.extend_from_slice(&command);
        seeds.push(change);
    }
    seeds
}

/// One client route that is added, and one that is removed.
fn sample_routes() -> ClientRoutesChange {
    let key = |connection_id: &str| ClientRouteKey {
        connection_id: connection_id.to_owned(),
        host_id: Uuid::from_u128(1),
    };
    let route = ClientRoute {
        address: "proxy".to_owned(),
        port: Some(9042),
        ..ClientRoute::default()
    };
    ClientRoutesChange {
        put: BTreeMap::from([(key("a"), route)]),
        removed: BTreeSet::from([key("b")]),
    }
}

/// A balance report with one table.
fn standing(table: schema::TableId) -> BalanceReport {
    let table = crate::tablets::balance_report::TableBalance {
        table,
        tablets: 2,
        wanted: 4,
        least: 1,
        average_bytes: 300,
        largest_bytes: 301,
        hottest: 1.5,
        uncut: Some(7),
    };
    BalanceReport {
        tables: vec![table],
        lacks: vec!["no room".to_owned()],
        ..BalanceReport::default()
    }
}

fn start() -> Metadata {
    let schema = schema::Schema {
        version: Uuid::from_u128(1),
        keyspaces: BTreeMap::new(),
    };
    Metadata::new(Arc::new(schema), Topology::new("sea", Uuid::from_u128(5)))
}

/// Reads the bytes as the whole value in the metadata file, and as the changes that follow a value.
fn read_file(sealed: &[u8], bytes: &[u8], known: &Known) {
    let behind = [file::encode_base(&start().encode()), file::encode_record(1, bytes)].concat();
    for metadata in [file::encode_base(sealed), behind] {
        if let Ok(metadata) = file::read(&metadata, known) {
            let again = file::read(&file::encode_base(&metadata.encode()), known);
            assert_eq!(again, Ok(metadata), "metadata change when they are rewritten");
        }
    }
}

/// Reads the bytes as every kind of message, with the checksum that they should have.
pub fn read(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    sealed.extend_from_slice(&crc32fast::hash(bytes).to_be_bytes());
    let known = Known::everything();
    let read = |bytes: &[u8]| {
        let outcomes: [Result<(), Malformed>; 13] = [
            State::decode(bytes).map(drop),
            Who::decode(bytes).map(drop),
            wire::decode_join(bytes).map(drop),
            JoinAnswer::decode(bytes).map(drop),
            wire::decode_load(bytes).map(drop),
            wire::decode_ring_copied(bytes).map(drop),
            wire::decode_ring_copy_failure(bytes).map(drop),
            wire::decode_tablet_report(bytes).map(drop),
            wire::decode_splits(bytes).map(drop),
            BalanceReport::decode(bytes).map(drop),
            Greeting::decode(bytes).map(drop),
            GreetingAnswer::decode(bytes).map(drop),
            wire::decode_run(bytes).map(drop),
        ];
        // A refusal is put into words, too.
        outcomes
            .into_iter()
            .filter_map(Result::err)
            .for_each(|e| drop(e.to_string()));
        let _ = (Metadata::decode(bytes, &known), Command::decode(bytes, &known));
    };
    read(&sealed);
    read(bytes);
    read_file(&sealed, bytes, &known);
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_seed_is_read_by_one_decoder_at_least() {
        for seed in super::seeds() {
            super::read(&seed);
            assert!(seed.len() > 2, "a seed holds more than its kind and format");
        }
    }
}
