//! What the fuzzer gives to this crate: requests, whole and byte by byte.

use crate::{Body, Limits, Progress, RequestReader, Target, escape};

const LIMITS: Limits = Limits {
    head_bytes_max: 16 << 10,
    body_bytes_max: 1 << 20,
    takes_chunks: true,
};

/// Requests as clients write them.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let requests = [
        "GET /localnodes?dc=a%20b&rack=+ HTTP/1.1\r\nHost: node\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: n\r\nX-Amz-Target: DynamoDB_20120810.GetItem\r\nContent-Length: 2\r\n\r\n{}GET / HTTP/1.0\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;name=value\r\nhello\r\n0\r\nName: value\r\n\r\n",
        "PUT / HTTP/1.1\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody",
        "POST / HTTP/1.0\r\nConnection: Keep-Alive\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n1\r\nx\r\n00\r\n\r\nOPTIONS * HTTP/1.1\r\n\r\n",
    ];
    requests.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// Reads the bytes as requests of one connection, at once and as they arrive one by one: both must give the same.
pub fn read(bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        let mut reader = RequestReader::new(LIMITS);
        let progress = reader.next(rest);
        same_byte_by_byte(rest, progress.as_ref().ok());
        match progress {
            Ok(Progress::Whole(request)) => {
                assert!(
                    (1..=rest.len()).contains(&request.bytes),
                    "a request is not in its bytes"
                );
                let body = request.body.to_vec();
                assert_eq!(body.len(), request.body.len(), "a body has another length");
                if let Body::Chunked { wire, .. } = request.body {
                    assert!(wire.len() > body.len(), "chunks have no lines");
                }
                if let Ok(target) = Target::decode(request.head.target) {
                    let again = Target::decode(&escape(&target.path));
                    let path = again.map(|again| again.path);
                    assert_eq!(path.as_ref(), Ok(&target.path), "an escaped path differs");
                }
                rest = &rest[request.bytes..];
            }
            Ok(Progress::Partial(partial)) => {
                assert!(
                    partial.wanted_bytes > rest.len(),
                    "a request that is not whole wants nothing"
                );
                return;
            }
            Err(error) => {
                return assert!(
                    (400..600).contains(&error.status),
                    "a refusal has status {}",
                    error.status
                );
            }
        }
    }
}

/// A request is whole at the same byte however its bytes arrive.
fn same_byte_by_byte(bytes: &[u8], at_once: Option<&Progress<'_>>) {
    let Some(Progress::Whole(whole)) = at_once else { return };
    let mut reader = RequestReader::new(LIMITS);
    let steps = whole.bytes.min(64);
    for end in (whole.bytes - steps)..=whole.bytes {
        match reader.next(&bytes[..end]) {
            Ok(Progress::Partial(_)) => assert!(end < whole.bytes, "it is whole at once alone"),
            Ok(Progress::Whole(request)) => {
                assert_eq!(end, whole.bytes, "it is whole earlier");
                assert_eq!(request.body.to_vec(), whole.body.to_vec(), "the body differs");
            }
            Err(error) => panic!("a request that is taken at once is refused: {error}"),
        }
    }
}
