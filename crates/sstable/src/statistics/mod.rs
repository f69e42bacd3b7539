//! Statistics.db: what is known of the file without reading it.
//!
//! ```text
//! u32 n, n x {u32 kind, u32 offset}
//! kind 0 validation     string16 partitioner, f64 false positive chance of the filter
//! kind 1 compaction     u32 length and a HyperLogLog++ sketch of the keys
//! kind 2 stats          partition size and cell count histograms; commit log position (i64, i32) up to which it has
//!                       everything; i64 minimum and maximum timestamp, i32 deletion time, i32 ttl; f64 compression
//!                       ratio; tombstone histogram; u32 level; i64 repaired at; minimum and maximum clustering, each
//!                       u32 n, n x string16; u8 has legacy counters; i64 cells; i64 rows; lower commit log position;
//!                       u32 n, n x two positions; from me on u8 1 and the UUID of the host, or u8 0
//! kind 3 header         the serialisation header
//! ```
//! Cells that never expire count with the greatest deletion time and ttl 0, so the maxima show whether all expires.

pub(crate) mod histogram;

use mutation::Tombstone;
use stdx::bytes::Reader;
use uuid::Uuid;

use crate::data::header::{DELETION_TIME_MAX, NO_DELETION_TIME, SerializationHeader};
use crate::directory::component::Version;
use crate::error::Damage;
use crate::statistics::histogram::{EstimatedHistogram, TombstoneHistogram};

const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";
const KINDS: [&str; 4] = ["validation", "compaction", "stats", "header"];

/// Statistics.db, decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Java class of the partitioner.
    pub partitioner: String,
    /// What the filter was made for.
    pub bloom_filter_fp_chance: f64,
    /// Sketch of the keys, as Cassandra serialises it.
    pub cardinality: Vec<u8>,
    /// Sizes of partitions in bytes of data.
    pub partition_size: EstimatedHistogram,
    /// Cells of partitions.
    pub cell_count: EstimatedHistogram,
    /// Least write timestamp of anything in the file.
    pub min_timestamp: i64,
    /// Greatest write timestamp.
    pub max_timestamp: i64,
    /// Least deletion time or expiry, seconds; `i32::MAX` when nothing is deleted or expires.
    pub min_deletion_time: u32,
    /// Greatest; `i32::MAX` when something lives forever.
    pub max_deletion_time: u32,
    /// Least ttl; 0 when something lives forever.
    pub min_ttl: u32,
    /// Greatest ttl.
    pub max_ttl: u32,
    /// Length of the file over length of the data; -1 when not compressed.
    pub compression_ratio: f64,
    /// Deletion times and expiries.
    pub tombstones: TombstoneHistogram,
    /// Level of leveled compaction.
    pub level: u32,
    /// Milliseconds; 0 is never.
    pub repaired_at: i64,
    /// Components of the first clustering, as many as are certain.
    pub min_clustering: Vec<Vec<u8>>,
    /// Components of the last clustering.
    pub max_clustering: Vec<Vec<u8>>,
    /// Counters of Cassandra before 2.1.
    pub has_legacy_counters: bool,
    /// Cells.
    pub cells: u64,
    /// Rows.
    pub rows: u64,
    /// The host that wrote the file.
    pub host_id: Option<Uuid>,
    /// What the rows are made of.
    pub header: SerializationHeader,
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    // Cut: a bound may be imprecise, a file may not be unreadable.
    let cut = &bytes[..bytes.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&u16::try_from(cut.len()).expect("just cut").to_be_bytes());
    out.extend_from_slice(cut);
}

fn get_string<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Damage> {
    let len = usize::from(r.get_u16()?);
    Ok(r.get_slice(len)?)
}

