//! What `nodetool` can do: each command with its arguments and its help.

use super::words::{is_option, unknown_option};

/// A command.
pub(super) struct Command {
    pub(super) name: &'static str,
    /// Other names, which Cassandra or ScyllaDB know it by.
    pub(super) aliases: &'static [&'static str],
    pub(super) arguments: &'static str,
    /// In one line.
    about: &'static str,
    /// More, for the command's own help.
    details: &'static str,
    options: Options,
}

/// Which options a command takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Options {
    /// These; none if there are none.
    These(&'static [&'static str]),
    /// Those that the command reads by itself.
    ReadByCommand,
}

/// A command that has no meaning here: its name and why.
type Refused = (&'static str, &'static str);

const fn command(name: &'static str, arguments: &'static str, about: &'static str) -> Command {
    Command {
        name,
        aliases: &[],
        arguments,
        about,
        details: "",
        options: Options::These(&[]),
    }
}

impl Command {
    const fn or(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    const fn with(mut self, details: &'static str) -> Self {
        self.details = details;
        self
    }

    /// The command refuses an unknown option by itself.
    const fn reads_options(mut self) -> Self {
        self.options = Options::ReadByCommand;
        self
    }

    const fn options(mut self, options: &'static [&'static str]) -> Self {
        self.options = Options::These(options);
        self
    }

    /// The words without a `--` that ends the options.
    ///
    /// # Errors
    /// For an option that the command does not take.
    pub(super) fn checked<'w>(&self, words: &[&'w str]) -> Result<Vec<&'w str>, String> {
        let Options::These(known) = self.options else {
            return Ok(words.to_vec());
        };
        let end = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        let (before, after) = (&words[..end], words.get(end + 1..).unwrap_or_default());
        match before.iter().find(|word| is_option(word) && !known.contains(word)) {
            Some(unknown) => {
                let everywhere = ["--host", "--port", "--workdir", "--help"];
                let why = unknown_option(unknown, known.iter().chain(&everywhere).copied());
                Err(format!("{}: {why}; {}", self.name, self.usage()))
            }
            None => Ok([before, after].concat()),
        }
    }

    /// How it is called.
    pub(super) fn usage(&self) -> String {
        let text = format!("usage: ceto nodetool {} {}", self.name, self.arguments);
        text.trim_end().to_owned()
    }

    /// Everything about it.
    fn help(&self) -> String {
        let mut text = format!("{}\n\n{}\n", self.usage(), self.about);
        if !self.details.is_empty() {
            text.push_str(&format!("\n{}\n", self.details));
        }
        if !self.aliases.is_empty() {
            text.push_str(&format!("\nAlso called {}.\n", self.aliases.join(", ")));
        }
        text
    }
}

const NODES: &str = "A node is named by its address or host id.";
const TABLES: &str = "Without a keyspace: all keyspaces. Without a table: all tables of the keyspace.";
const MEBIBYTES: &[&str] = &["-m", "--mib"];
const KEY: &str = "KEY is the partition key as CQL writes its value, without quotes. Values of several columns are separated by colons.";

