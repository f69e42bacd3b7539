//! The nodes that know the cluster, by address or by host name.
//!
//! A name has an address from when the options were read. When no node answers there, the name is resolved again, so
//! that a seed whose address has changed is found without a restart. Lookups run in the background, one at a time for
//! each name: a name server that does not answer delays no request to the other seeds.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

/// A node that knows the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seed {
    /// Its host name, if it was given by one.
    pub host: Option<String>,
    /// Its address, or that of its name when it was resolved last.
    pub address: SocketAddr,
}

impl From<SocketAddr> for Seed {
    fn from(address: SocketAddr) -> Self {
        Self { host: None, address }
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) => write!(f, "{host} ({})", self.address),
            None => self.address.fmt(f),
        }
    }
}

/// The seeds of a node as they are known now. Lives on shard 0.
pub(crate) struct Seeds {
    seeds: RefCell<Vec<Seed>>,
    /// The names that are being resolved.
    pending: RefCell<BTreeSet<String>>,
}

/// The address to try for a name after no node answered at one. A name may have several: they are tried in turn.
fn next_address(silent: IpAddr, found: &[IpAddr]) -> Option<IpAddr> {
    match found.iter().position(|address| *address == silent) {
        Some(position) => found.get((position + 1) % found.len()).copied(),
        None => runtime::net::preferred(found),
    }
}

impl Seeds {
    pub(crate) fn new(seeds: &[Seed]) -> Rc<Self> {
        Rc::new(Self {
            seeds: RefCell::new(seeds.to_vec()),
            pending: RefCell::default(),
        })
    }

    /// In the order of the options.
    pub(crate) fn all(&self) -> Vec<Seed> {
        self.seeds.borrow().clone()
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.seeds.borrow().iter().map(|seed| seed.address).collect()
    }

    /// No node answers at an address: begins to resolve the names again that have led there. Does not wait.
    pub(crate) fn note_silent(self: &Rc<Self>, address: SocketAddr) {
        let seeds = self.seeds.borrow();
        let hosts = seeds.iter().filter(|seed| seed.address == address);
        for host in hosts.filter_map(|seed| seed.host.as_ref()) {
            if self.pending.borrow_mut().insert(host.clone()) {
                drop(runtime::spawn(self.clone().resolve(host.clone(), address.ip())));
            }
        }
    }

    async fn resolve(self: Rc<Self>, host: String, silent: IpAddr) {
        let found = runtime::net::resolve(&host).await;
        self.pending.borrow_mut().remove(&host);
        let next = match found {
            Ok(found) => next_address(silent, &found),
            Err(error) => return log::debug!("cannot resolve the name of seed {host}: {error}"),
        };
        let mut seeds = self.seeds.borrow_mut();
        let named = seeds.iter_mut().filter(|seed| seed.host.as_ref() == Some(&host));
        for seed in named.filter(|seed| seed.address.ip() == silent) {
            if let Some(next) = next.filter(|next| *next != silent) {
                log::info!("seed {host} does not answer at {silent}: trying {next}");
                seed.address.set_ip(next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_a_name_are_tried_in_turn() {
        let cases = [
            ("10.0.0.1", "", None),
            ("10.0.0.1", "10.0.0.1", Some("10.0.0.1")),
            ("10.0.0.1", "10.0.0.2", Some("10.0.0.2")),
            ("10.0.0.1", "::2 10.0.0.2", Some("10.0.0.2")),
            ("10.0.0.1", "10.0.0.3 10.0.0.1 10.0.0.2", Some("10.0.0.2")),
            ("10.0.0.2", "10.0.0.3 10.0.0.1 10.0.0.2", Some("10.0.0.3")),
        ];
        for (silent, found, expected) in cases {
            let address = |text: &str| text.parse::<IpAddr>().expect("it is one");
            let found: Vec<IpAddr> = found.split_whitespace().map(address).collect();
            assert_eq!(
                next_address(address(silent), &found),
                expected.map(address),
                "{silent} of {found:?}"
            );
        }
    }
}
