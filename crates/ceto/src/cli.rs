//! The command line: `ceto [server options]`, or one of the commands.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use config::ServerArgs;

/// A distributed wide-column database. Without a command it is a server, until SIGTERM.
#[derive(Parser, Debug)]
#[command(
    name = "ceto",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
#[command(override_usage = "ceto --workdir DIR [SERVER OPTIONS]\n       ceto <COMMAND> …")]
#[command(max_term_width = 120)]
pub struct Cli {
    /// How to serve.
    #[command(flatten)]
    pub server: ServerArgs,
    /// What else to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What is not serving.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Measure: benches inside this process, and load on servers
    #[command(subcommand, arg_required_else_help = true)]
    Perf(Box<Perf>),
    /// Look into sstable files
    #[command(subcommand, arg_required_else_help = true)]
    Sstable(Sstable),
    /// Query or command a running node
    #[command(disable_help_flag = true)]
    Nodetool(Nodetool),
    /// Move data of Amazon DynamoDB into a table of a running node
    #[command(subcommand, arg_required_else_help = true)]
    Dynamodb(Box<Dynamodb>),
    /// Remove permanently lost voters from the metadata group, or take lost metadata from the members; run it while
    /// this node is stopped
    RecoverMetadata(RecoverMetadata),
    /// Accept that what a directory of the node had is lost, and start without it; run it while this node is stopped
    RecoverDirectory(RecoverDirectory),
    /// Print a page of the documentation, such as remove-node; without a name the list of pages
    Page {
        /// The page
        name: Option<String>,
    },
}

/// `ceto recover-directory`.
#[derive(Args, Debug)]
pub struct RecoverDirectory {
    /// The node's workdir
    #[arg(short = 'W', long, value_name = "DIR")]
    pub workdir: PathBuf,
    /// YAML file that the node is started with; it says where the directories are [default: ceto.yaml in the workdir,
    /// if it is there]
    #[arg(long, value_name = "FILE")]
    pub options_file: Option<PathBuf>,
    /// Directory of sstables, as the node is started with
    #[arg(long, value_name = "DIR")]
    pub data_file_directories: Option<PathBuf>,
    /// Directory of the commitlog, as the node is started with
    #[arg(long, value_name = "DIR")]
    pub commitlog_directory: Option<PathBuf>,
    /// The directory whose content is lost
    #[arg(long, value_name = "DIRECTORY")]
    pub accept: node::Directory,
    /// The sentence that is printed without this option; nothing is changed without it
    #[arg(long, value_name = "SENTENCE")]
    pub confirm: Option<String>,
}

/// `ceto recover-metadata`.
#[derive(Args, Debug)]
pub struct RecoverMetadata {
    /// The node's workdir
    #[arg(short = 'W', long, value_name = "DIR")]
    pub workdir: PathBuf,
    /// YAML file that the node is started with; it says how other nodes are reached [default: ceto.yaml in the workdir,
    /// if it is there]
    #[arg(long, value_name = "FILE")]
    pub options_file: Option<PathBuf>,
    /// Port for other nodes' TLS connections, as the node is started with
    #[arg(long, value_name = "PORT")]
    pub ssl_storage_port: Option<String>,
    /// Follow the node that was recovered and began this epoch, instead of being that node
    #[arg(long, value_name = "EPOCH", conflicts_with = "rejoin")]
    pub follow: Option<String>,
    /// Take the metadata from the other members, on a node that has lost its own or its metadata log
    #[arg(long)]
    pub rejoin: bool,
    /// Members to ask, with --rejoin, separated by commas [default: as the options file and the node's own metadata
    /// say]
    #[arg(long, value_name = "ADDRESSES", requires = "rejoin")]
    pub seeds: Option<String>,
    /// The sentence that is printed without this option; nothing is changed without it
    #[arg(long, value_name = "SENTENCE")]
    pub confirm: Option<String>,
}

/// `ceto perf`.
#[derive(Subcommand, Debug)]
pub enum Perf {
    /// Reads, writes or deletes inside this process, without a network
    SimpleQuery(perf::simple_query::Options),
    /// Operations of the DynamoDB API inside this process, without a network
    Items(perf::items::Options),
    /// Bytes that the same rows take in memory and on disk
    MemoryFootprint(perf::memory_footprint::Options),
    /// Load on a CQL server
    Cql(perf::cql_load::Options),
    /// Load on a Redis server
    Redis(perf::redis_load::Options),
}

/// `ceto dynamodb`.
#[derive(Subcommand, Debug)]
pub enum Dynamodb {
    /// Import an export to S3, full or incremental, that was copied to this machine
    Import(dynamodb_import::Options),
}

/// `ceto sstable`.
#[derive(Subcommand, Debug)]
pub enum Sstable {
    /// Print partitions and rows as JSON
    Dump {
        /// A component of the sstable, such as me-1-big-Data.db
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Check every checksum, row and index entry
    Verify {
        /// A component of the sstable, such as me-1-big-Data.db
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Print what the metadata says
    Metadata {
        /// A component of the sstable, such as me-1-big-Data.db
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// `ceto nodetool`.
#[derive(Args, Debug)]
pub struct Nodetool {
    /// Address or name of the host where the node's REST API listens [default: as the workdir says, else 127.0.0.1]
    #[arg(short = 'h', long, value_name = "ADDRESS")]
    pub host: Option<String>,
    /// Its port [default: as the workdir says, else 10000]
    #[arg(short = 'p', long, value_name = "PORT")]
    pub port: Option<u16>,
    /// The workdir of a node on this machine, which says where its API listens [default: data, if a node runs there]
    #[arg(short = 'W', long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    pub help: Option<bool>,
    /// What to do, such as status, and its arguments; without any, what there is
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// A refused command line in one line: what is wrong, and what the parser would suggest.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let told = lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let told: Vec<&str> = told.collect();
    told.join("; ").trim_start_matches("error: ").replace(":; ", ": ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_are_told_from_server_options() {
        let parse = |words: &str| Cli::try_parse_from(std::iter::once("ceto").chain(words.split_whitespace()));
        let server = parse("--smp 2 --developer-mode 1 --overprovisioned -m 1G").map(|cli| cli.command.is_none());
        assert!(matches!(server, Ok(true)), "server options alone serve: {server:?}");
        let nodetool = parse("nodetool -W /w setcompactionthroughput 16").map(|cli| cli.command);
        let Ok(Some(Command::Nodetool(nodetool))) = nodetool else {
            panic!("nodetool is a command: {nodetool:?}");
        };
        assert_eq!(nodetool.workdir, Some(PathBuf::from("/w")));
        assert_eq!(nodetool.words, ["setcompactionthroughput", "16"]);
    }

    #[test]
    fn a_refused_command_line_is_told_in_one_line() {
        let cases = [
            (
                "--smpp 2",
                "unexpected argument '--smpp' found; tip: a similar argument exists: '--smp'",
            ),
            ("perf nothing", "unrecognized subcommand 'nothing'"),
            ("--smp", "a value is required for '--smp <N>' but none was supplied"),
            (
                "sstable dump",
                "the following required arguments were not provided: <FILES>...",
            ),
        ];
        for (words, expected) in cases {
            let error = Cli::try_parse_from(std::iter::once("ceto").chain(words.split_whitespace()));
            let error = error.expect_err("these words are no command line");
            assert_eq!(one_line(&error), expected, "command line '{words}'");
        }
    }
}
