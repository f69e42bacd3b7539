//! What the fuzzer of streams' messages needs: real bytes to begin with, and the decoders.

use replica::TokenRange;
use schema::TableId;
use sstable::{Component, Version};
use types::Token;
use uuid::Uuid;

use crate::error::Refusal;
use crate::manifest::{ListedFile, ListedMarks, ListedSstable, Manifest};
use crate::message::{Open, Opened, Read, StreamId, decode_bytes};

/// One message of each kind.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let stream = StreamId {
        session: Uuid::from_u128(7),
        attempt: 9,
    };
    let open = Open {
        stream,
        table: TableId(Uuid::from_u128(3)),
        ranges: vec![range(-5, 5)],
        bytes: u64::MAX,
        truncated_at: 12,
        with_marks: false,
    };
    let open_ranges = Open {
        ranges: vec![range(-5, 5), range(5, 9), range(20, 30)],
        bytes: 1 << 28,
        ..open.clone()
    };
    let open_with_marks = Open {
        with_marks: true,
        ..open.clone()
    };
    let read = Read {
        sstable: 3,
        component: Component::Data,
        offset: 1 << 20,
        len: 4096,
        ..Read::nothing(stream)
    };
    let files = Component::ALL.map(|component| ListedFile {
        component,
        len: 1000,
        crc: 5,
    });
    let sstable = ListedSstable {
        version: Version::Me,
        files: files.to_vec(),
    };
    let manifest = Manifest {
        columns: "\"k\" int PartitionKey 0 asc 65535\n".to_owned(),
        sstables: vec![sstable; 3],
        marks: None,
    };
    let with_marks = Manifest {
        marks: Some(ListedMarks {
            session: 8,
            replicas: 9,
            since: 10,
            at: 11,
            is_marked: vec![true, false, true],
        }),
        ..manifest.clone()
    };
    vec![
        stream.encode(),
        open.encode(),
        open_with_marks.encode(),
        open_ranges.encode(),
        Opened::Ready(2, manifest.clone()).encode(),
        Opened::Ready(1, with_marks).encode(),
        read.encode(),
        Opened::Preparing.encode(),
        Opened::Ready(1, manifest).encode(),
        Refusal::Missing("me-7-big-0".to_owned()).encode(),
    ]
}

fn range(after: i64, to: i64) -> TokenRange {
    TokenRange {
        after: Token(after),
        to: Token(to),
    }
}

/// Reads the bytes in every way; what is read is written as it was read.
pub fn read(bytes: &[u8]) {
    let _ = StreamId::decode(bytes).map(|stream| assert_eq!(stream.encode(), bytes));
    let _ = Open::decode(bytes).map(|open| assert_eq!(Open::decode(&open.encode()), Ok(open)));
    let _ = Read::decode(bytes).map(|read| assert_eq!(Read::decode(&read.encode()), Ok(read)));
    if let Ok(Ok(opened)) = Opened::decode(bytes) {
        assert_eq!(Opened::decode(&opened.encode()), Ok(Ok(opened)));
    }
    let _ = decode_bytes(bytes);
}
