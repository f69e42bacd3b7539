//! The log of a process: messages go to standard error, one line each, as text or as JSON.
//!
//! [`start`] installs the logger. A message is one write, so lines of different shards do not mix. Levels are per
//! process, not per shard:
//!
//! - The *configured level* comes from the options (`default_log_level`). It applies to every module.
//! - [`set_level`] changes the level of the root or of one module while the process runs. A module's level also applies
//!   to the modules below it, and the longest matching path wins: with `rpc` at `warn` and `rpc::link` at `debug`,
//!   `rpc::link` logs at `debug`.
//! - [`configure`] (start and SIGHUP) and [`reset`] (`nodetool setlogginglevel` without arguments) drop all levels that
//!   were set, so the last action always wins.
//!
//! The last messages are kept for clients that read them ([`recent`]).
//!
//! A disabled message costs one comparison with `log::max_level`, the most verbose level of all modules.

mod levels;
mod line;
mod line_limit;
mod recent;

use std::io::Write;
use std::sync::{PoisonError, RwLock};

use levels::Levels;
pub use levels::{ROOT, UnknownModule};
pub use line_limit::LineLimit;
use log::{LevelFilter, Log, Metadata, Record};
pub use recent::{Logged, recent};
use runtime::Instant;

/// The form of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `INFO  2026-02-03 04:05:06.789    0.012 [node::start] message`: level, UTC time, seconds since the process
    /// began, module, message.
    Text,
    /// One JSON object per line: `time`, `level`, `module`, `shard`, `message`.
    Json,
}

static LEVELS: RwLock<Levels> = RwLock::new(Levels::new(LevelFilter::Info));

struct Logger {
    start: Instant,
    format: Format,
}

/// Installs the logger of this process. It logs messages at least as severe as `level`. A panic is logged as an error
/// if `format` is JSON, so that every line on standard error stays JSON.
pub fn start(format: Format, level: LevelFilter) {
    let logger = Box::leak(Box::new(Logger {
        start: runtime::now(),
        format,
    }));
    // Only this function sets the logger; had another done so, its logger would serve as well.
    if log::set_logger(logger).is_ok() {
        configure(level);
        if format == Format::Json {
            std::panic::set_hook(Box::new(|panic| log::error!("a thread {panic}")));
        }
    }
}

/// Changes the levels, and what `log` compares with before it asks.
fn change<T>(f: impl FnOnce(&mut Levels) -> T) -> T {
    // A panic in between leaves levels that are valid.
    let mut levels = LEVELS.write().unwrap_or_else(PoisonError::into_inner);
    let result = f(&mut levels);
    log::set_max_level(levels.most_verbose());
    result
}

/// Takes over the level of the options, and drops all levels set by [`set_level`].
pub fn configure(level: LevelFilter) {
    change(|levels| *levels = Levels::new(level));
}

/// Drops all levels set by [`set_level`]: every module logs at the configured level again.
pub fn reset() {
    change(Levels::reset);
}

/// Sets the level of a module and those below it, or of all modules without a level of their own if the name is
/// [`ROOT`]. `None` removes the level that was set.
///
/// # Errors
/// When no module of this name or below it logs anything.
pub fn set_level(module: &str, level: Option<LevelFilter>) -> Result<(), UnknownModule> {
    change(|levels| levels.set(module, level))
}

/// The effective level of a module, or of [`ROOT`].
///
/// # Errors
/// When no module of this name or below it logs anything.
pub fn level(module: &str) -> Result<LevelFilter, UnknownModule> {
    let levels = LEVELS.read().unwrap_or_else(PoisonError::into_inner);
    levels.get(module)
}

/// [`ROOT`] and the modules that have a level of their own.
#[must_use]
pub fn names() -> Vec<String> {
    let levels = LEVELS.read().unwrap_or_else(PoisonError::into_inner);
    levels.names()
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let levels = LEVELS.read().unwrap_or_else(PoisonError::into_inner);
        metadata.level() <= levels.of_target(metadata.target())
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let (level, wall_us, module) = (record.level(), runtime::system_clock_us(), record.target());
        let message = record.args().to_string();
        let line = match self.format {
            Format::Text => line::text(level, wall_us, self.start.elapsed().as_millis(), module, &message),
            Format::Json => line::json(level, wall_us, runtime::try_shard(), module, &message),
        };
        recent::keep(record, wall_us, &message);
        // If standard error is gone, there is no place to report it.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}
