//! What the fuzzer gives to the front: headers of proxies.

use crate::proxy_header::{self, Progress};

/// Real headers.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    vec![
        b"PROXY TCP4 192.0.2.7 10.0.0.1 43981 9042\r\n".to_vec(),
        b"PROXY TCP6 2001:db8::7 ::1 1 9042\r\n".to_vec(),
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\x0a\0\0\x01\xab\xcd\x23\x52".to_vec(),
    ]
}

/// Reads the bytes as the header of a proxy.
pub fn read(bytes: &[u8]) {
    if let Ok(Progress::Wants(more)) = proxy_header::read(bytes) {
        assert!(more > 0, "a header that is not whole wants more");
    }
}
