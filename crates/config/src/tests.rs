//! Texts of YAML files and command lines, and what comes of them.

use std::net::Ipv4Addr;

use clap::Parser;
use runtime::fs;

use super::*;

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    server: ServerArgs,
}

fn machine() -> Machine {
    Machine {
        cpus: vec![0, 1, 2, 3],
        cpu_quota: None,
        memory_bytes: 8 << 30,
    }
}

fn args(words: &str) -> ServerArgs {
    CommandLine::try_parse_from(std::iter::once("ceto").chain(words.split_whitespace()))
        .unwrap_or_else(|error| panic!("the command line '{words}' is refused: {error}"))
        .server
}

fn resolved(yaml: &str, words: &str) -> Result<Config, ConfigError> {
    resolved_beside("", yaml, words)
}

/// The configuration from an options file and a command line. `properties` is the text of a cassandra-rackdc.properties
/// beside the options file; if it is empty, there is no such file.
pub(super) fn resolved_beside(properties: &str, yaml: &str, words: &str) -> Result<Config, ConfigError> {
    let read = |path: &Path| {
        let is_it = path == Path::new("/etc/ceto/cassandra-rackdc.properties") && !properties.is_empty();
        is_it.then(|| properties.to_owned())
    };
    let path = if properties.is_empty() {
        "ceto.yaml"
    } else {
        "/etc/ceto/ceto.yaml"
    };
    let world = World {
        machine: &machine(),
        read: &read,
        lookup: &names,
    };
    resolve(&args(words), Some((Path::new(path), yaml)), &SetOptions::new(), &world)
}

/// The host names of the tests' network.
fn names(name: &str) -> Result<Vec<IpAddr>, String> {
    let address = |text: &str| text.parse().expect("the tests' network has addresses");
    match name {
        "node1.example.com" => Ok(vec![address("fd00::1"), address("10.0.0.1")]),
        "node2.example.com" => Ok(vec![address("fd00::2")]),
        "any.example.com" => Ok(vec![address("0.0.0.0")]),
        _ => Err("the name is unknown".to_owned()),
    }
}

pub(super) fn config(yaml: &str, words: &str) -> Config {
    resolved(yaml, words).unwrap_or_else(|error| panic!("yaml {yaml:?} and arguments '{words}' are refused: {error}"))
}

/// The error, or the warnings and the settings that are not the defaults, one in a line.
pub(super) fn outcome(yaml: &str, words: &str) -> String {
    let defaults = config("", "").settings;
    let config = match resolved(yaml, words) {
        Ok(config) => config,
        Err(error) => return format!("error: {error}"),
    };
    let warnings = config.warnings.iter().map(|warning| format!("warning: {warning}"));
    let settings = config
        .settings
        .iter()
        .filter(|(name, text)| defaults.get(*name) != Some(*text));
    let settings = settings.map(|(name, text)| format!("{name} = {}", text.as_deref().unwrap_or("none")));
    warnings.chain(settings).collect::<Vec<_>>().join("\n")
}

