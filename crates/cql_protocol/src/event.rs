//! Changes of schema and cluster: the EVENT frames pushed to connections that registered, and the RESULT of a statement
//! that changes the schema, which says the same.

use std::net::IpAddr;

use crate::codes::{EventType, Opcode, ProtocolVersion};
use crate::response::{
    Extras, RESULT_SCHEMA_CHANGE, begin_response, finish_small, put_int, put_string, put_string_list,
};

/// Events belong to no request.
const EVENT_STREAM: i16 = -1;

/// What happened to a schema object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each variant is the change of that name in the specification"
)]
pub enum SchemaChangeKind {
    Created,
    Updated,
    Dropped,
}

/// Which schema object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the kind of schema object of that name")]
pub enum SchemaTarget<'a> {
    Keyspace,
    /// A table, or a materialized view; a secondary index counts as a change of its table.
    Table {
        name: &'a str,
    },
    Type {
        name: &'a str,
    },
    Function {
        name: &'a str,
        argument_types: &'a [String],
    },
    Aggregate {
        name: &'a str,
        argument_types: &'a [String],
    },
}

/// A change of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemaChange<'a> {
    /// What happened.
    pub kind: SchemaChangeKind,
    /// In which keyspace.
    pub keyspace: &'a str,
    /// To what.
    pub target: SchemaTarget<'a>,
}

impl SchemaChange<'_> {
    fn write_body(&self, out: &mut Vec<u8>, version: ProtocolVersion) {
        let kind = match self.kind {
            SchemaChangeKind::Created => "CREATED",
            SchemaChangeKind::Updated => "UPDATED",
            SchemaChangeKind::Dropped => "DROPPED",
        };
        match self.target {
            SchemaTarget::Keyspace => {
                put_string(out, kind);
                put_string(out, "KEYSPACE");
                put_string(out, self.keyspace);
            }
            SchemaTarget::Table { name } => self.write_named(out, kind, "TABLE", name),
            SchemaTarget::Type { name } => self.write_named(out, kind, "TYPE", name),
            SchemaTarget::Function { .. } | SchemaTarget::Aggregate { .. } if version < ProtocolVersion::V4 => {
                // Version 3 has no word for functions: their keyspace was updated.
                put_string(out, "UPDATED");
                put_string(out, "KEYSPACE");
                put_string(out, self.keyspace);
            }
            SchemaTarget::Function { name, argument_types } => {
                self.write_named(out, kind, "FUNCTION", name);
                put_string_list(out, argument_types);
            }
            SchemaTarget::Aggregate { name, argument_types } => {
                self.write_named(out, kind, "AGGREGATE", name);
                put_string_list(out, argument_types);
            }
        }
    }

    fn write_named(&self, out: &mut Vec<u8>, kind: &str, target: &str, name: &str) {
        put_string(out, kind);
        put_string(out, target);
        put_string(out, self.keyspace);
        put_string(out, name);
    }
}

/// What a registered connection hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterEvent<'a> {
    /// A node joined.
    NewNode(IpAddr, u16),
    /// A node left.
    RemovedNode(IpAddr, u16),
    /// A node can be reached.
    Up(IpAddr, u16),
    /// A node cannot be reached.
    Down(IpAddr, u16),
    /// The schema changed.
    Schema(SchemaChange<'a>),
    /// Rows of `system.client_routes` changed.
    ClientRoutes {
        /// Whose routes.
        connection_ids: &'a [&'a str],
        /// To which nodes.
        host_ids: &'a [&'a str],
    },
}

impl ClusterEvent<'_> {
    /// What a connection must have registered for to hear of it.
    pub fn event_type(&self) -> EventType {
        match self {
            ClusterEvent::NewNode(..) | ClusterEvent::RemovedNode(..) => EventType::TopologyChange,
            ClusterEvent::Up(..) | ClusterEvent::Down(..) => EventType::StatusChange,
            ClusterEvent::Schema(_) => EventType::SchemaChange,
            ClusterEvent::ClientRoutes { .. } => EventType::ClientRoutesChange,
        }
    }
}

/// Writes an EVENT.
pub fn write_event(out: &mut Vec<u8>, version: ProtocolVersion, event: &ClusterEvent<'_>) {
    let mark = begin_response(out, version, EVENT_STREAM, Opcode::Event, &Extras::default());
    put_string(out, event.event_type().name());
    match *event {
        ClusterEvent::NewNode(address, port) => put_node(out, "NEW_NODE", address, port),
        ClusterEvent::RemovedNode(address, port) => put_node(out, "REMOVED_NODE", address, port),
        ClusterEvent::Up(address, port) => put_node(out, "UP", address, port),
        ClusterEvent::Down(address, port) => put_node(out, "DOWN", address, port),
        ClusterEvent::Schema(change) => change.write_body(out, version),
        ClusterEvent::ClientRoutes {
            connection_ids,
            host_ids,
        } => {
            put_string(out, "UPDATE_NODES");
            put_string_list(out, connection_ids);
            put_string_list(out, host_ids);
        }
    }
    finish_small(out, mark);
}

/// Writes the RESULT of a statement that changed the schema.
pub fn write_schema_change(
    out: &mut Vec<u8>,
    version: ProtocolVersion,
    stream: i16,
    extras: &Extras<'_>,
    change: &SchemaChange<'_>,
) {
    let mark = begin_response(out, version, stream, Opcode::Result, extras);
    put_int(out, RESULT_SCHEMA_CHANGE);
    change.write_body(out, version);
    finish_small(out, mark);
}

fn put_node(out: &mut Vec<u8>, change: &str, address: IpAddr, port: u16) {
    put_string(out, change);
    put_address(out, address);
    put_int(out, i32::from(port));
}

/// Writes an [inetaddr]: the length of an address, and the address.
pub(crate) fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            out.push(4);
            out.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.push(16);
            out.extend_from_slice(&address.octets());
        }
    }
}
