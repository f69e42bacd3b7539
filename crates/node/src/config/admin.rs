//! Where operators reach the node: the REST API and the metrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::error::ConfigError;
use super::options::Options;
use super::{ADDRESS, SWITCH, value};

/// Address of the API, address of the metrics, and whether these tell of each table. `cql_port` is taken already.
pub(super) fn resolve(
    options: &mut Options,
    cql_port: u16,
) -> Result<(Option<SocketAddr>, Option<SocketAddr>, bool), ConfigError> {
    let api = listen(options, "api_address", "api_port", 10_000, cql_port)?;
    let prometheus = listen(options, "prometheus_address", "prometheus_port", 9_180, cql_port)?;
    if api.is_some_and(|api| api.port() != 0 && prometheus == Some(api)) {
        return Err(options.refuse("prometheus_port", "another port than api_port"));
    }
    let option = "enable_node_aggregated_table_metrics";
    let tables = options.get(option, SWITCH, value::switch)?.unwrap_or(false);
    options.note(option, tables);
    Ok((api, prometheus, tables))
}

fn listen(
    options: &mut Options,
    address_option: &'static str,
    port_option: &'static str,
    default: u16,
    cql_port: u16,
) -> Result<Option<SocketAddr>, ConfigError> {
    let address = options.get(address_option, ADDRESS, value::address)?;
    let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    options.note(address_option, address);
    let parsed = |text: &str| match text {
        "none" => Some(None),
        _ => text.parse().ok().map(Some),
    };
    let port = options.get(port_option, "a port from 0 to 65535, or none", parsed)?;
    let port = port.unwrap_or(Some(default));
    if port == Some(cql_port) && cql_port != 0 {
        return Err(options.refuse(port_option, "another port than native_transport_port"));
    }
    let shown = port.map(|port: u16| port.to_string());
    options.settings.insert(port_option.to_owned(), shown);
    Ok(port.map(|port| SocketAddr::new(address, port)))
}
