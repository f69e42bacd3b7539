//! What is counted and measured: column_family, storage_proxy, cache, messaging, system, task manager.

use serde_json::{Value, json};

use super::Handler::{Later, Now};
use super::{Answer, Call, Route};
use crate::operator::{Table, histogram, percentile, total};

/// Reads one metric of a table.
type OfTable = fn(&Table) -> u64;

pub(super) const ROUTES: &[Route] = &[
    Route::get(
        "/column_family/",
        "Keyspace and name of each table",
        Now(column_families),
    ),
    Route::get("/column_family/name", "Each table as keyspace:table", Now(names)),
    Route::get(
        "/column_family/name/keyspace",
        "Names of keyspaces",
        Now(|c| Ok(c.operator.keyspaces().iter().map(|k| json!(k.name)).collect())),
    ),
    Route::get(
        "/column_family/stats",
        "Figures of each table that has files",
        Later(|c| Box::pin(stats(c))),
    ),
    Route::get(
        "/column_family/metrics/{metric}",
        "A figure, summed over all tables",
        Later(|c| Box::pin(all_tables(c))),
    ),
    Route::get(
        "/column_family/metrics/{metric}/{name}",
        "A figure of the table keyspace:table",
        Later(|c| Box::pin(one_table(c))),
    ),
    Route::get(
        "/storage_proxy/metrics/{kind}",
        "Number of requests of a kind: read, write, range, cas_read or cas_write",
        Later(|c| Box::pin(proxy_count(c))),
    ),
    Route::get(
        "/storage_proxy/metrics/{kind}/{metric}",
        "latency (sum in microseconds), estimated_histogram, timeouts or unavailables",
        Later(|c| Box::pin(proxy_metric(c))),
    ),
    Route::get(
        "/storage_proxy/metrics/{kind}/{metric}/histogram",
        "Percentiles of latencies in microseconds",
        Later(|c| Box::pin(proxy_histogram(c))),
    ),
    Route::get(
        "/storage_proxy/total_hints",
        "Hints written since the start",
        Later(|c| Box::pin(sum(c, "hints_written_total"))),
    ),
    Route::get(
        "/messaging_service/messages/sent",
        "Calls and messages to each other node",
        Later(|c| Box::pin(messages(c, "rpc_calls_total"))),
    ),
    Route::get(
        "/messaging_service/messages/timeout",
        "Calls to each other node that had no answer in time",
        Later(|c| Box::pin(messages(c, "rpc_timeouts_total"))),
    ),
    Route::get(
        "/messaging_service/messages/pending",
        "Calls to each other node that have no answer yet",
        Later(|c| Box::pin(messages(c, "rpc_waiting"))),
    ),
    Route::get(
        "/metrics/all",
        "All counters and gauges, summed over shards and labels",
        Later(|c| Box::pin(everything(c))),
    ),
    Route::get(
        "/commitlog/metrics/total_commit_log_size",
        "Bytes of the commitlog",
        Later(|c| Box::pin(sum(c, "commitlog_bytes"))),
    ),
    Route::get(
        "/cache_service/metrics/row/size",
        "Bytes of cached rows",
        Later(|c| Box::pin(sum(c, "row_cache_bytes"))),
    ),
    Route::get(
        "/cache_service/metrics/key/size",
        "Bytes of cached keys: 0, there is no key cache",
        Now(|_| Ok(json!(0))),
    ),
    Route::get(
        "/compaction_manager/metrics/pending_tasks",
        "Compactions that wait for a worker",
        Now(|c| {
            let classes = c.operator.tasks().classes();
            let compactions = classes.iter().filter(|class| class.class == tasks::Class::Compaction);
            Ok(json!(compactions.map(|class| class.waiting).sum::<u64>()))
        }),
    ),
    Route::get(
        "/system/uptime_ms",
        "Milliseconds since the node began to serve",
        Now(|c| Ok(json!(c.operator.node().uptime_ms))),
    ),
];

