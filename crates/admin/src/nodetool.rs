//! `ceto nodetool`: asks a node's REST API and prints what Cassandra's tool of that name would.
//!
//! [`run`] finds the API, opens one connection, and gives both to the command. [`commands`] lists the commands with
//! their help; the other modules make what they print.

mod access_keys;
mod client;
mod cluster;
mod commands;
mod control;
mod conversion;
mod handoff;
mod layout;
mod loggers;
mod operations;
mod repair;
mod storage;
mod tables;
mod tasks;
mod words;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use client::Client;
use cluster::Selected;
pub use tasks::Output;

/// The file in a node's workdir that says where its API listens.
pub const ADDRESS_FILE: &str = "api";
/// Where the API listens unless options say otherwise.
const PORT: u16 = 10_000;
/// The workdir of a node on this machine that was started without `--workdir`.
const WORKDIR: &str = "data";

/// Which node.
#[derive(Clone, Debug)]
pub struct Target {
    /// The API's address.
    pub host: Option<String>,
    /// Its port.
    pub port: Option<u16>,
    /// Where to look for both when they are not given: the workdir of a node on this machine.
    pub workdir: Option<PathBuf>,
    /// Whether to draw progress bars on standard output, which is a terminal.
    pub shows_progress: bool,
}

impl Target {
    /// Takes the options that name a node out of the words after the command, where tools of Cassandra's kind have them
    /// too. What remains is the command's.
    fn take_options(&mut self, words: Vec<String>) -> Result<Vec<String>, String> {
        let mut rest = Vec::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if word == "--" {
                rest.push(word);
                rest.extend(words.by_ref());
                break;
            }
            let (option, attached) = match word.split_once('=') {
                Some((option, value)) => (option, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            if !["-h", "--host", "-p", "--port", "-W", "--workdir"].contains(&option) {
                rest.push(word);
                continue;
            }
            let value = attached.or_else(|| words.next());
            let value = value.ok_or_else(|| format!("{option}: expected a value; --help prints help"))?;
            match option {
                "-h" | "--host" => self.host = Some(value),
                "-p" | "--port" => {
                    let port = value.parse();
                    self.port = Some(port.map_err(|_| format!("{option}: expected a port, got '{value}'"))?);
                }
                _ => self.workdir = Some(value.into()),
            }
        }
        Ok(rest)
    }

    /// The API's address: as given, else as the workdir says, else where it listens by default.
    fn address(&self) -> Result<SocketAddr, String> {
        if self.host.is_none() && self.port.is_none() {
            let workdir = self.workdir.clone().unwrap_or_else(|| PathBuf::from(WORKDIR));
            let path = workdir.join(ADDRESS_FILE);
            let text = match runtime::fs::read(&path) {
                Err(_) if self.workdir.is_none() => return Ok((Ipv4Addr::LOCALHOST, PORT).into()),
                read => read.map_err(|e| {
                    let workdir = workdir.display();
                    format!("no node runs on {workdir} ({e}); name one elsewhere with --host and --port")
                })?,
            };
            let address: Option<SocketAddr> = String::from_utf8_lossy(&text).trim().parse().ok();
            let mut address = address.ok_or_else(|| format!("{}: expected an address and a port", path.display()))?;
            if address.ip().is_unspecified() {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            return Ok(address);
        }
        let ip = match self.host.as_deref() {
            None | Some("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(text) => host_address(text)?,
        };
        Ok(SocketAddr::new(ip, self.port.unwrap_or(PORT)))
    }
}

/// The address of a host, of a name the first of IPv4, else the first. Blocks.
fn host_address(text: &str) -> Result<IpAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = runtime::net::lookup(text).map_err(|e| format!("--host: '{text}' does not resolve: {e}"))?;
    runtime::net::preferred(&found).ok_or_else(|| format!("--host: '{text}' has no address"))
}

/// Runs a command and gives what it prints. Blocks.
///
/// # Errors
/// In words for the user, when there is no such command or no such node, or the node refuses.
pub fn run(mut target: Target, words: Vec<String>) -> Result<Output, String> {
    let words = target.take_options(words)?;
    if let Some(help) = commands::help(&words)? {
        return Ok(help.into());
    }
    // What is wrong with the words is known without a node.
    if let Some((name, arguments)) = words.split_first() {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        commands::find(name)?.checked(&arguments)?;
    }
    let (address, shows_progress) = (target.address()?, target.shows_progress);
    let answer = Arc::new(Mutex::new(Err("the node did not answer".to_owned())));
    let result = answer.clone();
    runtime::run(runtime::Options::default(), move |_| {
        let (words, result) = (words.clone(), result.clone());
        Box::pin(async move {
            let executed = execute(address, shows_progress, &words).await;
            *result.lock().expect("no thread panics while holding the answer") = executed;
        })
    })
    .map_err(|e| e.to_string())?;
    answer
        .lock()
        .expect("no thread panics while holding the answer")
        .clone()
}

async fn execute(address: SocketAddr, shows_progress: bool, words: &[String]) -> Result<Output, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (name, arguments) = words.split_first().ok_or("expected a command")?;
    let command = commands::find(name)?;
    let arguments = command.checked(arguments)?;
    let mut client = Client::connect(address, shows_progress).await?;
    let client = &mut client;
    let text = match (command.name, arguments.as_slice()) {
        ("tasks", words) => return tasks::run(client, words).await,
        ("stop", [kind]) => tasks::stop(client, kind).await,
        ("status", ["-r" | "--resolve-ip", ..]) => {
            return Err(
                "status: -r is not supported: members are shown by address, host names are not looked up".to_owned(),
            );
        }
        ("status", words @ ([] | [_] | [_, _])) => cluster::status(client, Selected::of(words)).await,
        ("ring", words @ ([] | [_] | [_, _])) => cluster::ring(client, Selected::of(words)).await,
        ("describering", words @ ([_] | [_, _])) => cluster::describe_ring(client, Selected::of(words)).await,
        ("gossipinfo", []) => cluster::gossip_info(client).await,
        ("describecluster", []) => cluster::describe_cluster(client).await,
        ("confirmclock", []) => cluster::confirm_clock(client).await,
        ("info", []) => cluster::info(client).await,
        ("netstats", []) => cluster::net_stats(client).await,
        ("rebuild", words) => operations::rebuild(client, words).await,
        ("rebuild_index", [keyspace, table, indexes @ ..]) => {
            storage::rebuild_index(client, [keyspace, table], indexes).await
        }
        ("cleanup", words) => operations::cleanup(client, words).await,
        ("decommission", []) => operations::decommission(client).await,
        ("decommission", ["--abort"]) => operations::stay(client).await,
        ("removenode", ["status"]) => operations::removals(client).await,
        ("removenode", words) if !words.is_empty() => operations::remove_node(client, words).await,
        ("excludenode", hosts) if !hosts.is_empty() => operations::exclude_nodes(client, hosts).await,
        ("version", []) => cluster::version(client).await,
        ("proxyhistograms", []) => cluster::proxy_histograms(client).await,
        ("enablehandoff", []) => handoff::enable(client, true).await,
        ("disablehandoff", []) => handoff::enable(client, false).await,
        ("enablehintsfordc", [name]) => handoff::enable_datacenter(client, name, true).await,
        ("disablehintsfordc", [name]) => handoff::enable_datacenter(client, name, false).await,
        ("statushandoff", []) => handoff::status(client).await,
        ("pausehandoff", []) => handoff::pause(client, true).await,
        ("resumehandoff", []) => handoff::pause(client, false).await,
        ("getmaxhintwindow", []) => handoff::window(client).await,
        ("setmaxhintwindow", [ms]) => handoff::set_window(client, ms).await,
        ("truncatehints", hosts) => handoff::truncate(client, hosts).await,
        ("listpendinghints", []) => handoff::list(client).await,
        ("listrejectedhints", []) => handoff::list_rejected(client).await,
        ("clearrejectedhints", hosts) => handoff::clear_rejected(client, hosts).await,
        ("listmissedwrites", []) => handoff::list_missed(client).await,
        ("releasetombstones", hosts) => handoff::release_tombstones(client, hosts).await,
        ("flush", names) => storage::flush(client, names).await,
        ("compact", names) => storage::compact(client, names).await,
        ("movetablet", [keyspace, table, token, shard, hosts @ ..]) if hosts.len() <= 2 => {
            storage::move_tablet(client, [keyspace, table, token, shard], hosts).await
        }
        ("migrate-to-tablets", words) => conversion::migrate(client, words).await,
        ("cluster", words) => repair::repair_cluster(client, words).await,
        ("resizetable", [keyspace, table, count]) => storage::resize_table(client, [keyspace, table, count]).await,
        ("repair", words) => repair::repair(client, words).await,
        ("tabletbalancing", []) => storage::balance(client).await,
        ("tabletbalancing", ["on"]) => storage::set_balanced(client, true).await,
        ("tabletbalancing", ["off"]) => storage::set_balanced(client, false).await,
        ("snapshot", arguments) => storage::take_snapshot(client, arguments).await,
        ("listquarantined", []) => storage::list_quarantined(client).await,
        ("acceptquarantined", [keyspace, table]) => storage::accept_quarantined(client, keyspace, table).await,
        ("listsnapshots", []) => storage::list_snapshots(client).await,
        ("clearsnapshot", arguments) => storage::clear_snapshots(client, arguments).await,
        ("tablestats", names) => tables::stats(client, names).await,
        ("tablehistograms", [name]) if name.contains('.') => {
            let (keyspace, table) = name.split_once('.').unwrap_or((name, ""));
            tables::histograms(client, keyspace, table).await
        }
        ("tablehistograms", [keyspace, table]) => tables::histograms(client, keyspace, table).await,
        ("toppartitions", words) if !words.is_empty() => tables::top_partitions(client, words).await,
        ("compactionstats", words) => tables::compactions(client, words).await,
        ("compactionhistory", []) => tables::compaction_history(client).await,
        ("dynamodbkeys", []) => access_keys::list(client).await,
        ("dynamodbkeys", ["create"]) => access_keys::create(client).await,
        ("dynamodbkeys", ["activate", key]) => access_keys::set_status(client, key, "Active").await,
        ("dynamodbkeys", ["deactivate", key]) => access_keys::set_status(client, key, "Inactive").await,
        ("dynamodbkeys", ["delete", key]) => access_keys::delete(client, key).await,
        ("drain", []) => control::drain(client).await,
        ("enablebinary", []) => control::set_binary(client, true).await,
        ("disablebinary", []) => control::set_binary(client, false).await,
        ("statusbinary", []) => control::status(client, "/storage_service/native_transport").await,
        ("statusgossip", []) => control::status(client, "/storage_service/gossiping").await,
        ("enableautocompaction", names) => control::set_auto_compaction(client, names, true).await,
        ("disableautocompaction", names) => control::set_auto_compaction(client, names, false).await,
        ("statusautocompaction", names) => control::auto_compaction(client, names).await,
        ("gettraceprobability", []) => control::trace_probability(client).await,
        ("settraceprobability", [probability]) => control::set_trace_probability(client, probability).await,
        ("getseeds", []) => control::seeds(client).await,
        ("getendpoints", [keyspace, table, key]) => control::endpoints(client, [keyspace, table, key]).await,
        ("getsstables", [keyspace, table, key]) => control::sstables(client, [keyspace, table, key]).await,
        ("tpstats", []) => control::thread_pools(client).await,
        ("clientstats", words) => control::client_stats(client, words).await,
        ("getlogginglevels", []) => loggers::levels(client).await,
        ("setlogginglevel", []) => loggers::set_level(client, None, None).await,
        ("setlogginglevel", [module]) => loggers::set_level(client, Some(module), None).await,
        ("setlogginglevel", [module, level]) => loggers::set_level(client, Some(module), Some(level)).await,
        ("getcompactionthroughput", []) => storage::throughput(client).await,
        ("getstreamthroughput", []) => storage::stream_throughput(client, false).await,
        ("getstreamthroughput", ["-m" | "--mib"]) => storage::stream_throughput(client, true).await,
        ("setstreamthroughput", [limit]) => storage::set_stream_throughput(client, limit, false).await,
        ("setstreamthroughput", ["-m" | "--mib", limit]) => storage::set_stream_throughput(client, limit, true).await,
        ("setcompactionthroughput", [limit]) => storage::set_throughput(client, limit).await,
        _ => Err(command.usage()),
    };
    text.map(Output::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_is_found_where_it_is_said_to_be() {
        let target = |host: Option<&str>, port| Target {
            host: host.map(str::to_owned),
            port,
            workdir: Some(PathBuf::from("/nowhere")),
            shows_progress: false,
        };
        let told = |target: Target| target.address().map_or_else(|e| e, |address| address.to_string());
        assert_eq!(told(target(Some("127.0.0.2"), None)), "127.0.0.2:10000");
        assert_eq!(told(target(None, Some(7))), "127.0.0.1:7");
        assert_eq!(told(target(Some("::1"), Some(7))), "[::1]:7");
        assert!(told(target(Some("no-such-host.invalid"), None)).contains("does not resolve"));
        assert!(told(target(None, None)).contains("no node runs on /nowhere"));
        let anywhere = Target {
            workdir: None,
            ..target(None, None)
        };
        assert_eq!(told(anywhere), "127.0.0.1:10000", "where a node's API is by default");
    }

    #[test]
    fn options_that_name_a_node_may_follow_the_command() {
        let taken = |text: &str| {
            let mut target = Target {
                host: None,
                port: None,
                workdir: None,
                shows_progress: false,
            };
            let words = text.split_whitespace().map(str::to_owned).collect();
            let words = target.take_options(words)?;
            let named = format!("{:?} {:?} {:?}", target.host, target.port, target.workdir);
            Ok::<_, String>(format!("{}: {}", words.join(" "), named.replace("None", "-")))
        };
        for (text, expected) in [
            ("status ks", Ok("status ks: - - -")),
            ("status --host 10.0.0.2 ks", Ok("status ks: Some(\"10.0.0.2\") - -")),
            ("status -h 10.0.0.2 -p 7", Ok("status: Some(\"10.0.0.2\") Some(7) -")),
            ("compact --workdir=/w k", Ok("compact k: - - Some(\"/w\")")),
            ("repair -pr -hosts a k", Ok("repair -pr -hosts a k: - - -")),
            ("getendpoints -- k t -p", Ok("getendpoints -- k t -p: - - -")),
            ("status --port ten", Err("--port: expected a port, got 'ten'")),
            ("status -h", Err("-h: expected a value; --help prints help")),
        ] {
            assert_eq!(
                taken(text),
                expected.map(str::to_owned).map_err(str::to_owned),
                "{text}"
            );
        }
    }
}
