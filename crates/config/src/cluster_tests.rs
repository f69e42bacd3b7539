//! What comes of the options of a cluster, from YAML files as people have them.

use super::tests::{config, resolved_beside};
use super::*;
use hints::Allowed;

/// The end of a cassandra.yaml, as its manual shows it.
const CASSANDRA: &str = "\
num_tokens: 8
hinted_handoff_enabled: true
max_hint_window: 1h
seed_provider:
  # Addresses of hosts that are deemed contact points.
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      # seeds is actually a comma-delimited list of addresses.
      - seeds: \"10.0.0.1:7000, 10.0.0.2\"
storage_port: 7010
read_request_timeout: 3s
range_request_timeout_in_ms: 20000
scan_request_timeout: 30m
write_request_timeout: 500ms
counter_write_request_timeout: 7000ms
cas_contention_timeout_in_ms: 2000
truncate_request_timeout: 2m
request_timeout: 11s
endpoint_snitch: SimpleSnitch
internode_compression: dc
";

fn seeds(config: &Config) -> Vec<String> {
    config.seeds.iter().map(ToString::to_string).collect()
}

/// The milliseconds of reads, range reads, writes and truncations.
fn of_replicas(config: &Config) -> [u128; 4] {
    let timeouts = config.timeouts;
    [timeouts.read, timeouts.range, timeouts.write, timeouts.truncate].map(|timeout| timeout.as_millis())
}

#[test]
fn the_defaults_are_a_node_alone_with_the_usual_ports_and_patience() {
    let config = config("", "");
    assert_eq!(config.seeds, []);
    assert_eq!((config.storage_port, config.ssl_storage_port), (7000, 7001));
    assert_eq!((config.num_tokens, &config.initial_tokens[..]), (16, &[][..]));
    assert!(config.auto_bootstrap);
    assert_eq!(of_replicas(&config), [5_000, 10_000, 2_000, 60_000]);
    assert_eq!(config.timeouts.counter, Duration::from_secs(5));
    assert_eq!(config.timeouts.scan, Duration::from_mins(10));
    assert_eq!(config.timeouts.cas_contention, Duration::from_secs(1));
    assert_eq!(config.request_timeout, Duration::from_secs(10));
    assert_eq!(config.internode_compression, InternodeScope::None);
    assert_eq!(config.encryption, None);
    assert_eq!(
        config.internode_compression_algorithms,
        [Compression::Lz4, Compression::Zstd]
    );
    let hints = Hints {
        allowed: Allowed::default(),
        window: Duration::from_hours(3),
    };
    assert_eq!(config.hints, hints);
    assert_eq!(
        [&*config.location.datacenter, &*config.location.rack],
        ["datacenter1", "rack1"]
    );
}

#[test]
fn a_cassandra_yaml_says_the_cluster() {
    let config = config(CASSANDRA, "");
    assert_eq!(config.warnings, Vec::<String>::new());
    assert_eq!(
        seeds(&config),
        ["10.0.0.1:7000", "10.0.0.2:7010"],
        "a seed without a port has storage_port"
    );
    assert_eq!((config.storage_port, config.num_tokens), (7010, 8));
    assert_eq!(of_replicas(&config), [3_000, 20_000, 500, 120_000]);
    assert_eq!(config.timeouts.counter, Duration::from_secs(7));
    assert_eq!(config.timeouts.scan, Duration::from_mins(30));
    assert_eq!(config.timeouts.cas_contention, Duration::from_secs(2));
    assert_eq!(config.request_timeout, Duration::from_secs(11));
    assert_eq!(config.internode_compression, InternodeScope::Datacenters);
    assert_eq!(config.hints.window, Duration::from_hours(1));
}

