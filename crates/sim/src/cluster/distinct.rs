//! Which answers an acknowledgement counted: as many distinct replicas as its level wants, in the right datacenters.
//!
//! Coordinators count answers by datacenter. This module looks at the names of the counted replicas (`stdx::probe`),
//! for every request of every node, also when replicas fail and others take their place. Data alone shows such a fault
//! only where replicas differ.

use std::collections::BTreeSet;
use std::rc::Rc;

use stdx::probe::{Acknowledged, Watch};

use super::clients::Clients;
use super::history::{Asked, DATACENTERS, Level};

/// Checks all acknowledgements until it is dropped.
pub(crate) fn watch(clients: &Rc<Clients>) -> Watch {
    let clients = Rc::clone(clients);
    Watch::new(move |request| {
        clients.count(|c| c.acknowledgements += 1);
        if let Err(why) = check(&clients, request) {
            clients.fail(why);
        }
    })
}

fn check(clients: &Clients, request: &Acknowledged) -> Result<(), String> {
    let node = |address| clients.addresses.iter().position(|a| a.ip() == address);
    let layout = &clients.layout;
    let Some(level) = Level::of_code(request.level) else {
        return Ok(());
    };
    let coordinator = node(request.coordinator).ok_or_else(|| format!("{request:?} is of no node"))?;
    let distinct: BTreeSet<_> = request.replicas.iter().copied().filter_map(node).collect();
    let mut answered = [0; DATACENTERS];
    for node in &distinct {
        answered[layout.datacenter(*node)] += 1;
    }
    let asked = Asked {
        level,
        datacenter: layout.datacenter(coordinator),
    };
    if layout.is_met(asked, &answered) {
        return Ok(());
    }
    Err(format!(
        "a {} at {level:?} was acknowledged by node {coordinator} with the answers of the replicas {distinct:?} alone",
        request.what
    ))
}
