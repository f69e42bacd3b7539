//! The options of the DynamoDB API, by the names of scylla.yaml.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use front::TlsFiles;

use super::options::Options;
use super::{ADDRESS, cluster, network, seconds, value};

/// How the DynamoDB API is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DynamoDb {
    /// Where it listens.
    pub address: IpAddr,
    /// The port; None: there is none.
    pub port: Option<u16>,
    /// The port with TLS; None: there is none.
    pub https_port: Option<u16>,
    /// Certificate and key of that port; there is one if the port is.
    pub tls: Option<TlsFiles>,
    /// Whether each operation must be signed.
    pub enforces_authorization: bool,
    /// Whether operations without a valid signature are logged and counted.
    pub warns_authorization: bool,
    /// How writes of tables that do not choose it themselves are isolated.
    pub write_isolation: WriteIsolation,
    /// How many items one BatchWriteItem may have.
    pub batch_write_items_max: usize,
    /// How long DescribeTable shows an estimate of a table's items and bytes before a new one is made.
    pub sizes_validity: Duration,
    /// How long an operation may take.
    pub timeout: Duration,
    /// Answers of so many bytes and more are compressed for clients that accept that; None: none is.
    pub compression_bytes_min: Option<usize>,
    /// How hard, from 1 to 9.
    pub compression_level: u32,
    /// The value of the header Server of answers; None: it is not sent.
    pub server_header: Option<String>,
    /// Whether answers have the header Date.
    pub sends_date: bool,
    /// Whether answers have the header Content-Type.
    pub sends_content_type: bool,
}

/// How the writes of the DynamoDB API to one item are isolated from each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteIsolation {
    /// All writes are conditional statements.
    AlwaysLwt,
    /// Writes that read the item before are refused.
    ForbidReadBeforeWrite,
    /// Writes that read the item before are conditional statements, others are not.
    OnlyReadBeforeWriteLwt,
    /// No write is a conditional statement, also where it reads the item before.
    Unsafe,
}

/// The names of scylla.yaml, in both lengths.
const ISOLATIONS: [(&str, WriteIsolation); 7] = [
    ("always", WriteIsolation::AlwaysLwt),
    ("always_use_lwt", WriteIsolation::AlwaysLwt),
    ("forbid", WriteIsolation::ForbidReadBeforeWrite),
    ("forbid_rmw", WriteIsolation::ForbidReadBeforeWrite),
    ("only_rmw_uses_lwt", WriteIsolation::OnlyReadBeforeWriteLwt),
    ("unsafe", WriteIsolation::Unsafe),
    ("unsafe_rmw", WriteIsolation::Unsafe),
];

impl WriteIsolation {
    /// The isolation of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let (_, isolation) = ISOLATIONS.iter().find(|(known, _)| *known == name)?;
        Some(*isolation)
    }
}

/// Most items that one BatchWriteItem can be allowed to have.
const BATCH_WRITE_ITEMS_MAX: usize = 10_000;
/// The service updates sizes of tables about every six hours.
const SIZES_VALIDITY: Duration = Duration::from_secs(6 * 60 * 60);
/// A shorter time refuses operations on a loaded machine.
const TIMEOUT_MIN: Duration = Duration::from_millis(10);

