//! What the fuzzer needs of sstables: components and whole sstables to begin with, and everything that reads them.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use mutation::row::Shared;
use mutation::{Bound, Cell, ClusteringSlice, Liveness, PartitionBlock, RangeTombstone, RowBuilder, Tombstone};
use runtime::fs;
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use types::token::token_of;
use types::{CqlType, Token};
use uuid::Uuid;

use crate::ChunkCache;
use crate::big::index::{Entry, IndexBytes, Promoted, skip_others};
use crate::big::summary::{Sample, Summary};
use crate::data::compression::{Compression, CompressionInfo, Compressor};
use crate::data::header::{EncodingBase, SerializationHeader};
use crate::data::window::ReadLimits;
use crate::directory::component::{Component, Descriptor, Version, parse_name};
use crate::directory::generation::Generation;
use crate::directory::quarantine;
use crate::read::checksums::Checksums;
use crate::read::filter::{self, Filter};
use crate::read::reader::{Reader, decode_crc};
use crate::statistics::{Collector, Statistics};
use crate::tool;
use crate::write::large::{LargeData, LargeEntry, LargeKind};
use crate::write::writer::{Writer, WriterOptions};

/// What the data of a compressed chunk may have: more the chunk lengths of real files do not ask for.
const CHUNK_BYTES: usize = 1 << 16;

const SHARED: Shared = Shared {
    timestamp: 1_704_067_200_000_000,
    ttl: 0,
    expiry: 0,
};
const DELETION: Tombstone = Tombstone {
    timestamp: 1_704_067_100_000_000,
    deletion_time: 1_704_067_100,
};

fn table() -> Table {
    let map = CqlType::Map(Arc::new(CqlType::Int), Arc::new(CqlType::Text));
    let columns = vec![
        Column::new("k", CqlType::Text, ColumnKind::PartitionKey),
        Column::new("c", CqlType::Text, ColumnKind::Clustering),
        Column {
            position: 1,
            descending: true,
            ..Column::new("d", CqlType::Int, ColumnKind::Clustering)
        },
        Column::new("s", CqlType::Int, ColumnKind::Static),
        Column::new("a", CqlType::Int, ColumnKind::Regular),
        Column::new("b", CqlType::Text, ColumnKind::Regular),
        Column::new("m", map, ColumnKind::Regular),
    ];
    let id = TableId(Uuid::from_u128(7));
    Table::new("ks", "t", id, columns, TableOptions::default())
}

fn column_id(table: &Table, name: &str) -> usize {
    let column = table.columns.iter().find(|column| column.name == name);
    usize::from(column.expect("the column is there").id.0)
}

fn clustering(text: &str, number: i32) -> Vec<u8> {
    let mut prefix = Vec::new();
    schema::push_component(&mut prefix, text.as_bytes());
    schema::push_component(&mut prefix, &number.to_be_bytes());
    prefix
}

fn cell(timestamp: i64, dead: bool, ttl: u32, value: &[u8]) -> Cell<'_> {
    Cell {
        timestamp,
        ttl,
        deletion_time: if dead || ttl > 0 { 1_704_067_300 } else { 0 },
        dead,
        value,
    }
}

/// Partitions with static rows, cells of all kinds, deletions of rows, ranges and the partition.
fn blocks(table: &Table) -> Vec<PartitionBlock> {
    let ids = |name| column_id(table, name);
    let count = table.columns.len();
    let mut blocks = Vec::new();
    for key in ["one", "two", "three", "four"] {
        let mut block = PartitionBlock::new(token_of(key.as_bytes()), key.as_bytes());
        if key == "two" {
            block.tombstone = DELETION;
        }
        let mut row = Vec::new();
        RowBuilder::begin(&mut row, &table.layout, SHARED, None, Tombstone::NONE, false, count)
            .value(ids("s"), &[0, 0, 0, 1]);
        block.set_static_row(&row);
        for number in (0..6).rev() {
            row.clear();
            let marker = (number % 2 == 0).then_some(Liveness {
                timestamp: SHARED.timestamp,
                ttl: 0,
                expiry: 0,
            });
            let tombstone = if number == 3 { DELETION } else { Tombstone::NONE };
            let mut builder = RowBuilder::begin(&mut row, &table.layout, SHARED, marker, tombstone, true, count);
            let number_bytes = i32::to_be_bytes(number);
            builder.cell(ids("a"), &cell(SHARED.timestamp, false, 0, &number_bytes));
            builder.cell(
                ids("b"),
                &cell(
                    SHARED.timestamp - 5,
                    number == 1,
                    0,
                    if number == 1 { b"" } else { b"some text" },
                ),
            );
            let elements = [
                (&[0, 0, 0, 1][..], cell(SHARED.timestamp, false, 100, b"x")),
                (&[0, 0, 0, 2][..], cell(SHARED.timestamp, true, 0, b"")),
            ];
            builder.complex(ids("m"), DELETION, elements.into_iter());
            block.push_row(&clustering("row", number), &row);
        }
        block.range_tombstones.push(RangeTombstone {
            start: Bound::before(&clustering("row", 4)),
            end: Bound::after(&clustering("row", 2)),
            tombstone: DELETION,
        });
        blocks.push(block);
    }
    blocks.sort_by_key(|block| block.token);
    blocks
}

