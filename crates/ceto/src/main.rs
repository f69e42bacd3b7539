//! The ceto binary: a server, and the tools that come with it.
//!
//! Exit codes: 0 when the server has drained or the tool has done its work, 3 for the start of a node that has left its
//! cluster, 1 for any other error; a reason is printed on standard error in one line, or in one for each option that is
//! wrong. `nodetool tasks wait --quiet` has more, for how the task ended.

mod allocator;
mod cli;
mod pages;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use cli::{Cli, Command, Dynamodb, Perf, RecoverDirectory, RecoverMetadata, Sstable};
use config::{Config, Machine, ServerArgs};
use log::LevelFilter;
use node::StartError;

/// The exit code of a server that has left its cluster, or was removed: no start from its directories can succeed. The
/// systemd unit of docs/install.md does not restart it.
const HAS_LEFT: u8 = 3;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

fn main() -> ExitCode {
    perf::set_allocation_counter(allocator::count);
    runtime::set_memory_collector(runtime::MemoryCollector {
        of_thread: allocator::collect_thread,
        of_process: allocator::collect_process,
    });
    runtime::refuse_huge_pages();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(text) if !text.use_stderr() => {
            let told = put(text.render().to_string().as_bytes());
            return told.map_or_else(|message| fail(&message), |()| ExitCode::SUCCESS);
        }
        // A command without its subcommand: the list of them.
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprint!("{}", error.render());
            return ExitCode::FAILURE;
        }
        Err(error) => return fail(&cli::one_line(&error)),
    };
    let result = match cli.command {
        None => match serve(&cli.server) {
            Ok(code) => return code,
            Err(message) => Err(message),
        },
        Some(Command::Perf(command)) => measure(*command),
        Some(Command::Sstable(command)) => inspect(&command),
        Some(Command::Nodetool(nodetool)) => {
            let target = admin::nodetool::Target {
                host: nodetool.host,
                port: nodetool.port,
                workdir: nodetool.workdir,
                shows_progress: io::stdout().is_terminal(),
            };
            let executed = admin::nodetool::run(target, nodetool.words);
            match executed.and_then(|output| put(output.text.as_bytes()).map(|()| output.exit_code)) {
                Ok(0) => Ok(()),
                Ok(code) => return ExitCode::from(code),
                Err(message) => Err(message),
            }
        }
        Some(Command::Dynamodb(command)) => match *command {
            Dynamodb::Import(options) => dynamodb_import::run(&options, |line| eprintln!("{line}"))
                .and_then(|summary| put(summary.to_string().as_bytes())),
        },
        Some(Command::RecoverMetadata(recover)) => recover_metadata(recover),
        Some(Command::RecoverDirectory(recover)) => recover_directory(recover),
        Some(Command::Page { name }) => pages::page(name.as_deref()).and_then(|text| put(text.as_bytes())),
    };
    result.map_or_else(|message| fail(&message), |()| ExitCode::SUCCESS)
}

fn recover_metadata(recover: RecoverMetadata) -> Result<(), String> {
    let what = match &recover.follow {
        Some(epoch) => node::Recover::Follow(epoch.parse().map_err(|e| format!("--follow: {e}"))?),
        None if recover.rejoin => node::Recover::Rejoin,
        None => node::Recover::Alone,
    };
    let mut args = ServerArgs::default().with("workdir", path(&recover.workdir));
    args.mode.options_file = recover.options_file;
    args.set("ssl_storage_port", recover.ssl_storage_port);
    args.set("seeds", recover.seeds);
    let config = configuration(&args)?;
    let answer = node::recover_metadata(&config, what, recover.confirm.as_deref())?;
    put(answer.as_bytes())
}

fn recover_directory(recover: RecoverDirectory) -> Result<(), String> {
    let mut args = ServerArgs::default().with("workdir", path(&recover.workdir));
    args.mode.options_file = recover.options_file;
    args.set(
        "data_file_directories",
        recover.data_file_directories.as_deref().map(path),
    );
    args.set("commitlog_directory", recover.commitlog_directory.as_deref().map(path));
    let config = configuration(&args)?;
    let answer = node::recover_directory(&config, recover.accept, recover.confirm.as_deref())?;
    put(answer.as_bytes())
}

