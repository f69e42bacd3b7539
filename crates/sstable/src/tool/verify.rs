//! Reads all of an sstable and checks every component against the others.

use std::path::Path;

use mutation::Bound;
use types::token::{KeyHash, token_of};

use crate::big::index::Promoted;
use crate::data::window::ReadLimits;
use crate::directory::component::Component;
use crate::error::Error;
use crate::io::{self, InputFile};
use crate::read::reader::Reader;
use crate::read::scan::for_each_entry;

/// What a sound sstable holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// Partitions.
    pub partitions: u64,
    /// Rows.
    pub rows: u64,
    /// Range tombstones.
    pub range_tombstones: u64,
    /// Bytes of data before compression.
    pub data_len: u64,
}

/// Checks the sstable that `path` is a component of: every checksum, every partition and row and their order, and that
/// index, summary, filter and statistics say the same as the data.
///
/// # Errors
/// The first damage that is found.
pub fn verify(path: &Path) -> Result<Report, Error> {
    let (reader, _) = super::open(path)?;
    reader.data.verify_blocking()?;
    reader.index.verify_blocking()?;
    digest(&reader)?;
    let report = contents(&reader)?;
    index(&reader, report.partitions)?;
    Ok(report)
}

/// The checksum of all of Data.db.
fn digest(reader: &Reader) -> Result<(), Error> {
    if !reader.components().contains(&Component::Digest) {
        return Ok(());
    }
    let path = reader.descriptor().path(Component::Digest);
    let text = io::read_all(&path)?;
    let text = String::from_utf8_lossy(&text);
    let wanted: u32 = text
        .trim()
        .parse()
        .map_err(|_| Error::damaged(&path, 0, "a checksum in decimal digits"))?;
    let file = InputFile::open(reader.descriptor().path(Component::Data))?;
    let (mut hasher, mut buffer, mut at) = (crc32fast::Hasher::new(), Vec::new(), 0);
    while at < file.len() {
        let len = usize::try_from((file.len() - at).min(1 << 20)).expect("a megabyte");
        buffer.clear();
        file.read_blocking(at, len, &mut buffer)?;
        hasher.update(&buffer);
        at += len as u64;
    }
    let found = hasher.finalize();
    // Cassandra may close a file with a chunk of no data, which others leave out of the digest: then the last chunk,
    // and its checksum, are not covered.
    if found != wanted && !is_digest_without_empty_chunk(reader, &file, wanted)? {
        return Err(Error::damaged(
            &path,
            0,
            format!("{found}, the checksum of all of Data.db"),
        ));
    }
    Ok(())
}

fn is_digest_without_empty_chunk(reader: &Reader, file: &InputFile, wanted: u32) -> Result<bool, Error> {
    let Some(info) = reader.data.compression() else {
        return Ok(false);
    };
    let chunks = reader.data.chunk_count();
    let Some(end) = info.offsets.get(usize::try_from(chunks).unwrap_or(usize::MAX)) else {
        return Ok(false);
    };
    let mut bytes = Vec::new();
    file.read_blocking(0, usize::try_from(*end).unwrap_or(usize::MAX), &mut bytes)?;
    Ok(crc32fast::hash(&bytes) == wanted)
}

fn contents(reader: &std::sync::Arc<Reader>) -> Result<Report, Error> {
    let data = reader.data.path();
    let mut scan = reader.scan_blocking(
        types::Token::MIN,
        types::Token::MAX,
        ReadLimits {
            rows: 1000,
            bytes: 1 << 20,
        },
    )?;
    let mut report = Report {
        partitions: 0,
        rows: 0,
        range_tombstones: 0,
        data_len: reader.data.len(),
    };
    let mut last_key: Vec<u8> = Vec::new();
    while let Some(block) = scan.next_block()? {
        let is_new = report.partitions == 0 || block.key() != last_key;
        if is_new {
            if report.partitions == 0 && block.key() != reader.first_key() {
                return Err(Error::damaged(data, 0, "the first key of the summary"));
            }
            report.partitions += 1;
            last_key.clear();
            last_key.extend_from_slice(block.key());
            if !reader.may_contain(KeyHash::of(block.key())) {
                let path = reader.descriptor().path(Component::Filter);
                return Err(Error::damaged(
                    &path,
                    0,
                    format!("the key of partition {}", report.partitions),
                ));
            }
        }
        report.rows += block.len() as u64;
        report.range_tombstones += block.range_tombstones.len() as u64;
    }
    if last_key != reader.last_key() {
        return Err(Error::damaged(data, reader.data.len(), "the last key of the summary"));
    }
    let statistics = reader.descriptor().path(Component::Statistics);
    let counted = reader.meta().statistics.partition_size.count();
    if counted != report.partitions {
        let expected = format!("{} partitions, not {counted}", report.partitions);
        return Err(Error::damaged(&statistics, 0, expected));
    }
    Ok(report)
}

