//! What the fuzzer gives to this crate: requests with signatures and coded bodies.

use http::{Limits, Progress, RequestReader};

use crate::encoding;
use crate::route::route;
use crate::sigv4::{Claim, hash_body};

const LIMITS: Limits = Limits {
    head_bytes_max: 16 << 10,
    body_bytes_max: 64 << 10,
    takes_chunks: true,
};
/// A fixed clock: the time of the seeds' signatures.
const NOW_S: i64 = 1_370_772_015;
/// Bodies are decompressed to so many bytes at most.
const DECOMPRESSED_BYTES_MAX: usize = 256 << 10;

/// Requests as SDKs sign them.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let scope = "AKID/20130609/us-east-1/dynamodb/aws4_request";
    let signature = "6c".repeat(32);
    let signed = "content-type;host;x-amz-date;x-amz-target";
    let common = "Host: localhost:8000\r\nContent-Type: application/x-amz-json-1.0\r\nX-Amz-Date: 20130609T100015Z\r\n\
                  X-Amz-Target: DynamoDB_20120810.ListTables\r\nContent-Length: 2\r\n";
    let query = scope.replace('/', "%2F");
    let mut seeds = vec![
        format!(
            "POST / HTTP/1.1\r\n{common}Authorization: AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={signed}, Signature={signature}\r\n\r\n{{}}"
        )
        .into_bytes(),
        format!(
            "GET /?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={query}&X-Amz-Date=20130609T100015Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature={signature} HTTP/1.1\r\nHost: n\r\n\r\n"
        )
        .into_bytes(),
        b"OPTIONS / HTTP/1.1\r\nOrigin: x\r\nAccess-Control-Request-Method: POST\r\nAccept-Encoding: gzip;q=0.5, *;q=0\r\n\r\n".to_vec(),
    ];
    for coding in [encoding::Coding::Gzip, encoding::Coding::Deflate] {
        let body = encoding::compress(coding, 6, br#"{"TableName": "t", "TableName": "t", "TableName": "t"}"#);
        let head = format!(
            "POST / HTTP/1.1\r\nContent-Encoding: {}\r\nContent-Length: {}\r\n\r\n",
            coding.name(),
            body.len()
        );
        seeds.push([head.as_bytes(), &body].concat());
    }
    seeds
}

/// Reads the bytes as a request: what it asks, its signature, its body.
pub fn read(bytes: &[u8]) {
    let Ok(Progress::Whole(request)) = RequestReader::new(LIMITS).next(bytes) else {
        return;
    };
    let _ = route(&request.head, !request.body.is_empty());
    let _ = encoding::of_answer(&request.head);
    let body = request.body.to_vec();
    if let Ok(claim) = Claim::read(&request.head, NOW_S) {
        let _ = claim.verify("secret", &hash_body(&body));
    }
    if let Ok(Some(coding)) = encoding::of_request(&request.head)
        && let Ok(bytes_max) = encoding::decompressed_bytes_max(coding, &body)
        && let Ok(plain) = encoding::decompress(coding, &body, bytes_max.min(DECOMPRESSED_BYTES_MAX))
    {
        assert!(plain.len() <= bytes_max, "a body is longer than it can be");
    }
}