fn column_families(call: &Call) -> Answer {
    let keyspaces = call.operator.keyspaces();
    let all = keyspaces
        .iter()
        .flat_map(|k| k.tables.iter().map(move |table| (k, table)));
    Ok(all
        .map(|(k, table)| json!({"ks": k.name, "cf": table, "type": "ColumnFamilies"}))
        .collect())
}

fn names(call: &Call) -> Answer {
    let keyspaces = call.operator.keyspaces();
    let all = keyspaces
        .iter()
        .flat_map(|k| k.tables.iter().map(move |table| (k, table)));
    Ok(all.map(|(k, table)| json!(format!("{}:{table}", k.name))).collect())
}

fn of_table(metric: &str) -> Result<OfTable, (u16, String)> {
    Ok(match metric {
        "live_ss_table_count" => |t| t.sstables,
        "total_disk_space_used" | "live_disk_space_used" => |t| t.disk_bytes,
        "uncompressed_bytes" => |t| t.data_bytes,
        "estimated_row_count" | "estimated_partition_count" => |t| t.partitions + t.memtable_partitions,
        "memtable_live_data_size" | "memtable_on_heap_size" | "all_memtables_live_data_size" => |t| t.memtable_bytes,
        "memtable_off_heap_size" => |_| 0,
        "memtable_columns_count" => |t| t.memtable_partitions,
        "sstable_memory_bytes" | "bloom_filter_off_heap_memory_used" => |t| t.sstable_memory_bytes,
        "pending_flushes" => |t| t.flushes,
        "snapshots_size" => |t| t.snapshot_bytes,
        _ => return Err((404, "Not found".to_owned())),
    })
}

/// All metrics of all tables at once, by their names in the paths.
async fn stats(call: &Call) -> Answer {
    let metrics = [
        "live_ss_table_count",
        "live_disk_space_used",
        "total_disk_space_used",
        "snapshots_size",
        "sstable_memory_bytes",
        "estimated_row_count",
        "memtable_columns_count",
        "memtable_live_data_size",
        "pending_flushes",
    ];
    let mut listed = Vec::new();
    for table in call.operator.tables().await {
        let mut told = json!({"ks": table.keyspace, "cf": table.name});
        for metric in metrics {
            told[metric] = json!(of_table(metric)?(&table));
        }
        describe(&table, &mut told);
        listed.push(told);
    }
    Ok(Value::Array(listed))
}

/// Adds what has no path of its own.
fn describe(table: &Table, told: &mut Value) {
    told["memtable_rows"] = json!(table.memtable_rows);
    told["bloom_filter_bytes"] = json!(table.filter_bytes);
    told["bloom_filter_false_positives"] = json!(table.filter_false_positives);
    told["index_lookups"] = json!(table.index_lookups);
    told["compressed_from_bytes"] = json!(table.compressed_from_bytes);
    told["compressed_to_bytes"] = json!(table.compressed_to_bytes);
    told["auto_compaction"] = json!(!table.is_auto_compaction_off);
    let distributions = [
        ("partition_bytes", &table.partition_bytes),
        ("partition_cells", &table.partition_cells),
        ("read_latency_us", &table.reads),
        ("scan_latency_us", &table.scans),
        ("write_latency_us", &table.writes),
        ("sstables_per_read", &table.sstables_per_read),
        ("tombstones_per_read", &table.tombstones_per_read),
        ("rows_per_read", &table.rows_per_read),
    ];
    for (name, values) in distributions {
        let at = |part| values.percentile(part);
        told[name] = json!({
            "count": values.count(), "mean": values.mean(), "min": values.min(), "max": values.max(),
            "p50": at(0.5), "p75": at(0.75), "p95": at(0.95), "p98": at(0.98), "p99": at(0.99),
        });
    }
}

async fn all_tables(call: &Call) -> Answer {
    let read = of_table(call.part())?;
    Ok(json!(call.operator.tables().await.iter().map(read).sum::<u64>()))
}

/// A table is named `keyspace:table`.
async fn one_table(call: &Call) -> Answer {
    let read = of_table(call.part())?;
    let name = call.parts.get(1).map_or("", String::as_str);
    let tables = call.operator.tables().await;
    let named = |table: &&Table| name.split_once(':') == Some((&table.keyspace, &table.name));
    let table = tables.iter().find(named).ok_or_else(|| {
        (
            400,
            format!("Column family '{name}' not found: expected keyspace:table"),
        )
    })?;
    Ok(json!(read(table)))
}