fn summary() -> Summary {
    let samples = (1..4_u8).map(|number| vec![number; 3]);
    let mut samples: Vec<Sample> = samples
        .map(|key| Sample {
            token: token_of(&key),
            key: key.into(),
            position: 0,
        })
        .collect();
    samples.sort_by(|a, b| (a.token, &a.key).cmp(&(b.token, &b.key)));
    for (number, sample) in (0..).zip(&mut samples) {
        sample.position = 100 * number;
    }
    Summary {
        interval: 128,
        first_key: samples[0].key.clone(),
        last_key: samples[2].key.clone(),
        samples,
    }
}

fn statistics() -> Statistics {
    let mut collector = Collector::new();
    collector.live(SHARED.timestamp);
    collector.expiring(SHARED.timestamp, 100, 1_704_067_300);
    collector.dead(SHARED.timestamp, 1_704_067_300);
    collector.cell();
    collector.partition(b"key", 100);
    let base = EncodingBase::of_minima(Some(SHARED.timestamp), None, None);
    collector.finish(SerializationHeader::of_table(&table(), &[], base), 0.01)
}

fn compressed(compressor: Compressor) -> Vec<u8> {
    let mut out = Vec::new();
    let mut scratch = crate::data::compression::Scratch::new();
    compressor
        .compress(&[7; 500], &mut out, &mut scratch)
        .expect("it can be compressed");
    out
}

const COMPRESSORS: [Compressor; 4] = [
    Compressor::Lz4,
    Compressor::Snappy,
    Compressor::Deflate,
    Compressor::Zstd(3),
];

fn large_data() -> LargeData {
    let entry = |kind| LargeEntry {
        kind,
        bytes: 20 << 20,
        key: b"key"[..].into(),
        clustering: b"row"[..].into(),
    };
    let kinds = [
        LargeKind::Partition {
            rows: 1,
            range_tombstones: 2,
            dead_rows: 3,
        },
        LargeKind::Row,
        LargeKind::Cell {
            column: "v".to_owned(),
            elements: 4,
        },
    ];
    LargeData {
        written_at: 7,
        entries: kinds.map(entry).into_iter().collect(),
    }
}

/// The small components, an entry of the index, compressed chunks, the note of a quarantine, and file names.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut filter = Filter::new(10, 0.01).expect("the chance asks for a filter");
    filter.add(filter::hash(b"key"));
    let info = CompressionInfo {
        compressor: Compressor::Zstd(3),
        chunk_len: 4096,
        data_len: 10_000,
        offsets: vec![0, 100, 200],
    };
    let checksums = Checksums {
        index_len: 20_000,
        index: vec![1, 2],
        components: vec![(Component::Summary, 10, 3), (Component::Filter, 20, 4)],
        large: large_data(),
    };
    let checksums = checksums.encode();
    // A key, a position, and a promoted index of one block.
    let mut promoted = vec![9, 0x7f, 0xff, 0xff, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1];
    promoted.extend_from_slice(&[
        4, 0, 3, b'r', b'o', b'w', 0, 0, 0, 1, 4, 0, 3, b'r', b'o', b'w', 0, 0, 0, 2, 5, 0, 0,
    ]);
    promoted.extend_from_slice(&[0, 0, 0, 0]);
    let mut entry = vec![0, 3, b'k', b'e', b'y', 7, u8::try_from(promoted.len()).expect("short")];
    entry.extend_from_slice(&promoted);
    let mut seeds = vec![
        filter.encode(),
        summary().encode(),
        statistics().encode(),
        info.encode(),
        checksums[..checksums.len() - 4].to_vec(),
        [&4096_u32.to_be_bytes()[..], &[1, 2, 3, 4, 5, 6, 7, 8]].concat(),
        entry,
        promoted,
        quarantine::encode(Token(-5), Token(9), "damaged").into_bytes(),
        b"me-3gkr_0a1b_2c3d4e5f6g7h8i9j0k-big-Data.db".to_vec(),
    ];
    seeds.extend(COMPRESSORS.map(compressed));
    seeds
}

