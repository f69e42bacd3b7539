//! The options of a node about its cluster: the nodes it asks to join, its part of the ring, its datacenter and rack,
//! and how it talks to the other nodes.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use ::cluster::InternodeScope;
use ::cluster::{Balancing, Seed};
use coordinator::Timeouts;
use hints::Allowed;
use rpc::Compression;
use topology::{ClockLimits, HostId, Location, Replaced, Snitch, SnitchError, TOKENS_PER_NODE_MAX};
use types::Token;

use super::error::ConfigError;
use super::options::{self, Lookup, Options};
use super::{PORT, SWITCH, name, value};

/// What becomes of writes that a replica missed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hints {
    /// For which replicas the coordinator keeps them.
    pub allowed: Allowed,
    /// After a replica has been down for this long, no further hints are kept.
    pub window: Duration,
}

/// TLS between nodes. The files are in PEM form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encryption {
    /// Which connections are encrypted; never [`InternodeScope::None`].
    pub between: InternodeScope,
    /// The node's certificate, with those between it and the root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificates that vouch for the others.
    pub trust: PathBuf,
    /// Whether a node's certificate must name the address it is reached at.
    pub verify_endpoint: bool,
}

/// The options of this module, as `Config` has them.
pub(super) struct Cluster {
    pub seeds: Vec<Seed>,
    pub storage_port: u16,
    pub ssl_storage_port: u16,
    pub num_tokens: usize,
    pub initial_tokens: Vec<Token>,
    pub auto_bootstrap: bool,
    pub joins_ring: bool,
    pub replaces: Option<Replaced>,
    pub ignores: Vec<Replaced>,
    pub location: Location,
    pub timeouts: Timeouts,
    pub request_timeout: Duration,
    /// From when on a request is slow; zero: none is.
    pub slow_request: Duration,
    pub compression: InternodeScope,
    pub compression_algorithms: Vec<Compression>,
    pub encryption: Option<Encryption>,
    pub hints: Hints,
    pub clock_limits: ClockLimits,
    pub balancing: Balancing,
}

/// The text that means "none given" where an option has no default.
const NONE: &str = "none";
/// Tokens of a node if no number is configured.
const NUM_TOKENS: usize = 16;
/// How long a node may be down and is still sent what it missed.
const HINT_WINDOW: Duration = Duration::from_hours(3);

/// How large tablets should be, and how often it is looked.
fn balancing(options: &mut Options<'_>) -> Balancing {
    let usual = Balancing::default();
    let option = "target_tablet_size_in_bytes";
    let goal = options.get(option, "a size such as 5GiB or 5368709120, or 0", value::size);
    let tablet_bytes_goal = goal.unwrap_or(usual.tablet_bytes_goal);
    options.note(option, value::size_text(tablet_bytes_goal));
    let option = "tablet_load_stats_refresh_interval_in_seconds";
    let seconds = |text: &str| {
        text.parse()
            .ok()
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs)
    };
    let interval = options.get(option, "a number of seconds, at least 1", seconds);
    let plan_interval = interval.unwrap_or(usual.plan_interval);
    options.note(option, plan_interval.as_secs());
    Balancing {
        tablet_bytes_goal,
        plan_interval,
    }
}

/// The file of GossipingPropertyFileSnitch: its path and text, if it is there.
pub(super) type Properties<'f> = &'f dyn Fn() -> Option<(PathBuf, String)>;

impl Cluster {
    pub fn resolve(options: &mut Options<'_>, broadcast: IpAddr, properties: Properties<'_>) -> Self {
        let storage_port = port(options, "storage_port", 7_000);
        let ssl_storage_port = port(options, "ssl_storage_port", 7_001);
        if ssl_storage_port == storage_port && storage_port != 0 {
            options.refuse("ssl_storage_port", "another port than storage_port");
        }
        let encryption = encryption(options);
        let mut seeds = seeds(options, storage_port);
        // Nodes know each other by the plain port, also those that are reached by TLS alone. A seed with the TLS port
        // means the same node.
        for seed in seeds.iter_mut().filter(|_| encryption.is_some()) {
            if seed.address.port() == ssl_storage_port {
                seed.address.set_port(storage_port);
            }
        }
        let (num_tokens, initial_tokens) = tokens(options);
        let auto_bootstrap = switch(options, "auto_bootstrap", true);
        let joins_ring = switch(options, "join_ring", true);
        let replaces = replaces(options);
        let ignores = ignores(options);
        let location = location(options, broadcast, properties);
        let usual = Timeouts::default();
        Self {
            seeds,
            storage_port,
            ssl_storage_port,
            num_tokens,
            initial_tokens,
            auto_bootstrap,
            joins_ring,
            replaces,
            ignores,
            location,
            timeouts: Timeouts {
                read: timeout(options, "read_request_timeout", usual.read),
                range: timeout(options, "range_request_timeout", usual.range),
                scan: timeout(options, "scan_request_timeout", usual.scan),
                write: timeout(options, "write_request_timeout", usual.write),
                counter: timeout(options, "counter_write_request_timeout", usual.counter),
                cas_contention: timeout(options, "cas_contention_timeout", usual.cas_contention),
                truncate: timeout(options, "truncate_request_timeout", usual.truncate),
            },
            request_timeout: timeout(options, "request_timeout", Duration::from_secs(10)),
            slow_request: duration(options, "slow_query_log_timeout", SLOW_REQUEST, Duration::ZERO),
            compression: between(options, "internode_compression"),
            compression_algorithms: algorithms(options),
            encryption,
            clock_limits: clock_limits(options),
            balancing: balancing(options),
            hints: Hints {
                allowed: hints_allowed(options),
                window: duration(options, "max_hint_window", HINT_WINDOW, Duration::ZERO),
            },
        }
    }
}

