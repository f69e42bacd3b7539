//! Which options there are, how each may be spelled, and what was given for them.
//!
//! An option has one name of ours, the newest that cassandra.yaml or scylla.yaml has for it; older spellings carry the unit in the name
//! (`commitlog_sync_period_in_ms: 10000`) and are turned into the newest one's text (`commitlog_sync_period: 10000ms`).
//! Names of the two files that mean nothing here warn; those where ignoring a wish would be dangerous (a password
//! nobody checks, keys in another order) are refused unless they ask for what this node does anyway.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::{ConfigError, Place};
use super::file::{Entry, Node};
use super::nested::{self, Parts};

/// How the text of a spelling becomes the option's.
#[derive(Clone, Copy)]
enum Unit {
    /// It is the option's.
    Same,
    /// A whole number of milliseconds.
    Milliseconds,
    /// A whole number of mebibytes, or -1.
    Mebibytes,
    /// A whole number of mebibytes per second.
    MebibytesPerSecond,
}

/// Option and spelling, by spelling.
const SPELLINGS: &[(&str, &str, Unit)] = &[
    ("api_address", "api_address", Unit::Same),
    ("api_port", "api_port", Unit::Same),
    ("auto_bootstrap", "auto_bootstrap", Unit::Same),
    ("auto_snapshot", "auto_snapshot", Unit::Same),
    ("auto_snapshot_ttl", "auto_snapshot_ttl", Unit::Same),
    ("backend", "backend", Unit::Same),
    ("broadcast_address", "broadcast_address", Unit::Same),
    ("broadcast_rpc_address", "broadcast_rpc_address", Unit::Same),
    ("cas_contention_timeout", "cas_contention_timeout", Unit::Same),
    (
        "cas_contention_timeout_in_ms",
        "cas_contention_timeout",
        Unit::Milliseconds,
    ),
    ("clock_offset_max", "clock_offset_max", Unit::Same),
    ("clock_offset_out_of_service", "clock_offset_out_of_service", Unit::Same),
    ("cluster_name", "cluster_name", Unit::Same),
    ("commitlog_directory", "commitlog_directory", Unit::Same),
    ("commitlog_segment_size", "commitlog_segment_size", Unit::Same),
    (
        "commitlog_segment_size_in_mb",
        "commitlog_segment_size",
        Unit::Mebibytes,
    ),
    ("commitlog_sync", "commitlog_sync", Unit::Same),
    ("commitlog_sync_period", "commitlog_sync_period", Unit::Same),
    (
        "commitlog_sync_period_in_ms",
        "commitlog_sync_period",
        Unit::Milliseconds,
    ),
    ("commitlog_total_space", "commitlog_total_space", Unit::Same),
    ("commitlog_total_space_in_mb", "commitlog_total_space", Unit::Mebibytes),
    ("compaction_throughput", "compaction_throughput", Unit::Same),
    (
        "compaction_throughput_mb_per_sec",
        "compaction_throughput",
        Unit::MebibytesPerSecond,
    ),
    (
        "counter_write_request_timeout",
        "counter_write_request_timeout",
        Unit::Same,
    ),
    (
        "counter_write_request_timeout_in_ms",
        "counter_write_request_timeout",
        Unit::Milliseconds,
    ),
    ("cpuset", "cpuset", Unit::Same),
    ("data_center", "data_center", Unit::Same),
    ("data_file_directories", "data_file_directories", Unit::Same),
    ("default_log_level", "default_log_level", Unit::Same),
    ("developer_mode", "developer_mode", Unit::Same),
    (
        "enable_node_aggregated_table_metrics",
        "enable_node_aggregated_table_metrics",
        Unit::Same,
    ),
    ("endpoint_snitch", "endpoint_snitch", Unit::Same),
    (
        "hinted_handoff_disabled_datacenters",
        "hinted_handoff_disabled_datacenters",
        Unit::Same,
    ),
    ("hinted_handoff_enabled", "hinted_handoff_enabled", Unit::Same),
    ("initial_token", "initial_token", Unit::Same),
    ("internode_compression", "internode_compression", Unit::Same),
    (
        "internode_compression_algorithms",
        "internode_compression_algorithms",
        Unit::Same,
    ),
    ("join_secret", "join_secret", Unit::Same),
    ("listen_address", "listen_address", Unit::Same),
    ("max_hint_window", "max_hint_window", Unit::Same),
    ("max_hint_window_in_ms", "max_hint_window", Unit::Milliseconds),
    ("memory", "memory", Unit::Same),
    (
        "native_shard_aware_transport_port",
        "native_shard_aware_transport_port",
        Unit::Same,
    ),
    (
        "native_transport_max_concurrent_connections",
        "native_transport_max_concurrent_connections",
        Unit::Same,
    ),
    (
        "native_transport_max_frame_size",
        "native_transport_max_frame_size",
        Unit::Same,
    ),
    (
        "native_transport_max_frame_size_in_mb",
        "native_transport_max_frame_size",
        Unit::Mebibytes,
    ),
    ("native_transport_port", "native_transport_port", Unit::Same),
    ("num_tokens", "num_tokens", Unit::Same),
    ("overprovisioned", "overprovisioned", Unit::Same),
    ("prometheus_address", "prometheus_address", Unit::Same),
    ("prometheus_port", "prometheus_port", Unit::Same),
    ("rack", "rack", Unit::Same),
    ("range_request_timeout", "range_request_timeout", Unit::Same),
    (
        "range_request_timeout_in_ms",
        "range_request_timeout",
        Unit::Milliseconds,
    ),
    ("reactor_backend", "backend", Unit::Same),
    ("read_request_timeout", "read_request_timeout", Unit::Same),
    ("read_request_timeout_in_ms", "read_request_timeout", Unit::Milliseconds),
    ("request_timeout", "request_timeout", Unit::Same),
    ("request_timeout_in_ms", "request_timeout", Unit::Milliseconds),
    ("rpc_address", "rpc_address", Unit::Same),
    ("scan_request_timeout", "scan_request_timeout", Unit::Same),
    ("seed_provider", "seeds", Unit::Same),
    ("seeds", "seeds", Unit::Same),
    (
        "server_encryption_options.certificate",
        "server_encryption_options.certificate",
        Unit::Same,
    ),
    (
        "server_encryption_options.internode_encryption",
        "server_encryption_options.internode_encryption",
        Unit::Same,
    ),
    (
        "server_encryption_options.keyfile",
        "server_encryption_options.keyfile",
        Unit::Same,
    ),
    (
        "server_encryption_options.require_endpoint_verification",
        "server_encryption_options.require_endpoint_verification",
        Unit::Same,
    ),
    (
        "server_encryption_options.truststore",
        "server_encryption_options.truststore",
        Unit::Same,
    ),
    ("smp", "smp", Unit::Same),
    ("ssl_storage_port", "ssl_storage_port", Unit::Same),
    ("storage_port", "storage_port", Unit::Same),
    ("task_ttl_in_seconds", "task_ttl_in_seconds", Unit::Same),
    ("truncate_request_timeout", "truncate_request_timeout", Unit::Same),
    (
        "truncate_request_timeout_in_ms",
        "truncate_request_timeout",
        Unit::Milliseconds,
    ),
    (
        "uninitialized_connections_semaphore_cpu_concurrency",
        "uninitialized_connections_semaphore_cpu_concurrency",
        Unit::Same,
    ),
    ("user_task_ttl_in_seconds", "user_task_ttl_in_seconds", Unit::Same),
    ("workdir", "workdir", Unit::Same),
    ("write_request_timeout", "write_request_timeout", Unit::Same),
    (
        "write_request_timeout_in_ms",
        "write_request_timeout",
        Unit::Milliseconds,
    ),
];

