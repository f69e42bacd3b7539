//! Texts of YAML files and command lines, and what comes of them.

use clap::Parser;

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

/// The same with the text of a cassandra-rackdc.properties beside the options file, unless it is empty.
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
    resolve(&args(words), Some((Path::new(path), yaml)), &read, &machine())
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
    assert_eq!(config.settings.len(), 62, "{:?}", config.settings);
    for (name, text) in &config.settings {
        let given = text.as_deref().unwrap_or("none");
        let shown = resolved(&format!("{name}: {given}"), "").map(|config| config.settings[name].clone());
        assert_eq!(shown, Ok(text.clone()), "the setting {name} given as it is shown");
    }
}

#[test]
fn options_have_the_spellings_of_both_files() {
    let cases = [
        ("commitlog_sync_period_in_ms: 2000", "commitlog_sync_period = 2000ms"),
        ("commitlog_sync_period: 2s", "commitlog_sync_period = 2000ms"),
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
        ("listen_address: ::1", "broadcast_address = ::1\nlisten_address = ::1"),
        (
            "rpc_address: 0.0.0.0\nbroadcast_rpc_address: 10.0.0.1",
            "broadcast_rpc_address = 10.0.0.1\nrpc_address = 0.0.0.0",
        ),
        (
            "broadcast_address:\nallocate_tokens_for_keyspace:\n",
            "warning: option 'allocate_tokens_for_keyspace' at line 2 is known to Cassandra, has no effect here",
        ),
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
    testkit::run(testkit::path!("src/config/refused.txt"), |case| {
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
        "partitioner: org.apache.cassandra.dht.Murmur3Partitioner",
        "client_encryption_options:\n  enabled: false\n  optional: true",
        "start_native_transport: true",
    ];
    for yaml in met {
        assert_eq!(outcome(yaml, ""), "", "yaml {yaml:?}");
    }
    let refused = [
        (
            "authenticator: PasswordAuthenticator",
            "PasswordAuthenticator",
            "AllowAllAuthenticator",
        ),
        (
            "authenticator:\n  class_name: PasswordAuthenticator",
            "PasswordAuthenticator",
            "AllowAllAuthenticator",
        ),
        (
            "authorizer: CassandraAuthorizer",
            "CassandraAuthorizer",
            "AllowAllAuthorizer",
        ),
        (
            "partitioner: org.apache.cassandra.dht.RandomPartitioner",
            "org.apache.cassandra.dht.RandomPartitioner",
            "Murmur3Partitioner",
        ),
        ("client_encryption_options:\n  enabled: true", "true", "false"),
        ("start_native_transport: false", "false", "true"),
    ];
    for (yaml, given, met) in refused {
        let name = yaml.split(':').next().unwrap_or_default();
        let expected = format!(
            "error: ceto.yaml: option '{name}' at line 1: '{given}' given, expected {met}, the only one there is here"
        );
        assert_eq!(outcome(yaml, ""), expected, "yaml {yaml:?}");
    }
}

#[test]
fn names_without_an_effect_warn_once_each() {
    let yaml = "allocate_tokens_for_local_replication_factor: 3\nphi_convict_threshold: 8\nalternator_port: 8000\nslow_query_log_timeout_in_ms: 500\nslow_query_log_timeout: 500ms\nserver_encryption_options:\n  keystore: conf/.keystore\n";
    let expected = "\
        warning: option 'allocate_tokens_for_local_replication_factor' at line 1 is known to Cassandra, has no effect here\n\
        warning: option 'phi_convict_threshold' at line 2 is known to Cassandra, has no effect here\n\
        warning: option 'alternator_port' at line 3 is known to ScyllaDB, has no effect here\n\
        warning: option 'slow_query_log_timeout_in_ms' at line 4 is known to Cassandra, has no effect here\n\
        warning: option 'slow_query_log_timeout' at line 5 is known to Cassandra, has no effect here\n\
        warning: option 'server_encryption_options.keystore' at line 6 is known to Cassandra or ScyllaDB, has no effect here";
    assert_eq!(outcome(yaml, ""), expected);
    assert_eq!(
        outcome("", "--memory 9G --commitlog-total-space-in-mb 4096"),
        "warning: memory is 9GiB, but this machine has only 8GiB\nmemory = 9GiB"
    );
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
    let (cassandra, scylla) = (include_str!("cassandra_names.txt"), include_str!("scylla_names.txt"));
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