/// The usual threshold of the log of slow requests: as Cassandra's.
const SLOW_REQUEST: Duration = Duration::from_millis(500);

/// The member whose place the node takes when it joins: by its identity, or by its address.
fn replaces(options: &mut Options<'_>) -> Option<Replaced> {
    let host_id = options.get("replace_node_first_boot", "the host id of a node", |text| match text {
        "" | NONE => Some(None),
        id => id.parse().ok().map(|id| Some(HostId(id))),
    });
    let address = options.get("replace_address_first_boot", "an IP address", |text| match text {
        "" | NONE => Some(None),
        address => address.parse().ok().map(Some),
    });
    let (host_id, address) = (host_id.flatten(), address.flatten());
    options.note_or_none("replace_node_first_boot", host_id.map(|id: HostId| id.to_string()));
    options.note_or_none("replace_address_first_boot", address.map(|ip: IpAddr| ip.to_string()));
    host_id.map(Replaced::Host).or(address.map(Replaced::Address))
}

/// The dead members that are not waited for while this node replaces another.
fn ignores(options: &mut Options<'_>) -> Vec<Replaced> {
    let option = "ignore_dead_nodes_for_replace";
    let named = |text: &str| {
        let host = text.parse().map(|id| Replaced::Host(HostId(id)));
        host.ok().or_else(|| text.parse().ok().map(Replaced::Address))
    };
    let expected = "host ids or IP addresses of nodes, separated by commas";
    let given = options.get(option, expected, |text| match text {
        NONE => Some(Vec::new()),
        text => parts(text).map(named).collect(),
    });
    if given.as_ref().is_none_or(Vec::is_empty) {
        options.note_or_none(option, None);
    }
    given.unwrap_or_default()
}

fn port(options: &mut Options<'_>, option: &'static str, default: u16) -> u16 {
    let port = options.get(option, PORT, |text| text.parse().ok()).unwrap_or(default);
    options.note(option, port);
    port
}

pub(super) fn switch(options: &mut Options<'_>, option: &'static str, default: bool) -> bool {
    let on = options.get(option, SWITCH, value::switch).unwrap_or(default);
    options.note(option, on);
    on
}

/// A request that waits for less is refused at once on any loaded machine.
const TIMEOUT_MIN: Duration = Duration::from_millis(10);

fn timeout(options: &mut Options<'_>, option: &'static str, default: Duration) -> Duration {
    duration(options, option, default, TIMEOUT_MIN)
}

fn duration(options: &mut Options<'_>, option: &'static str, default: Duration, least: Duration) -> Duration {
    let at_least = |text: &str| value::duration(text).filter(|duration| *duration >= least);
    let expected = format!("a duration of at least {}ms, such as 5000ms", least.as_millis());
    let duration = options.get(option, &expected, at_least).unwrap_or(default);
    let shown = match duration.subsec_micros() % 1000 {
        0 => format!("{}ms", duration.as_millis()),
        _ => format!("{}us", duration.as_micros()),
    };
    options.note(option, shown);
    duration
}

/// A smaller limit would take the usual corrections of time servers for jumps.
const CLOCK_OFFSET_MIN: Duration = Duration::from_millis(500);

/// How far the clock may be off before it is not trusted, and before the node leaves service.
fn clock_limits(options: &mut Options<'_>) -> ClockLimits {
    let usual = ClockLimits::default();
    let suspect = duration(options, "clock_offset_max", usual.suspect, CLOCK_OFFSET_MIN);
    let out = "clock_offset_out_of_service";
    let out_of_service = duration(options, out, usual.out_of_service.max(suspect), CLOCK_OFFSET_MIN);
    if out_of_service < suspect {
        options.refuse(out, "at least clock_offset_max");
    }
    ClockLimits {
        suspect,
        out_of_service,
    }
}