/// Options where only one wish can be met, and ignoring another would be dangerous: name, key within its mapping, the value met.
const FIXED: &[(&str, &str, &str)] = &[
    ("authenticator", "class_name", "AllowAllAuthenticator"),
    ("authorizer", "class_name", "AllowAllAuthorizer"),
    ("cidr_authorizer", "class_name", "AllowAllCIDRAuthorizer"),
    ("client_encryption_options", "enabled", "false"),
    (
        "internode_authenticator",
        "class_name",
        "AllowAllInternodeAuthenticator",
    ),
    ("network_authorizer", "class_name", "AllowAllNetworkAuthorizer"),
    ("partitioner", "class_name", "Murmur3Partitioner"),
    ("start_native_transport", "", "true"),
    ("transparent_data_encryption_options", "enabled", "false"),
    ("system_info_encryption", "enabled", "false"),
    ("user_info_encryption", "enabled", "false"),
];

/// Names of cassandra.yaml from 3.11 to 5.0, one in a line.
const CASSANDRA_NAMES: &str = include_str!("cassandra_names.txt");
/// Names that only scylla.yaml has, one in a line.
const SCYLLA_NAMES: &str = include_str!("scylla_names.txt");

/// What was given for an option.
struct Given {
    /// The spelling used.
    spelling: String,
    /// The value as written.
    written: String,
    /// The value as the option's text.
    text: String,
    place: Place,
}