fn get_strings(r: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, Damage> {
    let mut strings = Vec::new();
    for _ in 0..r.get_u32()? {
        strings.push(get_string(r)?.to_vec());
    }
    Ok(strings)
}

fn time_to_i32(t: u32) -> i32 {
    i32::try_from(t).unwrap_or(i32::MAX)
}

/// Negative numbers in files of others mean none.
fn time_of_i32(t: i32) -> u32 {
    u32::try_from(t).unwrap_or(0)
}

impl Statistics {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bodies: [Vec<u8>; 4] = Default::default();
        let [validation, compaction, stats, header] = &mut bodies;
        put_string(validation, self.partitioner.as_bytes());
        validation.extend_from_slice(&self.bloom_filter_fp_chance.to_be_bytes());
        compaction.extend_from_slice(&u32::try_from(self.cardinality.len()).expect("a few KiB").to_be_bytes());
        compaction.extend_from_slice(&self.cardinality);
        self.encode_stats(stats);
        self.header.encode(header);
        let mut out = Vec::new();
        out.extend_from_slice(&4u32.to_be_bytes());
        let mut offset = 4 + 8 * bodies.len();
        for (kind, body) in bodies.iter().enumerate() {
            out.extend_from_slice(&u32::try_from(kind).expect("four kinds").to_be_bytes());
            out.extend_from_slice(&u32::try_from(offset).expect("statistics are small").to_be_bytes());
            offset += body.len();
        }
        for body in &bodies {
            out.extend_from_slice(body);
        }
        out
    }

    fn encode_stats(&self, out: &mut Vec<u8>) {
        const NO_POSITION: [u8; 12] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        self.partition_size.write(out);
        self.cell_count.write(out);
        out.extend_from_slice(&NO_POSITION);
        out.extend_from_slice(&self.min_timestamp.to_be_bytes());
        out.extend_from_slice(&self.max_timestamp.to_be_bytes());
        for t in [
            self.min_deletion_time,
            self.max_deletion_time,
            self.min_ttl,
            self.max_ttl,
        ] {
            out.extend_from_slice(&time_to_i32(t).to_be_bytes());
        }
        out.extend_from_slice(&self.compression_ratio.to_be_bytes());
        self.tombstones.write(out);
        out.extend_from_slice(&self.level.to_be_bytes());
        out.extend_from_slice(&self.repaired_at.to_be_bytes());
        for clustering in [&self.min_clustering, &self.max_clustering] {
            out.extend_from_slice(&u32::try_from(clustering.len()).expect("few columns").to_be_bytes());
            for component in clustering {
                put_string(out, component);
            }
        }
        out.push(u8::from(self.has_legacy_counters));
        out.extend_from_slice(&self.cells.to_be_bytes());
        out.extend_from_slice(&self.rows.to_be_bytes());
        out.extend_from_slice(&NO_POSITION);
        out.extend_from_slice(&0u32.to_be_bytes());
        match self.host_id {
            Some(id) => {
                out.push(1);
                out.extend_from_slice(id.as_bytes());
            }
            None => out.push(0),
        }
    }

    /// The offset of `repaired at` in these bytes: only there is a file of another writer changed.
    pub(crate) fn repaired_at_offset(bytes: &[u8]) -> Result<usize, Damage> {
        let starts = Self::starts(bytes)?;
        let start = starts[2].ok_or_else(|| Damage::new(0, "the stats statistics"))?;
        let mut r = Reader::new(&bytes[start..]);
        let mut skip = || -> Result<usize, Damage> {
            EstimatedHistogram::read(&mut r)?;
            EstimatedHistogram::read(&mut r)?;
            // The position in the commitlog, two timestamps, four times, the compression ratio.
            r.get_slice(12 + 2 * 8 + 4 * 4 + 8)?;
            TombstoneHistogram::read(&mut r)?;
            r.get_u32()?;
            let at = r.at();
            r.get_i64()?;
            Ok(at)
        };
        let at = skip().map_err(|d| Damage { at: d.at + start, ..d })?;
        Ok(start + at)
    }

    /// Where each kind begins.
    fn starts(bytes: &[u8]) -> Result<[Option<usize>; 4], Damage> {
        let mut toc = Reader::new(bytes);
        let mut starts = [None; 4];
        for _ in 0..toc.get_u32()? {
            let at = toc.at();
            let (kind, offset) = (toc.get_u32()? as usize, toc.get_u32()? as usize);
            match starts.get_mut(kind) {
                Some(start) if offset <= bytes.len() => *start = Some(offset),
                _ => return Err(Damage::new(at, "a kind of statistics and its place in the file")),
            }
        }
        Ok(starts)
    }

    pub(crate) fn decode(bytes: &[u8], version: Version) -> Result<Self, Damage> {
        let starts = Self::starts(bytes)?;
        let part = |kind: usize| -> Result<(usize, Reader<'_>), Damage> {
            let start = starts[kind].ok_or_else(|| Damage::new(0, format!("the {} statistics", KINDS[kind])))?;
            Ok((start, Reader::new(&bytes[start..])))
        };
        let shifted = |start: usize| move |d: Damage| Damage { at: d.at + start, ..d };
        let (start, mut r) = part(3)?;
        let header = SerializationHeader::decode(&mut r).map_err(shifted(start))?;
        let (start, mut r) = part(2)?;
        let mut statistics = Self::decode_stats(&mut r, version, header).map_err(shifted(start))?;
        let (start, mut r) = part(0)?;
        let mut validation = || -> Result<(String, f64), Damage> {
            let partitioner = String::from_utf8_lossy(get_string(&mut r)?).into_owned();
            if !partitioner.ends_with("Murmur3Partitioner") {
                return Err(Damage::new(0, format!("Murmur3Partitioner, not {partitioner}")));
            }
            Ok((partitioner, f64::from_be_bytes(r.get_array()?)))
        };
        (statistics.partitioner, statistics.bloom_filter_fp_chance) = validation().map_err(shifted(start))?;
        if starts[1].is_some() {
            let (start, mut r) = part(1)?;
            let mut sketch = || -> Result<Vec<u8>, Damage> {
                let len = r.get_u32()? as usize;
                Ok(r.get_slice(len)?.to_vec())
            };
            statistics.cardinality = sketch().map_err(shifted(start))?;
        }
        Ok(statistics)
    }

    fn decode_stats(r: &mut Reader<'_>, version: Version, header: SerializationHeader) -> Result<Self, Damage> {
        let partition_size = EstimatedHistogram::read(r)?;
        let cell_count = EstimatedHistogram::read(r)?;
        r.get_slice(12)?;
        let (min_timestamp, max_timestamp) = (r.get_i64()?, r.get_i64()?);
        let (min_deletion_time, max_deletion_time) = (time_of_i32(r.get_i32()?), time_of_i32(r.get_i32()?));
        let (min_ttl, max_ttl) = (time_of_i32(r.get_i32()?), time_of_i32(r.get_i32()?));
        let compression_ratio = f64::from_be_bytes(r.get_array()?);
        let tombstones = TombstoneHistogram::read(r)?;
        let level = r.get_u32()?;
        let repaired_at = r.get_i64()?;
        let (min_clustering, max_clustering) = (get_strings(r)?, get_strings(r)?);
        let has_legacy_counters = r.get_u8()? != 0;
        let (cells, rows) = (r.get_u64()?, r.get_u64()?);
        r.get_slice(12)?;
        let intervals = r.get_u32()? as usize;
        r.get_slice(intervals.saturating_mul(24))?;
        let mut host_id = None;
        if version >= Version::Me && r.get_u8()? != 0 {
            host_id = Some(Uuid::from_bytes(r.get_array()?));
        }
        Ok(Self {
            partitioner: String::new(),
            bloom_filter_fp_chance: 0.0,
            cardinality: Vec::new(),
            partition_size,
            cell_count,
            min_timestamp,
            max_timestamp,
            min_deletion_time,
            max_deletion_time,
            min_ttl,
            max_ttl,
            compression_ratio,
            tombstones,
            level,
            repaired_at,
            min_clustering,
            max_clustering,
            has_legacy_counters,
            cells,
            rows,
            host_id,
            header,
        })
    }
}

