//! Where operators reach the node: the REST API and the metrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::options::Options;
use super::{ADDRESS, SWITCH, value};

/// Address of the API, address of the metrics, and whether the metrics include each table. `cql_port` is taken already.
///
/// The API has no authentication, so by default only this machine reaches it. A loopback `listen_address` is local too,
/// and the API follows it: several nodes of one machine keep the same port on 127.0.0.1, 127.0.0.2, … The metrics only
/// read, and Prometheus runs on a different machine: they follow `listen_address` always.
pub(super) fn resolve(
    options: &mut Options<'_>,
    listen_address: IpAddr,
    cql_port: u16,
) -> (Option<SocketAddr>, Option<SocketAddr>, bool) {
    let local = if listen_address.is_loopback() {
        listen_address
    } else {
        Ipv4Addr::LOCALHOST.into()
    };
    let api = listen(options, ("api_address", "api_port", 10_000), local, cql_port);
    let prometheus = listen(
        options,
        ("prometheus_address", "prometheus_port", 9_180),
        listen_address,
        cql_port,
    );
    if api.is_some_and(|api| api.port() != 0 && prometheus == Some(api)) {
        options.refuse("prometheus_port", "another port than api_port");
    }
    let option = "enable_node_aggregated_table_metrics";
    let tables = options.get(option, SWITCH, value::switch).unwrap_or(false);
    options.note(option, tables);
    (api, prometheus, tables)
}

fn listen(
    options: &mut Options<'_>,
    (address_option, port_option, default): (&'static str, &'static str, u16),
    default_address: IpAddr,
    cql_port: u16,
) -> Option<SocketAddr> {
    let address = options.address(address_option, ADDRESS, |_| true);
    let address = address.unwrap_or(default_address);
    options.note(address_option, address);
    let port = options.get(port_option, super::PORT_OR_NONE, super::port_or_none);
    let port = port.unwrap_or(Some(default));
    if port == Some(cql_port) && cql_port != 0 {
        options.refuse(port_option, "another port than native_transport_port");
    }
    options.note_or_none(port_option, port.map(|port: u16| port.to_string()));
    port.map(|port| SocketAddr::new(address, port))
}
