//! What the fuzzer of nodes' messages needs: real bytes to begin with, and the decoders.

use crate::codec::{Codec, Compression};
use crate::error::RemoteError;
use crate::frame::{self, Header, Kind};
use crate::hello::{self, Answer, Hello};
use uuid::Uuid;

const BODY_BYTES_MAX: usize = 1 << 16;

/// Hellos, frames and blocks, without what seals them.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let hello = Hello {
        version: 1,
        cluster_name: "sea".to_owned(),
        source_host: Uuid::from_u128(1),
        source_shard: 3,
        lane: hello::Lane::Control,
        target_host: Uuid::from_u128(2),
        target_shard: 1,
        features: vec!["one".to_owned(), "two".to_owned()],
        compression: vec![Compression::Zstd, Compression::Lz4],
        has_secret: true,
    };
    let accepted = Answer::Accepted {
        version: 1,
        features: vec!["one".to_owned()],
        compression: Some(Compression::Lz4),
        host: Uuid::from_u128(2),
        code: Some([5; 32]),
    };
    let mut frames = Vec::new();
    for kind in [Kind::Request, Kind::OneWay, Kind::Cancel, Kind::Error] {
        let header = Header {
            is_traced: kind == Kind::OneWay,
            verb: 7,
            time: 1_000_000,
            ..Header::plain(kind, 9)
        };
        frame::append(&mut frames, header, b"the id of a trace, and a body");
    }
    let (mut lz4, mut zstd) = (Vec::new(), Vec::new());
    Codec::default().append_blocks(Compression::Lz4, &[7; 5000], &mut lz4);
    Codec::default().append_blocks(Compression::Zstd, &[7; 5000], &mut zstd);
    vec![
        hello::unseal(&hello.encode()),
        hello::unseal(&accepted.encode()),
        hello::unseal(&Answer::Challenge([6; 32]).encode()),
        hello::unseal(&Answer::Refused("no".to_owned()).encode()),
        frames,
        lz4,
        zstd,
        RemoteError::failed("the disk is full").encode(),
    ]
}

/// Reads the bytes in every way.
pub fn read(bytes: &[u8]) {
    let _ = hello::split(bytes);
    let _ = Hello::decode(bytes).map(|hello| hello.encode());
    let _ = Answer::decode(bytes).map(|answer| answer.encode());
    let _ = hello::Proof::decode(bytes).map(|proof| proof.encode());
    let _ = RemoteError::decode(bytes);
    read_frames(bytes);
    let mut sealed = bytes.to_vec();
    frame::seal(&mut sealed, None);
    read_frames(&sealed);
    let mut codec = Codec::default();
    for compression in [Compression::Lz4, Compression::Zstd] {
        let (mut at, mut out) = (0, Vec::new());
        while let Ok(Some(end)) = codec.decode_block(compression, bytes, at, &mut out) {
            at = end;
            out.clear();
        }
    }
}

fn read_frames(bytes: &[u8]) {
    let mut at = 0;
    while let Ok(Some(frame)) = frame::parse(bytes, at, BODY_BYTES_MAX) {
        assert!(
            frame.body.end > at && frame.body.end <= bytes.len(),
            "a frame is not within its bytes"
        );
        at = frame.body.end;
    }
}
