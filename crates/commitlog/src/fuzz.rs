//! What the fuzzer needs of the log: real segments to begin with, and replay.

use std::future::{Future, ready};
use std::path::Path;
use std::pin::Pin;

use runtime::fs;
use schema::TableId;
use types::Token;
use uuid::Uuid;

use crate::format::{
    ALIGN, CHUNK_HEADER_BYTES, Discard, KIND_BATCH, KIND_BATCH_BEGUN, KIND_BATCH_ENDED, KIND_DISCARD, KIND_MUTATION,
    ReplayPosition, SEGMENT_HEADER_BYTES, SegmentHeader, put_mutations, seal_chunk,
};
use crate::replay::{OldLog, Replay};
use crate::segment::file_name;

const BOOT_ID: u128 = 5;
const SEGMENT: u64 = 17;

fn header() -> [u8; SEGMENT_HEADER_BYTES] {
    let header = SegmentHeader {
        shard: 0,
        id: SEGMENT,
        boot_id: BOOT_ID,
        previous: ReplayPosition::default(),
        shards: 1,
        run: SEGMENT,
    };
    header.encode()
}

fn chunk(records: &[(u8, &[u8])]) -> Vec<u8> {
    let mut chunk = vec![0; CHUNK_HEADER_BYTES];
    for (kind, body) in records {
        chunk.extend_from_slice(&u32::try_from(body.len()).expect("short").to_le_bytes());
        chunk.push(*kind);
        chunk.extend_from_slice(body);
    }
    let synced = ReplayPosition {
        segment: SEGMENT,
        offset: 64,
    };
    seal_chunk(&mut chunk, SEGMENT, synced, None);
    chunk
}

/// Segments with every kind of record.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let discard = Discard {
        table: TableId(Uuid::from_u128(7)),
        after: Token(-9),
        up_to_token: Token(9),
        position: ReplayPosition {
            segment: SEGMENT,
            offset: 99,
        },
    };
    // A mutation begins with its table and key.
    let mutation = [&[7; 16][..], &[3], b"key", &[1], &[0; 12]].concat();
    let mut batch = Vec::new();
    put_mutations(&mut batch, [&mutation[..], &mutation].into_iter());
    let begun = [&[9; 16][..], &batch].concat();
    let one = chunk(&[(KIND_MUTATION, &mutation), (KIND_MUTATION, &mutation)]);
    let others = chunk(&[
        (KIND_DISCARD, &discard.encode()),
        (KIND_BATCH, &batch),
        (KIND_BATCH_BEGUN, &begun),
        (KIND_BATCH_ENDED, &[9; 16]),
    ]);
    vec![
        [&header()[..], &one, &others, &[0; 64]].concat(),
        [&header()[..], &others, &one].concat(),
        [&header()[..], &one[..one.len() - 9]].concat(),
    ]
}

/// Replays a log of one segment: once with these bytes, and once with the checksums that its header and chunks should
/// have.
pub fn read(bytes: Vec<u8>) -> Pin<Box<dyn Future<Output = ()>>> {
    let dir = Path::new("/log");
    let mut sealed = bytes.clone();
    seal(&mut sealed);
    for segment in [&bytes, &sealed] {
        fs::create_dir_all(dir).expect("a directory");
        let path = dir.join(file_name(0, SEGMENT));
        fs::write(&path, segment).expect("room on the disk");
        let old = OldLog::take(dir).expect("the directory");
        assert_eq!(
            (old.last_segment, old.segments.len()),
            (SEGMENT, 1),
            "the segment is not found"
        );
        // As after a power loss, and as after the end of the process alone.
        for boot_id in [BOOT_ID, BOOT_ID + 1] {
            replay(dir, boot_id, segment.len());
        }
        fs::remove_file(&path).expect("it was written");
    }
    Box::pin(ready(()))
}

fn replay(dir: &Path, boot_id: u128, bytes: usize) {
    let mut replay = match Replay::open(dir, boot_id, 0, 1) {
        Ok(replay) => replay,
        Err(error) => return drop(error.to_string()),
    };
    let mut replayed = 0;
    loop {
        let next = replay.next_segment(|record| {
            replayed += record.mutation.len();
            Ok(())
        });
        match next {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return drop(error.to_string()),
        }
    }
    let unfinished = replay.unfinished_batches();
    replayed += unfinished
        .iter()
        .flat_map(|(_, parts)| parts)
        .map(Vec::len)
        .sum::<usize>();
    assert!(
        replayed <= bytes,
        "{replayed} bytes of mutations are in a segment of {bytes}"
    );
}

/// Puts id and checksum of the header and of every chunk right whose length leaves it in the file.
fn seal(segment: &mut [u8]) {
    let Some(header) = segment.first_chunk_mut::<SEGMENT_HEADER_BYTES>() else {
        return;
    };
    header[16..24].copy_from_slice(&SEGMENT.to_le_bytes());
    let crc = crc32fast::hash(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    let mut at = SEGMENT_HEADER_BYTES;
    while let Some(chunk) = segment.get(at..at + CHUNK_HEADER_BYTES) {
        let length = u32::from_le_bytes(*chunk[8..].first_chunk().expect("it is longer")) as usize;
        let end = at.saturating_add(CHUNK_HEADER_BYTES).saturating_add(length);
        let number = |at: usize| u64::from_le_bytes(*chunk[at..].first_chunk().expect("it is longer"));
        let offset = u32::from_le_bytes(*chunk[24..].first_chunk().expect("it is longer"));
        let synced = ReplayPosition {
            segment: number(16),
            offset,
        };
        let Some(whole) = segment.get(at..end) else {
            return;
        };
        let mut whole = whole.to_vec();
        seal_chunk(&mut whole, SEGMENT, synced, None);
        whole.truncate(end - at);
        segment[at..end].copy_from_slice(&whole);
        at = end.next_multiple_of(ALIGN);
    }
}
