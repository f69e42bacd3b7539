//! Measures reads of one small partition on a shard: `bench_read [PARTITIONS] [READS] [CACHE_MEGABYTES]`.

use std::rc::Rc;
use std::sync::Arc;

use mutation::row::Shared;
use mutation::{ClusteringSlice, Liveness, PartitionBlock, RowBuilder, Tombstone};
use schema::{Column, ColumnKind, Table, TableId, TableOptions, push_component};
use sstable::{ChunkCache, EncodingBase, ReadLimits, Reader, Writer, WriterOptions};
use types::CqlType;
use types::token::{KeyHash, token_of};

fn table() -> Table {
    let mut columns = vec![
        Column::new("k", CqlType::BigInt, ColumnKind::PartitionKey),
        Column::new("c", CqlType::Int, ColumnKind::Clustering),
    ];
    columns.extend((0..5).map(|i| Column::new(&format!("v{i}"), CqlType::Blob, ColumnKind::Regular)));
    Table::new(
        "ks",
        "bench",
        TableId(uuid::Uuid::nil()),
        columns,
        TableOptions::default(),
    )
}

#[inline(never)]
async fn read_one(reader: &Arc<Reader>, cache: &Rc<ChunkCache>, key: &[u8], slices: &[ClusteringSlice]) -> usize {
    let token = token_of(key);
    if !reader.may_contain(KeyHash::of(key)) {
        return 0;
    }
    let limits = ReadLimits {
        rows: 1000,
        bytes: 1 << 20,
    };
    let cursor = reader
        .read_partition(cache, token, key, slices, false, limits)
        .await
        .expect("an index");
    let mut cursor = cursor.expect("the partition is there");
    let mut rows = 0;
    while let Some(block) = cursor.next_block().await.expect("undamaged data") {
        rows += block.len();
    }
    rows
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: u64| arguments.get(i).map_or(Ok(default), |a| a.parse());
    let (partitions, reads, megabytes) = (number(0, 100_000)?, number(1, 100_000)?, number(2, 1000)?);
    let table = table();
    let dir = std::env::temp_dir().join(format!("ceto-sstable-bench-{}", std::process::id()));
    runtime::fs::create_dir_all(&dir)?;
    let mut keys: Vec<_> = (0..partitions)
        .map(|i| (token_of(&i.to_be_bytes()), i.to_be_bytes()))
        .collect();
    keys.sort_unstable();
    let timestamp = 1_704_067_200_000_000;
    let mut writer = Writer::create(
        &dir,
        1,
        &table,
        WriterOptions::of_table(&table, partitions, EncodingBase::default())?,
    )?;
    for (token, key) in &keys {
        let mut block = PartitionBlock::new(*token, key);
        let mut clustering = Vec::new();
        push_component(&mut clustering, &1i32.to_be_bytes());
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
            let mut builder = RowBuilder::begin(out, &table.layout, shared, marker, Tombstone::NONE, false, 5);
            for column in 0..5 {
                builder.value(column, &key.repeat(4));
            }
            true
        });
        writer.append(&block)?;
    }
    writer.finish()?;
    let reader = Reader::open(&dir, 1, &table)?;
    runtime::run(runtime::Options::default(), move |_| {
        let reader = Arc::clone(&reader);
        Box::pin(async move {
            let cache = Rc::new(ChunkCache::new(megabytes as usize * (1 << 20)));
            let slices = [ClusteringSlice::all()];
            for round in ["cold", "warm"] {
                let (started, mut state) = (runtime::now(), 1u64);
                for _ in 0..reads {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let key = ((state >> 33) % partitions).to_be_bytes();
                    assert_eq!(read_one(&reader, &cache, &key, &slices).await, 1);
                }
                let ns = started.elapsed().as_nanos() as u64 / reads;
                let (hits, misses) = cache.hits_and_misses();
                println!(
                    "{round}: {ns} ns a read; {hits} hits and {misses} misses so far, {} bytes cached",
                    cache.used()
                );
            }
        })
    })?;
    runtime::fs::remove_dir_all(&dir)?;
    Ok(())
}
