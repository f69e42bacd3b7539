//! The CPU time of a process, as Linux reports it.

use std::io;

/// Clock ticks of `/proc/PID/stat` in a second: fixed by the kernel's interface on every architecture we run on.
const TICKS_PER_SECOND: u64 = 100;

/// User and system CPU time of all threads of a process, in microseconds, by steps of 10 ms.
pub(crate) fn cpu_time_us(pid: &str) -> io::Result<u64> {
    let path = format!("/proc/{pid}/stat");
    let stat = runtime::fs::read(&path).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
    parse_stat(&String::from_utf8_lossy(&stat))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: no CPU time in it")))
}

/// The program's name is in parentheses and may contain anything, so fields are counted from the last parenthesis.
fn parse_stat(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) * (1_000_000 / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_a_strange_program_name() {
        let stat = "1234 (a) b (c)) S 1 1234 1234 0 -1 4194560 3000 0 0 0 250 75 0 0 20 0 5 0 100 1000 200";
        assert_eq!(parse_stat(stat), Some(3_250_000));
        assert_eq!(parse_stat("1234 (java) S 1 2"), None);
        assert_eq!(parse_stat(""), None);
    }
}
