//! What options of cassandra.yaml and scylla.yaml that are none of ours ask for, and what becomes of it.
//!
//! A value that asks for what a node does anyway is met. Of the others, one whose loss would be dangerous stops the
//! start: it would lose data, accept connections that the operator takes for refused, or give other answers. One that
//! matters, and harms nothing, is warned of in a line of its own. The rest (sizes of caches that are not there,
//! threads, intervals) has no meaning here, and is counted in one line.

use super::file::Node;
use super::nested;
use super::options::scalar;

/// What becomes of an option of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Judgement {
    /// The node does so anyway, or nothing was asked.
    Met,
    /// The start stops.
    Refused {
        /// The option, with the key of its mapping.
        option: String,
        /// The value.
        given: String,
        /// What would be met, and why the value is not.
        expected: String,
    },
    /// The node starts without it.
    NotDone {
        /// The option, with the key of its mapping.
        option: String,
        /// The value.
        given: String,
        /// What happens instead.
        reason: String,
    },
    /// There is nothing here to which it could apply.
    Meaningless,
    /// The name is unknown.
    Unknown,
}

/// A name with the values that are met, separated by `|`, and what is said of all others. `name.key` is a key of a
/// mapping.
pub(super) type Wish = (&'static str, &'static str, &'static str);

/// Options whose other values stop the start.
#[rustfmt::skip]
pub(super) const REFUSED: &[Wish] = &[
    ("alternator_allow_system_table_write", "false", "the DynamoDB API reads tables of CQL and does not write them"),
    ("audit", "none|table", "no audit log is kept"),
    ("audit_logging_options.enabled", "false", "no audit log is kept"),
    ("authenticator.class_name", "AllowAllAuthenticator", "no client is asked for a password or a certificate"),
    ("authorizer.class_name", "AllowAllAuthorizer", "every client may do everything"),
    ("cdc_enabled", "false", "changes are not kept for consumers"),
    ("cidr_authorizer.class_name", "AllowAllCIDRAuthorizer", "clients of every network are let in"),
    ("client_encryption_options.enabled", "false", "connections of clients are not encrypted"),
    ("default_keyspace_rf", "1", "a keyspace that does not say its replication factor has one copy"),
    ("enable_tablets", "true", "every table has tablets unless its keyspace says tablets = {'enabled': false}"),
    ("enable_tablets_by_default", "true", "every table has tablets unless its keyspace says tablets = {'enabled': false}"),
    ("incremental_backups", "false", "flushed sstables are not linked into backups; use ceto nodetool snapshot"),
    ("internode_authenticator.class_name", "AllowAllInternodeAuthenticator", "other nodes are let in by join_secret and TLS"),
    ("listen_interface", "", "interfaces are not looked up; give its address as listen_address"),
    ("native_shard_aware_transport_port_ssl", "none", "connections of clients are not encrypted"),
    ("native_transport_port_ssl", "none", "connections of clients are not encrypted"),
    ("network_authorizer.class_name", "AllowAllNetworkAuthorizer", "clients may use every datacenter"),
    ("partitioner.class_name", "Murmur3Partitioner", "keys have no other order here"),
    ("recovery_leader", "", "see `ceto page recover-metadata`"),
    ("replace_token", "", "a node is replaced by its host id or address: replace_node_first_boot or replace_address_first_boot; see `ceto page replace-node`"),
    ("rpc_interface", "", "interfaces are not looked up; give its address as rpc_address"),
    ("server_encryption_options.certficate_revocation_list", "none", "certificates are not checked for revocation"),
    ("snapshot_before_compaction", "false", "no snapshot is taken before a compaction; use ceto nodetool snapshot"),
    ("start_native_transport", "true", "a node that runs serves clients"),
    ("system_info_encryption.enabled", "false", "files are not encrypted"),
    ("tablets_mode_for_new_keyspaces", "enabled|enforced", "every table has tablets unless its keyspace says tablets = {'enabled': false}"),
    ("transparent_data_encryption_options.enabled", "false", "files are not encrypted"),
    ("user_info_encryption.enabled", "false", "files are not encrypted"),
];

/// Options whose other values are warned of.
#[rustfmt::skip]
pub(super) const NOT_DONE: &[Wish] = &[
    // scylla.yaml comes with `table`, so that as many files have it by default as by choice.
    ("audit", "none", "no audit log is kept"),
    ("auto_hints_cleanup_enabled", "false", "hints of a replica that was down for too long are kept until it takes them"),
    ("commit_failure_policy", "stop_commit", "a node whose commitlog takes no writes continues to serve reads"),
    ("commitlog_compression", "", "the commitlog is not compressed"),
    ("data_file_capacity", "0", "the capacity of the disk is that of the file system"),
    ("default_compaction", "", "tables are compacted by size tiers"),
    ("default_secondary_index", "legacy_local_table", "an index without USING is one of legacy_local_table"),
    ("enable_in_memory_data_store", "false", "all tables are on disk"),
    ("enable_keyspace_column_family_metrics", "false", "per-table metrics are exported by enable_node_aggregated_table_metrics"),
    ("error_injections_at_startup", "", "no errors are injected"),
    ("experimental", "false", "experimental_features names the experimental features that are on"),
    ("hints_directory", "", "hints are kept in hints in the workdir"),
    ("host_id", "", "a node chooses its host id"),
    ("listen_on_broadcast_address", "false", "the node listens on listen_address alone"),
    ("local_system_data_file_directory", "", "all sstables are in data_file_directories"),
    ("log_to_stdout", "true", "the log goes to standard error"),
    ("log_to_syslog", "false", "the log goes to standard error"),
    ("logger_log_level", "", "all loggers have default_log_level"),
    ("max_hints_size_per_host", "0|0B|0KiB|0MiB|0GiB", "hints are limited for all replicas together: a node keeps at most 1 GiB"),
    ("native_shard_aware_transport_port_ssl_proxy_protocol", "0", "no port of clients has TLS"),
    ("native_transport_allow_older_protocols", "true", "versions 3 and 4 of the protocol are spoken"),
    ("native_transport_idle_timeout", "0|0ms|0s", "idle connections stay open"),
    ("native_transport_idle_timeout_in_ms", "0", "idle connections stay open"),
    ("native_transport_max_concurrent_connections_per_ip", "-1", "connections are limited for the node alone, by native_transport_max_concurrent_connections"),
    ("native_transport_port_ssl_proxy_protocol", "0", "no port of clients has TLS"),
    ("native_transport_rate_limiting_enabled", "false", "requests are not limited by their number; see `ceto page rate-limits`"),
    ("override_decommission", "false", "what a decommission would lose is refused"),
    ("partition_denylist_enabled", "false", "no partition is denied"),
    ("prometheus_prefix", "ceto", "names of metrics begin with ceto"),
    ("redis_port", "0", "the API of Redis is not served"),
    ("redis_ssl_port", "0", "the API of Redis is not served"),
    ("relabel_config_file", "", "labels of metrics are fixed"),
    ("request_scheduler", "NoScheduler", "requests of all clients are equal"),
    ("restrict_replication_simplestrategy", "false|warn", "SimpleStrategy is refused by replication_strategy_fail_list"),
    ("server_encryption_options.accepted_protocols", "", "TLS 1.3 is spoken"),
    ("server_encryption_options.cipher_suites", "", "the cipher suites are those of TLS 1.3"),
    ("server_encryption_options.max_certificate_validity_period", "", "certificates may be valid for any time"),
    ("server_encryption_options.priority_string", "", "the cipher suites are those of TLS 1.3"),
    ("sstable_compression_user_table_options", "", "tables have LZ4 unless they say otherwise"),
    ("start_rpc", "false", "Thrift is not served"),
    ("startup_checks", "", "these checks are not made"),
    ("strict_allow_filtering", "false|warn", "a statement that needs ALLOW FILTERING is refused without it in any case"),
    ("table_properties_ignored", "", "no property of a table is ignored"),
    ("tablets_mode_for_new_keyspaces", "enabled|disabled", "a keyspace may still say tablets = {'enabled': false}"),
    ("use_statements_enabled", "true", "USE is taken"),
    ("vector_store_primary_uri", "", "vectors are not indexed"),
    ("vector_store_uri", "", "vectors are not indexed"),
    ("vector_type_enabled", "true", "vectors are taken"),
    ("zero_ttl_on_twcs_enabled", "true", "such tables are refused by restrict_twcs_without_default_ttl"),
];

/// Ends of the names of limits, which are warned of unless their value says that there is none.
const LIMITS: &[&str] = &["_disallowed", "_fail_list", "_fail_threshold"];
/// What says that there is no limit.
const NO_LIMIT: &str = "-1|0|none|null";
const NOT_LIMITED: &str = "this limit is not enforced";

/// Names of cassandra.yaml from 3.11 to 5.0, one in a line.
pub(super) const CASSANDRA_NAMES: &str = include_str!("cassandra_names.txt");
/// Names that only scylla.yaml has, one in a line.
pub(super) const SCYLLA_NAMES: &str = include_str!("scylla_names.txt");

/// Keys of the mappings of encryption of either file that are no options here.
const ENCRYPTION_KEYS: &[&str] = &[
    "accepted_protocols",
    "algorithm",
    "certficate_revocation_list",
    "certificate_validity_warn_threshold",
    "cipher_suites",
    "enable_legacy_ssl_storage_port",
    "enable_session_tickets",
    "enabled",
    "keystore",
    "keystore_password",
    "legacy_ssl_storage_port_enabled",
    "max_certificate_validity_period",
    "optional",
    "outbound_keystore",
    "outbound_keystore_password",
    "priority_string",
    "protocol",
    "require_client_auth",
    "ssl_context_factory",
    "store_type",
    "truststore_password",
];

/// What becomes of an option.
pub(super) fn judge(name: &str, value: &Node) -> Judgement {
    if !is_known(name) {
        return Judgement::Unknown;
    }
    if is_empty(value) {
        return Judgement::Met;
    }
    for (wishes, stops) in [(REFUSED, true), (NOT_DONE, false)] {
        for (wish, met, reason) in wishes.iter().filter(|(wish, _, _)| is_of(wish, name)) {
            let Some(given) = unmet(wish, name, met, value) else {
                continue;
            };
            let is_key = matches!(unlisted(value), Node::Map(_));
            let option = if is_key { *wish } else { name }.to_owned();
            let reason = (*reason).to_owned();
            if stops {
                let expected = format!("{}: {reason}", words(met));
                return Judgement::Refused {
                    option,
                    given,
                    expected,
                };
            }
            return Judgement::NotDone { option, given, reason };
        }
    }
    if LIMITS.iter().any(|end| name.ends_with(end)) {
        return match unmet(name, name, NO_LIMIT, value) {
            None => Judgement::Met,
            Some(given) => Judgement::NotDone {
                option: name.to_owned(),
                given,
                reason: NOT_LIMITED.to_owned(),
            },
        };
    }
    let is_met = REFUSED.iter().chain(NOT_DONE).any(|(wish, _, _)| is_of(wish, name));
    if is_met { Judgement::Met } else { Judgement::Meaningless }
}

/// The names of both files that are no options here.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    CASSANDRA_NAMES.lines().chain(SCYLLA_NAMES.lines())
}