/// Reads the bytes as each of these.
pub fn read(bytes: &[u8]) {
    if let Ok(filter) = Filter::decode(bytes) {
        assert_eq!(filter.encode(), bytes, "a filter is written otherwise");
        let _ = filter.may_contain(filter::hash(b"key"));
    }
    if let Ok(summary) = Summary::decode(bytes) {
        assert_eq!(
            Summary::decode(&summary.encode()).map(|again| again.encode()),
            Ok(summary.encode())
        );
        let _ = (
            summary.page_of(Token(0), b"key"),
            summary.page_behind(Token(0)),
            summary.memory(),
        );
    }
    for version in [Version::Mc, Version::Md, Version::Me] {
        if let Ok(statistics) = Statistics::decode(bytes, version) {
            let table = tool::table_of(&statistics);
            let _ = crate::data::encode::Format::of(&statistics.header, &table);
            let histogram = &statistics.partition_size;
            let _ = (histogram.count(), histogram.mean(), histogram.buckets().count());
            let _ = (
                statistics.tombstones.count_before(u32::MAX),
                statistics.tombstones.bins().count(),
            );
        }
    }
    if let Ok(info) = CompressionInfo::decode(bytes) {
        let again = CompressionInfo::decode(&info.encode());
        assert_eq!(
            again.as_ref(),
            Ok(&info),
            "the places of chunks change when they are written"
        );
    }
    let sealed = [bytes, &crc32fast::hash(bytes).to_be_bytes()].concat();
    if let Ok(checksums) = Checksums::decode(&sealed) {
        let again = Checksums::decode(&checksums.encode()).expect("it was encoded");
        assert_eq!(
            again.encode(),
            checksums.encode(),
            "checksums change when they are written"
        );
    }
    let _ = decode_crc(bytes);
    if let Ok(entry) = Entry::read(bytes) {
        assert!(
            entry.promoted.0 <= bytes.len(),
            "a promoted index begins after its bytes"
        );
    }
    for key in [&b"key"[..], b""] {
        assert!(
            skip_others(bytes, key) <= bytes.len(),
            "more entries are skipped than there are"
        );
    }
    if let Ok(promoted) = Promoted::decode(IndexBytes::from(bytes.to_vec())) {
        for number in 0..promoted.len().min(100) {
            let _ = promoted.block(number, &[None, Some(4)]);
        }
    }
    for compressor in COMPRESSORS {
        for len in [0, 1, 500, CHUNK_BYTES] {
            let mut out = Vec::new();
            if compressor.decompress(bytes, len, &mut out).is_ok() {
                assert_eq!(out.len(), len, "a chunk has another length");
            }
        }
    }
    let text = String::from_utf8_lossy(bytes);
    if let Some((first, last, reason)) = quarantine::decode(&text) {
        let again = quarantine::decode(&quarantine::encode(first, last, &reason));
        assert_eq!(again, Some((first, last, reason)), "the note of a quarantine changes");
    }
    let _ = parse_name(&text);
}

/// The components that a sample has: none of them has checksums, so that every change is read.
const COMPONENTS: [Component; 6] = [
    Component::Data,
    Component::Index,
    Component::Summary,
    Component::Filter,
    Component::Statistics,
    Component::Toc,
];

/// Whole sstables: of each component its number in [`COMPONENTS`], a length of four bytes, and its bytes. Blocks.
///
/// # Panics
/// Never: the disk has room.
#[must_use]
pub fn file_seeds() -> Vec<Vec<u8>> {
    let table = table();
    let blocks = blocks(&table);
    let base = EncodingBase::of_blocks(&table.layout, &blocks);
    let dir = Path::new("/samples");
    let mut seeds = Vec::new();
    for column_index_size_bytes in [64, 1 << 16] {
        fs::create_dir_all(dir).expect("a directory");
        let options = WriterOptions {
            compression: Compression::none(),
            column_index_size_bytes,
            min_index_interval: 2,
            ..WriterOptions::of_table(&table, 4, base).expect("known options")
        };
        let mut writer = Writer::create(dir, 1, &table, options).expect("an empty directory");
        blocks
            .iter()
            .for_each(|block| writer.append(block).expect("room on the disk"));
        let descriptor = writer.finish().expect("room on the disk").descriptor;
        let mut seed = Vec::new();
        for (number, component) in (0..).zip(COMPONENTS) {
            let bytes = match component {
                Component::Toc => COMPONENTS.map(Component::suffix).join("\n").into_bytes(),
                _ => fs::read(descriptor.path(component)).expect("it was written"),
            };
            seed.push(number);
            seed.extend_from_slice(&u32::try_from(bytes.len()).expect("short").to_be_bytes());
            seed.extend_from_slice(&bytes);
        }
        seeds.push(seed);
        fs::remove_dir_all(dir).expect("it was made");
    }
    seeds
}

