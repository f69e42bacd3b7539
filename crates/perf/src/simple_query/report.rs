//! What the bench measured, for people and for programs.

use std::fmt;

use serde_json::json;

use super::{Options, ShardResult, Workload};

/// What the bench measured.
#[derive(Clone, Debug)]
pub struct Report {
    options: Options,
    shards: Vec<ShardResult>,
    /// Operations per second of all shards, one window after the other.
    windows: Vec<f64>,
}

impl Report {
    pub(super) fn of(options: &Options, shards: Vec<ShardResult>) -> Self {
        let count = shards.iter().map(|shard| shard.windows.len()).min().unwrap_or(0);
        let windows = (0..count)
            .map(|i| shards.iter().map(|shard| shard.windows[i]).sum())
            .collect();
        Self {
            options: options.clone(),
            shards,
            windows,
        }
    }

    /// Operations per second: the median of the windows.
    pub fn operations_per_second(&self) -> f64 {
        median(&self.windows)
    }

    /// Allocations per operation; None when the allocator does not count.
    pub fn allocations_per_operation(&self) -> Option<f64> {
        let allocations = self.shards.iter().map(|shard| shard.allocations).sum::<Option<u64>>()?;
        Some(allocations as f64 / self.operations().max(1) as f64)
    }

    /// User instructions per operation; None when the processor does not count them.
    pub fn instructions_per_operation(&self) -> Option<f64> {
        let instructions = self
            .shards
            .iter()
            .map(|shard| shard.instructions)
            .sum::<Option<u64>>()?;
        Some(instructions as f64 / self.operations().max(1) as f64)
    }

    fn operations(&self) -> u64 {
        self.shards.iter().map(|shard| shard.operations).sum()
    }

    fn workload(&self) -> &'static str {
        match self.options.workload() {
            Workload::Read => "read",
            Workload::Write => "write",
            Workload::Delete => "delete",
            Workload::Conditional => "conditional write",
            Workload::Prepare => "prepare",
            Workload::Scan(_) => "scan",
        }
    }

    /// The report as JSON text.
    pub(super) fn json(&self) -> String {
        let options = &self.options;
        let deviations: Vec<f64> = self
            .windows
            .iter()
            .map(|tps| (tps - self.operations_per_second()).abs())
            .collect();
        let per_shard: Vec<f64> = self.shards.iter().map(|shard| median(&shard.windows)).collect();
        let report = json!({
            "parameters": {
                "workload": self.workload(),
                "cpus": options.smp,
                "partitions": options.partitions,
                "concurrency": options.concurrency,
                "duration": options.duration,
                "operations": options.operations,
                "consistency_level": options.consistency_level.name(),
            },
            "stats": {
                "median tps": self.operations_per_second(),
                "mad tps": median(&deviations),
                "max tps": self.windows.iter().copied().fold(0.0, f64::max),
                "min tps": self.windows.iter().copied().reduce(f64::min).unwrap_or(0.0),
                "operations": self.operations(),
                "allocs_per_op": self.allocations_per_operation(),
                "instructions_per_op": self.instructions_per_operation(),
                "median tps per shard": per_shard,
            },
        });
        format!("{report:#}\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.options;
        writeln!(
            f,
            "{}: {} shard{}, {} partitions, concurrency {}, consistency level {}",
            self.workload(),
            options.smp,
            if options.smp == 1 { "" } else { "s" },
            options.partitions,
            options.concurrency,
            options.consistency_level.name()
        )?;
        for tps in &self.windows {
            writeln!(f, "{tps:>12.0} tps")?;
        }
        let allocations = self.allocations_per_operation();
        let allocations = allocations.map_or("not counted".to_owned(), |count| format!("{count:.2} allocs/op"));
        let instructions = self.instructions_per_operation();
        let instructions = instructions.map_or(String::new(), |count| format!(", {count:.0} instructions/op"));
        writeln!(
            f,
            "median {:.0} tps ({} operations, {allocations}{instructions})",
            self.operations_per_second(),
            self.operations()
        )?;
        if self.shards.len() > 1 {
            for shard in &self.shards {
                writeln!(f, "  shard {}: {:.0} tps", shard.shard, median(&shard.windows))?;
            }
        }
        Ok(())
    }
}

/// The middle value; of an even number, the mean of the two in the middle; 0 of none.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_not_moved_by_one_bad_window() {
        let cases: [(&[f64], f64); 5] = [
            (&[], 0.0),
            (&[3.0], 3.0),
            (&[1.0, 3.0], 2.0),
            (&[9.0, 1.0, 2.0], 2.0),
            (&[0.0, 5.0, 6.0, 7.0], 5.5),
        ];
        for (values, expected) in cases {
            assert_eq!(median(values), expected, "median of {values:?}");
        }
    }
}