pub(super) const COMMANDS: &[Command] = &[
    command("acceptquarantined", "KEYSPACE TABLE", "Read a table again without its quarantined sstables")
        .with("What these sstables had is lost on this node. See `ceto page damaged-sstables`."),
    command("cleanup", "[KEYSPACE [TABLE…]]", "Remove data of tokens that the node does not own").reads_options().with(
        "The node removes data of its former token ranges by itself, auto_cleanup_delay_in_seconds after the last change of the token ring. This does it now, and deletes files that a \
         start has set aside. Tablets that move away leave nothing on disk. Without a keyspace: all keyspaces of users. Options of Cassandra's command (-j) are taken and have no effect.",
    ),
    command("clearrejectedhints", "[NODE…]", "Delete hints that some nodes, or all, have refused permanently").with(NODES),
    command("clearsnapshot", "[-t TAG] [--all] [KEYSPACE…]", "Delete snapshots")
        .reads_options()
        .with("-t TAG   the snapshot's name\n--all    all snapshots\nOne of the two is required."),
    command("clientstats", "[--all] [--by-protocol]", "Print the connections of CQL clients")
        .reads_options()
        .with("--all          a line for each connection\n--by-protocol  connections by version of the protocol"),
    command("cluster", super::repair::CLUSTER_USAGE, "Repair the ranges of every node, and wait until all replicas are equal")
        .reads_options()
        .with("See `ceto page repair`."),
    command("compact", "[KEYSPACE [TABLE…]]", "Merge the sstables of each tablet into one").with(TABLES),
    command("compactionhistory", "", "Print the compactions of the last seven days that ended well")
        .with("The same is in the table system.compaction_history. A restart does not lose it."),
    command("compactionstats", "[-H]", "Print compactions that run or wait")
        .reads_options()
        .with("-H, --human-readable   bytes as KiB, MiB, …"),
    command("confirmclock", "", "Confirm that the node's wall clock is right after it was set").with("See `ceto page clocks`."),
    command("decommission", "[--abort]", "Give the node's tablets to others and leave the cluster").options(&["--abort"]).with(
        "The node stops when it has left. --abort cancels the departure, if its ranges of the token ring do not belong to other nodes yet. See \
         `ceto page remove-node`.",
    ),
    command("describecluster", "", "Print name, snitch and schema versions of the cluster"),
    command("describering", "KEYSPACE [TABLE]", "Print token ranges and their replicas"),
    command("disableautocompaction", "[KEYSPACE [TABLE…]]", "Disable automatic compaction").with(
        "Without a keyspace: all tables that exist now. Running compactions continue, and `compact` still works. A restart enables compactions again.",
    ),
    command("disablebinary", "", "Close the connections of CQL clients and accept no new ones")
        .with("Requests that were read are answered first. The node remains a replica. A restart enables it again."),
    command("disablehandoff", "", "Keep no hints for nodes that miss writes"),
    command("disablehintsfordc", "DATACENTER", "Keep no hints for nodes of a datacenter"),
    command("drain", "", "Stop serving, flush everything, and stay until the process is stopped").with(
        "The node notifies the other nodes, which then treat it as down, closes the connections of clients, and writes its memtables to sstables. It serves \
         nothing until it is restarted; `nodetool` still answers. SIGTERM does the same and ends the process.",
    ),
    command("dynamodbkeys", super::access_keys::USAGE, "Print the access keys of the DynamoDB API, or change them").with(
        "create prints the new key with its secret, which is not shown again. A key that was deactivated or deleted is refused by all nodes within ten seconds. See `ceto page dynamodb-port`.",
    ),
    command("enableautocompaction", "[KEYSPACE [TABLE…]]", "Enable automatic compaction again").with(TABLES),
    command("enablebinary", "", "Listen for CQL clients again"),
    command("enablehandoff", "", "Keep hints again"),
    command("enablehintsfordc", "DATACENTER", "Keep hints for nodes of a datacenter again"),
    command("excludenode", "HOST_ID…", "Declare that members are down permanently").with(
        "Nothing waits for them any more, and they may not come back. They keep what they own until they are removed or replaced. Only a node that is \
         down can be excluded. See `ceto page remove-node`.",
    ),
    command("flush", "[KEYSPACE [TABLE…]]", "Write memtables to sstables").with(TABLES),
    command("getcompactionthroughput", "", "Print the limit of what compactions write"),
    command("getendpoints", "KEYSPACE TABLE KEY", "Print the addresses of the replicas of a partition").with(KEY),
    command("getlogginglevels", "", "Print the log level of the node, and those of modules that have one of their own").or(&["getlogginglevel"]),
    command("getmaxhintwindow", "", "Print how long hints are kept for a node that is down"),
    command("getseeds", "", "Print the addresses that the node asks for its cluster when it starts"),
    command("getsstables", "KEYSPACE TABLE KEY", "Print the data files of this node that have a partition").with(KEY),
    command("getstreamthroughput", "[-m]", "Print the limit of what streams move, in megabits per second or with -m in MiB per second").options(MEBIBYTES),
    command("gettraceprobability", "", "Print the fraction of requests that is traced"),
    command("gossipinfo", "", "Print what the node knows of each member"),
    command("info", "", "Print load, uptime and memory of the node"),
    command("listmissedwrites", "", "List why tombstones are kept beyond the grace period"),
    command("listpendinghints", "", "List the nodes that hints wait for"),
    command("listquarantined", "", "List damaged sstables that were moved aside; reads of their tokens are refused"),
    command("listrejectedhints", "", "List the nodes that have refused hints permanently"),
    command("listsnapshots", "", "List snapshots and their sizes"),
    command("migrate-to-tablets", super::conversion::USAGE, "Convert a keyspace from the token ring to tablets while it serves").with(
        "start begins, as ALTER KEYSPACE … WITH tablets = {'enabled': true} does; status prints what the tables are; finalize waits until all have tablets. No node has to be \
         restarted. See `ceto page change-replication`.",
    ),
    command(
        "movetablet",
        "KEYSPACE TABLE TOKEN SHARD [HOST_ID [TO_HOST_ID]]",
        "Move a tablet to another shard of its node, or to another node",
    )
        .with("See `ceto page move-tablets`."),
    command("netstats", "", "Print the node's mode, its operations, and its messages to other nodes"),
    command("pausehandoff", "", "Send no hints"),
    command("proxyhistograms", "", "Print latencies of requests that the node coordinates"),
    command("rebuild", super::operations::REBUILD_USAGE, "Copy the data of the node's replicas again from other replicas").reads_options().with(
        "The node's present data stays and is merged with the copies. Without --source-dc the nearest replicas are copied, otherwise those of the datacenter: as many as a write at QUORUM may have missed. \
         NAME is a keyspace, or a datacenter as in Cassandra's command. `tasks list streaming` shows it, and `tasks abort` stops it.",
    ),
    command("rebuild_index", "KEYSPACE TABLE [INDEX…]", "Make the files of a table's secondary indexes on this node again").with(
        "Without INDEX: all indexes of the table. Queries continue: they look through the sstables whose file is not made yet. `compactionstats` shows the progress, and `tasks abort` stops it. \
         The node builds files that are missing or damaged by itself.",
    ),
    command("releasetombstones", "[NODE…]", "Declare that some nodes, or all, have what this node reports as missed").with(NODES),
    command(
        "removenode",
        "[--ignore-dead-nodes NODE,…] HOST_ID | status",
        "Permanently remove a node that is down, and rebuild its copies, if that loses no data",
    )
    .reads_options()
    .with("The ignored dead nodes are excluded, see excludenode. See `ceto page remove-node`."),
    command("repair", super::repair::USAGE, "Make the replicas of the node's ranges equal, and print what differed")
        .reads_options()
        .with("See `ceto page repair`."),
    command("resizetable", "KEYSPACE TABLE TABLETS", "Split each tablet of a table in two, or merge each pair")
        .with("TABLETS is twice as many as the table has, or half. While balancing is on, the cluster may change it again. See `ceto page move-tablets`."),
    command("resumehandoff", "", "Send hints again"),
    command("ring", "[KEYSPACE [TABLE]]", "Print tokens and their nodes"),
    command("setcompactionthroughput", "MB", "Limit what compactions write, in MiB per second; 0 for no limit"),
    command("setlogginglevel", "[MODULE [LEVEL]]", "Set the log level of a module, or of ROOT")
        .or(&["setlogginglevels"])
        .with("Without LEVEL the level of the module is removed; without MODULE all levels are those of the options again. SIGHUP does that, too."),
    command("setmaxhintwindow", "MS", "Set how long hints are kept for a node that is down, in milliseconds"),
    command("setstreamthroughput", "[-m] LIMIT", "Limit what streams to and from other nodes move, in megabits per second or with -m in MiB per second; 0 for no limit")
        .options(MEBIBYTES),
    command("settraceprobability", "PROBABILITY", "Trace this fraction of the requests, 0 to 1")
        .with("Traces are in system_traces.sessions and system_traces.events for a day. A restart resets it."),
    command(
        "snapshot",
        "[-t TAG] [--ttl TIME] [-sf] [-cf TABLE,…] [-kt KEYSPACE.TABLE,…] [KEYSPACE…]",
        "Keep the sstables as they are now",
    )
    .with(
        "-t TAG                     the snapshot's name; the time in milliseconds without it\n--ttl TIME                 delete it after a time such as 30d\n\
         -sf, --skip-flush          leave out what is in memory alone\n-cf, --table TABLE,…       of these tables of the one keyspace\n\
         -kt, --kt-list, -kc, --kc.list KEYSPACE.TABLE,…   of these tables",
    )
    .reads_options(),
    command("status", "[KEYSPACE [TABLE]]", "Print state, load and share of each member").options(&["-r", "--resolve-ip"]).with(
        "Load is the bytes of a member's sstables; ? for one that does not answer. Owns is the share of the keyspace's data, replicas counted.",
    ),
    command("statusautocompaction", "[KEYSPACE [TABLE…]]", "Print whether tables have automatic compaction").with(TABLES),
    command("statusbinary", "", "Print whether the node listens for CQL clients: running or not running"),
    command("statusgossip", "", "Print whether the node exchanges liveness with the others: running").with(
        "Members watch each other with a failure detector of their own, which runs as long as the process; it cannot be switched off.",
    ),
    command("statushandoff", "", "Print whether hints are kept and sent"),
    command("stop", "COMPACTION", "Abort all compactions that run or wait"),
    command("tablehistograms", "KEYSPACE TABLE", "Print percentiles of a table's latencies, partitions and reads")
        .or(&["cfhistograms"])
        .with(
            "SSTables: sstables that a read of a partition looks into. Latencies are those of requests that this node coordinates; requests that memory \
             answers are sampled. Partition size and cell count are those of each sstable's partitions. Since the node started.",
        ),
    command("tablestats", "[-H] [KEYSPACE[.TABLE]…]", "Print what the node has of each table").or(&["cfstats"]).options(&["-H", "--human-readable"]).with(
        "-H, --human-readable   bytes as KiB, MiB, …\nLatencies are those of requests that this node coordinates; requests that memory answers are sampled. Rows and tombstones per read are of \
         reads of a partition, but for single rows. Counted since the node started.",
    ),
    command("tabletbalancing", "[on|off]", "Print whether the cluster balances tablets among nodes and shards, or switch that on or off")
        .with("See `ceto page move-tablets`."),
    command("tasks", "list|tree|status|wait|abort|modules|ttl|user-ttl|drain|limits …", "List, watch, abort and limit long work")
        .reads_options()
        .with(super::tasks::USAGE),
    command(
        "toppartitions",
        "KEYSPACE TABLE MILLISECONDS [-s CAPACITY] [-k COUNT] [-a READS,WRITES]",
        "Count for a time which partitions of a table are read and written most",
    )
    .reads_options()
    .with(
        "-s CAPACITY   partitions that each shard keeps; 256 without it\n-k COUNT      partitions that are printed; 10 without it\n-a SAMPLERS   READS, \
         WRITES or both\nRequests that this node does as a replica are counted.",
    ),
    command("tpstats", "", "Print how much work of each kind runs, waits and has ended"),
    command("truncatehints", "[NODE…]", "Delete hints: those for some nodes, or all").with(NODES),
    command("version", "", "Print the release of Cassandra that the node is compatible with"),
];

