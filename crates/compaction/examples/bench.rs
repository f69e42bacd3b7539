//! Measures compaction: `bench [rows|wide] [MEGABYTES] [INPUTS]`, printing megabytes of data (before compression) a
//! second.
//!
//! `rows` has rows of 200 bytes in five columns, ten in a partition; `wide` has rows of 5,000 bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use compaction::{Job, run};
use mutation::row::Shared;
use mutation::{Liveness, PartitionBlock, RowBuilder, Tombstone};
use schema::{Column, ColumnKind, Table, TableId, TableOptions, push_component};
use sstable::{EncodingBase, Reader, Writer, WriterOptions};
use tasks::{Class, Kind, Module, Origin, Spec, Tasks};
use types::{CqlType, Token};

const NOW_US: i64 = 1_704_067_200_000_000;

const KIND: Kind = Kind {
    name: "compaction",
    module: Module::Compaction,
    class: Class::Compaction,
    units: "bytes",
    is_abortable: true,
};

fn table(columns: usize) -> Table {
    let mut all = vec![
        Column::new("k", CqlType::BigInt, ColumnKind::PartitionKey),
        Column::new("c", CqlType::Int, ColumnKind::Clustering),
    ];
    all.extend((0..columns).map(|i| Column::new(&format!("v{i}"), CqlType::Text, ColumnKind::Regular)));
    Table::new("ks", "bench", TableId(uuid::Uuid::nil()), all, TableOptions::default())
}

/// Half words, half random letters: compresses to about half.
fn fill(value: &mut Vec<u8>, len: usize, state: &mut u64) {
    const WORDS: &[u8] = b"the quick brown fox jumps over a lazy dog and then the dog sleeps ";
    value.clear();
    while value.len() < len {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (*state >> 40) as usize % (WORDS.len() - 16);
        if *state >> 63 == 0 {
            value.extend_from_slice(&WORDS[at..at + 8]);
        } else {
            value.extend((0..8).map(|i| b'a' + ((*state >> (i * 6)) % 26) as u8));
        }
    }
    value.truncate(len);
}

/// Seconds that this thread has run, if the kernel reports them.
fn cpu_seconds() -> f64 {
    let text = runtime::fs::read("/proc/thread-self/schedstat").unwrap_or_default();
    let first = String::from_utf8_lossy(&text)
        .split_whitespace()
        .next()
        .and_then(|n| n.parse::<f64>().ok());
    first.unwrap_or(0.0) / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_wide = arguments.first().is_some_and(|a| a == "wide");
    let megabytes: usize = arguments.get(1).map_or(Ok(200), |a| a.parse())?;
    let inputs: usize = arguments.get(2).map_or(Ok(4), |a| a.parse())?;
    let (columns, value_len, rows_in_partition) = if is_wide { (1, 5_000, 10) } else { (5, 36, 10) };
    let table = table(columns);
    let dir = std::env::temp_dir().join(format!("ceto-compaction-bench-{}", std::process::id()));
    runtime::fs::create_dir_all(&dir)?;
    let partitions = megabytes * (1 << 20) / (columns * value_len + 20) / rows_in_partition;
    let mut keys: Vec<(Token, [u8; 8])> = (0..partitions as u64)
        .map(|i| (types::token::token_of(&i.to_be_bytes()), i.to_be_bytes()))
        .collect();
    keys.sort_unstable();
    let base = EncodingBase::of_minima(Some(NOW_US), None, None);
    let (mut value, mut state, mut clustering) = (Vec::new(), 1u64, Vec::new());
    let mut readers = Vec::new();
    for generation in 0..inputs as u64 {
        let options = WriterOptions::of_table(&table, partitions as u64, base)?;
        let mut writer = Writer::create(&dir, generation + 1, &table, options)?;
        for (token, key) in &keys {
            let mut block = PartitionBlock::new(*token, key);
            // Every input has its rows of most partitions.
            for row in (0..rows_in_partition).filter(|r| r % inputs == generation as usize) {
                clustering.clear();
                push_component(&mut clustering, &i32::try_from(row)?.to_be_bytes());
                let timestamp = NOW_US + (state >> 44) as i64;
                let shared = Shared {
                    timestamp,
                    ttl: 0,
                    expiry: 0,
                };
                let marker = Some(Liveness {
                    timestamp,
                    ttl: 0,
                    expiry: 0,
                });
                block.push_row_with(&clustering, |out| {
                    let mut builder =
                        RowBuilder::begin(out, &table.layout, shared, marker, Tombstone::NONE, false, columns);
                    for column in 0..columns {
                        fill(&mut value, value_len, &mut state);
                        builder.value(column, &value);
                    }
                    true
                });
            }
            if !block.is_empty() {
                writer.append(&block)?;
            }
        }
        let meta = writer.finish()?;
        readers.push(Reader::open_descriptor(&meta.descriptor, &table)?);
    }
    let data: u64 = readers.iter().map(|r| r.meta().data_len).sum();
    let disk: u64 = readers.iter().map(|r| r.meta().disk_len).sum();
    let next = AtomicU64::new(100);
    let task = Tasks::new(1, uuid::Uuid::nil()).start(Spec::of(&KIND), &Origin::Node);
    let (started, cpu_started) = (runtime::now(), cpu_seconds());
    let outcome = run(Job {
        table: Arc::new(table),
        inputs: readers,
        dir: dir.clone(),
        next_generation: Box::new(move || next.fetch_add(1, Ordering::Relaxed).into()),
        ranges: vec![(Token::MIN, Token::MAX)],
        now: 1_800_000_000,
        gc_before: 1_700_000_000,
        held: Vec::new(),
        overlapping: Vec::new(),
        memtables_min_timestamp: i64::MAX,
        output_bytes_max: u64::MAX,
        host_id: None,
        control: task.control(),
    })?;
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu_started);
    let (mb, rows) = (data as f64 / 1e6, outcome.stats.rows);
    println!(
        "{rows} rows, {mb:.0} MB of data ({:.0} MB on disk) from {inputs} sstables",
        disk as f64 / 1e6
    );
    println!(
        "  {seconds:.2} s: {:.0} MB/s, {:.0} krows/s",
        mb / seconds,
        rows as f64 / seconds / 1e3
    );
    println!(
        "  {cpu:.2} s of one core: {:.0} MB/s, {:.0} krows/s",
        mb / cpu,
        rows as f64 / cpu / 1e3
    );
    runtime::fs::remove_dir_all(&dir)?;
    Ok(())
}