/// Writes the components of an input into a directory.
fn write_components(dir: &Path, version: Version, bytes: &[u8]) -> Descriptor {
    let descriptor = Descriptor {
        dir: dir.to_owned(),
        version,
        generation: Generation::Number(1),
    };
    let mut rest = bytes;
    while let Some((head, behind)) = rest.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (component, behind) = behind.split_at(length.min(behind.len()));
        if let Some(known) = COMPONENTS.get(usize::from(head[0])) {
            fs::write(descriptor.path(*known), component).expect("room on the disk");
        }
        rest = behind;
    }
    descriptor
}

/// Writes the components, and reads the sstable in every way: dumped, verified, scanned, and by key.
pub fn read_files(bytes: Vec<u8>) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        let dir = PathBuf::from("/read");
        fs::create_dir_all(&dir).expect("a directory");
        let version = match bytes.len() % 8 {
            0 => Version::Mc,
            1 => Version::Md,
            _ => Version::Me,
        };
        let descriptor = write_components(&dir, version, &bytes);
        let path = descriptor.path(Component::Data);
        let mut dumped = Vec::new();
        let _ = tool::dump(&path, 0, &mut dumped);
        let _ = tool::verify(&path);
        let _ = tool::metadata(&path);
        if let Ok(reader) = Reader::open_descriptor(&descriptor, &table())
            && let Err(error) = read_by_key(&reader).await
        {
            drop(error.to_string());
        }
        fs::remove_dir_all(&dir).expect("it was made");
    })
}

async fn read_by_key(reader: &Arc<Reader>) -> Result<(), crate::Error> {
    let cache = Rc::new(ChunkCache::new(1 << 20));
    let limits = ReadLimits {
        rows: 2,
        bytes: 1 << 16,
    };
    let slice = ClusteringSlice {
        start: Bound::after(&clustering("row", 4)),
        end: Bound::after(&clustering("row", 1)),
    };
    for key in [&b"one"[..], b"three", b"none"] {
        for reversed in [false, true] {
            for slices in [&[ClusteringSlice::all()][..], std::slice::from_ref(&slice)] {
                let cursor = reader.read_partition(&cache, token_of(key), key, slices, reversed, limits);
                let Some(mut cursor) = cursor.await? else { continue };
                while cursor.next_block().await?.is_some() {}
            }
        }
    }
    let mut scan = reader.scan(&cache, Token::MIN, b"", Token::MAX, limits).await?;
    while scan.next_block().await?.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::sim::Simulation;
    use std::cell::Cell as Flag;
    use std::time::Duration;

    #[test]
    fn every_seed_is_a_component_that_is_read() {
        seeds().iter().for_each(|seed| read(seed));
        let filters = seeds().iter().filter(|seed| Filter::decode(seed).is_ok()).count();
        assert_eq!(filters, 1, "the filter is not read");
    }

    #[test]
    fn every_seed_of_files_is_an_sstable_that_is_verified() {
        let mut simulation = Simulation::new(1);
        let machine = simulation.add_node(1);
        let verified = Rc::new(Flag::new(0));
        let seen = verified.clone();
        simulation.start(machine, move |_| {
            let seen = seen.clone();
            Box::pin(async move {
                for seed in file_seeds() {
                    let dir = Path::new("/read");
                    fs::create_dir_all(dir).expect("a directory");
                    let descriptor = write_components(dir, Version::Me, &seed);
                    let report = tool::verify(&descriptor.path(Component::Data)).expect("a sound sstable");
                    assert_eq!(report.partitions, 4);
                    let reader = Reader::open_descriptor(&descriptor, &table()).expect("a sound sstable");
                    read_by_key(&reader).await.expect("a sound sstable");
                    seen.set(seen.get() + 1);
                }
            })
        });
        simulation.run_until_ended(machine, Duration::from_secs(60));
        assert_eq!(verified.get(), 2, "a seed was not looked at");
    }
}