/// The options that stop the start with some value, as the command line may have them.
pub(super) fn refused_names() -> impl Iterator<Item = &'static str> {
    REFUSED.iter().map(|(wish, _, _)| option_of(wish))
}

fn is_known(name: &str) -> bool {
    let encryption_key = name
        .split_once('.')
        .and_then(|(mapping, key)| nested::ENCRYPTIONS.contains(&mapping).then_some(key));
    names().any(|known| known == name) || encryption_key.is_some_and(|key| ENCRYPTION_KEYS.contains(&key))
}

/// The option's name, without the key in its mapping.
fn option_of(wish: &'static str) -> &'static str {
    match wish.split_once('.') {
        Some((option, _)) if !nested::ENCRYPTIONS.contains(&option) => option,
        _ => wish,
    }
}

fn is_of(wish: &'static str, name: &str) -> bool {
    option_of(wish) == name
}

/// Whether a value asks for nothing.
fn is_empty(value: &Node) -> bool {
    match value {
        Node::Null => true,
        Node::Scalar(text) => text.is_empty(),
        Node::List(items) => items.iter().all(is_empty),
        Node::Map(entries) => entries.is_empty(),
    }
}

/// The value, unless it is one of those that are met.
fn unmet(wish: &str, name: &str, met: &str, value: &Node) -> Option<String> {
    let key = wish.strip_prefix(name).and_then(|key| key.strip_prefix('.'));
    let given = match (unlisted(value), key) {
        (Node::Map(entries), Some(key)) => {
            let (_, value) = entries.iter().find(|(other, _)| other == key)?;
            in_words(value)?
        }
        (value, _) => in_words(value)?,
    };
    // Classes are written with or without their package.
    let class = given.rsplit('.').next().unwrap_or(&given);
    let is_met = met.split('|').filter(|met| !met.is_empty()).any(|met| {
        let switch = |text: &str| super::value::switch(text).filter(|_| matches!(met, "true" | "false"));
        class.eq_ignore_ascii_case(met)
            || given.eq_ignore_ascii_case(met)
            || switch(&given).is_some_and(|on| on.to_string() == met)
    });
    (!is_met).then_some(given)
}

/// The only item of a list of one, as cassandra.yaml writes classes with parameters.
fn unlisted(value: &Node) -> &Node {
    match value {
        Node::List(items) if items.len() == 1 => &items[0],
        value => value,
    }
}

/// A value in one line; nothing for none.
fn in_words(value: &Node) -> Option<String> {
    let text = match scalar(value) {
        Ok(text) => text?,
        Err(what) => match value {
            Node::List(items) => items.iter().filter_map(in_words).collect::<Vec<_>>().join(","),
            _ => what,
        },
    };
    Some(text).filter(|text| !text.is_empty())
}

/// The values that are met, in words.
fn words(met: &str) -> String {
    if met.is_empty() {
        "no value".to_owned()
    } else {
        met.replace('|', " or ")
    }
}
