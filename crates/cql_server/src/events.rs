//! Who has registered for which events, and telling them.
//!
//! Lives on each shard and knows that shard's connections only: what all clients are to hear is told on every shard.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use cql_protocol::{ClusterEvent, EventSet};

use crate::connection::Outbox;

/// A change of which nodes there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TopologyChange {
    /// A node joined and serves.
    NewNode,
    /// A node left for ever.
    RemovedNode,
}

/// The connections that hear of events.
#[derive(Default)]
pub(crate) struct Events {
    registered: RefCell<Vec<(Weak<Outbox>, EventSet)>>,
}

impl Events {
    /// A connection wants to hear of these events too.
    pub(crate) fn register(&self, outbox: &Rc<Outbox>, events: EventSet) {
        let mut registered = self.registered.borrow_mut();
        let mine = registered
            .iter_mut()
            .find(|(o, _)| std::ptr::eq(o.as_ptr(), Rc::as_ptr(outbox)));
        match mine {
            Some((_, known)) => known.extend(events),
            None => registered.push((Rc::downgrade(outbox), events)),
        }
    }

    /// Tells all that registered for an event of this type.
    pub(crate) fn tell(&self, event: &ClusterEvent<'_>) {
        self.registered.borrow_mut().retain(|(outbox, events)| {
            let Some(outbox) = outbox.upgrade() else { return false };
            if events.contains(event.event_type()) {
                outbox.event(event);
            }
            true
        });
    }
}

/// The event of a change of which nodes there are.
pub(crate) fn topology(change: TopologyChange, native: SocketAddr) -> ClusterEvent<'static> {
    match change {
        TopologyChange::NewNode => ClusterEvent::NewNode(native.ip(), native.port()),
        TopologyChange::RemovedNode => ClusterEvent::RemovedNode(native.ip(), native.port()),
    }
}

/// The event of a node that answers, or does not any more.
pub(crate) fn status(up: bool, native: SocketAddr) -> ClusterEvent<'static> {
    match up {
        true => ClusterEvent::Up(native.ip(), native.port()),
        false => ClusterEvent::Down(native.ip(), native.port()),
    }
}

#[cfg(test)]
mod tests {
    use cql_protocol::EventType;

    use super::*;

    fn set(types: &[EventType]) -> EventSet {
        let mut set = EventSet::default();
        for event in types {
            set.insert(*event);
        }
        set
    }

    #[test]
    fn a_connection_hears_of_nodes_what_it_registered_for() {
        let native = SocketAddr::from(([127, 0, 0, 2], 9042));
        let told = [
            (topology(TopologyChange::NewNode, native), "TOPOLOGY_CHANGE", "NEW_NODE"),
            (
                topology(TopologyChange::RemovedNode, native),
                "TOPOLOGY_CHANGE",
                "REMOVED_NODE",
            ),
            (status(true, native), "STATUS_CHANGE", "UP"),
            (status(false, native), "STATUS_CHANGE", "DOWN"),
        ];
        let events = Events::default();
        let (both, status, gone) = (Outbox::new(), Outbox::new(), Outbox::new());
        events.register(&both, set(&[EventType::TopologyChange]));
        events.register(&both, set(&[EventType::StatusChange]));
        events.register(&status, set(&[EventType::StatusChange, EventType::SchemaChange]));
        events.register(&gone, set(&EventType::ALL));
        drop(gone);
        for (event, kind, change) in told {
            events.tell(&event);
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