#[test]
fn seeds_are_taken_in_every_form_that_files_and_people_write() {
    let cases = [
        ("", "--seeds 127.0.0.1", "127.0.0.1:7000"),
        (
            "",
            "--seeds 127.0.0.1,127.0.0.2:7777,127.0.0.1",
            "127.0.0.1:7000 127.0.0.2:7777",
        ),
        ("", "--seeds localhost:7070", "127.0.0.1:7070"),
        (
            "",
            "--seeds ::1,[::2],[::3]:7070 --storage-port 9",
            "[::1]:9 [::2]:9 [::3]:7070",
        ),
        ("seeds: 10.0.0.1", "--seeds 10.0.0.2", "10.0.0.2:7000"),
        (CASSANDRA, "--seeds 10.0.0.9", "10.0.0.9:7010"),
        ("seeds: [10.0.0.1, 10.0.0.2]", "", "10.0.0.1:7000 10.0.0.2:7000"),
        (
            "seed_provider:\n  class_name: SimpleSeedProvider\n  parameters:\n    seeds: 10.0.0.1\n",
            "",
            "10.0.0.1:7000",
        ),
        ("seed_provider:\n  - class_name: SimpleSeedProvider\n", "", ""),
        ("", "--seeds 127.0.0.1:7000 --storage-port 0", "127.0.0.1:7000"),
    ];
    for (yaml, words, expected) in cases {
        assert_eq!(
            seeds(&config(yaml, words)).join(" "),
            expected,
            "yaml {yaml:?}, command line '{words}'"
        );
    }
}

#[test]
fn tokens_that_are_given_are_all_that_the_node_takes() {
    let cases = [
        ("initial_token: -9223372036854775807", "", "-9223372036854775807", 1),
        ("initial_token: -9223372036854775808", "", "9223372036854775807", 1),
        ("initial_token: '1, -2,3'\nnum_tokens: 3", "", "1 -2 3", 3),
        ("initial_token: [1, -2]", "", "1 -2", 2),
        ("", "--initial-token -5,5", "-5 5", 2),
        ("num_tokens: 256", "", "", 256),
    ];
    for (yaml, words, tokens, num_tokens) in cases {
        let config = config(yaml, words);
        let texts: Vec<String> = config.initial_tokens.iter().map(|token| token.0.to_string()).collect();
        assert_eq!(
            (&*texts.join(" "), config.num_tokens),
            (tokens, num_tokens),
            "yaml {yaml:?}, command line '{words}'"
        );
    }
}

#[test]
fn the_snitch_says_where_the_node_stands_unless_it_is_told() {
    let file = "dc=east\nrack=r7\ndc_suffix=_two\n";
    let gossiping = "endpoint_snitch: GossipingPropertyFileSnitch";
    let cases = [
        (file, gossiping, "", "east_two r7"),
        (file, gossiping, "--rack r8", "east_two r8"),
        (file, gossiping, "--data-center west --rack r8", "west r8"),
        ("", gossiping, "--data-center west --rack r8", "west r8"),
        (file, "", "", "datacenter1 rack1"),
        (
            "",
            "endpoint_snitch: org.apache.cassandra.locator.RackInferringSnitch\nlisten_address: 10.20.30.40",
            "",
            "20 30",
        ),
        (
            "",
            "",
            "--endpoint-snitch RackInferringSnitch --broadcast-address 10.1.2.3 --dc here",
            "here 2",
        ),
    ];
    for (properties, yaml, words, expected) in cases {
        let config = resolved_beside(properties, yaml, words).unwrap_or_else(|error| panic!("{yaml} {words}: {error}"));
        let location = format!("{} {}", config.location.datacenter, config.location.rack);
        assert_eq!(
            location, expected,
            "properties {properties:?}, yaml {yaml:?}, command line '{words}'"
        );
        assert_eq!(
            format!("{} {}", config.data_center, config.rack),
            expected,
            "the old fields"
        );
    }
}

#[test]
fn encryption_between_nodes_has_the_keys_of_both_files() {
    let yaml = "server_encryption_options:\n  internode_encryption: dc\n  certificate: /c.pem\n  keyfile: /k.pem\n  truststore: /t.pem\n  require_endpoint_verification: true\n";
    let encryption = Encryption {
        between: InternodeScope::Datacenters,
        certificate: PathBuf::from("/c.pem"),
        key: PathBuf::from("/k.pem"),
        trust: PathBuf::from("/t.pem"),
        verify_endpoint: true,
    };
    assert_eq!(config(yaml, "").encryption, Some(encryption));
    assert_eq!(
        config("server_encryption_options:\n  internode_encryption: none\n", "").encryption,
        None
    );
    for seed in ["10.0.0.1", "10.0.0.1:7000", "10.0.0.1:7001"] {
        let all = yaml.replace("dc", "all") + &format!("seeds: {seed}\n");
        assert_eq!(
            seeds(&config(&all, "")),
            ["10.0.0.1:7000"],
            "a node is known by its plain port, so that the first seed knows itself: {seed}"
        );
    }
}

