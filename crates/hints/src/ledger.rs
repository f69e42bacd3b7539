//! What a node knows of writes that nodes have missed, as a file and as a message.
//!
//! ```text
//! report   u8 format version 1, u8 1 after a clean shutdown, u32 until,
//!          u32 count, then for each node: [16] host id,
//!                     u32 count, then for each span: u32 first second, u32 last second;
//!          u32 count, then for each node that has waiting hints: [16] host id, u32 second since which they wait;
//!          u64 the fence of the node's metadata
//! file     "CETOMIS1", u32 length and the node's own report,
//!          then for each other node: [16] host id, u32 length and its report;
//!          u32 crc of all that
//! ```
//!
//! Little endian. The file is replaced as a whole, durably.

use std::collections::BTreeMap;

use runtime::fs;
use stdx::bytes::Reader;
use topology::HostId;
use uuid::Uuid;

use crate::missed::{CLOCK_MARGIN_SECONDS, Missed, SPANS_MAX, Spans};
use crate::{Hints, HintsError};

const FILE_NAME: &str = "missed";
const MAGIC: &[u8; 8] = b"CETOMIS1";
const FORMAT_VERSION: u8 = 1;
/// Most nodes in a report; a cluster has fewer.
const NODES_MAX: u32 = 4096;

/// What one node says about the writes that it coordinated.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// It is complete for what was written before this second.
    pub until: u32,
    /// The node was shut down in order: it coordinated no write after `until`.
    pub is_final: bool,
    /// Which nodes may have missed writes, and when these were made.
    pub missed: Missed,
    /// Since which second hints wait for nodes: these miss, for a while, what was written since.
    pub waiting: BTreeMap<HostId, u32>,
    /// The node accepts nothing, on any of its shards, from a coordinator that has not seen the command of this index;
    /// 0 if the report has no fence.
    pub fence: u64,
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Ledger {
    /// Of the node itself.
    pub own: Report,
    /// What others have said last.
    pub others: BTreeMap<HostId, Report>,
}

impl Report {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT_VERSION, u8::from(self.is_final)];
        let put = |out: &mut Vec<u8>, number: u32| out.extend_from_slice(&number.to_le_bytes());
        let count = |count: usize| u32::try_from(count).expect("counts have limits below that");
        put(&mut out, self.until);
        put(&mut out, count(self.missed.len()));
        for (host, spans) in &self.missed {
            out.extend_from_slice(host.0.as_bytes());
            put(&mut out, count(spans.iter().count()));
            for span in spans.iter() {
                put(&mut out, *span.start());
                put(&mut out, *span.end());
            }
        }
        put(&mut out, count(self.waiting.len()));
        for (host, since) in &self.waiting {
            out.extend_from_slice(host.0.as_bytes());
            put(&mut out, *since);
        }
        out.extend_from_slice(&self.fence.to_le_bytes());
        out
    }

    /// All seconds in which nodes may have missed writes, for a while or permanently. The deletions of what waits may
    /// have seconds of clocks that are ahead.
    #[must_use]
    pub fn all(&self) -> Missed {
        let mut all = self.missed.clone();
        let last = self.until.saturating_add(CLOCK_MARGIN_SECONDS);
        for (host, since) in &self.waiting {
            all.entry(*host).or_default().add(*since, last);
        }
        all
    }

    /// From bytes of a peer or a file; None when they are no report of a version that is known.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.get_u8().ok()? != FORMAT_VERSION {
            return None;
        }
        let is_final = reader.get_u8().ok()? == 1;
        let until = u32_of(&mut reader)?;
        let mut missed = Missed::new();
        for _ in 0..Some(u32_of(&mut reader)?).filter(|count| *count <= NODES_MAX)? {
            let host = host_of(&mut reader)?;
            let spans: &mut Spans = missed.entry(host).or_default();
            let count = u32_of(&mut reader)?;
            for _ in 0..Some(count).filter(|count| *count as usize <= SPANS_MAX)? {
                let first = u32_of(&mut reader)?;
                spans.add(first, u32_of(&mut reader)?);
            }
        }
        let mut waiting = BTreeMap::new();
        for _ in 0..Some(u32_of(&mut reader)?).filter(|count| *count <= NODES_MAX)? {
            let host = host_of(&mut reader)?;
            waiting.insert(host, u32_of(&mut reader)?);
        }
        let fence = u64::from_le_bytes(reader.get_array().ok()?);
        reader.rest().is_empty().then_some(Self {
            until,
            is_final,
            missed,
            waiting,
            fence,
        })
    }
}

fn u32_of(reader: &mut Reader<'_>) -> Option<u32> {
    reader.get_array().ok().map(u32::from_le_bytes)
}

fn host_of(reader: &mut Reader<'_>) -> Option<HostId> {
    let bytes = reader.get_array().ok()?;
    Some(HostId(Uuid::from_bytes(bytes)))
}