const NO_GOSSIP: &str = "there is no gossip that could be switched off: members watch each other with a failure detector, which runs as long as the \
                         process. `disablebinary` stops accepting clients, `drain` takes the node out of its cluster's traffic";

const REFUSED: &[Refused] = &[("disablegossip", NO_GOSSIP), ("enablegossip", NO_GOSSIP)];

/// The command of a name.
///
/// # Errors
/// When there is none, or it has no meaning here.
pub(super) fn find(name: &str) -> Result<&'static Command, String> {
    if let Some(found) = COMMANDS
        .iter()
        .find(|command| command.name == name || command.aliases.contains(&name))
    {
        return Ok(found);
    }
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return Err(format!("{name}: {why}"));
    }
    let names = COMMANDS
        .iter()
        .flat_map(|command| std::iter::once(&command.name).chain(command.aliases));
    let nearest = stdx::nearest(name, names.copied());
    let nearest = nearest.map_or_else(String::new, |known| format!(" did you mean '{known}'?"));
    Err(format!(
        "unknown command '{name}';{nearest} `ceto nodetool help` lists all"
    ))
}

/// The help that words ask for: `help`, `help COMMAND`, or `COMMAND … --help`. None: they ask for none.
///
/// # Errors
/// When there is no such command.
pub(super) fn help(words: &[String]) -> Result<Option<String>, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["help"] => Ok(Some(usage())),
        ["help", name, ..] => Ok(Some(find(name)?.help())),
        [name, rest @ ..] if rest.contains(&"--help") => Ok(Some(find(name)?.help())),
        _ => Ok(None),
    }
}