/// The options given, and the effective ones as they are asked for.
#[derive(Default)]
pub(super) struct Options {
    given: BTreeMap<&'static str, Given>,
    /// Every option asked for, as text.
    pub settings: BTreeMap<String, Option<String>>,
    /// What the operator should know.
    pub warnings: Vec<String>,
}

impl Options {
    /// Takes the options of a file.
    pub fn add_file(&mut self, path: &Path, entries: Vec<Entry>) -> Result<(), ConfigError> {
        for Entry { name, line, value } in entries {
            match nested::parts(&name, value) {
                Parts::One(value) => self.add_entry(path, line, &name, &value)?,
                Parts::Many(entries) => {
                    for (name, value) in entries {
                        self.add_entry(path, line, &name, &value)?;
                    }
                }
                Parts::Wrong { given, expected } => {
                    let path = path.to_owned();
                    return Err(ConfigError::wrong(&name, Place::File { path, line }, given, expected));
                }
            }
        }
        Ok(())
    }

    fn add_entry(&mut self, path: &Path, line: u64, name: &str, value: &Node) -> Result<(), ConfigError> {
        let place = Place::File {
            path: path.to_owned(),
            line,
        };
        if let Some(&(_, _, met)) = FIXED.iter().find(|(fixed, _, _)| *fixed == name) {
            return check_fixed(name, met, value, place);
        }
        if SPELLINGS.iter().any(|(spelling, _, _)| *spelling == name) {
            return match scalar(value) {
                Ok(None) => Ok(()),
                Ok(Some(text)) => self.add(name, text, place),
                Err(given) => Err(ConfigError::wrong(name, place, given, "one value")),
            };
        }
        if let Some(origin) = known_to(name) {
            let message = format!("option '{name}' at line {line} is known to {origin}, has no effect here");
            self.warnings.push(message);
            return Ok(());
        }
        Err(ConfigError::UnknownOption {
            path: path.to_owned(),
            line,
            name: name.to_owned(),
            nearest: nearest(name).map(str::to_owned),
        })
    }

    /// Takes one option of the command line, which beats the file's.
    pub fn add_argument(&mut self, name: &'static str, text: String) -> Result<(), ConfigError> {
        let (_, option, _) = spelling(name);
        self.given.remove(option);
        self.add(name, text, Place::CommandLine)
    }

    fn add(&mut self, name: &str, written: String, place: Place) -> Result<(), ConfigError> {
        let &(_, option, unit) = spelling(name);
        if let Some(first) = self.given.get(option) {
            let (first, second) = (first.spelling.clone(), name.to_owned());
            return Err(ConfigError::Twice { first, second, place });
        }
        let Some(text) = with_unit(&written, unit) else {
            return Err(ConfigError::wrong(
                name,
                place,
                written,
                "a whole number, because the name has the unit",
            ));
        };
        self.given.insert(
            option,
            Given {
                spelling: name.to_owned(),
                written,
                text,
                place,
            },
        );
        Ok(())
    }

    /// An option's value, or none when it was not given; `expected` says what `parse` takes.
    pub fn get<T>(
        &mut self,
        option: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(given) = self.given.get(option) else {
            return Ok(None);
        };
        match parse(&given.text) {
            Some(value) => {
                self.settings.insert(option.to_owned(), Some(given.text.clone()));
                Ok(Some(value))
            }
            None => Err(self.refuse(option, expected)),
        }
    }

    /// The error for an option whose value does not fit.
    pub fn refuse(&self, option: &'static str, expected: &str) -> ConfigError {
        match self.given.get(option) {
            Some(given) => ConfigError::wrong(&given.spelling, given.place.clone(), given.written.clone(), expected),
            None => ConfigError::wrong(option, Place::Default, "the default".to_owned(), expected),
        }
    }

