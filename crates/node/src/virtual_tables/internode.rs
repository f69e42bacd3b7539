//! `system_views.internode_outbound` and `internode_inbound`: the connections with other nodes, one row for each node.
//! Columns are those of Apache Cassandra; what is not counted here is null.

use std::collections::BTreeMap;
use std::rc::Rc;

use query::Engine;
use rpc::{LinkMetrics, Rpc, ServedMetrics};
use system_tables::Builder;
use topology::HostId;
use uuid::Uuid;

use super::measured::{Cell, Row, add};
use crate::follow::on_all_shards;

const OUTBOUND: &str = "internode_outbound (address inet, port int, dc text, rack text, active_connections bigint, connection_attempts bigint, \
     error_bytes bigint, error_count bigint, expired_bytes bigint, expired_count bigint, overload_bytes bigint, overload_count bigint, \
     pending_bytes bigint, pending_count bigint, sent_bytes bigint, sent_count bigint, successful_connection_attempts bigint, \
     using_bytes bigint, using_reserve_bytes bigint, PRIMARY KEY ((address, port), dc, rack))";
const INBOUND: &str = "internode_inbound (address inet, port int, dc text, rack text, corrupt_frames_recovered bigint, \
     corrupt_frames_unrecovered bigint, error_bytes bigint, error_count bigint, expired_bytes bigint, expired_count bigint, \
     processed_bytes bigint, processed_count bigint, received_bytes bigint, received_count bigint, scheduled_bytes bigint, \
     scheduled_count bigint, throttled_count bigint, throttled_nanos bigint, using_bytes bigint, using_reserve_bytes bigint, \
     PRIMARY KEY ((address, port), dc, rack))";

pub(super) fn register(tables: &mut Builder) {
    add(tables, "system_views", 2, OUTBOUND, |_| Box::pin(outbound()));
    add(tables, "system_views", 2, INBOUND, |_| Box::pin(inbound()));
}

/// What was counted of the connections with a node, over all shards.
#[derive(Default)]
struct Counted {
    connections: u64,
    /// Messages sent to it, or received from it.
    messages: u64,
    bytes: u64,
    expired: u64,
    overloads: u64,
    /// Messages that are not sent yet, or are handled.
    waiting: u64,
    waiting_bytes: u64,
    /// Bytes of requests that have no answer yet.
    using_bytes: u64,
}

impl Counted {
    fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.expired += other.expired;
        self.overloads += other.overloads;
        self.waiting += other.waiting;
        self.waiting_bytes += other.waiting_bytes;
        self.using_bytes += other.using_bytes;
    }
}

fn of_link(link: &LinkMetrics) -> (Uuid, Counted) {
    let counted = Counted {
        connections: u64::from(link.is_connected),
        messages: link.calls + link.one_way,
        bytes: link.sent_bytes,
        expired: link.timeouts,
        overloads: link.overloads,
        waiting: link.waiting as u64,
        waiting_bytes: link.waiting_bytes as u64,
        using_bytes: (link.waiting_bytes + link.in_flight_bytes) as u64,
    };
    (link.host_id, counted)
}

fn of_served(served: &ServedMetrics) -> (Uuid, Counted) {
    let counted = Counted {
        connections: 1,
        messages: served.requests,
        bytes: served.received_bytes,
        expired: served.expired,
        overloads: 0,
        waiting: served.handling as u64,
        waiting_bytes: served.handling_bytes as u64,
        using_bytes: served.handling_bytes as u64,
    };
    (served.host_id, counted)
}

/// What all shards count, by node.
async fn counted(part: fn(&Rpc) -> Vec<(Uuid, Counted)>) -> BTreeMap<Uuid, Counted> {
    let of_shard = async move |_: Rc<Engine>| runtime::local::<Rpc>().map_or_else(Vec::new, |rpc| part(&rpc));
    let mut nodes: BTreeMap<Uuid, Counted> = BTreeMap::new();
    for (host_id, counted) in on_all_shards(of_shard).await.into_iter().flatten() {
        nodes.entry(host_id).or_default().add(&counted);
    }
    nodes
}

/// The key of a node's row; None for a node that is no longer in the cluster.
fn key(host_id: Uuid) -> Option<Row> {
    let engine = Engine::local();
    let view = engine.coordinator.context.view();
    let node = view.topology.node(HostId(host_id))?;
    Some(vec![
        ("address", Cell::Inet(node.internode.ip())),
        ("port", Cell::Int(i32::from(node.internode.port()))),
        ("dc", Cell::text(&*node.location.datacenter)),
        ("rack", Cell::text(&*node.location.rack)),
    ])
}

async fn outbound() -> Vec<Row> {
    let nodes = counted(|rpc| rpc.link_metrics().iter().map(of_link).collect()).await;
    let row = |(host_id, counted): (Uuid, Counted)| {
        let mut row = key(host_id)?;
        row.extend([
            ("active_connections", Cell::count(counted.connections)),
            ("connection_attempts", Cell::Null),
            ("error_bytes", Cell::Null),
            ("error_count", Cell::Null),
            ("expired_bytes", Cell::Null),
            ("expired_count", Cell::count(counted.expired)),
            ("overload_bytes", Cell::Null),
            ("overload_count", Cell::count(counted.overloads)),
            ("pending_bytes", Cell::count(counted.waiting_bytes)),
            ("pending_count", Cell::count(counted.waiting)),
            ("sent_bytes", Cell::count(counted.bytes)),
            ("sent_count", Cell::count(counted.messages)),
            ("successful_connection_attempts", Cell::Null),
            ("using_bytes", Cell::count(counted.using_bytes)),
            ("using_reserve_bytes", Cell::Null),
        ]);
        Some(row)
    };
    nodes.into_iter().filter_map(row).collect()
}

async fn inbound() -> Vec<Row> {
    let nodes = counted(|rpc| rpc.served_metrics().iter().map(of_served).collect()).await;
    let row = |(host_id, counted): (Uuid, Counted)| {
        let mut row = key(host_id)?;
        row.extend([
            ("corrupt_frames_recovered", Cell::Null),
            ("corrupt_frames_unrecovered", Cell::Null),
            ("error_bytes", Cell::Null),
            ("error_count", Cell::Null),
            ("expired_bytes", Cell::Null),
            ("expired_count", Cell::count(counted.expired)),
            ("processed_bytes", Cell::Null),
            (
                "processed_count",
                Cell::count(counted.messages.saturating_sub(counted.waiting + counted.expired)),
            ),
            ("received_bytes", Cell::count(counted.bytes)),
            ("received_count", Cell::count(counted.messages)),
            ("scheduled_bytes", Cell::count(counted.waiting_bytes)),
            ("scheduled_count", Cell::count(counted.waiting)),
            ("throttled_count", Cell::Null),
            ("throttled_nanos", Cell::Null),
            ("using_bytes", Cell::count(counted.using_bytes)),
            ("using_reserve_bytes", Cell::Null),
        ]);
        Some(row)
    };
    nodes.into_iter().filter_map(row).collect()
}
