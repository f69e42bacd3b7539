//! Commands about tables: what they hold, how their requests fare, and their compactions.

use std::collections::BTreeMap;

use serde_json::Value;

use super::client::{Client, string, strings};
use super::layout::{columns, size};
use super::words::{Given, is_option};
use ::http::escape;

/// A number of bytes as it is.
fn plain(bytes: u64) -> String {
    bytes.to_string()
}

/// What is printed of a table, and how; `bytes` prints sizes. A table that is computed has no figures.
fn figures(stats: &Value, bytes: fn(u64) -> String) -> Vec<(&'static str, String)> {
    let sized = |name: &str| bytes(stats[name].as_u64().unwrap_or(0));
    let count = |name: &str| stats[name].as_u64().unwrap_or(0);
    let number = |name: &str| count(name).to_string();
    let of = |name: &str, field: &str| stats[name][field].as_u64().unwrap_or(0);
    let mean = |name: &str| stats[name]["mean"].as_f64().unwrap_or(0.0);
    let latency = |name: &str| match of(name, "count") {
        0 => "NaN ms".to_owned(),
        _ => format!("{:.3} ms", mean(name) / 1000.0),
    };
    vec![
        ("SSTable count", number("live_ss_table_count")),
        ("Space used (live)", sized("live_disk_space_used")),
        ("Space used (total)", sized("total_disk_space_used")),
        ("Space used by snapshots (total)", sized("snapshots_size")),
        ("Off heap memory used (total)", sized("sstable_memory_bytes")),
        (
            "SSTable Compression Ratio",
            ratio(count("compressed_to_bytes"), count("compressed_from_bytes")),
        ),
        ("Number of partitions (estimate)", number("estimated_row_count")),
        ("Memtable partition count", number("memtable_columns_count")),
        ("Memtable row count", number("memtable_rows")),
        ("Memtable data size", sized("memtable_live_data_size")),
        ("Pending flushes", number("pending_flushes")),
        ("Coordinator read count", of("read_latency_us", "count").to_string()),
        ("Coordinator read latency", latency("read_latency_us")),
        ("Coordinator scan count", of("scan_latency_us", "count").to_string()),
        ("Coordinator scan latency", latency("scan_latency_us")),
        ("Coordinator write count", of("write_latency_us", "count").to_string()),
        ("Coordinator write latency", latency("write_latency_us")),
        ("Bloom filter false positives", number("bloom_filter_false_positives")),
        (
            "Bloom filter false ratio",
            ratio(count("bloom_filter_false_positives"), count("index_lookups")),
        ),
        ("Bloom filter space used", sized("bloom_filter_bytes")),
        ("Compacted partition minimum bytes", bytes(of("partition_bytes", "min"))),
        ("Compacted partition maximum bytes", bytes(of("partition_bytes", "max"))),
        (
            "Compacted partition mean bytes",
            format!("{:.0}", mean("partition_bytes")),
        ),
        ("Average rows per read", format!("{:.1}", mean("rows_per_read"))),
        ("Maximum rows per read", of("rows_per_read", "max").to_string()),
        (
            "Average tombstones per read",
            format!("{:.1}", mean("tombstones_per_read")),
        ),
        (
            "Maximum tombstones per read",
            of("tombstones_per_read", "max").to_string(),
        ),
    ]
}

/// A part of a whole, with five digits; n/a of nothing.
fn ratio(part: u64, whole: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "five digits are shown")]
    let ratio = part as f64 / whole as f64;
    match whole {
        0 => "n/a".to_owned(),
        _ => format!("{ratio:.5}"),
    }
}

pub(super) async fn stats(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let (options, names): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| is_option(word));
    let bytes = if options.is_empty() { plain } else { size };
    let is_meant = |keyspace: &str, table: &str| {
        let named = |name: &&str| match name.split_once('.') {
            Some((k, t)) => (k, t) == (keyspace, table),
            None => *name == keyspace,
        };
        names.is_empty() || names.iter().any(named)
    };
    let all = strings(&client.get("/column_family/name").await?);
    let mut keyspaces: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (keyspace, table) in all.iter().filter_map(|name| name.split_once(':')) {
        if is_meant(keyspace, table) {
            keyspaces.entry(keyspace).or_default().push(table);
        }
    }
    for name in &names {
        let (keyspace, table) = name.split_once('.').map_or((*name, None), |(k, t)| (k, Some(t)));
        let tables = keyspaces
            .get(keyspace)
            .ok_or_else(|| format!("Unknown keyspace or table: {name}"))?;
        if table.is_some_and(|table| !tables.contains(&table)) {
            return Err(format!("Unknown keyspace or table: {name}"));
        }
    }
    let count = keyspaces.values().map(Vec::len).sum::<usize>();
    let mut out = format!("Total number of tables: {count}\n----------------\n");
    let stats = client.get("/column_family/stats").await?;
    for (keyspace, tables) in keyspaces {
        out.push_str(&format!("Keyspace : {keyspace}\n"));
        for table in tables {
            out.push_str(&format!("\t\tTable: {table}\n"));
            for (title, figure) in figures(of_table(&stats, keyspace, table), bytes) {
                out.push_str(&format!("\t\t{title}: {figure}\n"));
            }
            out.push('\n');
        }
        out.push_str("----------------\n");
    }
    Ok(out)
}

