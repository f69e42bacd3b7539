//! What the fuzzer needs of the operators' side: requests to begin with, and everything that reads them.

use ::http::escape;

use crate::http::parse;
use crate::rest;

/// Requests as clients write them.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let requests = [
        "GET / HTTP/1.1\r\n\r\n",
        "GET /storage_service/keyspaces?type=user&replication=all HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n",
        "POST /storage_service/snapshots?tag=a%20b+c&kn=ks&cf=t HTTP/1.0\r\nConnection: Keep-Alive\r\nContent-Length: 4\r\n\r\nbody",
        "DELETE /storage_service/snapshots?tag=%C3%A9 HTTP/1.1\r\ncontent-length: 0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n",
        "HEAD /column_family/metrics/live_ss_table_count/ks%3At HTTP/1.1\r\nAccept: */*\r\n\r\n",
        "POST /v2/client-routes HTTP/1.1\r\nContent-Length: 103\r\n\r\n[{\"connection_id\":\"c\",\"host_id\":\"8ad27d74-8f8b-4bb4-9af7-7650a6cddf01\",\"address\":\"proxy\",\"port\":19042}]",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ];
    let paths = rest::ROUTES
        .into_iter()
        .flatten()
        .map(|route| format!("{} {}?a=b HTTP/1.1\r\n\r\n", route.method, route.path));
    requests
        .iter()
        .map(|text| (*text).to_owned())
        .chain(paths)
        .map(String::into_bytes)
        .collect()
}

/// Reads the bytes as requests of one connection, looks for the handler of each, and reads each body as client routes.
pub fn read(bytes: &[u8]) {
    let mut rest = bytes;
    loop {
        let (request, taken) = match parse(rest) {
            Ok(Some(whole)) => whole,
            Ok(None) => break,
            Err(refusal) => {
                assert!(
                    (400..600).contains(&refusal.status),
                    "a refusal has status {}",
                    refusal.status
                );
                break;
            }
        };
        assert!(
            (1..=rest.len()).contains(&taken),
            "a request of {taken} bytes is not in its bytes"
        );
        let target = format!("GET /{} HTTP/1.1\r\n\r\n", escape(&request.path));
        let again = parse(target.as_bytes());
        if let Ok(Some((again, _))) = again {
            assert_eq!(again.path, format!("/{}", request.path), "an escaped path differs");
        }
        if let Err((status, _)) = rest::find(&request.method, &request.path) {
            assert!(matches!(status, 404 | 405), "no handler is found with status {status}");
        }
        rest::read_client_routes(&request.body);
        rest = &rest[taken..];
    }
}