/// The kind of request that a path names.
fn kind(call: &Call) -> Result<&'static str, (u16, String)> {
    Ok(match call.part() {
        "read" => "read",
        "write" => "write",
        "cas_read" | "cas_write" | "cas" => "conditional",
        "range" => "range",
        _ => return Err((404, "Not found".to_owned())),
    })
}

async fn proxy_count(call: &Call) -> Answer {
    let kind = kind(call)?;
    let metrics = call.operator.metrics().await;
    let (buckets, _) = histogram(&metrics, "request_latency_seconds", kind);
    Ok(json!(buckets.values().sum::<u64>()))
}

async fn proxy_metric(call: &Call) -> Answer {
    let kind = kind(call)?;
    let metrics = call.operator.metrics().await;
    let (buckets, sum) = histogram(&metrics, "request_latency_seconds", kind);
    let value = match call.parts.get(1).map_or("", String::as_str) {
        "latency" | "total_latency" => sum,
        "estimated_recent_histogram" | "estimated_histogram" => return Ok(estimated(&buckets)),
        // The coordinator counts these of reads and writes together.
        "timeouts" | "timeouts_rates" => total(&metrics, "coordinator_timeouts_total"),
        "unavailables" | "unavailables_rates" => total(&metrics, "coordinator_unavailable_total"),
        _ => return Err((404, "Not found".to_owned())),
    };
    Ok(json!(value))
}

fn estimated(buckets: &std::collections::BTreeMap<u64, u64>) -> Value {
    json!({
        "buckets": buckets.values().collect::<Vec<_>>(),
        "bucket_offsets": buckets.keys().collect::<Vec<_>>(),
    })
}

/// Percentiles in microseconds, with the buckets that they come from.
async fn proxy_histogram(call: &Call) -> Answer {
    let kind = kind(call)?;
    if call.parts.get(1).is_none_or(|metric| metric != "latency") {
        return Err((404, "Not found".to_owned()));
    }
    let metrics = call.operator.metrics().await;
    let (buckets, sum) = histogram(&metrics, "request_latency_seconds", kind);
    let nonempty = || buckets.iter().filter(|(_, count)| **count > 0).map(|(last, _)| *last);
    let at = |part| percentile(&buckets, part);
    Ok(json!({
        "count": buckets.values().sum::<u64>(),
        "sum": sum,
        "min": nonempty().next().unwrap_or(0),
        "max": nonempty().next_back().unwrap_or(0),
        "p50": at(0.5), "p75": at(0.75), "p95": at(0.95), "p98": at(0.98), "p99": at(0.99),
        "buckets": estimated(&buckets),
    }))
}

async fn sum(call: &Call, name: &'static str) -> Answer {
    Ok(json!(total(&call.operator.metrics().await, name)))
}

/// Of each peer, all of its links together.
async fn messages(call: &Call, name: &'static str) -> Answer {
    let metrics = call.operator.metrics().await;
    let node = call.operator.node();
    let peers = node.members.iter().filter(|member| member.host_id != node.host_id);
    let listed = peers.map(|member| {
        let id = member.host_id.to_string();
        let of_peer = |metric: &&crate::operator::Metric| metric.labels.iter().any(|(_, value)| *value == id);
        let of_peer: Vec<_> = metrics.iter().filter(of_peer).cloned().collect();
        json!({"key": member.address.to_string(), "value": total(&of_peer, name)})
    });
    Ok(listed.collect())
}

/// All counters and gauges, added over shards and labels.
async fn everything(call: &Call) -> Answer {
    let metrics = call.operator.metrics().await;
    let names: std::collections::BTreeSet<&str> = metrics.iter().map(|metric| metric.name).collect();
    let sums = names
        .into_iter()
        .map(|name| (name.to_owned(), json!(total(&metrics, name))));
    Ok(Value::Object(sums.collect()))
}