fn of_table<'v>(stats: &'v Value, keyspace: &str, table: &str) -> &'v Value {
    let mut listed = stats.as_array().into_iter().flatten();
    let found = listed.find(|s| string(&s["ks"]) == keyspace && string(&s["cf"]) == table);
    found.unwrap_or(&Value::Null)
}

pub(super) async fn histograms(client: &mut Client, keyspace: &str, table: &str) -> Result<String, String> {
    let known = strings(&client.get("/column_family/name").await?);
    if !known.contains(&format!("{keyspace}:{table}")) {
        return Err(format!("Unknown keyspace or table: {keyspace}.{table}"));
    }
    let stats = client.get("/column_family/stats").await?;
    let stats = of_table(&stats, keyspace, table);
    let row = |name: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>18}")).collect();
        format!("{name:<10}{cells}\n")
    };
    let titles = [
        "SSTables",
        "Write Latency",
        "Read Latency",
        "Partition Size",
        "Cell Count",
    ];
    let units = ["", "(micros)", "(micros)", "(bytes)", ""];
    let mut out = format!("{keyspace}/{table} histograms\n");
    out.push_str(&row("Percentile", titles.map(str::to_owned).to_vec()));
    out.push_str(&row("", units.map(str::to_owned).to_vec()));
    let columns = [
        "sstables_per_read",
        "write_latency_us",
        "read_latency_us",
        "partition_bytes",
        "partition_cells",
    ];
    for (title, field) in [
        ("50%", "p50"),
        ("75%", "p75"),
        ("95%", "p95"),
        ("98%", "p98"),
        ("99%", "p99"),
        ("Min", "min"),
        ("Max", "max"),
    ] {
        let cells = columns.map(|column| {
            let value = stats[column][field].as_u64().unwrap_or(0);
            match column {
                "partition_bytes" | "partition_cells" => value.to_string(),
                _ => format!("{value}.00"),
            }
        });
        out.push_str(&row(title, cells.to_vec()));
    }
    Ok(out)
}

