//! What the fuzzer needs of options: files of options and of the machine to begin with, and everything that reads them.

use std::net::IpAddr;
use std::path::Path;

use super::{Machine, RACKDC_FILE, ServerArgs, SetOptions, World, resolve};

/// A file of options: the rest of the input is YAML, and after [`BESIDE`] the text of cassandra-rackdc.properties.
const OPTIONS: u8 = 0;
/// A file of the kernel.
const MACHINE: u8 = 1;
/// Separates the two texts of [`OPTIONS`].
const BESIDE: char = '\u{1}';

const STOCK: [&str; 5] = [
    include_str!("stock/cassandra-3.11.yaml"),
    include_str!("stock/cassandra-4.0.yaml"),
    include_str!("stock/cassandra-4.1.yaml"),
    include_str!("stock/cassandra-5.0.yaml"),
    include_str!("stock/scylla.yaml"),
];

const SHORT: &str = "\
cluster_name: 'a sea' # and a comment
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{seeds: \"10.0.0.1:7000, [fd00::1], node1.example.com\"}]
smp: 4
memory: 4G
cpuset: 0-3,7
endpoint_snitch: GossipingPropertyFileSnitch
commitlog_sync: periodic
commitlog_sync_period_in_ms: 10000
commitlog_segment_size: 32MiB
initial_token: -9223372036854775808, 5
num_tokens: 256
read_request_timeout: 5000ms
scan_request_timeout_in_ms: 10000
native_transport_max_frame_size: 16MiB
compaction_throughput: 64MiB/s
server_encryption_options:
    internode_encryption: all
    certificate: /etc/c.pem
hinted_handoff_enabled: 'dc1,dc2'
listen_address: &here 10.0.0.1
rpc_address: *here
broadcast_address: null
log_level: debug
shadow_round_ms: 0x10
";

/// Options files of other releases and short ones, and files of the kernel.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let options = options_samples().into_iter().map(|text| (OPTIONS, text));
    let machine = machine_samples().into_iter().map(|text| (MACHINE, text));
    options
        .chain(machine)
        .map(|(kind, text)| [&[kind], text.as_bytes()].concat())
        .collect()
}

/// Reads the bytes as options, or as each of the kernel's files.
pub fn read(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(bytes);
    if kind == OPTIONS {
        let (yaml, properties) = text.split_once(BESIDE).unwrap_or((&text, ""));
        read_options(yaml, properties);
    } else {
        read_machine(&text);
    }
}

/// The stock files of the other databases, one with most kinds of values, and one with its properties.
fn options_samples() -> Vec<String> {
    let mut seeds: Vec<String> = STOCK.iter().map(|text| (*text).to_owned()).collect();
    // A line of a stock file, so that most changes hit something that matters.
    seeds.extend(
        STOCK
            .iter()
            .flat_map(|text| text.split_inclusive('\n'))
            .map(str::to_owned),
    );
    seeds.push(SHORT.to_owned());
    seeds.push(format!("{SHORT}{BESIDE}dc=DC1\nrack=RAC1\nprefer_local=true\n"));
    seeds
}

/// Reads options and properties as at a start.
fn read_options(yaml: &str, properties: &str) {
    let machine = Machine {
        cpus: vec![0, 1, 2, 3],
        cpu_quota: None,
        memory_bytes: 8 << 30,
    };
    let lookup = |name: &str| match name {
        "node1.example.com" => Ok(vec![IpAddr::from([10, 0, 0, 2])]),
        _ => Err("the name is unknown".to_owned()),
    };
    let world = World {
        machine: &machine,
        read: &|path| (path.ends_with(RACKDC_FILE) && !properties.is_empty()).then(|| properties.to_owned()),
        lookup: &lookup,
    };
    let read = resolve(
        &ServerArgs::default(),
        Some((Path::new("/etc/ceto.yaml"), yaml)),
        &SetOptions::new(),
        &world,
    );
    if let Err(error) = read {
        drop(error.to_string());
    }
}

/// Files of the kernel.
fn machine_samples() -> Vec<String> {
    let samples = [
        "Name:\tceto\nCpus_allowed_list:\t0-3,7\n",
        "MemTotal:       16384000 kB\nMemFree: 1 kB\n",
        "0::/user.slice/a.scope\n4:memory:/docker/x\n",
        "200000 100000\n",
        "max 100000\n",
    ];
    samples.map(str::to_owned).to_vec()
}

/// Reads a text as each of the kernel's files that say what the process may use.
fn read_machine(text: &str) {
    let machine = Machine::from_texts(|_| Some(text.to_owned()));
    assert!(
        !machine.cpus.is_empty() && machine.shards() >= 1,
        "a machine without a processor"
    );
}