#[test]
fn an_unknown_property_is_named_with_its_line() {
    let error = resolved_beside("dc=east\nrak=r\n", "endpoint_snitch: GossipingPropertyFileSnitch", "")
        .expect_err("there is no property rak")
        .to_string();
    assert_eq!(
        error,
        "/etc/ceto/cassandra-rackdc.properties line 2: unknown property rak; known are dc, rack, dc_suffix, prefer_local"
    );
}

#[test]
fn hints_are_kept_for_the_datacenters_that_either_database_would_keep_them_for() {
    let cases = [
        ("", "a b c"),
        ("hinted_handoff_enabled: true", "a b c"),
        ("hinted_handoff_enabled: off", ""),
        ("hinted_handoff_enabled: a", "a"),
        ("hinted_handoff_enabled: 'a, c'", "a c"),
        ("hinted_handoff_enabled: [b, c]", "b c"),
        ("hinted_handoff_disabled_datacenters:\n  - a\n  - b", "c"),
        (
            "hinted_handoff_enabled: true\nhinted_handoff_disabled_datacenters: b",
            "a c",
        ),
        (
            "hinted_handoff_enabled: a,b\nhinted_handoff_disabled_datacenters: [b]",
            "a",
        ),
        (
            "hinted_handoff_enabled: false\nhinted_handoff_disabled_datacenters: [b]",
            "",
        ),
        ("hinted_handoff_disabled_datacenters:", "a b c"),
    ];
    for (yaml, expected) in cases {
        let config = config(yaml, "");
        let got: Vec<&str> = ["a", "b", "c"]
            .into_iter()
            .filter(|dc| config.hints.allowed.has(dc))
            .collect();
        assert_eq!(got.join(" "), expected, "{yaml:?}");
        assert_eq!(config.warnings, Vec::<String>::new(), "{yaml:?}");
    }
    let config = config(
        "hinted_handoff_enabled: [b, c]\nhinted_handoff_disabled_datacenters: [c]",
        "",
    );
    let shown = |name: &str| config.settings[name].clone();
    assert_eq!(shown("hinted_handoff_enabled"), Some("b,c".to_owned()));
    assert_eq!(shown("hinted_handoff_disabled_datacenters"), Some("c".to_owned()));
}

#[test]
fn compression_between_nodes_is_asked_for_by_distance_and_by_algorithm() {
    let cases = [
        ("none", InternodeScope::None),
        ("dc", InternodeScope::Datacenters),
        ("rack", InternodeScope::Racks),
        ("all", InternodeScope::All),
    ];
    for (text, expected) in cases {
        let config = config(&format!("internode_compression: {text}"), "");
        assert_eq!(config.internode_compression, expected);
    }
    for (text, expected) in [
        ("ZSTD", vec![Compression::Zstd]),
        ("[zstd, lz4]", vec![Compression::Zstd, Compression::Lz4]),
    ] {
        let config = config(&format!("internode_compression_algorithms: {text}"), "");
        assert_eq!(config.internode_compression_algorithms, expected, "{text}");
    }
}

#[test]
fn a_node_may_own_nothing_and_ignore_dead_members() {
    let usual = config("", "");
    assert!(usual.joins_ring && usual.ignores.is_empty());
    let host = uuid::Uuid::from_u128(1);
    let yaml = format!("join_ring: false\nignore_dead_nodes_for_replace: 10.0.0.1, {host}");
    let config = config(&yaml, "");
    assert!(!config.joins_ring);
    let address = "10.0.0.1".parse().expect("an address");
    assert_eq!(
        config.ignores,
        [Replaced::Address(address), Replaced::Host(topology::HostId(host))]
    );
}
