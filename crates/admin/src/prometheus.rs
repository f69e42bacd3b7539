//! The text that Prometheus scrapes: exposition format 0.0.4.
//!
//! Every name begins with `ceto_`. The number of lines is bounded by shards, peers and a fixed list of kinds; tables are told only where the
//! operator asked for them.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::operator::{Metric, Table, Value};

/// The type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text of metrics.
#[must_use]
pub fn exposition(metrics: &[Metric]) -> String {
    // All lines of a name stand together, as the format wants it.
    let mut names: BTreeMap<&str, Vec<&Metric>> = BTreeMap::new();
    for metric in metrics {
        names.entry(metric.name).or_default().push(metric);
    }
    let mut out = String::new();
    for (name, group) in names {
        let kind = match group.first().map(|metric| &metric.value) {
            Some(Value::Counter(_)) => "counter",
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
        Value::Gauge(value) => writeln!(out, "ceto_{name}{} {value}", labels(&metric.labels, None)),
        Value::Histogram(buckets, sum_us) => {
            let mut below = 0;
            for (last_us, count) in buckets {
                below += count;
                // Four buckets in an octave are told as one.
                if (last_us + 1).is_power_of_two() {
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

/// What is told of each table where the operator asked for it.
#[must_use]
pub fn of_tables(tables: &[Table]) -> Vec<Metric> {
    type Get = fn(&Table) -> u64;
    let told: [(&'static str, &'static str, Get); 5] = [
        ("table_sstables", "Sstables of a table.", |t| t.sstables),
        ("table_disk_bytes", "Bytes of a table's sstables.", |t| t.disk_bytes),
        ("table_memtable_bytes", "Bytes of a table's memtables.", |t| {
            t.memtable_bytes
        }),
        (
            "table_partitions",
            "Partitions in a table's sstables, counted in each.",
            |t| t.partitions,
        ),
        ("table_flushes", "Memtables of a table that are being flushed.", |t| {
            t.flushes
        }),
    ];
    let mut metrics = Vec::with_capacity(tables.len() * told.len());
    for (name, help, get) in told {
        for table in tables {
            #[expect(clippy::cast_precision_loss, reason = "a gauge is told in floating point")]
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
                Value::Histogram(vec![(1, 4), (2, 1), (3, 1), (9, 2)], 30),
            ),
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
ceto_c_seconds_bucket{kind="read",le="0.000004"} 6
ceto_c_seconds_bucket{kind="read",le="+Inf"} 8
ceto_c_seconds_sum{kind="read"} 0.00003
ceto_c_seconds_count{kind="read"} 8
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
