//! Log messages on standard error, one in a line: level, wall time, seconds since start, target, text.
//!
//! `INFO  2026-02-03 04:05:06.789    0.012 [node::start] …`. A message is one write, so that lines of shards do not mix.

use std::io::Write;

use log::{Level, LevelFilter, Log, Metadata, Record};
use runtime::Instant;

struct Logger {
    start: Instant,
}

/// Logs what is at least as severe as `level`, from here on.
pub fn start(level: LevelFilter) {
    let logger = Box::leak(Box::new(Logger { start: runtime::now() }));
    // There is one place that sets the logger; were there another, its logger would serve as well.
    if log::set_logger(logger).is_ok() {
        log::set_max_level(level);
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = line(
            record.level(),
            runtime::system_clock_us(),
            self.start.elapsed().as_millis(),
            record.target(),
            &record.args().to_string(),
        );
        // Nobody can be told that standard error is gone.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

fn line(level: Level, wall_us: i64, since_start_ms: u128, target: &str, text: &str) -> String {
    let (seconds, ms) = (wall_us.div_euclid(1_000_000), wall_us.rem_euclid(1_000_000) / 1_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = stdx::civil::date_of(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let (since, since_ms) = (since_start_ms / 1_000, since_start_ms % 1_000);
    // A text of several lines stays recognisable as one message.
    let text = text.trim_end().replace('\n', "\n    ");
    format!(
        "{level:<5} {year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{ms:03} {since:>5}.{since_ms:03} [{target}] {text}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_bad_when_where_and_what() {
        let cases = [
            (Level::Info, 0, 0, "INFO  1970-01-01 00:00:00.000     0.000 [t] x\n"),
            (
                Level::Error,
                951_782_399_999_999,
                12,
                "ERROR 2000-02-28 23:59:59.999     0.012 [t] x\n",
            ),
            (
                Level::Warn,
                951_782_400_000_000,
                1_500,
                "WARN  2000-02-29 00:00:00.000     1.500 [t] x\n",
            ),
            (
                Level::Info,
                1_735_689_599_001_000,
                86_400_000,
                "INFO  2024-12-31 23:59:59.001 86400.000 [t] x\n",
            ),
            (Level::Info, -1, 0, "INFO  1969-12-31 23:59:59.999     0.000 [t] x\n"),
        ];
        for (level, wall_us, since_ms, expected) in cases {
            assert_eq!(
                line(level, wall_us, since_ms, "t", "x"),
                expected,
                "{wall_us} us since 1970"
            );
        }
        let text = line(Level::Info, 0, 0, "t", "a\nb\n");
        assert_eq!(
            text, "INFO  1970-01-01 00:00:00.000     0.000 [t] a\n    b\n",
            "a message of two lines"
        );
    }
}
