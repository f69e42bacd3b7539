//! Records that are built and checksummed before they are appended, with preemption points.
//!
//! What is appended keeps the shard until it is in the chunk, and a long record is copied and checksummed for
//! milliseconds. A [`LongRecord`] is a chunk of its own that lacks only its header.

use crc32fast::Hasher;
use stdx::preempt;

use crate::format::{ALIGN, CHUNK_HEADER_BYTES, KIND_BATCH, KIND_MUTATION, RECORD_HEADER_BYTES, put_mutations};

/// Of a batch each mutation has its length in front.
const LENGTH_BYTES: usize = 4;

/// See the module.
pub struct LongRecord {
    /// Room for the header, then the record.
    chunk: Vec<u8>,
    /// Of the record.
    checksum: Hasher,
}

impl LongRecord {
    /// The record of a mutation, or of several that take effect all or not at all. They have less than 4 GiB.
    #[must_use]
    pub fn new(mutations: &[&[u8]]) -> Self {
        let (kind, body) = match mutations {
            [only] => (KIND_MUTATION, only.len()),
            all => (
                KIND_BATCH,
                all.iter().map(|mutation| LENGTH_BYTES + mutation.len()).sum(),
            ),
        };
        let bytes = CHUNK_HEADER_BYTES + RECORD_HEADER_BYTES + body;
        let mut chunk = Vec::with_capacity(bytes.next_multiple_of(ALIGN));
        chunk.resize(CHUNK_HEADER_BYTES, 0);
        let body = u32::try_from(body).expect("mutations are smaller than 4 GiB");
        chunk.extend_from_slice(&body.to_le_bytes());
        chunk.push(kind);
        match mutations {
            [only] => preempt::append(&mut chunk, only),
            all => put_mutations(&mut chunk, all.iter().copied()),
        }
        let mut checksum = Hasher::new();
        for piece in chunk[CHUNK_HEADER_BYTES..].chunks(preempt::STEP_BYTES) {
            checksum.update(piece);
            preempt::long_step();
        }
        Self { chunk, checksum }
    }

    /// Bytes in the log, without the header of the chunk.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.chunk.len() - CHUNK_HEADER_BYTES
    }

    pub(crate) fn into_pending(self) -> Pending {
        Pending {
            bytes: self.chunk,
            checksum: Some(self.checksum),
        }
    }
}

/// The chunk being built.
pub(crate) struct Pending {
    /// With room for its header.
    pub(crate) bytes: Vec<u8>,
    /// Of the records, where it is known.
    pub(crate) checksum: Option<Hasher>,
}

impl Pending {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; CHUNK_HEADER_BYTES],
            checksum: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.len() == CHUNK_HEADER_BYTES
    }

    pub(crate) fn push(&mut self, kind: u8, body: &[u8]) {
        let len = u32::try_from(body.len()).expect("checked against the segment's size");
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.push(kind);
        self.bytes.extend_from_slice(body);
        self.checksum = None;
    }

    /// Makes it empty. The memory of a chunk that was longer than `bytes_max` is given back.
    pub(crate) fn clear(&mut self, bytes_max: usize) {
        if self.bytes.capacity() > bytes_max {
            *self = Self::new();
            return;
        }
        self.bytes.truncate(CHUNK_HEADER_BYTES);
        self.bytes.fill(0);
        self.checksum = None;
    }
}