pub(super) async fn compactions(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let known = [("-H", "human", false), ("--human-readable", "human", false)];
    let given = Given::parse(words, &known)?;
    let bytes = |number: u64| match given.option("human") {
        Some(_) => size(number),
        None => number.to_string(),
    };
    let pending = client.get("/compaction_manager/metrics/pending_tasks_by_table").await?;
    let pending: Vec<(String, u64)> = pending
        .as_array()
        .into_iter()
        .flatten()
        .map(|p| {
            (
                format!("{}.{}", string(&p["ks"]), string(&p["cf"])),
                p["task"].as_u64().unwrap_or(0),
            )
        })
        .collect();
    let mut out = format!(
        "pending tasks: {}\n",
        pending.iter().map(|(_, count)| count).sum::<u64>()
    );
    for (table, count) in &pending {
        out.push_str(&format!("- {table}: {count}\n"));
    }
    let running = client.get("/compaction_manager/compactions").await?;
    let header = [
        "id",
        "compaction type",
        "keyspace",
        "table",
        "completed",
        "total",
        "unit",
        "progress",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for compaction in running.as_array().into_iter().flatten() {
        let number = |field: &str| compaction[field].as_u64().unwrap_or(0);
        let text = |field: &str| string(&compaction[field]).to_owned();
        let (completed, total) = (number("completed"), number("total"));
        let progress = match total {
            0 => "n/a".to_owned(),
            _ => format!("{}%", u128::from(completed) * 100 / u128::from(total)),
        };
        rows.push(vec![
            text("id"),
            text("task_type"),
            text("ks"),
            text("cf"),
            bytes(completed),
            bytes(total),
            text("unit"),
            progress,
        ]);
    }
    if rows.len() > 1 {
        out.push_str(&columns(&rows));
    }
    Ok(out)
}

pub(super) async fn compaction_history(client: &mut Client) -> Result<String, String> {
    let history = client.get("/compaction_manager/compaction_history").await?;
    let history = history.as_array().map(Vec::as_slice).unwrap_or_default();
    let header = [
        "id",
        "keyspace_name",
        "columnfamily_name",
        "compacted_at",
        "bytes_in",
        "bytes_out",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for past in history {
        let ended = past["compacted_at"].as_i64().unwrap_or(0);
        rows.push(vec![
            string(&past["id"]).to_owned(),
            string(&past["ks"]).to_owned(),
            string(&past["cf"]).to_owned(),
            types::iso_seconds(ended.div_euclid(1000)),
            past["bytes_in"].to_string(),
            past["bytes_out"].to_string(),
        ]);
    }
    Ok(format!("Compaction History: \n{}", columns(&rows)))
}

pub(super) async fn top_partitions(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let known = [
        ("-s", "capacity", true),
        ("-k", "count", true),
        ("-a", "samplers", true),
    ];
    let given = Given::parse(words, &known)?;
    let [keyspace, table, duration] = given.words[..] else {
        return Err("expected KEYSPACE TABLE MILLISECONDS".to_owned());
    };
    let samplers = given.option("samplers").unwrap_or("WRITES,READS").to_uppercase();
    let samplers: Vec<&str> = samplers.split(',').collect();
    if let Some(unknown) = samplers.iter().find(|sampler| !["READS", "WRITES"].contains(sampler)) {
        return Err(format!("-a: expected READS, WRITES or both, got '{unknown}'"));
    }
    let mut path = format!(
        "/column_family/toppartitions/{}:{}?duration={}",
        escape(keyspace),
        escape(table),
        escape(duration)
    );
    for (option, parameter) in [("capacity", "capacity"), ("count", "list_size")] {
        if let Some(value) = given.option(option) {
            path.push_str(&format!("&{parameter}={}", escape(value)));
        }
    }
    let told = client.get(&path).await?;
    let mut out = String::new();
    for (title, list, distinct) in [
        ("WRITES", "write", "write_cardinality"),
        ("READS", "read", "read_cardinality"),
    ] {
        if samplers.contains(&title) {
            out.push_str(&sampled(title, &told[list], &told[distinct], &told["capacity"]));
        }
    }
    Ok(out)
}

fn sampled(title: &str, list: &Value, distinct: &Value, capacity: &Value) -> String {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut out = format!(
        "{title} Sampler:\n  Cardinality: ~{distinct} ({capacity} capacity)\n  Top {} partitions:\n",
        list.len()
    );
    if list.is_empty() {
        out.push_str("\tNothing recorded during sampling period...\n\n");
        return out;
    }
    let width = list
        .iter()
        .map(|p| string(&p["partition"]).chars().count())
        .max()
        .unwrap_or(0)
        .max(9);
    out.push_str(&format!("\t{:<width$}{:>12}{:>12}\n", "Partition", "Count", "+/-"));
    for p in list {
        let (count, error) = (p["count"].to_string(), p["error"].to_string());
        out.push_str(&format!(
            "\t{:<width$}{count:>12}{error:>12}\n",
            string(&p["partition"])
        ));
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_without_figures_says_so() {
        let told: BTreeMap<&str, String> = figures(&Value::Null, plain).into_iter().collect();
        assert_eq!(told["SSTable count"], "0");
        assert_eq!(told["Coordinator read latency"], "NaN ms");
        assert_eq!(
            (&*told["SSTable Compression Ratio"], &*told["Bloom filter false ratio"]),
            ("n/a", "n/a")
        );
    }

    #[test]
    fn figures_of_a_table_have_their_units() {
        let stats = json!({
            "compressed_from_bytes": 1000, "compressed_to_bytes": 250,
            "read_latency_us": {"count": 4, "mean": 1500.0},
            "partition_bytes": {"min": 10, "max": 300, "mean": 99.6},
            "tombstones_per_read": {"mean": 2.25, "max": 9},
        });
        let told: BTreeMap<&str, String> = figures(&stats, plain).into_iter().collect();
        assert_eq!(told["SSTable Compression Ratio"], "0.25000");
        assert_eq!(told["Coordinator read latency"], "1.500 ms");
        assert_eq!(told["Compacted partition mean bytes"], "100");
        assert_eq!(
            (
                &*told["Average tombstones per read"],
                &*told["Maximum tombstones per read"]
            ),
            ("2.2", "9")
        );
    }

    #[test]
    fn sampled_partitions_are_laid_out_as_cassandra_does() {
        let list = json!([{"partition": "a long partition", "count": 15, "error": 14}, {"partition": "b", "count": 1, "error": 0}]);
        assert_eq!(
            sampled("READS", &list, &json!(2), &json!(256)),
            "READS Sampler:\n  Cardinality: ~2 (256 capacity)\n  Top 2 partitions:\n\
             \tPartition              Count         +/-\n\ta long partition          15          14\n\tb                          1           0\n\n"
        );
        assert!(sampled("READS", &json!([]), &json!(0), &json!(1)).contains("Nothing recorded"));
    }
}