fn between(options: &mut Options<'_>, option: &'static str) -> InternodeScope {
    let between = options.get(option, "none, dc, rack or all", |text| match text {
        "none" => Some(InternodeScope::None),
        "dc" => Some(InternodeScope::Datacenters),
        "rack" => Some(InternodeScope::Racks),
        "all" => Some(InternodeScope::All),
        _ => None,
    });
    if between.is_none() {
        options.note(option, NONE);
    }
    between.unwrap_or(InternodeScope::None)
}

/// The algorithms of compression between nodes, the preferred first.
fn algorithms(options: &mut Options<'_>) -> Vec<Compression> {
    let option = "internode_compression_algorithms";
    let parse = |text: &str| {
        let mut algorithms = Vec::new();
        for part in parts(text) {
            let algorithm = match part.to_ascii_lowercase().as_str() {
                "lz4" => Compression::Lz4,
                "zstd" => Compression::Zstd,
                _ => return None,
            };
            if !algorithms.contains(&algorithm) {
                algorithms.push(algorithm);
            }
        }
        (!algorithms.is_empty()).then_some(algorithms)
    };
    let given = options.get(option, "lz4, zstd or both, the preferred first", parse);
    if given.is_none() {
        options.note(option, "lz4,zstd");
    }
    given.unwrap_or_else(|| vec![Compression::Lz4, Compression::Zstd])
}

/// The datacenters for which hints are kept: the switch may list those that get hints, another option lists those that
/// do not.
fn hints_allowed(options: &mut Options<'_>) -> Allowed {
    let names = |text: &str| parts(text).map(str::to_owned).collect::<BTreeSet<String>>();
    let parse = |text: &str| match value::switch(text) {
        Some(is_enabled) => Some((is_enabled, None)),
        None => Some(names(text))
            .filter(|only| !only.is_empty())
            .map(|only| (true, Some(only))),
    };
    let expected = "true, false, or names of datacenters separated by commas";
    let option = "hinted_handoff_enabled";
    let given = options.get(option, expected, parse);
    if given.is_none() {
        options.note(option, true);
    }
    let (is_enabled, only) = given.unwrap_or((true, None));
    let option = "hinted_handoff_disabled_datacenters";
    let expected = "names of datacenters separated by commas";
    let except = options
        .get(option, expected, |text| Some(names(text)))
        .unwrap_or_default();
    let shown = except.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    options.note_or_none(option, (!except.is_empty()).then_some(shown));
    Allowed {
        is_enabled,
        only,
        except,
    }
}

/// The addresses of the nodes to ask, each once, in their order. A name that does not resolve is no seed to leave out:
/// the first seed forms the cluster, and with it gone the second would form another.
fn seeds(options: &mut Options<'_>, default_port: u16) -> Vec<Seed> {
    let lookup = options.lookup();
    let parse = |text: &str| {
        let mut seeds = Vec::new();
        for part in parts(text) {
            let seed = seed(part, default_port, lookup)?;
            if !seeds.contains(&seed) {
                seeds.push(seed);
            }
        }
        Ok(seeds)
    };
    let seeds = options.get_or("seeds", parse).unwrap_or_default();
    if seeds.iter().any(|seed| seed.address.port() == 0) {
        let expected = "addresses with their ports, because storage_port takes any free one";
        options.refuse("seeds", expected);
    }
    let shown = |seed: &Seed| match &seed.host {
        Some(host) => format!("{host}:{}", seed.address.port()),
        None => seed.address.to_string(),
    };
    let shown = seeds.iter().map(shown).collect::<Vec<_>>().join(",");
    options.note_or_none("seeds", (!seeds.is_empty()).then_some(shown));
    seeds
}

fn seed(text: &str, default_port: u16, lookup: Lookup<'_>) -> Result<Seed, String> {
    const EXPECTED: &str = "IP addresses or host names with or without a port, separated by commas";
    let without_brackets = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let named = |host: &str, port| {
        let address = SocketAddr::new(options::address(host, EXPECTED, lookup)?, port);
        let is_name = !host.eq_ignore_ascii_case("localhost");
        Ok::<_, String>(Seed {
            host: is_name.then(|| host.to_owned()),
            address,
        })
    };
    let seed = if let Ok(address) = without_brackets.unwrap_or(text).parse() {
        Seed::from(SocketAddr::new(address, default_port))
    } else if let Ok(seed) = text.parse::<SocketAddr>() {
        Seed::from(seed)
    } else if let Some((host, port)) = text.rsplit_once(':') {
        named(host, port.parse().map_err(|_| EXPECTED.to_owned())?)?
    } else {
        named(text, default_port)?
    };
    let is_one = !seed.address.ip().is_unspecified();
    is_one.then_some(seed).ok_or_else(|| EXPECTED.to_owned())
}