fn usage() -> String {
    let mut text = "usage: ceto nodetool [--host ADDRESS] [--port PORT] [--workdir DIR] COMMAND\n\nThe node is the one whose workdir is DIR, or is at ADDRESS and PORT of its REST API; without options that of ./data, \
         else that at 127.0.0.1, port 10000. The options may follow the command too.\n\n"
        .to_owned();
    for command in COMMANDS {
        let synopsis = format!("{} {}", command.name, command.arguments);
        text.push_str(&format!("    {synopsis:<56} {}\n", command.about));
    }
    text.push_str("\n`ceto nodetool help COMMAND` prints more about a command.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str) -> Result<Option<String>, String> {
        help(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn help_lists_every_command_and_each_has_its_own() {
        let all = asked("help").expect("help is there").expect("it was asked for");
        for command in COMMANDS {
            assert!(all.contains(command.name), "{} is not in the help", command.name);
            for words in [format!("help {}", command.name), format!("{} --help", command.name)] {
                let help = asked(&words)
                    .expect("the command is known")
                    .expect("help was asked for");
                assert!(
                    help.starts_with(&command.usage()) && help.contains(command.about),
                    "{words}: {help}"
                );
            }
        }
        assert_eq!(asked("status ks"), Ok(None));
        assert_eq!(asked(""), Ok(Some(all)), "without a command there is the list of them");
    }

    #[test]
    fn commands_are_in_order_and_no_name_is_there_twice() {
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
        let names = COMMANDS
            .iter()
            .flat_map(|command| std::iter::once(command.name).chain(command.aliases.iter().copied()));
        let mut names: Vec<&str> = names.chain(REFUSED.iter().map(|(name, _)| *name)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn what_has_no_meaning_here_is_refused_with_the_reason() {
        for words in ["help disablegossip", "enablegossip --help"] {
            let refused = asked(words).expect_err("it is refused");
            assert!(refused.contains("failure detector"), "{refused}");
        }
        assert_eq!(
            find("enablegossip").err().as_deref().map(|e| e.contains("no gossip")),
            Some(true)
        );
        assert_eq!(find("cfstats").map(|command| command.name), Ok("tablestats"));
        let unknown = |name: &str| find(name).err().unwrap_or_default();
        assert_eq!(
            unknown("frobnicate"),
            "unknown command 'frobnicate'; `ceto nodetool help` lists all"
        );
        assert_eq!(
            unknown("tablestat"),
            "unknown command 'tablestat'; did you mean 'tablestats'? `ceto nodetool help` lists all"
        );
    }

    #[test]
    fn an_option_that_a_command_does_not_take_is_refused() {
        let checked = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let (name, words) = words.split_first().expect("a command");
            find(name)?.checked(words).map(|words| words.join(" "))
        };
        for (text, expected) in [
            ("status ks t", Ok("ks t")),
            ("tablestats -H ks", Ok("-H ks")),
            ("getendpoints ks t -5", Ok("ks t -5")),
            (
                "movetablet ks t -9223372036854775808 1",
                Ok("ks t -9223372036854775808 1"),
            ),
            ("getendpoints -- ks t -key", Ok("ks t -key")),
            ("repair -st 1", Ok("-st 1")),
            (
                "status -x",
                Err("status: unknown option -x; usage: ceto nodetool status [KEYSPACE [TABLE]]"),
            ),
            (
                "tablestats --human-readble",
                Err(
                    "tablestats: unknown option --human-readble; did you mean --human-readable?; usage: ceto nodetool tablestats [-H] [KEYSPACE[.TABLE]…]",
                ),
            ),
            (
                "compact -st 1 -et 2",
                Err("compact: unknown option -st; usage: ceto nodetool compact [KEYSPACE [TABLE…]]"),
            ),
            (
                "info --prot",
                Err("info: unknown option --prot; did you mean --port?; usage: ceto nodetool info"),
            ),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(checked(text), expected, "{text}");
        }
    }

    #[test]
    fn the_pages_show_commands_and_options_that_are_there() {
        let docs = std::path::PathBuf::from(testkit::path!("../../docs"));
        let mut shown = 0;
        for dir in ["", "operating", "dev"].map(|dir| docs.join(dir)) {
            let entries = runtime::fs::read_dir(&dir).expect("the pages are there");
            for page in entries.iter().filter(|entry| entry.name.ends_with(".md")) {
                let text = runtime::fs::read(dir.join(&page.name)).expect("a page");
                let text = String::from_utf8(text).expect("text");
                for call in text.split("ceto nodetool ").skip(1) {
                    // Up to what is said of it.
                    let end = call.find(|c| "`\n(;,.|…".contains(c)).unwrap_or(call.len());
                    let call = call[..end].split("  ").next().unwrap_or_default();
                    let words: Vec<&str> = call
                        .split_whitespace()
                        .map(|word| word.trim_matches(['[', ']']))
                        .collect();
                    let Some((name, words)) = words
                        .split_first()
                        .filter(|(name, _)| !name.starts_with('-') && **name != "help")
                    else {
                        continue;
                    };
                    let checked = find(name).and_then(|command| command.checked(words).map(drop));
                    assert_eq!(checked, Ok(()), "{}: ceto nodetool {call}", page.name);
                    shown += 1;
                }
            }
        }
        assert!(shown > 100, "only {shown} commands are on the pages");
    }
}
