//! The DynamoDB API of a shard: its ports, and what the front door needs of the node.

use std::future::{Future, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use config::Config;
use dynamodb_server::{Api, ApiAnswer, ApiRequest, Nodes, Parts, Port, Refusal, Secret, Secrets, Server, Settings};
use front::{Endpoints, Front, Listeners, Tls, TlsFiles};

use crate::start::Shared;

/// A port that is taken and not open yet.
pub(crate) struct BoundPort {
    endpoints: Endpoints,
    listeners: Listeners,
    has_tls: bool,
}

/// Where the API listens, and whether with TLS. In maintenance mode nowhere.
pub(crate) fn addresses(config: &Config) -> impl Iterator<Item = (SocketAddr, bool)> {
    let options = &config.dynamodb;
    let ports = [(options.port, false), (options.https_port, true)];
    let (is_served, ip) = (!config.maintenance_mode, options.address);
    let ports = ports.into_iter().filter(move |_| is_served);
    ports.filter_map(move |(port, has_tls)| Some((SocketAddr::new(ip, port?), has_tls)))
}

/// The ports of a shard, kept so that they can be opened again.
struct Ports(#[expect(dead_code, reason = "the front reaches them by weak references")] Vec<Rc<Port>>);

/// Takes the ports. Clients that come before [`open`] are refused.
///
/// # Errors
/// When one cannot be taken.
pub(crate) fn bind(config: &Config) -> std::io::Result<Vec<BoundPort>> {
    let bound = addresses(config).map(|(address, has_tls)| {
        let endpoints = Endpoints {
            protocol: "DynamoDB",
            address: Some(address),
            maintenance_socket: None,
            shard_aware_address: None,
            proxied_address: None,
            proxied_shard_aware_address: None,
        };
        Ok(BoundPort {
            listeners: Listeners::bind(&endpoints)?,
            endpoints,
            has_tls,
        })
    });
    bound.collect()
}

/// Serves the API on this shard.
///
/// # Errors
/// In words: when a port cannot be listened on, or the certificate cannot be used.
pub(crate) async fn open(shared: &Arc<Shared>, front: &Rc<Front>, bound: Vec<BoundPort>) -> Result<(), String> {
    if bound.is_empty() {
        return Ok(());
    }
    let parts = Parts {
        api: Rc::new(NoOperations),
        secrets: Rc::new(NoKeys),
        nodes: Rc::new(Members(shared.clone())),
    };
    let server = Server::new(front.clone(), parts, settings(&shared.config));
    runtime::set_local(server.clone());
    if let Some(files) = shared.config.dynamodb.tls.clone() {
        server.set_tls(load(files).await?);
    }
    let mut ports = Vec::new();
    for BoundPort {
        endpoints,
        listeners,
        has_tls,
    } in bound
    {
        let port = if has_tls {
            server.tls_port(endpoints)
        } else {
            server.plain_port(endpoints)
        };
        front::listeners::open(&port, listeners).map_err(|e| e.to_string())?;
        ports.push(port);
    }
    runtime::set_local(Rc::new(Ports(ports)));
    Ok(())
}

/// Reads certificate and key.
pub(crate) async fn load(files: TlsFiles) -> Result<Tls, String> {
    runtime::offload(move || Tls::load(&files)).await
}

/// What the options say of the front door.
pub(crate) fn settings(config: &Config) -> Settings {
    let options = &config.dynamodb;
    Settings {
        enforces_authorization: options.enforces_authorization,
        timeout: options.timeout,
        compression_bytes_min: options.compression_bytes_min,
        compression_level: options.compression_level,
        server_header: options.server_header.clone(),
        sends_date: options.sends_date,
        sends_content_type: options.sends_content_type,
    }
}

/// The line that says how to connect; None where the API has no port.
pub(crate) fn announcement(config: &Config) -> Option<String> {
    let lines = addresses(config).map(|(address, has_tls)| {
        let scheme = if has_tls { "https" } else { "http" };
        format!(
            "serving the DynamoDB API on {address}\nconnect with: aws dynamodb list-tables --endpoint-url {scheme}://{address} --region us-east-1\n"
        )
    });
    Some(lines.collect()).filter(|text: &String| !text.is_empty())
}

/// Operations as long as there are none: each is unknown.
struct NoOperations;

impl Api for NoOperations {
    fn execute(&self, request: ApiRequest) -> Pin<Box<dyn Future<Output = ApiAnswer>>> {
        let refusal = Refusal {
            status: 400,
            kind: "UnknownOperationException",
            message: Some(format!("Operation {} is not supported", request.operation)),
        };
        let answer = ApiAnswer {
            status: refusal.status,
            body: refusal.body(),
        };
        Box::pin(ready(answer))
    }
}

/// The secrets of access keys as long as there are no roles: none is known.
struct NoKeys;

impl Secrets for NoKeys {
    fn secret(&self, _: &str) -> Pin<Box<dyn Future<Output = Secret>>> {
        Box::pin(ready(Secret::Unknown))
    }
}

/// The members of the cluster, as this node sees them.
struct Members(Arc<Shared>);

impl Nodes for Members {
    fn addresses(&self, datacenter: Option<&str>, rack: Option<&str>) -> Vec<String> {
        let (info, config) = (self.0.about.info(), &self.0.config);
        let datacenter = datacenter.unwrap_or(&config.data_center);
        let is_named = |dc: &str, of_rack: &str| dc == datacenter && rack.is_none_or(|rack| rack == of_rack);
        let own = is_named(&config.data_center, &config.rack).then(|| config.broadcast_rpc_address);
        let peers = info.peers.iter().filter(|peer| peer.is_member() && peer.up);
        let peers = peers.filter(|peer| is_named(&peer.data_center, &peer.rack));
        let addresses = own.into_iter().chain(peers.map(|peer| peer.native.ip()));
        addresses.map(|address| address.to_string()).collect()
    }
}