impl Ledger {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let put = |out: &mut Vec<u8>, report: &Report| {
            let bytes = report.encode();
            let len = u32::try_from(bytes.len()).expect("a report is below its limit");
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(&bytes);
        };
        put(&mut out, &self.own);
        for (host, report) in &self.others {
            out.extend_from_slice(host.0.as_bytes());
            put(&mut out, report);
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if u32::from_le_bytes(*crc) != crc32fast::hash(body) {
            return None;
        }
        let mut reader = Reader::new(body.strip_prefix(MAGIC)?);
        let report = |reader: &mut Reader<'_>| {
            let len = u32_of(reader)? as usize;
            Report::decode(reader.get_slice(len).ok()?)
        };
        let mut ledger = Self {
            own: report(&mut reader)?,
            others: BTreeMap::new(),
        };
        while !reader.rest().is_empty() {
            let host = host_of(&mut reader)?;
            ledger.others.insert(host, report(&mut reader)?);
        }
        Some(ledger)
    }
}

/// The format of the node's own report in a file whose checksum is right, where this release does not know it.
fn unknown_format(file: &[u8]) -> Option<u8> {
    let (body, crc) = file.split_last_chunk::<4>()?;
    let format = body.strip_prefix(MAGIC)?.get(4)?;
    let is_whole = u32::from_le_bytes(*crc) == crc32fast::hash(body);
    (is_whole && *format != FORMAT_VERSION).then_some(*format)
}

impl Hints {
    /// The node's ledger as an earlier run left it; None when there was none.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged: without it deleted rows may come back.
    pub async fn load_ledger(&self) -> Result<Option<Ledger>, HintsError> {
        let path = self.options.dir.join(FILE_NAME);
        runtime::offload(move || {
            if !fs::exists(&path) {
                return Ok(None);
            }
            let bytes = fs::read(&path).map_err(|e| HintsError::new(&path, &e))?;
            let refused = || HintsError {
                message: match unknown_format(&bytes) {
                    Some(found) => format!(
                        "it is in format {found}: expected {FORMAT_VERSION}, the only one known here. Start the release that wrote it"
                    ),
                    None => {
                        "damaged: expected what nodes have missed and a checksum. Repair all tables before it is removed"
                            .to_owned()
                    }
                },
                file: path.clone(),
            };
            Ledger::decode(&bytes).ok_or_else(refused).map(Some)
        })
        .await
    }

    /// Replaces the node's ledger, durably.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub async fn save_ledger(&self, ledger: &Ledger) -> Result<(), HintsError> {
        let (dir, bytes) = (self.options.dir.clone(), ledger.encode());
        runtime::offload(move || {
            let path = dir.join(FILE_NAME);
            fs::replace_durably(&path, &bytes).map_err(|e| HintsError::new(&path, &e))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let mut spans = Spans::default();
        spans.add(5, 7);
        spans.add(100, 200);
        let host = |number| HostId(Uuid::from_u128(number));
        let report = Report {
            until: 77,
            is_final: true,
            missed: Missed::from([(host(3), spans), (host(4), Spans::default())]),
            waiting: BTreeMap::from([(host(3), 50)]),
            fence: 0,
        };
        let fenced = Report {
            fence: 0x1234_5678_9abc,
            ..report.clone()
        };
        Ledger {
            own: Report::default(),
            others: BTreeMap::from([(host(9), report), (host(10), fenced)]),
        }
    }

    #[test]
    fn a_ledger_is_read_as_written_or_not_at_all() {
        let bytes = ledger().encode();
        assert_eq!(Ledger::decode(&bytes), Some(ledger()));
        for at in 0..bytes.len() {
            assert_eq!(Ledger::decode(&bytes[..at]), None, "cut at {at}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Ledger::decode(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn a_ledger_of_an_unknown_format_is_not_taken_for_a_damaged_one() {
        let mut bytes = ledger().encode();
        assert_eq!(unknown_format(&bytes), None);
        bytes[MAGIC.len() + 4] = 2;
        assert_eq!(unknown_format(&bytes), None, "the checksum is another's");
        let body = bytes.len() - 4;
        let crc = crc32fast::hash(&bytes[..body]);
        bytes[body..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!((Ledger::decode(&bytes), unknown_format(&bytes)), (None, Some(2)));
    }

    #[test]
    fn a_report_of_a_peer_is_read_or_refused_whatever_its_bytes_are() {
        for report in ledger().others.into_values() {
            let bytes = report.encode();
            assert_eq!(Report::decode(&bytes), Some(report));
            for at in 0..bytes.len() {
                assert_eq!(Report::decode(&bytes[..at]), None, "cut at {at}");
                let mut other = bytes.clone();
                other[at] = 0xff;
                let _ = Report::decode(&other);
            }
        }
    }
}
