//! The DynamoDB API of a shard: its ports, and what the front door needs of the node.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::{Config, WriteIsolation};
use dynamodb_engine::Service;
use dynamodb_server::{
    Api, ApiAnswer, ApiRequest, Nodes, Parts, Port, Secret, Secrets, SecretsUnavailable, Server, Settings,
};
use front::{Endpoints, Front, Listeners, Tls, TlsFiles};

use query::Engine;
use runtime::{Instant, ShardId};
use types::Token;

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
pub(crate) async fn open(
    shared: &Arc<Shared>,
    engine: &Rc<Engine>,
    front: &Rc<Front>,
    bound: Vec<BoundPort>,
) -> Result<(), String> {
    let service = Service::new(engine.clone(), operations_settings(&shared.config));
    runtime::set_local(service.clone());
    let group = runtime::Group::BACKGROUND;
    // Also on nodes that do not serve the API: they may have files of backups.
    if runtime::shard() == ShardId(0) && !shared.config.maintenance_mode {
        crate::operator::backups::keep(engine);
        drop(runtime::spawn_in(group, service.clone().restore_tables()));
        drop(runtime::spawn_in(group, service.clone().sweep_backups()));
    }
    if bound.is_empty() {
        return Ok(());
    }
    drop(runtime::spawn_in(group, expire(service.clone(), shared.clone())));
    drop(runtime::spawn_in(group, sweep(service.clone())));
    let parts = Parts {
        api: Rc::new(Operations(service)),
        secrets: Rc::new(StoredKeys(engine.clone())),
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
        warns_authorization: options.warns_authorization,
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

/// The operations.
struct Operations(Rc<Service>);

impl Api for Operations {
    fn execute(&self, request: ApiRequest) -> Pin<Box<dyn Future<Output = ApiAnswer>>> {
        let service = self.0.clone();
        Box::pin(async move {
            let executed = service.execute(&request.operation, &request.body);
            let answer = match runtime::timeout_at(request.deadline, executed).await {
                Ok(answer) => answer,
                Err(_) => Err(late()),
            };
            answer.map_or_else(
                |error| {
                    let mut body = Vec::new();
                    error.write_json(&mut body);
                    ApiAnswer {
                        status: error.http_status(),
                        body,
                    }
                },
                |body| ApiAnswer { status: 200, body },
            )
        })
    }
}

/// An operation that did not end in time; a write may have happened.
#[cold]
fn late() -> dynamodb_engine::Error {
    dynamodb_engine::Error::new(
        dynamodb_engine::ErrorKind::InternalServerError,
        "The operation did not end in time; whether it has written is unknown",
    )
}

/// How often this node looks for transactions whose coordinators have ended.
const SWEEP_PERIOD: Duration = Duration::from_secs(30);

/// How often expired items are looked for, at least, where the option says longer: before the first time, and after a
/// time when the clock was wrong.
const EXPIRY_WAIT: Duration = Duration::from_secs(300);

/// Finishes transactions of nodes that have ended in the middle; never returns. Runs on each shard.
async fn sweep(service: Rc<Service>) {
    loop {
        runtime::sleep(SWEEP_PERIOD).await;
        if !runtime::is_clock_trusted() {
            continue;
        }
        if let Err(error) = sweep_once(&service).await {
            log::debug!("some transactions are not finished, and are looked at again in half a minute: {error}");
        }
    }
}

async fn sweep_once(service: &Rc<Service>) -> Result<(), dynamodb_engine::Error> {
    if runtime::shard() == ShardId(0) && service.raise_copies_of_records().await? {
        log::info!("the records of transactions and backups get as many copies as tables that are created now");
    }
    let Some(records) = service.records_table()? else {
        return Ok(());
    };
    let mut swept = Ok(());
    let ranges = upkeep::row_expiry::own_ranges_in_datacenter(service.engine(), &records.table);
    for range in tokens_of(ranges) {
        swept = service.sweep_transactions(range).await.map(drop).and(swept);
    }
    swept
}

/// Ranges of tokens with both ends inside.
fn tokens_of(ranges: Vec<(Token, Token)>) -> impl Iterator<Item = (Token, Token)> {
    let ranges = ranges.into_iter();
    ranges.map(|(after, to)| (Token(after.0.saturating_add(1)), to))
}

/// Deletes items that have expired, once in a period; never returns. Runs on each shard.
async fn expire(service: Rc<Service>, shared: Arc<Shared>) {
    let period = || shared.options.current().config.row_expiry_period;
    let mut wait = period().min(EXPIRY_WAIT);
    loop {
        runtime::sleep(wait).await;
        // Items that have not expired would be lost.
        if !runtime::is_clock_trusted() {
            wait = period().min(EXPIRY_WAIT);
            continue;
        }
        wait = period();
        for table in service.expiring_tables() {
            for range in tokens_of(upkeep::row_expiry::own_ranges(service.engine(), &table.table)) {
                if let Err(error) = service.expire_items(&table, range).await {
                    log::warn!(
                        "expired items of table {} stay until the next look in {} s: {error}",
                        table.name,
                        wait.as_secs()
                    );
                }
            }
        }
    }
}

/// What the options say of the operations.
fn operations_settings(config: &Config) -> dynamodb_engine::Settings {
    let options = &config.dynamodb;
    dynamodb_engine::Settings {
        write_isolation: match options.write_isolation {
            WriteIsolation::AlwaysLwt => dynamodb_engine::WriteIsolation::Always,
            WriteIsolation::ForbidReadBeforeWrite => dynamodb_engine::WriteIsolation::Forbid,
            WriteIsolation::OnlyReadBeforeWriteLwt => dynamodb_engine::WriteIsolation::OnlyReadModifyWrite,
            WriteIsolation::Unsafe => dynamodb_engine::WriteIsolation::Unsafe,
        },
        batch_write_items_max: options.batch_write_items_max,
        sizes_validity: options.sizes_validity,
        ..dynamodb_engine::Settings::default()
    }
}

/// The secrets of access keys: those of `system_auth.dynamodb_keys`.
struct StoredKeys(Rc<Engine>);

impl Secrets for StoredKeys {
    fn secret(
        &self,
        access_key: &str,
        deadline: Instant,
    ) -> Pin<Box<dyn Future<Output = Result<Secret, SecretsUnavailable>>>> {
        let (engine, access_key) = (self.0.clone(), access_key.to_owned());
        Box::pin(async move {
            let read = dynamodb_engine::access_keys::secret(&engine, &access_key);
            match runtime::timeout_at(deadline, read).await {
                Ok(Ok(Some(secret))) => Ok(Secret::Known(secret)),
                Ok(Ok(None)) => Ok(Secret::Unknown),
                Ok(Err(error)) => Err(SecretsUnavailable(error.message())),
                Err(_) => Err(SecretsUnavailable("the replicas did not answer in time".to_owned())),
            }
        })
    }
}

/// The members of the cluster, as this node sees them.
struct Members(Arc<Shared>);

impl Nodes for Members {
    fn addresses(&self, datacenter: Option<&str>, rack: Option<&str>) -> Vec<String> {
        let (info, config) = (self.0.about.info(), &self.0.config);
        let datacenter = datacenter.unwrap_or(&config.data_center);
        let is_named = |dc: &str, of_rack: &str| dc == datacenter && rack.is_none_or(|rack| rack == of_rack);
        let own = is_named(&config.data_center, &config.rack).then_some(config.broadcast_rpc_address);
        let peers = info.peers.iter().filter(|peer| peer.is_member() && peer.up);
        let peers = peers.filter(|peer| is_named(&peer.data_center, &peer.rack));
        let addresses = own.into_iter().chain(peers.map(|peer| peer.native.ip()));
        addresses.map(|address| address.to_string()).collect()
    }
}