    /// Notes the effective value of an option that was not given, or that is shown in another form.
    pub fn note(&mut self, option: &'static str, text: impl ToString) {
        self.settings.insert(option.to_owned(), Some(text.to_string()));
    }

    /// The same for an option that may have no value.
    pub fn note_or_none(&mut self, option: &'static str, text: Option<String>) {
        self.settings.insert(option.to_owned(), text);
    }

    /// Whether the operator gave it.
    pub fn is_given(&self, option: &str) -> bool {
        self.given.contains_key(option)
    }
}

/// The row of a spelling that is known to be one.
fn spelling(name: &str) -> &'static (&'static str, &'static str, Unit) {
    SPELLINGS
        .iter()
        .find(|(spelling, _, _)| *spelling == name)
        .expect("callers look the name up or take it from ServerArgs")
}

fn with_unit(written: &str, unit: Unit) -> Option<String> {
    let written = written.trim();
    let suffix = match unit {
        Unit::Same => return Some(written.to_owned()),
        Unit::Mebibytes if written == "-1" => return Some(written.to_owned()),
        Unit::Milliseconds => "ms",
        Unit::Mebibytes => "MiB",
        Unit::MebibytesPerSecond => "MiB/s",
    };
    written
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| format!("{written}{suffix}"))
        .filter(|_| !written.is_empty())
}

/// The one scalar of a value, nothing for none; else what it is.
fn scalar(value: &Node) -> Result<Option<String>, String> {
    match value {
        Node::Null => Ok(None),
        Node::Scalar(text) => Ok(Some(text.clone())),
        Node::List(items) => match items.as_slice() {
            [] => Ok(None),
            [one] => scalar(one),
            many => Err(format!("{} values", many.len())),
        },
        Node::Map(_) => Err("a mapping".to_owned()),
    }
}

fn check_fixed(name: &str, met: &str, value: &Node, place: Place) -> Result<(), ConfigError> {
    let wish = match value {
        Node::Map(entries) => entries
            .iter()
            .find(|(key, _)| FIXED.iter().any(|(fixed, k, _)| *fixed == name && k == key))
            .map_or(Ok(None), |(_, value)| scalar(value)),
        other => scalar(other),
    };
    let wish = match wish {
        Ok(Some(wish)) => wish,
        Ok(None) => return Ok(()),
        Err(given) => return Err(ConfigError::wrong(name, place, given, met)),
    };
    // Classes are written with or without their package.
    let class = wish.rsplit('.').next().unwrap_or(&wish);
    if class.eq_ignore_ascii_case(met) || super::value::switch(&wish).is_some_and(|on| on.to_string() == met) {
        return Ok(());
    }
    Err(ConfigError::wrong(
        name,
        place,
        wish,
        &format!("{met}, the only one there is here"),
    ))
}

/// Whose name it is.
fn known_to(name: &str) -> Option<&'static str> {
    if CASSANDRA_NAMES.lines().any(|known| known == name) {
        Some("Cassandra")
    } else if SCYLLA_NAMES.lines().any(|known| known == name) {
        Some("ScyllaDB")
    } else if name
        .strip_prefix("server_encryption_options.")
        .is_some_and(|key| nested::ENCRYPTION_KEYS_WITHOUT_EFFECT.contains(&key))
    {
        Some("Cassandra or ScyllaDB")
    } else {
        None
    }
}

/// The known name that takes the fewest edits, unless it takes so many that naming it would mislead. Names that have an effect win ties.
fn nearest(name: &str) -> Option<&'static str> {
    let ours = SPELLINGS.iter().map(|(spelling, _, _)| *spelling);
    let fixed = FIXED.iter().map(|(fixed, _, _)| *fixed);
    let names = ours
        .chain(fixed)
        .chain(CASSANDRA_NAMES.lines())
        .chain(SCYLLA_NAMES.lines());
    let edits_max = (name.len() / 3).max(1);
    names
        .map(|known| (edits(name, known), known))
        .filter(|(edits, _)| *edits <= edits_max)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, known)| known)
}

/// Edit distance of two texts, bytes inserted, removed or replaced (Levenshtein), one row of the table at a time.
fn edits(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(l != r);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}