/// Gathers statistics while a file is written.
pub(crate) struct Collector {
    min_timestamp: i64,
    max_timestamp: i64,
    min_deletion_time: u32,
    max_deletion_time: u32,
    min_ttl: u32,
    max_ttl: u32,
    tombstones: TombstoneHistogram,
    /// The bin that counts now, so that a row of cells that expire together costs one update.
    bin: (u32, u64),
    partition_cells: u64,
    pub(crate) cells: u64,
    pub(crate) rows: u64,
    partition_size: EstimatedHistogram,
    cell_count: EstimatedHistogram,
    sketch: Sketch,
}

impl Collector {
    pub(crate) fn new() -> Self {
        Self {
            min_timestamp: i64::MAX,
            max_timestamp: i64::MIN,
            min_deletion_time: NO_DELETION_TIME,
            max_deletion_time: 0,
            min_ttl: u32::MAX,
            max_ttl: 0,
            tombstones: TombstoneHistogram::default(),
            bin: (0, 0),
            partition_cells: 0,
            cells: 0,
            rows: 0,
            partition_size: EstimatedHistogram::new(150),
            cell_count: EstimatedHistogram::new(114),
            sketch: Sketch::new(),
        }
    }

    #[inline]
    fn see(&mut self, timestamp: i64, deletion_time: u32, ttl: u32) {
        self.min_timestamp = self.min_timestamp.min(timestamp);
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.min_deletion_time = self.min_deletion_time.min(deletion_time);
        self.max_deletion_time = self.max_deletion_time.max(deletion_time);
        self.min_ttl = self.min_ttl.min(ttl);
        self.max_ttl = self.max_ttl.max(ttl);
    }

