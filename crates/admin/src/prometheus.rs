//! The text that Prometheus scrapes: exposition format 0.0.4.
//!
//! Every name begins with `ceto_` and ends with its base unit, and a counter's with `_total`. Histograms have the
//! bounds 1, 2, 5, 10, … The number of lines is bounded by shards, peers and a fixed list of kinds; tables are exported
//! only where the operator asked for them.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::operator::{Metric, Table, Value};

/// The type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text of metrics.
#[must_use]
pub fn exposition(metrics: &[Metric]) -> String {
    // All lines of a name are together, as the format requires.
    let mut names: BTreeMap<&str, Vec<&Metric>> = BTreeMap::new();
    for metric in metrics {
        names.entry(metric.name).or_default().push(metric);
    }
    let mut out = String::new();
    for (name, group) in names {
        let kind = match group.first().map(|metric| &metric.value) {
            Some(Value::Counter(_) | Value::Time(_)) => "counter",
            Some(Value::Histogram(..)) => "histogram",
            _ => "gauge",
        };
        let help = group.first().map_or("", |metric| metric.help);
        let _ = writeln!(out, "# HELP ceto_{name} {help}\n# TYPE ceto_{name} {kind}");
        for metric in group {
            put(&mut out, metric);
        }
    }
    out
}

fn put(out: &mut String, metric: &Metric) {
    let name = metric.name;
    let _ = match &metric.value {
        Value::Counter(count) => writeln!(out, "ceto_{name}{} {count}", labels(&metric.labels, None)),
        Value::Time(time) => {
            let (seconds, nanos) = (time.as_secs(), time.subsec_nanos());
            writeln!(out, "ceto_{name}{} {seconds}.{nanos:09}", labels(&metric.labels, None))
        }
        Value::Gauge(value) => writeln!(out, "ceto_{name}{} {value}", labels(&metric.labels, None)),
        Value::Histogram(buckets, sum_us) => {
            let mut below = 0;
            for (last_us, count) in buckets {
                below += count;
                // The buckets between two bounds are exported as one.
                if is_bound(last_us + 1) {
                    let bound = seconds(last_us + 1).to_string();
                    let _ = writeln!(
                        out,
                        "ceto_{name}_bucket{} {below}",
                        labels(&metric.labels, Some(&bound))
                    );
                }
            }
            let _ = writeln!(
                out,
                "ceto_{name}_bucket{} {below}",
                labels(&metric.labels, Some("+Inf"))
            );
            let plain = labels(&metric.labels, None);
            writeln!(
                out,
                "ceto_{name}_sum{plain} {}\nceto_{name}_count{plain} {below}",
                seconds(*sum_us)
            )
        }
    };
}

/// Whether a value is 1, 2 or 5 times a power of ten.
fn is_bound(us: u64) -> bool {
    us.checked_ilog10()
        .is_some_and(|power| matches!((us / 10_u64.pow(power), us % 10_u64.pow(power)), (1 | 2 | 5, 0)))
}

fn seconds(us: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a second more or less in centuries")]
    let seconds = us as f64 / 1e6;
    seconds
}

fn labels(labels: &[(&'static str, String)], bound: Option<&str>) -> String {
    let mut out = String::new();
    let bound = bound.map(|bound| ("le", bound));
    let all = labels.iter().map(|(name, value)| (*name, value.as_str())).chain(bound);
    for (name, value) in all {
        out.push(if out.is_empty() { '{' } else { ',' });
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(out, "{name}=\"{value}\"");
    }
    if !out.is_empty() {
        out.push('}');
    }
    out
}

/// The metrics of each table.
#[must_use]
pub fn of_tables(tables: &[Table]) -> Vec<Metric> {
    type Get = fn(&Table) -> u64;
    let told: [(&'static str, &'static str, Get); 7] = [
        ("table_sstables", "Number of sstables.", |t| t.sstables),
        ("table_live_disk_bytes", "Size of the sstables.", |t| t.disk_bytes),
        (
            "table_total_disk_bytes",
            "Size of the sstables and of the files that only snapshots keep.",
            |t| t.disk_bytes + t.snapshot_bytes,
        ),
        (
            "table_compaction_backlog_bytes",
            "Size of the sstables that wait to be compacted or are being compacted.",
            |t| t.compaction_backlog_bytes,
        ),
        ("table_memtable_bytes", "Size of the memtables.", |t| t.memtable_bytes),
        (
            "table_partitions",
            "Number of partitions in the sstables; a partition in several sstables counts once for each.",
            |t| t.partitions,
        ),
        (
            "table_flushes",
            "Number of memtables that are being flushed or wait to be flushed.",
            |t| t.flushes,
        ),
    ];
    let mut metrics = Vec::with_capacity(tables.len() * told.len());
    for (name, help, get) in told {
        for table in tables {
            #[expect(clippy::cast_precision_loss, reason = "gauges are floating-point numbers")]
            let value = get(table) as f64;
            metrics.push(Metric {
                name,
                help,
                labels: vec![("keyspace", table.keyspace.clone()), ("table", table.name.clone())],
                value: Value::Gauge(value),
            });
        }
    }
    metrics
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn metrics_are_told_as_prometheus_reads_them() {
        let metric = |name, labels: &[(&'static str, &str)], value| Metric {
            name,
            help: "What it is.",
            labels: labels.iter().map(|(n, v)| (*n, (*v).to_owned())).collect(),
            value,
        };
        let metrics = [
            metric("b_total", &[("shard", "0")], Value::Counter(1)),
            metric("a_bytes", &[], Value::Gauge(2.5)),
            metric("b_total", &[("shard", "1"), ("odd", "\"\\")], Value::Counter(3)),
            metric(
                "c_seconds",
                &[("kind", "read")],
                Value::Histogram(vec![(1, 4), (2, 1), (4, 1), (9, 2), (11, 1)], 41),
            ),
            metric("d_seconds_total", &[], Value::Time(Duration::from_micros(1_500_001))),
        ];
        let expected = r#"# HELP ceto_a_bytes What it is.
# TYPE ceto_a_bytes gauge
ceto_a_bytes 2.5
# HELP ceto_b_total What it is.
# TYPE ceto_b_total counter
ceto_b_total{shard="0"} 1
ceto_b_total{shard="1",odd="\"\\"} 3
# HELP ceto_c_seconds What it is.
# TYPE ceto_c_seconds histogram
ceto_c_seconds_bucket{kind="read",le="0.000002"} 4
ceto_c_seconds_bucket{kind="read",le="0.000005"} 6
ceto_c_seconds_bucket{kind="read",le="0.00001"} 8
ceto_c_seconds_bucket{kind="read",le="+Inf"} 9
ceto_c_seconds_sum{kind="read"} 0.000041
ceto_c_seconds_count{kind="read"} 9
# HELP ceto_d_seconds_total What it is.
# TYPE ceto_d_seconds_total counter
ceto_d_seconds_total 1.500001000
"#;
        assert_eq!(exposition(&metrics), expected);
    }

    #[test]
    fn a_table_is_told_with_its_keyspace() {
        let table = Table {
            keyspace: "ks".to_owned(),
            name: "t".to_owned(),
            sstables: 3,
            ..Table::default()
        };
        let text = exposition(&of_tables(&[table]));
        assert!(
            text.contains("ceto_table_sstables{keyspace=\"ks\",table=\"t\"} 3\n"),
            "{text}"
        );
    }
}