/// The options of the API; it listens where CQL does unless an option names another address.
pub(super) fn resolve(options: &mut Options<'_>, network: &network::Network) -> DynamoDb {
    let address = options.address("alternator_address", ADDRESS, |_| true);
    let address = address.unwrap_or(network.rpc);
    options.note("alternator_address", address);
    let mut taken = vec![network.port, network.shard_aware_port.unwrap_or(0)];
    taken.extend(network.proxied_ports.into_iter().flatten());
    let [port, https_port] = ["alternator_port", "alternator_https_port"].map(|option| {
        let port = options.get(option, "a port, or 0 for none", |text| text.parse().ok());
        let port = port.unwrap_or(0);
        options.note(option, port);
        if port != 0 && taken.contains(&port) {
            options.refuse(option, "a port that no other option for clients has");
        }
        taken.push(port);
        (port != 0).then_some(port)
    });
    let tls = tls(options, https_port);
    let isolation = options.get(
        "alternator_write_isolation",
        "always, always_use_lwt, forbid, forbid_rmw, only_rmw_uses_lwt, unsafe or unsafe_rmw",
        WriteIsolation::named,
    );
    if isolation.is_none() {
        options.note("alternator_write_isolation", "always_use_lwt");
    }
    let level = number(options, "alternator_response_compression_level", 1, 9);
    let bytes_min = number(
        options,
        "alternator_response_compression_threshold_in_bytes",
        4 << 10,
        1 << 30,
    );
    DynamoDb {
        address,
        port,
        https_port,
        tls,
        enforces_authorization: cluster::switch(options, "alternator_enforce_authorization", false),
        warns_authorization: cluster::switch(options, "alternator_warn_authorization", false),
        write_isolation: isolation.unwrap_or(WriteIsolation::AlwaysLwt),
        batch_write_items_max: number(
            options,
            "alternator_max_items_in_batch_write",
            // As the service; ScyllaDB's is 100.
            25,
            BATCH_WRITE_ITEMS_MAX,
        )
        .max(1),
        sizes_validity: seconds(
            options,
            "alternator_describe_table_info_cache_validity_in_seconds",
            SIZES_VALIDITY,
        ),
        timeout: timeout(options),
        compression_bytes_min: (level > 0).then_some(bytes_min),
        compression_level: u32::try_from(level).unwrap_or(1).max(1),
        server_header: server_header(options),
        sends_date: !cluster::switch(options, "alternator_http_response_disable_date_header", false),
        sends_content_type: !cluster::switch(options, "alternator_http_response_disable_content_type_header", false),
    }
}

fn number(options: &mut Options<'_>, option: &'static str, default: usize, most: usize) -> usize {
    let expected = format!("a number from 0 to {most}");
    let in_range = |text: &str| text.parse().ok().filter(|number| *number <= most);
    let number = options.get(option, &expected, in_range).unwrap_or(default);
    options.note(option, number);
    number
}

fn timeout(options: &mut Options<'_>) -> Duration {
    let at_least = |text: &str| value::duration(text).filter(|duration| *duration >= TIMEOUT_MIN);
    let expected = "a duration of at least 10ms, such as 10000ms";
    let timeout = options.get("alternator_timeout", expected, at_least);
    let timeout = timeout.unwrap_or(Duration::from_secs(10));
    options.note("alternator_timeout", format!("{}ms", timeout.as_millis()));
    timeout
}

/// The value of the header, if it is one line of visible characters.
fn server_header(options: &mut Options<'_>) -> Option<String> {
    let option = "alternator_http_response_server_header";
    let is_line = |text: &str| text.len() <= 200 && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let given = options.get(option, "a line of ASCII characters, or none", |text| match text {
        "" | "none" => Some(None),
        text => is_line(text).then(|| Some(text.to_owned())),
    });
    let header = given.flatten();
    options.note_or_none(option, header.clone());
    header
}

/// Certificate and key of the port with TLS.
fn tls(options: &mut Options<'_>, https_port: Option<u16>) -> Option<TlsFiles> {
    let mut file = |option| {
        let path = options.get(option, "a path", |text| Some(PathBuf::from(text)));
        let path = path.filter(|path| !path.as_os_str().is_empty() && path != Path::new("none"));
        options.note_or_none(option, path.as_ref().map(|path| path.display().to_string()));
        path
    };
    let certificate = file("alternator_encryption_options.certificate");
    let key = file("alternator_encryption_options.keyfile");
    let trust = file("alternator_encryption_options.truststore");
    let option = "alternator_encryption_options.require_client_auth";
    let asks_client = cluster::switch(options, option, false);
    if asks_client && trust.is_none() {
        options.refuse(option, "false, or alternator_encryption_options.truststore too");
    }
    https_port?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => Some(TlsFiles {
            certificate,
            key,
            client_trust: trust.filter(|_| asks_client),
        }),
        _ => {
            let expected = "0, or alternator_encryption_options.certificate and keyfile too, files in PEM form";
            options.refuse("alternator_https_port", expected);
            None
        }
    }
}