/// Every entry of the index names a partition, in order, and its promoted index the items at its places.
fn index(reader: &std::sync::Arc<Reader>, partitions: u64) -> Result<(), Error> {
    let path = reader.index.path();
    let mut scan = reader.scan_blocking(
        types::Token::MIN,
        types::Token::MAX,
        ReadLimits {
            rows: 1,
            bytes: usize::MAX,
        },
    )?;
    let mut starts: Vec<(Vec<u8>, u64)> = Vec::new();
    let mut at = 0;
    let mut is_inside = false;
    while let Some(block) = scan.next_block()? {
        if !is_inside {
            starts.push((block.key().to_vec(), at));
        }
        is_inside = block.covered.is_some();
        at = scan.position();
    }
    let (mut n, mut promoted) = (0usize, Vec::new());
    for_each_entry(&reader.index, |position, entry| {
        match starts.get(n) {
            Some((key, start)) if key == entry.key && *start == entry.position => {}
            _ => {
                return Err(Error::damaged(
                    path,
                    position,
                    format!("the entry of partition {}", n + 1),
                ));
            }
        }
        if let Some(sample) = reader.summary.samples.iter().find(|s| s.position == position)
            && *sample.key != *entry.key
        {
            let summary = reader.descriptor().path(Component::Summary);
            return Err(Error::damaged(
                &summary,
                0,
                format!("the key at {position} of Index.db"),
            ));
        }
        if entry.promoted.1 > 0 {
            promoted.push((position, entry.promoted, entry.position, n));
        }
        n += 1;
        Ok(())
    })?;
    if n as u64 != partitions {
        return Err(Error::damaged(
            path,
            reader.index.len(),
            format!("{partitions} entries, not {n}"),
        ));
    }
    for (position, (head, len), start, n) in promoted {
        let end = starts.get(n + 1).map_or(reader.data.len(), |(_, s)| *s);
        check_promoted(reader, position + head as u64, len, start, end)?;
    }
    debug_assert!(starts.windows(2).all(|w| token_of(&w[0].0) <= token_of(&w[1].0)));
    Ok(())
}

fn check_promoted(reader: &Reader, at: u64, len: usize, start: u64, end: u64) -> Result<(), Error> {
    let path = reader.index.path();
    let (mut raw, mut bytes) = (Vec::new(), Vec::new());
    let chunk_len = reader.index.chunk_len();
    let first = at / chunk_len;
    let mut chunk = first;
    while chunk * chunk_len < at + len as u64 {
        chunk += reader.index.read_blocking(chunk, 1 << 20, &mut raw, &mut bytes)?;
    }
    let from = usize::try_from(at - first * chunk_len).expect("inside a chunk");
    let body = bytes
        .get(from..from + len)
        .ok_or_else(|| Error::damaged(path, at, "a whole promoted index"))?;
    let in_file = |d: crate::error::Damage| d.in_file(path, at);
    let promoted = Promoted::decode(body.to_vec().into()).map_err(in_file)?;
    let mut expected = promoted.head_len;
    let mut last: Option<Bound> = None;
    let order = &reader.shape.order;
    for i in 0..promoted.len() {
        let block = promoted.block(i, &reader.shape.format.widths).map_err(in_file)?;
        let is_ordered = block.first.compare(order, &block.last).is_le()
            && last.as_ref().is_none_or(|l| l.compare(order, &block.first).is_le());
        if !is_ordered || block.offset != expected || start + block.offset + block.width > end {
            return Err(Error::damaged(
                path,
                at,
                format!("index block {i} after the previous one"),
            ));
        }
        expected = block.offset + block.width;
        last = Some(block.last);
    }
    Ok(())
}
