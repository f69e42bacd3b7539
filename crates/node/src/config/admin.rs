//! Where operators reach the node: the REST API and the metrics.

use std::net::{IpAddr, SocketAddr};

use super::options::Options;
use super::{ADDRESS, SWITCH, value};

/// Address of the API, address of the metrics, and whether these tell of each table. Both are on the address for other nodes unless they are
/// told their own, so that several nodes of one machine do not meet. `cql_port` is taken already.
pub(super) fn resolve(
    options: &mut Options<'_>,
    listen_address: IpAddr,
    cql_port: u16,
) -> (Option<SocketAddr>, Option<SocketAddr>, bool) {
    let api = listen(options, ("api_address", "api_port", 10_000), listen_address, cql_port);
    if let Some(api) = api.filter(|api| !options.is_given("api_address") && !api.ip().is_loopback()) {
        options.warnings.push(format!(
            "the REST API listens on {}, as listen_address, and asks nobody for a password; api_address: localhost keeps it to this machine",
            api.ip()
        ));
    }
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
    listen_address: IpAddr,
    cql_port: u16,
) -> Option<SocketAddr> {
    let address = options.address(address_option, ADDRESS, |_| true);
    let address = address.unwrap_or(listen_address);
    options.note(address_option, address);
    let port = options.get(port_option, super::PORT_OR_NONE, super::port_or_none);
    let port = port.unwrap_or(Some(default));
    if port == Some(cql_port) && cql_port != 0 {
        options.refuse(port_option, "another port than native_transport_port");
    }
    options.note_or_none(port_option, port.map(|port: u16| port.to_string()));
    port.map(|port| SocketAddr::new(address, port))
}