    #[inline]
    fn count_dropping(&mut self, deletion_time: u32) {
        if self.bin.0 == deletion_time {
            self.bin.1 += 1;
        } else {
            self.close_bin();
            self.bin = (deletion_time, 1);
        }
    }

    fn close_bin(&mut self) {
        if self.bin.1 > 0 {
            self.tombstones.add(self.bin.0, self.bin.1);
        }
        self.bin = (0, 0);
    }

    /// A cell or row marker that lives forever.
    #[inline]
    pub(crate) fn live(&mut self, timestamp: i64) {
        self.see(timestamp, NO_DELETION_TIME, 0);
    }

    /// A cell or row marker that expires.
    #[inline]
    pub(crate) fn expiring(&mut self, timestamp: i64, ttl: u32, expiry: u32) {
        self.see(timestamp, expiry, ttl);
        self.count_dropping(expiry);
    }

    /// A dead cell.
    #[inline]
    pub(crate) fn dead(&mut self, timestamp: i64, deletion_time: u32) {
        self.see(timestamp, deletion_time, 0);
        self.count_dropping(deletion_time);
    }

    /// A tombstone of a partition, row, range or complex column.
    pub(crate) fn deletion(&mut self, t: Tombstone) {
        let deletion_time = t.deletion_time.min(DELETION_TIME_MAX);
        self.min_timestamp = self.min_timestamp.min(t.timestamp);
        self.max_timestamp = self.max_timestamp.max(t.timestamp);
        self.min_deletion_time = self.min_deletion_time.min(deletion_time);
        self.max_deletion_time = self.max_deletion_time.max(deletion_time);
        self.count_dropping(deletion_time);
    }

    #[inline]
    pub(crate) fn cell(&mut self) {
        self.partition_cells += 1;
    }

    /// A partition of so many bytes ends.
    pub(crate) fn partition(&mut self, key: &[u8], bytes: u64) {
        self.partition_size.add(bytes);
        self.cell_count.add(self.partition_cells);
        self.cells += self.partition_cells;
        self.partition_cells = 0;
        self.sketch.add(key);
    }