fn fail(message: &str) -> ExitCode {
    for line in message.trim_end().lines() {
        eprintln!("ceto: {line}");
    }
    ExitCode::FAILURE
}

/// The text of an option that names a path.
fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn configuration(args: &ServerArgs) -> Result<Config, String> {
    config::load(args, &Machine::detect()).map_err(|error| error.to_string())
}

fn serve(args: &ServerArgs) -> Result<ExitCode, String> {
    let config = configuration(args)?;
    if args.mode.print_config {
        return put(config::print(args).as_bytes()).map(|()| ExitCode::SUCCESS);
    }
    config.check_workdir()?;
    allocator::leave_purges_to_collector();
    let format = config.log_format;
    logging::start(format, config.log_level);
    let args = args.clone();
    let reread = move || config::load(&args, &Machine::detect()).map_err(|error| error.to_string());
    match node::start(config, Box::new(reread)) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            match format {
                // Every line on standard error is JSON from the first one on, the reason of the end too.
                logging::Format::Json => log::error!("the node ends: {error}"),
                logging::Format::Text => drop(fail(&error.to_string())),
            }
            Ok(match error {
                StartError::Failed(_) => ExitCode::FAILURE,
                StartError::HasLeft(_) => ExitCode::from(HAS_LEFT),
            })
        }
    }
}

fn measure(command: Perf) -> Result<(), String> {
    logging::start(logging::Format::Text, LevelFilter::Warn);
    let report = match command {
        Perf::SimpleQuery(options) => perf::simple_query::run(&options)?.to_string(),
        Perf::Items(options) => perf::items::run(&options)?.to_string(),
        Perf::MemoryFootprint(options) => perf::memory_footprint::run(&options)?.to_string(),
        Perf::Cql(options) => perf::cql_load::run(options)
            .map_err(|error| error.to_string())?
            .to_string(),
        Perf::Redis(options) => perf::redis_load::run(options)
            .map_err(|error| error.to_string())?
            .to_string(),
    };
    put(report.as_bytes())
}

fn inspect(command: &Sstable) -> Result<(), String> {
    match command {
        Sstable::Dump { files } => files.iter().try_for_each(|file| {
            let mut out = Output {
                inner: BufWriter::with_capacity(1 << 16, io::stdout().lock()),
                gone: false,
            };
            let seconds = u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(u32::MAX);
            let dumped = sstable::tool::dump(file, seconds, &mut out).map_err(|error| error.to_string());
            let flushed = dumped.and_then(|()| out.flush().map_err(|error| format!("standard output: {error}")));
            if out.gone { Ok(()) } else { flushed }
        }),
        Sstable::Verify { files } => files.iter().try_for_each(|file| {
            let report = sstable::tool::verify(file).map_err(|error| error.to_string())?;
            let text = format!(
                "{}: sound: {} partitions, {} rows, {} range tombstones, {} bytes of data\n",
                file.display(),
                report.partitions,
                report.rows,
                report.range_tombstones,
                report.data_len
            );
            put(text.as_bytes())
        }),
        Sstable::Metadata { files } => files.iter().try_for_each(|file| {
            let text = sstable::tool::metadata(file).map_err(|error| error.to_string())?;
            put(text.as_bytes())
        }),
    }
}

/// Writes a result to standard output.
fn put(bytes: &[u8]) -> Result<(), String> {
    let mut out = Output {
        inner: BufWriter::new(io::stdout().lock()),
        gone: false,
    };
    let written = out.write_all(bytes).and_then(|()| out.flush());
    if out.gone {
        Ok(())
    } else {
        written.map_err(|error| format!("standard output: {error}"))
    }
}

/// Standard output, and whether its reader has gone: `ceto sstable dump … | head` is no error.
struct Output<W> {
    inner: W,
    gone: bool,
}

impl<W: Write> Output<W> {
    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        self.gone |= result
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        result
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.inner.write(bytes);
        self.note(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.inner.flush();
        self.note(result)
    }
}