#[test]
fn defaults_are_those_of_the_manual() {
    let config = config("", "");
    assert_eq!(config.workdir, Path::new("data"));
    assert_eq!(config.data_dir, Path::new("data/data"));
    assert_eq!(config.commitlog_dir, Path::new("data/commitlog"));
    assert_eq!(
        (config.smp, config.cpus),
        (4, Some(vec![0, 1, 2, 3])),
        "a shard for each processor, pinned"
    );
    assert!(!config.overprovisioned && !config.developer_mode);
    assert_eq!(config.memory, 4 << 30, "half of the machine's memory");
    for address in [
        config.listen_address,
        config.rpc_address,
        config.broadcast_address,
        config.broadcast_rpc_address,
    ] {
        assert_eq!(address, IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    assert_eq!(
        (config.native_transport_port, config.shard_aware_port),
        (9042, Some(19042))
    );
    assert_eq!(
        config.commitlog_sync,
        CommitlogSync::Periodic {
            period: Duration::from_secs(10)
        }
    );
    assert_eq!(
        (config.commitlog_segment_size, config.commitlog_total_space),
        (32 << 20, 4 << 30)
    );
    assert_eq!(
        [&*config.cluster_name, &*config.data_center, &*config.rack],
        ["Test Cluster", "datacenter1", "rack1"]
    );
    assert_eq!(config.native_transport_max_frame_size, 16 << 20);
    assert_eq!(
        (config.max_connections_per_shard, config.compaction_throughput),
        (10_000, None)
    );
    assert_eq!((config.backend, config.log_level), (Backend::Auto, LevelFilter::Info));
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn every_option_that_is_shown_can_be_given_and_its_shown_text_is_taken_back() {
    let config = config("", "--cpuset 0-3");
    assert_eq!(config.settings.len(), 190, "{:?}", config.settings);
    for (name, text) in &config.settings {
        let given = text.as_deref().unwrap_or("none");
        let shown = resolved(&format!("{name}: {given}"), "").map(|config| config.settings[name].clone());
        assert_eq!(shown, Ok(text.clone()), "the setting {name} given as it is shown");
    }
}

#[test]
fn the_lower_of_two_thresholds_refuses_data() {
    let limits = |yaml: &str| resolved(yaml, "").expect("options that are taken").disk_limits;
    let percent = |percent: u32| Some(Utilization(percent * 10_000));
    let (level, fail) = (
        "critical_disk_utilization_level",
        "data_disk_usage_percentage_fail_threshold",
    );
    assert_eq!(limits("").critical, percent(98));
    assert_eq!(limits("").warn, None);
    assert_eq!(limits(&format!("{level}: 0.995")).critical, Some(Utilization(995_000)));
    assert_eq!(
        limits(&format!("{level}: 1")).critical,
        None,
        "nothing is left to refuse for"
    );
    assert_eq!(limits(&format!("{level}: 1.0\n{fail}: 90")).critical, percent(90));
    assert_eq!(limits(&format!("{level}: 0.8\n{fail}: 90")).critical, percent(80));
    assert_eq!(
        limits("data_disk_usage_percentage_warn_threshold: 70").warn,
        percent(70)
    );
}

#[test]
fn options_have_the_spellings_of_both_files() {
    let cases = [
        ("commitlog_sync_period_in_ms: 2000", "commitlog_sync_period = 2000ms"),
        ("commitlog_sync_period: 2s", "commitlog_sync_period = 2000ms"),
        (
            "batch_size_fail_threshold_in_kb: 50",
            "batch_size_fail_threshold = 50KiB",
        ),
        ("batch_size_fail_threshold: 2MiB", "batch_size_fail_threshold = 2MiB"),
        ("auto_snapshot_ttl: 864000", "auto_snapshot_ttl = 864000s"),
        ("auto_snapshot_ttl: 30d", "auto_snapshot_ttl = 2592000s"),
        ("task_ttl_in_seconds: 5", "task_ttl_in_seconds = 5"),
        ("user_task_ttl_in_seconds: 0", "user_task_ttl_in_seconds = 0"),
        ("commitlog_sync: batch", "commitlog_sync = batch"),
        ("commitlog_segment_size_in_mb: 64", "commitlog_segment_size = 64MiB"),
        ("commitlog_segment_size: 64MiB", "commitlog_segment_size = 64MiB"),
        ("commitlog_total_space_in_mb: 8192", "commitlog_total_space = 8GiB"),
        ("commitlog_total_space_in_mb: -1", ""),
        ("commitlog_total_space: 8192MiB", "commitlog_total_space = 8GiB"),
        (
            "native_transport_max_frame_size_in_mb: 256",
            "native_transport_max_frame_size = 256MiB",
        ),
        (
            "native_transport_max_frame_size: 1024KiB",
            "native_transport_max_frame_size = 1MiB",
        ),
        (
            "compaction_throughput_mb_per_sec: 16",
            "compaction_throughput = 16MiB/s",
        ),
        ("compaction_throughput: 64MiB/s", "compaction_throughput = 64MiB/s"),
        ("compaction_throughput_mb_per_sec: 0", ""),
        (
            "stream_io_throughput_mb_per_sec: 16",
            "stream_throughput_outbound = 16MiB/s",
        ),
        (
            "stream_throughput_outbound_megabits_per_sec: 200",
            "stream_throughput_outbound = 25000000B/s",
        ),
        (
            "stream_throughput_outbound: 24MiB/s",
            "stream_throughput_outbound = 24MiB/s",
        ),
        (
            "data_file_directories:\n  - /disk/data",
            "data_file_directories = /disk/data",
        ),
        (
            "data_file_directories: [ '/disk/data' ]",
            "data_file_directories = /disk/data",
        ),
        ("commitlog_directory: /log", "commitlog_directory = /log"),
        ("cluster_name: 'Big one'", "cluster_name = Big one"),
        ("reactor_backend: epoll", "backend = epoll"),
        (
            "native_shard_aware_transport_port: none",
            "native_shard_aware_transport_port = none",
        ),
        ("developer_mode: yes", "developer_mode = true"),
        (
            "listen_address: ::1",
            "api_address = ::1\nbroadcast_address = ::1\nlisten_address = ::1\nprometheus_address = ::1",
        ),
        (
            "rpc_address: 0.0.0.0\nbroadcast_rpc_address: 10.0.0.1",
            "alternator_address = 0.0.0.0\nbroadcast_rpc_address = 10.0.0.1\nrpc_address = 0.0.0.0",
        ),
        ("broadcast_address:\nallocate_tokens_for_keyspace:\n", ""),
        ("# nothing but a comment", ""),
        ("---\n{}", ""),
    ];
    for (yaml, expected) in cases {
        assert_eq!(outcome(yaml, ""), expected, "yaml {yaml:?}");
    }
}

#[test]
fn the_command_line_takes_the_forms_that_people_know() {
    let cases = [
        ("--smp 2", "smp = 2"),
        (
            "-c 2 -m 512M",
            "commitlog_total_space = 512MiB\nmemory = 512MiB\nsmp = 2",
        ),
        ("--memory 1G", "commitlog_total_space = 1GiB\nmemory = 1GiB"),
        ("--memory 1.5G", "commitlog_total_space = 1536MiB\nmemory = 1536MiB"),
        (
            "--memory 536870912 --smp 1",
            "commitlog_total_space = 512MiB\nmemory = 512MiB\nsmp = 1",
        ),
        ("--developer-mode 1", "developer_mode = true"),
        ("--developer-mode=true", "developer_mode = true"),
        ("--developer-mode --smp 2", "developer_mode = true\nsmp = 2"),
        ("--overprovisioned", "overprovisioned = true"),
        ("--overprovisioned --smp 9", "overprovisioned = true\nsmp = 9"),
        ("--cpuset 1,3", "cpuset = 1,3\nsmp = 2"),
        ("--reactor-backend io_uring", "backend = io_uring"),
        (
            "--commitlog-sync batch --commitlog-total-space-in-mb -1",
            "commitlog_sync = batch",
        ),
        (
            "--native-transport-port 0 --native-shard-aware-transport-port 0",
            "native_shard_aware_transport_port = 0\nnative_transport_port = 0",
        ),
        (
            "-W /var/lib/ceto",
            "commitlog_directory = /var/lib/ceto/commitlog\ndata_file_directories = /var/lib/ceto/data\nworkdir = /var/lib/ceto",
        ),
        (
            "--log-level debug --dc east",
            "data_center = east\ndefault_log_level = debug",
        ),
    ];
    for (words, expected) in cases {
        assert_eq!(outcome("", words), expected, "command line '{words}'");
    }
}

#[test]
fn the_command_line_beats_the_file_in_any_spelling() {
    let yaml = "smp: 1\ncommitlog_sync_period: 1s\nlisten_address: 10.0.0.1\nrpc_address: 10.0.0.1\n";
    let config = config(yaml, "--smp 3 --commitlog-sync-period-in-ms 500 --rpc-address 10.0.0.2");
    assert_eq!(config.smp, 3);
    assert_eq!(
        config.commitlog_sync,
        CommitlogSync::Periodic {
            period: Duration::from_millis(500)
        }
    );
    assert_eq!(config.listen_address.to_string(), "10.0.0.1");
    assert_eq!(config.broadcast_rpc_address.to_string(), "10.0.0.2");
}

#[test]
fn unknown_and_wrong_options_are_refused_by_name() {
    testkit::run(testkit::path!("src/refused.txt"), |case| {
        let (words, yaml): (Vec<&str>, Vec<&str>) = case.text.lines().partition(|line| line.starts_with("$ "));
        let words: Vec<&str> = words.iter().map(|line| &line[2..]).collect();
        outcome(&yaml.join("\n"), &words.join(" "))
    });
}

#[test]
fn a_wish_for_safety_that_cannot_be_met_is_refused() {
    let met = [
        "authenticator: AllowAllAuthenticator",
        "authenticator: org.apache.cassandra.auth.AllowAllAuthenticator",
        "authenticator:\n  class_name: AllowAllAuthenticator",
        "authenticator:",
        "partitioner: org.apache.cassandra.dht.Murmur3Partitioner",
        "client_encryption_options:\n  enabled: no\n  optional: true",
        "start_native_transport: true",
        "audit: none",
        "audit: ''",
        "audit_logging_options:\n  enabled: false\n  logger:\n    - class_name: BinAuditLogger",
        "incremental_backups: false",
        "enable_tablets: true",
        "tablets_mode_for_new_keyspaces: enabled",
        "native_transport_port_ssl:",
        "replace_address: ''",
        "fields_per_udt_fail_threshold: 0",
        "write_consistency_levels_disallowed: []",
    ];
    for yaml in met {
        assert_eq!(outcome(yaml, ""), "", "yaml {yaml:?}");
    }
    for yaml in ["audit_logging_options: true", "client_encryption_options: [a, b]"] {
        assert!(outcome(yaml, "").starts_with("error: "), "{yaml:?} is no mapping");
    }
}

#[test]
fn every_wish_is_of_a_known_name_and_takes_what_it_says_that_it_takes() {
    let all = wishes::REFUSED.iter().map(|wish| (wish, true));
    let all = all.chain(wishes::NOT_DONE.iter().map(|wish| (wish, false)));
    for ((name, met, reason), stops) in all {
        let yaml = |value: &str| match name.split_once('.') {
            Some((option, key)) => format!("{option}:\n  {key}: {value}"),
            None => format!("{name}: {value}"),
        };
        for value in met.split('|').filter(|value| !value.is_empty()) {
            let outcome = outcome(&yaml(value), "");
            // One name may have a value that stops the start and another that is warned of.
            assert!(
                outcome.is_empty() || *name == "audit" || name.starts_with("tablets_mode"),
                "{name}: {value} is met, and gave {outcome}"
            );
        }
        let outcome = outcome(&yaml("'another value'"), "");
        let begin = if stops {
            "error: ceto.yaml: option"
        } else {
            "warning: ceto.yaml: option"
        };
        let refused_as_well = !stops && outcome.starts_with("error: ");
        assert!(
            (outcome.starts_with(begin) && outcome.contains(reason)) || refused_as_well,
            "{name} gave {outcome}"
        );
        assert!(outcome.contains("'another value' given"), "{name} gave {outcome}");
        assert!(
            outcome.contains(&format!("option '{name}' at")),
            "{name} gave {outcome}"
        );
    }
}

#[test]
fn options_that_stop_the_start_are_refused_on_the_command_line_too() {
    let cases = [
        (
            "--replace-address-first-boot node1 --replace-node-first-boot 5",
            "error: --replace-node-first-boot: '5' given, expected the host id of a node\n\
             --replace-address-first-boot: 'node1' given, expected an IP address",
        ),
        (
            "--ignore-dead-nodes-for-replace 10.0.0.1,node2 --audit syslog",
            "error: --audit: 'syslog' given, expected none or table: no audit log is kept\n\
             --ignore-dead-nodes-for-replace: '10.0.0.1,node2' given, expected host ids or IP addresses of nodes, separated by commas",
        ),
        ("--audit none", ""),
        (
            "--audit table",
            "warning: --audit: 'table' given, but no audit log is kept",
        ),
        (
            "--tablets-mode-for-new-keyspaces enforced",
            "warning: --tablets-mode-for-new-keyspaces: 'enforced' given, but a keyspace may still say tablets = {'enabled': false}",
        ),
    ];
    for (words, expected) in cases {
        assert_eq!(outcome("", words), expected, "command line '{words}'");
    }
}

#[test]
fn what_matters_warns_and_what_has_no_meaning_is_counted() {
    let yaml = "allocate_tokens_for_local_replication_factor: 3\nphi_convict_threshold: 8\nnative_transport_idle_timeout: 5s\ndynamic_snitch: true\nauto_snapshot_ttl: none\nkey_cache_size:\nfields_per_udt_fail_threshold: 2\nserver_encryption_options:\n  keystore: conf/.keystore\n";
    let expected = "\
        warning: ceto.yaml: option 'native_transport_idle_timeout' at line 3: '5s' given, but idle connections stay open\n\
        warning: ceto.yaml: option 'fields_per_udt_fail_threshold' at line 7: '2' given, but this limit is not enforced\n\
        warning: ceto.yaml: 4 options have no meaning here: allocate_tokens_for_local_replication_factor, phi_convict_threshold, dynamic_snitch, server_encryption_options.keystore";
    assert_eq!(outcome(yaml, ""), expected);
    assert_eq!(
        outcome("column_index_size: 4KiB", ""),
        "warning: ceto.yaml: 1 option has no meaning here: column_index_size"
    );
    assert_eq!(
        outcome("", "--memory 9G --commitlog-total-space-in-mb 4096"),
        "warning: memory is 9GiB, but this machine has only 8GiB\nmemory = 9GiB"
    );
}

#[test]
fn all_errors_are_told_at_once_in_the_order_of_the_file() {
    let yaml = "smp: many\nfrobnicate: 1\naudit: syslog\nlisten_address: 0.0.0.0\nnum_tokens: x\ninitial_token: 1,2\nstorage_port: 7001\n";
    let expected = "\
        error: ceto.yaml: option 'smp' at line 1: 'many' given, expected a number of shards from 1 to 256\n\
        ceto.yaml: unknown option 'frobnicate' at line 2\n\
        ceto.yaml: option 'audit' at line 3: 'syslog' given, expected none or table: no audit log is kept\n\
        ceto.yaml: option 'listen_address' at line 4: '0.0.0.0' given, expected one IP address or host name, not a wildcard\n\
        ceto.yaml: option 'num_tokens' at line 5: 'x' given, expected a number of tokens from 1 to 1536\n\
        --api-port: 'y' given, expected a port from 0 to 65535, or none\n\
        option 'ssl_storage_port': 'the default' given, expected another port than storage_port";
    assert_eq!(outcome(yaml, "--api-port y"), expected);
}

#[test]
fn only_this_machine_reaches_the_api_unless_it_has_an_address_of_its_own() {
    let addresses = |words: &str| {
        let config = config("", words);
        let [api, prometheus] = [config.api, config.prometheus].map(|address| address.map(|a| a.to_string()));
        (api.unwrap_or_default(), prometheus.unwrap_or_default())
    };
    let cases = [
        ("", "127.0.0.1:10000", "127.0.0.1:9180"),
        ("--listen-address 127.0.0.2", "127.0.0.2:10000", "127.0.0.2:9180"),
        ("--listen-address ::1", "[::1]:10000", "[::1]:9180"),
        ("--listen-address 10.0.0.2", "127.0.0.1:10000", "10.0.0.2:9180"),
        ("--listen-address fd00::2", "127.0.0.1:10000", "[fd00::2]:9180"),
        (
            "--listen-address 10.0.0.2 --api-address 10.0.0.2 --prometheus-address 0.0.0.0",
            "10.0.0.2:10000",
            "0.0.0.0:9180",
        ),
        (
            "--listen-address 127.0.0.2 --api-address localhost",
            "127.0.0.1:10000",
            "127.0.0.2:9180",
        ),
    ];
    for (words, api, prometheus) in cases {
        assert_eq!(addresses(words), (api.to_owned(), prometheus.to_owned()), "{words}");
    }
}

#[test]
fn host_names_are_taken_wherever_an_address_is() {
    let yaml =
        "listen_address: node1.example.com\nrpc_address: any.example.com\nbroadcast_rpc_address: node2.example.com\n";
    let config = config(
        yaml,
        "--seeds node1.example.com,node2.example.com:7070 --api-address node1.example.com",
    );
    assert_eq!(config.listen_address.to_string(), "10.0.0.1", "IPv4 is preferred");
    assert_eq!(config.broadcast_address.to_string(), "10.0.0.1");
    assert_eq!(config.broadcast_rpc_address.to_string(), "fd00::2");
    assert_eq!(config.settings["rpc_address"].as_deref(), Some("0.0.0.0"));
    let seeds: Vec<String> = config.seeds.iter().map(ToString::to_string).collect();
    assert_eq!(
        seeds,
        [
            "node1.example.com (10.0.0.1:7000)",
            "node2.example.com ([fd00::2]:7070)"
        ]
    );
    assert_eq!(config.api.map(|api| api.ip().to_string()).as_deref(), Some("10.0.0.1"));
}

#[test]
fn the_printed_file_is_taken_back() {
    let defaults = config("", "");
    let printed = print(&ServerArgs::default());
    let read = config(&printed, "");
    assert_eq!(read.settings, defaults.settings, "{printed}");
    assert_eq!(read.warnings, Vec::<String>::new());
    for row in table::TABLE {
        // Keys of mappings have the same names.
        let last_part = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
        let name = last_part(row.name);
        let times = table::TABLE.iter().filter(|row| last_part(row.name) == name).count();
        let lines = printed
            .lines()
            .filter(|line| line.trim_start().starts_with(&format!("{name}:")));
        assert_eq!(lines.count(), times, "how often {name} is in the file");
        if let table::DefaultValue::Is(default) = row.default {
            let shown = defaults.settings[row.name].as_deref().unwrap_or("none");
            assert_eq!(default, shown, "the default of {name}");
        }
    }
    let words = "--smp 2 --cluster-name It's --commitlog-sync-period-in-ms 50 --initial-token -5,5 --seeds 10.0.0.1:7000,[::1]:7";
    let printed = print(&args(words));
    assert_eq!(config(&printed, "").settings, config("", words).settings, "{printed}");
}

#[test]
fn the_command_line_shows_every_option() {
    use clap::CommandFactory;
    let help = CommandLine::command().render_long_help().to_string();
    for row in table::TABLE {
        let name = format!("--{} ", row.name.replace('_', "-"));
        assert!(help.contains(&name), "--help does not have {name}");
        assert!(help.contains(row.meaning), "--help does not say what {name} means");
    }
    CommandLine::command().debug_assert();
}

#[test]
fn a_file_that_is_not_a_list_of_options_is_refused_with_its_place() {
    for yaml in ["- a\n- b\n", "just words", "a: [1, 2", "smp: 1\nsmp: 2\n", "\tx: 1"] {
        let outcome = outcome(yaml, "");
        assert!(
            outcome.starts_with("error: ceto.yaml: ") && outcome.contains("line"),
            "yaml {yaml:?} gave {outcome:?}"
        );
        assert!(
            !outcome.contains('\n'),
            "yaml {yaml:?} gave more than a line: {outcome:?}"
        );
    }
}

#[test]
fn the_lists_of_known_names_are_sorted_and_share_none() {
    let (cassandra, scylla) = (wishes::CASSANDRA_NAMES, wishes::SCYLLA_NAMES);
    for (file, names) in [("cassandra_names.txt", cassandra), ("scylla_names.txt", scylla)] {
        assert!(
            names.lines().is_sorted_by(|a, b| a < b),
            "{file} is not sorted or has a name twice"
        );
    }
    let both: Vec<_> = cassandra
        .lines()
        .filter(|name| scylla.lines().any(|other| other == *name))
        .collect();
    assert_eq!(both, Vec::<&str>::new(), "names in both lists");
    for name in [
        "native_transport_idle_timeout",
        "memtable_heap_space",
        "memtable_heap_space_in_mb",
        "auto_hints_cleanup_enabled",
    ] {
        assert!(
            cassandra.lines().any(|known| known == name),
            "{name} of cassandra.yaml is unknown"
        );
    }
}

#[test]
fn the_options_file_is_found_and_a_missing_one_is_an_error() {
    let dir = std::env::temp_dir().join(format!("ceto-config-{:016x}", runtime::random_u64()));
    fs::create_dir_all(&dir).expect("the temporary directory takes files");
    let words = format!("-W {}", dir.display());
    let load = |words: &str| load(&args(words), &machine());
    assert_eq!(
        load(&words).map(|config| config.cluster_name),
        Ok("Test Cluster".to_owned())
    );
    fs::write(dir.join("ceto.yaml"), b"cluster_name: found").expect("the temporary directory takes files");
    assert_eq!(load(&words).map(|config| config.cluster_name), Ok("found".to_owned()));
    let missing = format!("{words} --options-file {}/none.yaml", dir.display());
    let error = load(&missing).expect_err("there is no such file").to_string();
    assert!(
        error.starts_with("cannot read the options file ") && error.contains("none.yaml: No such file"),
        "{error}"
    );
    fs::write(dir.join("ceto.yaml"), b"cluster_name: \xff").expect("the temporary directory takes files");
    let error = load(&words).expect_err("the file is not text").to_string();
    assert!(error.ends_with("it is not UTF-8"), "{error}");
    fs::remove_dir_all(&dir).expect("the directory is ours");
}

#[test]
fn a_machine_is_what_its_limits_leave_of_it() {
    let status = (
        "/proc/self/status",
        "Name:\tceto\nCpus_allowed:\tf3\nCpus_allowed_list:\t0-1,4-7\n",
    );
    let meminfo = ("/proc/meminfo", "MemTotal:       16384 kB\nMemFree:  1 kB\n");
    let limited = |cpus: &[usize], cpu_quota, memory_bytes| Machine {
        cpus: cpus.to_vec(),
        cpu_quota,
        memory_bytes,
    };
    type Files<'t> = &'t [(&'t str, &'t str)];
    let cases: [(&str, Files<'_>, Machine); 5] = [
        ("nothing readable", &[], limited(&[0], None, 1 << 30)),
        (
            "no limits",
            &[status, meminfo],
            limited(&[0, 1, 4, 5, 6, 7], None, 16 << 20),
        ),
        (
            "a limit on a group above",
            &[
                status,
                meminfo,
                ("/proc/self/cgroup", "0::/a/b\n"),
                ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("/sys/fs/cgroup/a/memory.max", "1048576\n"),
                ("/sys/fs/cgroup/a/b/cpu.max", "250000 100000\n"),
                ("/sys/fs/cgroup/a/cpu.max", "max 100000\n"),
            ],
            limited(&[0, 1, 4, 5, 6, 7], Some(2), 1 << 20),
        ),
        (
            "a container sees its own group as the root",
            &[
                status,
                meminfo,
                ("/proc/self/cgroup", "0::/\n"),
                ("/sys/fs/cgroup/memory.max", "2097152\n"),
                ("/sys/fs/cgroup/cpu.max", "50000 100000\n"),
            ],
            limited(&[0, 1, 4, 5, 6, 7], Some(1), 2 << 20),
        ),
        (
            "control groups of the first version",
            &[
                status,
                meminfo,
                ("/proc/self/cgroup", "3:cpu,cpuacct:/x\n2:memory:/y\n"),
                ("/sys/fs/cgroup/memory/y/memory.limit_in_bytes", "3145728\n"),
                ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ],
            limited(&[0, 1, 4, 5, 6, 7], None, 3 << 20),
        ),
    ];
    for (story, files, expected) in cases {
        let text = |path: &str| {
            files
                .iter()
                .find(|(name, _)| *name == path)
                .map(|(_, text)| (*text).to_owned())
        };
        assert_eq!(Machine::from_texts(text), expected, "{story}");
    }
    let limited = Machine {
        cpu_quota: Some(2),
        ..machine()
    };
    let config = Config::defaults(&limited);
    assert_eq!(
        (config.smp, config.cpus, config.overprovisioned),
        (2, None, true),
        "under a limit of processor time nothing spins"
    );
    let tiny = Machine {
        memory_bytes: 64 << 20,
        ..machine()
    };
    assert_eq!(Config::defaults(&tiny).memory, 128 << 20);
    let detected = Machine::detect();
    assert!(
        detected.shards() >= 1 && detected.memory_bytes > 64 << 20,
        "this machine: {detected:?}"
    );
}

#[test]
fn handshakes_that_work_at_once_are_counted_by_shard() {
    let option = "uninitialized_connections_semaphore_cpu_concurrency";
    assert_eq!(config("", "").handshakes_per_shard, 8, "as ScyllaDB's");
    assert_eq!(config(&format!("{option}: 3"), "").handshakes_per_shard, 3);
    let argument = "--uninitialized-connections-semaphore-cpu-concurrency 1";
    assert_eq!(config(&format!("{option}: 3"), argument).handshakes_per_shard, 1);
    let error = resolved(&format!("{option}: 0"), "").expect_err("nobody could connect");
    assert!(error.to_string().contains("at least 1"), "{error}");
}

#[test]
fn connections_of_the_node_are_shared_out_to_shards() {
    let yaml = "native_transport_max_concurrent_connections: 10";
    assert_eq!(config(yaml, "--smp 4").max_connections_per_shard, 3);
    assert_eq!(
        config("native_transport_max_concurrent_connections: -1", "").max_connections_per_shard,
        10_000
    );
}

#[test]
fn experimental_features_are_off_until_they_are_named_and_others_are_warned_of() {
    let told = |yaml: &str| {
        let config = config(yaml, "");
        let of_option = |warning: &&String| warning.starts_with("experimental_features");
        let warnings = config.warnings.iter().filter(of_option).count();
        (config.experimental.tablets_routing_v2, warnings)
    };
    assert_eq!(told(""), (false, 0));
    assert_eq!(told("experimental_features: []"), (false, 0));
    assert_eq!(told("experimental_features: tablets-routing-v2"), (true, 0));
    assert_eq!(told("experimental_features: [tablets-routing-v2]"), (true, 0));
    assert_eq!(told("experimental_features: [udf, tablets-routing-v2, x]"), (true, 2));
    assert_eq!(told("experimental_features: [strongly-consistent-tables]"), (false, 1));
    assert!(
        config("", "--experimental-features tablets-routing-v2")
            .experimental
            .tablets_routing_v2
    );
}

#[test]
fn maintenance_mode_has_a_socket_and_a_socket_has_a_short_path() {
    let socket = |yaml: &str, words: &str| {
        let config = config(yaml, words);
        let path = config
            .maintenance_socket
            .map(|socket| socket.path.display().to_string());
        (config.maintenance_mode, path)
    };
    let at = |path: &str| Some(path.to_owned());
    let cases = [
        ("", "-W w", (false, None)),
        ("maintenance_socket: ignore", "-W w", (false, None)),
        ("maintenance_socket: workdir", "-W w", (false, at("w/cql.m"))),
        ("maintenance_socket: /run/ceto/m", "-W w", (false, at("/run/ceto/m"))),
        ("", "-W w --maintenance-mode", (true, at("w/cql.m"))),
        ("maintenance_mode: true\nmaintenance_socket: m", "-W w", (true, at("m"))),
        ("maintenance_mode: true", "-W w --maintenance-mode 0", (false, None)),
    ];
    for (yaml, words, expected) in cases {
        assert_eq!(socket(yaml, words), expected, "{yaml} {words}");
    }
    let group = |yaml: &str| config(yaml, "").maintenance_socket.and_then(|socket| socket.group);
    assert_eq!(group("maintenance_socket: workdir"), None);
    assert_eq!(
        group("maintenance_socket: workdir\nmaintenance_socket_group: operators"),
        at("operators")
    );
    let refused = |yaml: &str, words: &str| resolved(yaml, words).expect_err(yaml).to_string();
    let error = refused("maintenance_mode: true\nmaintenance_socket: ignore", "");
    assert!(
        error.contains("in maintenance mode the node listens nowhere else"),
        "{error}"
    );
    let long = "x".repeat(107);
    assert!(
        resolved(&format!("maintenance_socket: {long}"), "").is_ok(),
        "107 bytes fit"
    );
    let error = refused(&format!("maintenance_socket: x{long}"), "");
    assert!(error.contains("a path of at most 107 bytes"), "{error}");
    let error = refused("maintenance_socket: workdir", &format!("-W {long}"));
    assert!(error.contains("a path of at most 107 bytes"), "{error}");
}

#[test]
fn ports_for_proxies_are_others_than_the_usual_ones() {
    let ports = |yaml: &str| resolved(yaml, "").map(|config| config.proxied_ports);
    assert_eq!(ports(""), Ok([None, None]));
    assert_eq!(ports("native_transport_port_proxy_protocol: 0"), Ok([None, None]));
    let both = "native_transport_port_proxy_protocol: 9043\nnative_shard_aware_transport_port_proxy_protocol: 19043";
    assert_eq!(ports(both), Ok([Some(9043), Some(19043)]));
    for (yaml, option, given) in [
        (
            "native_transport_port_proxy_protocol: 9042",
            "native_transport_port_proxy_protocol",
            "9042",
        ),
        (
            "native_transport_port_proxy_protocol: 19042",
            "native_transport_port_proxy_protocol",
            "19042",
        ),
        (
            "native_transport_port_proxy_protocol: 9043\nnative_shard_aware_transport_port_proxy_protocol: 9043",
            "native_shard_aware_transport_port_proxy_protocol",
            "9043",
        ),
        (
            "native_transport_port_proxy_protocol: 65536",
            "native_transport_port_proxy_protocol",
            "65536",
        ),
    ] {
        let error = ports(yaml).expect_err(yaml).to_string();
        assert!(
            error.contains(&format!("option '{option}'")) && error.contains(&format!("'{given}' given")),
            "{error}"
        );
    }
}
