//! Which members clients know, and the events by which they learn of changes.
//!
//! Drivers know a node by the address where it serves clients, so both the state and its difference are kept by
//! address: an address has at most one entry, and the last event about an address says what is true of it. This holds
//! where a node takes the address of a lost one, and where nodes exchange addresses.
//!
//! A member appears with `NEW_NODE` and `UP` when it serves clients for the first time, or at an address that clients
//! do not know it by. From then on `DOWN` and `UP` say whether it serves them, until `REMOVED_NODE`. Of one version of
//! the metadata, departures are announced before arrivals.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cql_server::MemberEvent;
use topology::{HostId, Node, Topology};

/// A member as clients know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Announced {
    host: HostId,
    /// It serves clients.
    is_up: bool,
}

/// The members that clients know, by the address where these serve them.
pub(crate) type Announcements = BTreeMap<SocketAddr, Announced>;

/// Whether a node that takes the place of a lost one has taken its address, or owns its tokens: the lost one no longer
/// exists for clients.
pub(crate) fn is_superseded(topology: &Topology, node: &Node) -> bool {
    let heir = node.loss.and_then(|loss| loss.replaced_by);
    let heir = heir.and_then(|heir| topology.node(heir));
    heir.is_some_and(|heir| heir.state.serves_reads() || heir.native == node.native)
}

/// The members that a client of a node that has just started reads in the system tables.
pub(crate) fn first_announcements(topology: &Topology, serves_clients: impl Fn(HostId) -> bool) -> Announcements {
    announcements(topology, |_, _| true, serves_clients)
}

/// The members that clients know after `before`.
pub(crate) fn next_announcements(
    topology: &Topology,
    before: &Announcements,
    serves_clients: impl Fn(HostId) -> bool,
) -> Announcements {
    let is_known = |host, address: &SocketAddr| before.get(address).is_some_and(|known| known.host == host);
    announcements(topology, is_known, serves_clients)
}

/// Zero-token nodes are not announced: drivers would send them requests for data that others have.
fn announcements(
    topology: &Topology,
    is_known: impl Fn(HostId, &SocketAddr) -> bool,
    serves_clients: impl Fn(HostId) -> bool,
) -> Announcements {
    let mut all = Announcements::new();
    let is_listed = |node: &&Node| {
        node.state.serves_reads() && !topology.is_zero_token(node.host_id) && !is_superseded(topology, node)
    };
    for node in topology.members().filter(is_listed) {
        let (host, is_up) = (node.host_id, serves_clients(node.host_id));
        let has_address = all.get(&node.native).is_some_and(|other| other.is_up || !is_up);
        if (is_up || is_known(host, &node.native)) && !has_address {
            all.insert(node.native, Announced { host, is_up });
        }
    }
    all
}

/// The events that lead from one state to the next, in the order in which clients get them.
pub(crate) fn events(before: &Announcements, after: &Announcements) -> Vec<(MemberEvent, SocketAddr)> {
    let (mut departures, mut arrivals) = (Vec::new(), Vec::new());
    for (address, known) in before {
        match after.get(address) {
            Some(next) if next.host != known.host => departures.push((MemberEvent::Removed, *address)),
            Some(next) if known.is_up && !next.is_up => departures.push((MemberEvent::Down, *address)),
            Some(_) => {}
            None => departures.push((MemberEvent::Removed, *address)),
        }
    }
    for (address, next) in after {
        let known = before.get(address).filter(|known| known.host == next.host);
        if known.is_none() {
            arrivals.push((MemberEvent::New, *address));
        }
        if next.is_up && known.is_none_or(|known| !known.is_up) {
            arrivals.push((MemberEvent::Up, *address));
        }
    }
    departures.append(&mut arrivals);
    departures
}

#[cfg(test)]
mod tests {
    use super::*;
    use MemberEvent::{Down, New, Removed, Up};
    use uuid::Uuid;

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, number], 9042))
    }

    /// Members by address, host and whether they serve.
    fn known(members: &[(u8, u128, bool)]) -> Announcements {
        let entry = |(at, host, is_up): &(u8, u128, bool)| {
            let host = HostId(Uuid::from_u128(*host));
            (address(*at), Announced { host, is_up: *is_up })
        };
        members.iter().map(entry).collect()
    }

    #[track_caller]
    fn check(before: &[(u8, u128, bool)], after: &[(u8, u128, bool)], expected: &[(MemberEvent, u8)]) {
        let expected: Vec<_> = expected.iter().map(|(event, at)| (*event, address(*at))).collect();
        assert_eq!(events(&known(before), &known(after)), expected);
    }

    #[test]
    fn a_member_that_comes_stops_serving_serves_and_goes() {
        check(&[], &[(1, 1, true)], &[(New, 1), (Up, 1)]);
        check(&[(1, 1, true)], &[(1, 1, false)], &[(Down, 1)]);
        check(&[(1, 1, false)], &[(1, 1, true)], &[(Up, 1)]);
        check(&[(1, 1, true)], &[(1, 1, true)], &[]);
        check(&[(1, 1, true)], &[], &[(Removed, 1)]);
    }

    #[test]
    fn a_changed_address_is_a_departure_and_an_arrival() {
        check(&[(2, 1, false)], &[(1, 1, true)], &[(Removed, 2), (New, 1), (Up, 1)]);
    }

    #[test]
    fn the_last_event_about_an_address_that_changes_hands_is_true() {
        let at_one = [(1, 1, false)];
        check(&at_one, &[(1, 2, true)], &[(Removed, 1), (New, 1), (Up, 1)]);
        let exchanged = [(Removed, 1), (Removed, 2), (New, 1), (Up, 1), (New, 2), (Up, 2)];
        check(&[(1, 1, true), (2, 2, true)], &[(1, 2, true), (2, 1, true)], &exchanged);
        let moved_on = [(Removed, 1), (New, 1), (Up, 1), (New, 2), (Up, 2)];
        check(&at_one, &[(1, 2, true), (2, 1, true)], &moved_on);
    }

    #[test]
    fn departures_come_before_arrivals() {
        check(
            &[(2, 2, true), (3, 3, true)],
            &[(1, 1, true), (3, 3, false)],
            &[(Removed, 2), (Down, 3), (New, 1), (Up, 1)],
        );
    }
}