    /// The statistics of the whole file, but for what the writer knows.
    pub(crate) fn finish(mut self, header: SerializationHeader, bloom_filter_fp_chance: f64) -> Statistics {
        self.close_bin();
        let is_timeless = self.min_timestamp > self.max_timestamp;
        let has_no_ttl = self.min_ttl == u32::MAX;
        Statistics {
            partitioner: PARTITIONER.to_owned(),
            bloom_filter_fp_chance,
            cardinality: self.sketch.encode(),
            partition_size: self.partition_size,
            cell_count: self.cell_count,
            min_timestamp: if is_timeless { i64::MIN } else { self.min_timestamp },
            max_timestamp: if is_timeless { i64::MAX } else { self.max_timestamp },
            min_deletion_time: self.min_deletion_time,
            max_deletion_time: if is_timeless {
                NO_DELETION_TIME
            } else {
                self.max_deletion_time
            },
            min_ttl: if has_no_ttl { 0 } else { self.min_ttl },
            max_ttl: self.max_ttl,
            compression_ratio: -1.0,
            tombstones: self.tombstones,
            level: 0,
            repaired_at: 0,
            min_clustering: Vec::new(),
            max_clustering: Vec::new(),
            has_legacy_counters: false,
            cells: self.cells,
            rows: self.rows,
            host_id: None,
            header,
        }
    }
}

/// HyperLogLog++ of precision 13, in the serialised form of the library that Cassandra uses.
///
/// ```text
/// i32 -2 (the version), vint 13 (precision), vint 25 (sparse precision), vint 0 (dense), vint bytes,
/// then 32-bit words, each with six registers of five bits, the first lowest           vint: LEB128
/// ```
struct Sketch {
    registers: Vec<u8>,
}

const PRECISION: u32 = 13;
const SPARSE_PRECISION: u8 = 25;
const REGISTERS_PER_WORD: usize = 6;

impl Sketch {
    fn new() -> Self {
        Self {
            registers: vec![0; 1 << PRECISION],
        }
    }

    fn add(&mut self, key: &[u8]) {
        let hash = murmur2_64(key);
        let register = usize::try_from(hash >> (64 - PRECISION)).expect("thirteen bits");
        let run = ((hash << PRECISION) | (1 << (PRECISION - 1))).leading_zeros() + 1;
        let run = u8::try_from(run).expect("at most 64");
        self.registers[register] = self.registers[register].max(run.min(31));
    }

    fn encode(&self) -> Vec<u8> {
        let words = self.registers.len() / REGISTERS_PER_WORD + 1;
        let mut out = Vec::with_capacity(16 + words * 4);
        out.extend_from_slice(&(-2i32).to_be_bytes());
        out.extend_from_slice(&[PRECISION.to_le_bytes()[0], SPARSE_PRECISION, 0]);
        let mut bytes = words * 4;
        while bytes >= 0x80 {
            out.push((bytes & 0x7f) as u8 | 0x80);
            bytes >>= 7;
        }
        out.push(bytes as u8);
        let mut packed = vec![0u32; words];
        for (i, r) in self.registers.iter().enumerate() {
            packed[i / REGISTERS_PER_WORD] |= u32::from(*r) << (5 * (i % REGISTERS_PER_WORD));
        }
        for word in packed {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out
    }
}

/// MurmurHash2, 64-bit, seed 0, as Cassandra counts keys with it: the tail's bytes are sign-extended.
fn murmur2_64(key: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut h = M.wrapping_mul(key.len() as u64);
    let (blocks, tail) = key.as_chunks::<8>();
    for block in blocks {
        let mut k = u64::from_le_bytes(*block).wrapping_mul(M);
        k ^= k >> R;
        h = (h ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        for (i, b) in tail.iter().enumerate() {
            h ^= (i64::from(b.cast_signed()) << (8 * i)).cast_unsigned();
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> R;
    h = h.wrapping_mul(M);
    h ^ (h >> R)
}
