//! Partitions are found by their keys, whatever the index looks like; and a damaged index or partition does not panic a
//! shard.

use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};

use crate::common::{TempDir, clustering, forget_checksums, long_partition, long_table, wide_blocks, wide_table};
use mutation::{Bound, ClusteringSlice, PartitionBlock};
use schema::Table;
use sstable::{ChunkCache, Compression, EncodingBase, ReadLimits, Reader, Writer, WriterOptions};
use types::Token;
use types::token::token_of;

fn write(dir: &Path, table: &Table, blocks: &[PartitionBlock], compression: Compression) {
    let base = EncodingBase::of_blocks(&table.layout, blocks);
    let mut options = WriterOptions::of_table(table, blocks.len() as u64, base).expect("known options");
    options.compression = compression;
    options.column_index_size_bytes = 64;
    let mut writer = Writer::create(dir, 1, table, options).expect("a directory");
    blocks.iter().for_each(|b| writer.append(b).expect("room on the disk"));
    writer.finish().expect("room on the disk");
}

/// Runs `body` on a shard and returns what it returns.
pub fn on_shard<T: Send + 'static>(body: impl Fn() -> Pin<Box<dyn Future<Output = T>>> + Send + Sync + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    runtime::run(runtime::Options::default(), move |_| {
        let (future, sender) = (body(), sender.lock().expect("nobody panicked").clone());
        Box::pin(async move { sender.send(future.await).expect("the test waits") })
    })
    .expect("a shard");
    receiver.recv().expect("the shard has answered")
}

async fn read(
    reader: &Arc<Reader>,
    cache: &Rc<ChunkCache>,
    key: &[u8],
    slices: &[ClusteringSlice],
    reversed: bool,
) -> Result<Option<usize>, sstable::Error> {
    let limits = ReadLimits { rows: 10, bytes: 2000 };
    let Some(mut cursor) = reader
        .read_partition(cache, token_of(key), key, slices, reversed, limits)
        .await?
    else {
        return Ok(None);
    };
    let mut rows = 0;
    while let Some(block) = cursor.next_block().await? {
        rows += block.len();
    }
    Ok(Some(rows))
}

#[test]
fn every_partition_is_found_and_no_other_in_an_index_of_long_keys_and_large_partitions() {
    let key = |i: usize| format!("{i} {}", "k".repeat(i * 37 % 400)).into_bytes();
    let table = long_table();
    let mut blocks: Vec<PartitionBlock> = (0..3_000)
        .map(|i| long_partition(&table, &key(i), if i % 100 == 0 { 300 } else { 1 }, 10))
        .collect();
    blocks.sort_by(|a, b| (a.token, a.key()).cmp(&(b.token, b.key())));
    let dir = TempDir::new("lookups");
    write(&dir.0, &table, &blocks, Compression::default());
    let reader = Reader::open(&dir.0, 1, &table).expect("what was just written");
    on_shard(move || {
        let reader = Arc::clone(&reader);
        Box::pin(async move {
            let cache = Rc::new(ChunkCache::new(64 << 10));
            for i in 0..3_000 {
                let rows = read(&reader, &cache, &key(i), &[ClusteringSlice::all()], false)
                    .await
                    .expect("undamaged");
                assert_eq!(rows, Some(if i % 100 == 0 { 300 } else { 1 }), "partition {i}");
                let absent = format!("{i} is not here");
                let rows = read(&reader, &cache, absent.as_bytes(), &[ClusteringSlice::all()], false).await;
                assert_eq!(rows.expect("undamaged"), None, "partition {absent}");
            }
            assert!(cache.used() <= 64 << 10);
            reader.evict_from(&cache);
            assert_eq!(cache.used(), 0, "all of it was of this file");
        })
    });
}

#[test]
fn damaged_partitions_and_indexes_without_checksums_do_not_panic_a_reader() {
    let table = wide_table();
    let dir = TempDir::new("lookups-fuzz");
    write(&dir.0, &table, &wide_blocks(&table), Compression::none());
    forget_checksums(&dir);
    let path = dir.0.clone();
    let (noticed, read_well) = on_shard(move || {
        let (table, path) = (table.clone(), path.clone());
        Box::pin(async move {
            let keys: Vec<Vec<u8>> = wide_blocks(&table).iter().map(|b| b.key().to_vec()).collect();
            let (a, c) = (clustering(&[b"a"]), clustering(&[b"c"]));
            let slices = [
                ClusteringSlice {
                    start: Bound::before(&a),
                    end: Bound::after(&a),
                },
                ClusteringSlice {
                    start: Bound::after(&c),
                    end: Bound::top(),
                },
            ];
            let (mut noticed, mut read_well) = (0, 0);
            for name in ["Data.db", "Index.db"] {
                let file = path.join(format!("me-1-big-{name}"));
                let sound = runtime::fs::read(&file).expect("a component");
                for at in 0..sound.len() {
                    let mut bytes = sound.clone();
                    bytes[at] ^= [0x01, 0x80, 0x10, 0xff][at % 4];
                    runtime::fs::write(&file, &bytes).expect("room on the disk");
                    let Ok(reader) = Reader::open(&path, 1, &table) else {
                        noticed += 1;
                        continue;
                    };
                    let cache = Rc::new(ChunkCache::new(1 << 20));
                    for key in &keys {
                        for reversed in [false, true] {
                            for slices in [&slices[..], &[ClusteringSlice::all()]] {
                                match read(&reader, &cache, key, slices, reversed).await {
                                    Ok(_) => read_well += 1,
                                    Err(_) => noticed += 1,
                                }
                            }
                        }
                    }
                    if let Ok(mut scan) = reader.scan(&cache, Token(0), b"", Token::MAX, ReadLimits::NONE).await {
                        while let Ok(Some(_)) = scan.next_block().await {}
                    }
                }
                runtime::fs::write(&file, &sound).expect("room on the disk");
            }
            (noticed, read_well)
        })
    });
    assert!(
        noticed > 1000 && read_well > 1000,
        "{noticed} noticed, {read_well} read well"
    );
}