/// How many tokens the node takes, and which, if they are configured. Token calculators begin with the smallest token.
/// No key has it, and the ring closes at it, so it is taken as the end of the ring.
fn tokens(options: &mut Options<'_>) -> (usize, Vec<Token>) {
    let parse = |text: &str| {
        let at_its_place = |token| if token == Token::MIN { Token(i64::MAX) } else { token };
        let tokens = parts(text).map(|part| part.parse::<i64>().ok().map(Token).map(at_its_place));
        let tokens = tokens.collect::<Option<Vec<_>>>()?;
        let mut sorted = tokens.clone();
        sorted.sort_unstable();
        sorted.dedup();
        (sorted.len() == tokens.len()).then_some(tokens)
    };
    let expected = "tokens, each once and separated by commas";
    let initial = options.get("initial_token", expected, parse).unwrap_or_default();
    let shown = initial
        .iter()
        .map(|token| token.0.to_string())
        .collect::<Vec<_>>()
        .join(",");
    options.note_or_none("initial_token", (!initial.is_empty()).then_some(shown));
    let default = if initial.is_empty() { NUM_TOKENS } else { initial.len() };
    let in_range = |text: &str| text.parse().ok().filter(|n| (1..=TOKENS_PER_NODE_MAX).contains(n));
    let expected = format!("a number of tokens from 1 to {TOKENS_PER_NODE_MAX}");
    let num = options.get("num_tokens", &expected, in_range).unwrap_or(default);
    if !initial.is_empty() && num != initial.len() {
        let expected = format!("{}, as many as initial_token has", initial.len());
        options.refuse("num_tokens", &expected);
    } else if num > TOKENS_PER_NODE_MAX {
        options.refuse("initial_token", &format!("at most {TOKENS_PER_NODE_MAX} tokens"));
    }
    options.note("num_tokens", num);
    (num, initial)
}

/// The parts between commas; none of `none` and of nothing.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty() && *part != NONE)
}

/// The datacenter and rack of the node: from the options, else from its snitch.
fn location(options: &mut Options<'_>, broadcast: IpAddr, properties: Properties<'_>) -> Location {
    let snitch_name = name(options, "endpoint_snitch", "SimpleSnitch");
    let told = options.is_given("data_center") && options.is_given("rack");
    let file = properties();
    let text = file.as_ref().map(|(_, text)| text.as_str());
    let inferred = Snitch::parse(&snitch_name, text).and_then(|snitch| snitch.location(broadcast));
    let inferred = inferred.unwrap_or_else(|error| {
        let is_asked = !(told && matches!(error, SnitchError::MissingFile | SnitchError::NotIpv4(_)));
        if is_asked {
            refuse_snitch(options, error, file.as_ref().map(|(path, _)| path.as_path()));
        }
        Location {
            datacenter: String::new(),
            rack: String::new(),
        }
    });
    Location {
        datacenter: name(options, "data_center", &inferred.datacenter),
        rack: name(options, "rack", &inferred.rack),
    }
}

fn refuse_snitch(options: &mut Options<'_>, error: SnitchError, file: Option<&Path>) {
    let expected = match error {
        SnitchError::UnknownSnitch(_) => "SimpleSnitch, RackInferringSnitch or GossipingPropertyFileSnitch",
        SnitchError::MissingFile => {
            "cassandra-rackdc.properties beside the options file or in the workdir, or data_center and rack"
        }
        SnitchError::NotIpv4(_) => "a broadcast_address of IPv4, or data_center and rack",
        error => {
            let dir = file.and_then(Path::parent).unwrap_or(Path::new(".")).to_owned();
            return options.error(ConfigError::Properties { dir, error });
        }
    };
    options.refuse("endpoint_snitch", expected);
}

fn encryption(options: &mut Options<'_>) -> Option<Encryption> {
    let between = between(options, "server_encryption_options.internode_encryption");
    let mut file = |option| {
        let path = options.get(option, "a path", |text| Some(PathBuf::from(text)));
        let path = path.filter(|path| !path.as_os_str().is_empty() && path != Path::new(NONE));
        options.note_or_none(option, path.as_ref().map(|path| path.display().to_string()));
        if path.is_none() && between != InternodeScope::None {
            let expected = format!("none, or {option} too, a file in PEM form");
            options.refuse("server_encryption_options.internode_encryption", &expected);
        }
        path.unwrap_or_default()
    };
    let certificate = file("server_encryption_options.certificate");
    let key = file("server_encryption_options.keyfile");
    let trust = file("server_encryption_options.truststore");
    let verify_endpoint = switch(
        options,
        "server_encryption_options.require_endpoint_verification",
        false,
    );
    (between != InternodeScope::None).then_some(Encryption {
        between,
        certificate,
        key,
        trust,
        verify_endpoint,
    })
}
