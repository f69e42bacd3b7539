//! What the fuzzer needs of hints: real files to begin with, and the decoders.

use std::collections::BTreeMap;

use schema::TableId;
use topology::HostId;
use uuid::Uuid;

use crate::format::{self, SegmentId, Truncation};
use crate::ledger::Ledger;
use crate::missed::Missed;
use crate::{Report, SyncPoint};

const RECORDS: u8 = 0;
const TRUNCATIONS: u8 = 1;
const LEDGER: u8 = 2;
const SYNC_POINT: u8 = 3;
const NAME: u8 = 4;

fn host(n: u128) -> HostId {
    HostId(Uuid::from_u128(n))
}

fn segment() -> SegmentId {
    SegmentId {
        number: 7,
        shard: 1,
        target: host(5),
    }
}

fn report() -> Report {
    let mut missed = Missed::new();
    missed.entry(host(2)).or_default().add(10, 20);
    missed.entry(host(2)).or_default().add(50, 60);
    Report {
        until: 99,
        is_final: false,
        missed,
        waiting: BTreeMap::from([(host(3), 44)]),
        fence: 5,
    }
}

/// A kind, and a file of that kind without its checksum.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut records = format::header(&segment(), 7);
    format::put_record(&mut records, 8, 864_000, b"a mutation");
    format::put_hint(&mut records, 9, 864_000, (3, &[7; 100]));
    let truncation = Truncation {
        shard: 1,
        table: TableId(Uuid::from_u128(7)),
        below: 9,
    };
    let ledger = Ledger {
        own: report(),
        others: BTreeMap::from([(host(8), report())]),
    };
    let point = SyncPoint {
        node: host(1),
        below: vec![7, 9],
        targets: [host(2)].into(),
    };
    let without_checksum = |mut bytes: Vec<u8>| {
        bytes.truncate(bytes.len() - 4);
        bytes
    };
    let digits = point.encode();
    let point = (0..digits.len() / 2 - 4).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap_or(0));
    let kinds = [
        (RECORDS, records),
        (
            TRUNCATIONS,
            without_checksum(format::put_truncations([truncation; 2].into_iter())),
        ),
        (LEDGER, without_checksum(ledger.encode())),
        (LEDGER, report().encode()),
        (SYNC_POINT, point.collect()),
        (NAME, segment().file_name().into_bytes()),
        (NAME, b"hints-3-00000000000000000000000000000005.rejected".to_vec()),
    ];
    kinds
        .into_iter()
        .map(|(kind, bytes)| [&[kind], &bytes[..]].concat())
        .collect()
}

/// Reads the bytes as the kind of file that they are of, with the checksums that they should have.
pub fn read(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else {
        return;
    };
    let sealed = || {
        let mut sealed = bytes.to_vec();
        sealed.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
        sealed
    };
    match kind % 5 {
        RECORDS => read_segment(bytes),
        TRUNCATIONS => {
            let sealed = sealed();
            if let Some(truncations) = format::read_truncations(&sealed) {
                let written = format::put_truncations(truncations.into_iter());
                assert_eq!(written, sealed, "truncations are written otherwise");
            }
        }
        LEDGER => {
            if let Some(report) = Report::decode(bytes) {
                let again = Report::decode(&report.encode());
                assert_eq!(again.as_ref(), Some(&report), "a report changes when it is written");
                let _ = report.all();
            }
            if let Some(ledger) = Ledger::decode(&sealed()) {
                assert_eq!(
                    Ledger::decode(&ledger.encode()),
                    Some(ledger),
                    "a ledger changes when it is written"
                );
            }
        }
        SYNC_POINT => {
            let digits: String = sealed().iter().map(|byte| format!("{byte:02x}")).collect();
            if let Ok(point) = SyncPoint::decode(&digits, host(1)) {
                // An id that names a node twice is a second text of the same point.
                let again = SyncPoint::decode(&point.encode(), host(1));
                assert_eq!(again, Ok(point), "a sync point changes when it is written");
            }
            let _ = SyncPoint::decode(&String::from_utf8_lossy(bytes), host(1));
        }
        _ => {
            let name = String::from_utf8_lossy(bytes);
            if let Some(id) = SegmentId::parse(&name) {
                assert_eq!(
                    SegmentId::parse(&id.file_name()),
                    Some(id),
                    "a segment has another name"
                );
            }
            let _ = crate::rejected::parse_file_name(&name);
        }
    }
}

/// Reads a segment as replay does; every record that has room for a checksum is given the right one first.
fn read_segment(bytes: &[u8]) {
    let mut file = bytes.to_vec();
    let begin = format::header(&segment(), 7);
    for (place, byte) in file.iter_mut().zip(&begin).take(format::HEADER_BYTES) {
        *place = *byte;
    }
    seal_records(&mut file);
    for file in [bytes, &file[..]] {
        let _ = format::read_header(file, &segment());
        let mut at = format::read_progress(file);
        assert!(at >= format::RECORDS_AT, "the records begin in the header");
        while let Some(record) = format::read_record(file, at) {
            assert!(
                record.end > at && record.end <= file.len(),
                "a record is not in its file"
            );
            at = record.end;
        }
        let _ = format::has_record_behind(file, at);
    }
}

fn seal_records(file: &mut [u8]) {
    let mut at = format::RECORDS_AT;
    while let Some(header) = file.get(at..at + format::RECORD_HEADER_BYTES) {
        let length = u32::from_le_bytes(*header[4..].first_chunk().expect("it is longer")) as usize;
        let Some(whole) = file.get_mut(at..at.saturating_add(format::RECORD_HEADER_BYTES).saturating_add(length))
        else {
            return;
        };
        let crc = crc32fast::hash(&whole[12..]);
        whole[8..12].copy_from_slice(&crc.to_le_bytes());
        at += whole.len();
    }
}
