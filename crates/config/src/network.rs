//! Where a node listens, and the addresses that it announces.

use std::net::{IpAddr, Ipv4Addr};

use super::options::Options;
use super::{ADDRESS, PORT, PORT_OR_NONE, port_or_none};

/// Addresses and ports.
pub(super) struct Network {
    pub listen: IpAddr,
    pub rpc: IpAddr,
    pub broadcast: IpAddr,
    pub broadcast_rpc: IpAddr,
    pub port: u16,
    pub shard_aware_port: Option<u16>,
    pub proxied_ports: [Option<u16>; 2],
}

/// The ports for proxies; others than the ports that are `taken`.
fn proxied_ports(options: &mut Options<'_>, taken: &[u16]) -> [Option<u16>; 2] {
    let mut taken = taken.to_vec();
    let names = [
        "native_transport_port_proxy_protocol",
        "native_shard_aware_transport_port_proxy_protocol",
    ];
    names.map(|option| {
        let port = options.get(option, "a port, or 0 for none", |text| text.parse().ok());
        let port = port.unwrap_or(0);
        options.note(option, port);
        if port != 0 && taken.contains(&port) {
            options.refuse(option, "a port that no other option of CQL has");
        }
        taken.push(port);
        (port != 0).then_some(port)
    })
}

/// The addresses and ports that the options say.
pub(super) fn resolve(options: &mut Options<'_>) -> Network {
    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let is_one = |address: IpAddr| !address.is_unspecified();
    let one = "one IP address or host name, not a wildcard";
    let listen = options.address("listen_address", one, is_one).unwrap_or(localhost);
    options.note("listen_address", listen);
    let rpc = options.address("rpc_address", ADDRESS, |_| true).unwrap_or(localhost);
    options.note("rpc_address", rpc);
    let broadcast = options.address("broadcast_address", one, is_one).unwrap_or(listen);
    options.note("broadcast_address", broadcast);
    let broadcast_rpc = options.address("broadcast_rpc_address", one, is_one).unwrap_or(rpc);
    if broadcast_rpc.is_unspecified() && !options.is_given("broadcast_rpc_address") {
        let expected = "broadcast_rpc_address too, when rpc_address is a wildcard";
        options.refuse("rpc_address", expected);
    }
    options.note("broadcast_rpc_address", broadcast_rpc);

    let port = options.get("native_transport_port", PORT, |text| text.parse().ok());
    let port = port.unwrap_or(9_042);
    options.note("native_transport_port", port);
    let option = "native_shard_aware_transport_port";
    let shard_aware_port = options.get(option, PORT_OR_NONE, port_or_none).unwrap_or(Some(19_042));
    if shard_aware_port == Some(port) && port != 0 {
        options.refuse(option, "another port than native_transport_port");
    }
    options.note_or_none(option, shard_aware_port.map(|port| port.to_string()));
    let proxied_ports = proxied_ports(options, &[port, shard_aware_port.unwrap_or(0)]);
    Network {
        proxied_ports,
        listen,
        rpc,
        broadcast,
        broadcast_rpc,
        port,
        shard_aware_port,
    }
}
