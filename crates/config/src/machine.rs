//! What the machine offers, after the limits that a container or a service manager set.

use runtime::fs;

use super::value;

/// The machine as a process may use it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The processors that the process may run on, by the kernel's numbers.
    pub cpus: Vec<usize>,
    /// Processors' worth of time that a limit grants, rounded down, at least 1; None without a limit.
    pub cpu_quota: Option<u32>,
    /// Memory in bytes: the machine's, or the limit of a control group when that is lower.
    pub memory_bytes: u64,
}

impl Machine {
    /// Reads `/proc` and `/sys/fs/cgroup`. What cannot be read does not limit.
    #[must_use]
    pub fn detect() -> Self {
        Self::from_texts(|path| fs::read(path).ok().and_then(|bytes| String::from_utf8(bytes).ok()))
    }

    /// The machine as the kernel's files describe it; `text` returns the text of a file by its path.
    pub(super) fn from_texts(text: impl Fn(&str) -> Option<String>) -> Self {
        let cpus = text("/proc/self/status")
            .and_then(|t| field(&t, "Cpus_allowed_list:").and_then(value::cpu_list))
            .filter(|cpus| !cpus.is_empty())
            .unwrap_or_else(|| vec![0]);
        let total = text("/proc/meminfo")
            .and_then(|t| field(&t, "MemTotal:").and_then(value::size))
            .unwrap_or(MEMORY_UNKNOWN);
        let groups = group_paths(&text("/proc/self/cgroup").unwrap_or_default());
        let limits = groups.iter().filter_map(|group| {
            let limit = text(&format!("/sys/fs/cgroup{group}/memory.max"))
                .or_else(|| text(&format!("/sys/fs/cgroup/memory{group}/memory.limit_in_bytes")))?;
            limit.trim().parse::<u64>().ok()
        });
        let memory_bytes = limits.fold(total, u64::min);
        let cpu_quota = groups
            .iter()
            .filter_map(|group| quota(&text(&format!("/sys/fs/cgroup{group}/cpu.max"))?))
            .min();
        Self {
            cpus,
            cpu_quota,
            memory_bytes,
        }
    }

    /// How many shards use the machine fully.
    #[must_use]
    pub fn shards(&self) -> u32 {
        let cpus = u32::try_from(self.cpus.len()).unwrap_or(u32::MAX);
        self.cpu_quota.map_or(cpus, |quota| quota.min(cpus))
    }
}

/// Taken when the kernel does not say how much memory there is.
const MEMORY_UNKNOWN: u64 = 1 << 30;

/// The rest of the line that starts with a name.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The process's control group and all above it: a limit on any of them holds.
fn group_paths(text: &str) -> Vec<String> {
    let mut groups = vec![String::new()];
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if !controllers.is_empty() && !controllers.split(',').any(|c| c == "memory") {
            continue;
        }
        let mut path = path.trim_end_matches('/');
        while !path.is_empty() {
            groups.push(path.to_owned());
            path = &path[..path.rfind('/').unwrap_or(0)];
        }
    }
    groups
}

/// `max 100000` or `150000 100000`: time in each period, both in microseconds.
fn quota(text: &str) -> Option<u32> {
    let (time, period) = text.trim().split_once(' ')?;
    let (time, period) = (time.parse::<u64>().ok()?, period.parse::<u64>().ok()?);
    u32::try_from(time.checked_div(period)?.max(1)).ok()
}
