//! The events for which connections have registered, and sending them.
//!
//! Lives on each shard and knows that shard's connections only: an event for all clients must be sent on every shard.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use cql_protocol::{ClusterEvent, EventSet, ProtocolVersion, write_event};
use front::Outbox;

/// A change of a member of the cluster that clients hear of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberEvent {
    /// A node serves clients at an address for the first time.
    New,
    /// A node has left permanently, or left its address.
    Removed,
    /// A node serves clients.
    Up,
    /// A node serves no clients.
    Down,
}

/// A connection, the version of its protocol, and the events that it registered for.
type Registered = (Weak<Outbox>, ProtocolVersion, EventSet);

/// The connections that hear of events.
#[derive(Default)]
pub(crate) struct Events {
    registered: RefCell<Vec<Registered>>,
}

impl Events {
    /// Registers a connection for these events too.
    pub(crate) fn register(&self, (outbox, version): (&Rc<Outbox>, ProtocolVersion), events: EventSet) {
        let mut registered = self.registered.borrow_mut();
        let mine = registered
            .iter_mut()
            .find(|(o, ..)| std::ptr::eq(o.as_ptr(), Rc::as_ptr(outbox)));
        match mine {
            Some((.., known)) => known.extend(events),
            None => registered.push((Rc::downgrade(outbox), version, events)),
        }
    }

    /// Sends an event to all connections that registered for its type.
    pub(crate) fn tell(&self, event: &ClusterEvent<'_>) {
        self.registered.borrow_mut().retain(|(outbox, version, events)| {
            let Some(outbox) = outbox.upgrade() else { return false };
            if events.contains(event.event_type()) {
                outbox.event(|frame| write_event(frame, *version, event));
            }
            true
        });
    }
}

/// Most client routes that one event names: at 255 bytes for the id of a connection it has 300 KB.
const ROUTES_MAX: usize = 1024;

/// Calls `tell` with the events of client routes that have changed, named by connection and host id. There are several
/// events if there are very many routes.
pub(crate) fn client_routes(changed: &[(String, String)], mut tell: impl FnMut(&ClusterEvent<'_>)) {
    for part in changed.chunks(ROUTES_MAX) {
        let connection_ids: Vec<&str> = part.iter().map(|(connection_id, _)| &**connection_id).collect();
        let host_ids: Vec<&str> = part.iter().map(|(_, host_id)| &**host_id).collect();
        tell(&ClusterEvent::ClientRoutes {
            connection_ids: &connection_ids,
            host_ids: &host_ids,
        });
    }
}

/// The frame's event of a change of the member that serves clients at `native`.
pub(crate) fn of_member(event: MemberEvent, native: SocketAddr) -> ClusterEvent<'static> {
    let (address, port) = (native.ip(), native.port());
    match event {
        MemberEvent::New => ClusterEvent::NewNode(address, port),
        MemberEvent::Removed => ClusterEvent::RemovedNode(address, port),
        MemberEvent::Up => ClusterEvent::Up(address, port),
        MemberEvent::Down => ClusterEvent::Down(address, port),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use cql_protocol::EventType;
    use front::UnsentMemory;
    use memory::ResultMemory;

    use super::*;

    /// The outboxes of connections without clients.
    fn outboxes<const N: usize>() -> [Rc<Outbox>; N] {
        let memory = UnsentMemory::new(1 << 20, ResultMemory::new(1 << 20));
        std::array::from_fn(|_| Outbox::new(&memory, SocketAddr::from((Ipv4Addr::LOCALHOST, 1))))
    }

    fn set(types: &[EventType]) -> EventSet {
        let mut set = EventSet::default();
        for event in types {
            set.insert(*event);
        }
        set
    }

    #[test]
    fn changed_client_routes_are_named_pair_by_pair() {
        let events = Events::default();
        let [registered, other] = outboxes();
        events.register(
            (&registered, ProtocolVersion::HIGHEST),
            set(&[EventType::ClientRoutesChange]),
        );
        events.register(
            (&other, ProtocolVersion::HIGHEST),
            set(&[EventType::TopologyChange, EventType::SchemaChange]),
        );
        let changed = [("a", "n1"), ("a", "n2"), ("b", "n1")];
        let changed = changed.map(|(connection, host)| (connection.to_owned(), host.to_owned()));
        client_routes(&changed, |event| events.tell(event));
        let body = [
            &b"\0\x14CLIENT_ROUTES_CHANGE\0\x0cUPDATE_NODES"[..],
            b"\0\x03\0\x01a\0\x01a\0\x01b",
            b"\0\x03\0\x02n1\0\x02n2\0\x02n1",
        ];
        assert_eq!(&registered.take()[9..], body.concat());
        assert!(other.take().is_empty(), "to a connection that did not ask for it");
        client_routes(&[], |event| panic!("{event:?} tells of nothing"));
        let many: Vec<(String, String)> = (0..ROUTES_MAX + 1).map(|n| (n.to_string(), String::new())).collect();
        let mut told = Vec::new();
        client_routes(&many, |event| match event {
            ClusterEvent::ClientRoutes {
                connection_ids,
                host_ids,
            } => told.push((connection_ids.len(), host_ids.len())),
            other => panic!("{other:?} is another event"),
        });
        assert_eq!(told, [(ROUTES_MAX, ROUTES_MAX), (1, 1)]);
    }

    #[test]
    fn a_connection_hears_of_nodes_what_it_registered_for() {
        let native = SocketAddr::from(([127, 0, 0, 2], 9042));
        let told = [
            (MemberEvent::New, "TOPOLOGY_CHANGE", "NEW_NODE"),
            (MemberEvent::Removed, "TOPOLOGY_CHANGE", "REMOVED_NODE"),
            (MemberEvent::Up, "STATUS_CHANGE", "UP"),
            (MemberEvent::Down, "STATUS_CHANGE", "DOWN"),
        ];
        let events = Events::default();
        let [both, status, gone] = outboxes();
        events.register((&both, ProtocolVersion::HIGHEST), set(&[EventType::TopologyChange]));
        events.register((&both, ProtocolVersion::HIGHEST), set(&[EventType::StatusChange]));
        events.register(
            (&status, ProtocolVersion::HIGHEST),
            set(&[EventType::StatusChange, EventType::SchemaChange]),
        );
        events.register((&gone, ProtocolVersion::HIGHEST), set(&EventType::ALL));
        drop(gone);
        for (event, kind, change) in told {
            events.tell(&of_member(event, native));
            // The address has a byte for its length, and the port four bytes.
            let body = [&[0, u8::try_from(kind.len()).expect("short")], kind.as_bytes()].concat();
            let body = [
                &body[..],
                &[0, u8::try_from(change.len()).expect("short")],
                change.as_bytes(),
            ]
            .concat();
            let body = [&body[..], &[4, 127, 0, 0, 2, 0, 0, 0x23, 0x52]].concat();
            let frame = both.take();
            assert_eq!(&frame[9..], body, "{change} to a connection that registered twice");
            let heard = if kind == "STATUS_CHANGE" { frame } else { Vec::new() };
            assert_eq!(
                status.take(),
                heard,
                "{change} to a connection that asked for STATUS_CHANGE"
            );
        }
        assert_eq!(
            events.registered.borrow().len(),
            2,
            "a connection that ended is forgotten"
        );
    }
}
