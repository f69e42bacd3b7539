//! The header of HAProxy's PROXY protocol, versions 1 and 2, in which a proxy passes on the address of its client.
//!
//! A connection sends the header before everything else. Version 1 is a line,
//! `PROXY TCP4 SOURCE DESTINATION PORT PORT\r\n`; version 2 is binary: a signature of 12 bytes, a byte of version (high
//! half) and command (low half), one of the address family and transport, two of the length of the rest, and the rest:
//! source and destination address, both ports, and further values of the proxy, which are not used here. What follows
//! the header is the client's, so a reader must not take more bytes than [`Progress::Wants`] says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How version 2 begins.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// How version 1 begins.
const WORD: &[u8] = b"PROXY ";
/// The shortest header of all, `PROXY UNKNOWN\r\n`.
const SHORTEST: usize = 15;
/// The longest line of version 1, its end included.
const LINE_MAX: usize = 107;
/// The fixed part of version 2.
const FIXED: usize = 16;
/// Most bytes that version 2 may have after its fixed part here; the format allows 65535.
const REST_MAX: usize = 4096;

/// How far a header has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// At least so many more bytes belong to it.
    Wants(usize),
    /// It is whole. The client's address, if it says one: a proxy that connects for itself says none.
    Whole(Option<SocketAddr>),
}

/// Why bytes are no header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProxyHeaderError(&'static str);

impl std::fmt::Display for ProxyHeaderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ProxyHeaderError {}

/// Reads the header at the beginning of a connection from the received bytes; never more than what it asked for before.
///
/// # Errors
/// When the bytes do not begin a header, or end one that is malformed.
pub(crate) fn read(bytes: &[u8]) -> Result<Progress, ProxyHeaderError> {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(byte, expected)| byte == expected);
    if !begins(&SIGNATURE) && !begins(WORD) {
        return Err(ProxyHeaderError(
            "it begins with neither 'PROXY ' nor the signature of version 2",
        ));
    }
    if bytes.len() < SHORTEST {
        return Ok(Progress::Wants(SHORTEST - bytes.len()));
    }
    if begins(&SIGNATURE) { binary(bytes) } else { line(bytes) }
}

fn line(bytes: &[u8]) -> Result<Progress, ProxyHeaderError> {
    let Some(line) = bytes.strip_suffix(b"\r\n") else {
        return match bytes {
            _ if bytes.len() >= LINE_MAX => {
                Err(ProxyHeaderError("the line of version 1 does not end within 107 bytes"))
            }
            _ if bytes.contains(&b'\n') => Err(ProxyHeaderError("the line of version 1 does not end with CR and LF")),
            [.., b'\r'] => Ok(Progress::Wants(1)),
            _ => Ok(Progress::Wants(2.min(LINE_MAX - bytes.len()))),
        };
    };
    let malformed = ProxyHeaderError("the line of version 1 is not 'PROXY TCP4|TCP6 SOURCE DESTINATION PORT PORT'");
    let text = std::str::from_utf8(line).map_err(|_| malformed)?;
    let words: Vec<&str> = text.split(' ').collect();
    let (family, source, destination, ports) = match words[..] {
        [_, "UNKNOWN", ..] => return Ok(Progress::Whole(None)),
        [_, family, source, destination, from, to] => (family, source, destination, [from, to]),
        _ => return Err(malformed),
    };
    let port = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| is_number).ok_or(malformed)
    };
    let address = |text: &str| -> Result<IpAddr, ProxyHeaderError> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::V4).map_err(|_| malformed),
            "TCP6" => text.parse::<Ipv6Addr>().map(IpAddr::V6).map_err(|_| malformed),
            _ => Err(malformed),
        }
    };
    address(destination)?;
    port(ports[1])?;
    Ok(Progress::Whole(Some(SocketAddr::new(
        address(source)?,
        port(ports[0])?,
    ))))
}

fn binary(bytes: &[u8]) -> Result<Progress, ProxyHeaderError> {
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED>() else {
        return Ok(Progress::Wants(FIXED - bytes.len()));
    };
    let (version, family) = (fixed[12], fixed[13]);
    if version >> 4 != 2 {
        return Err(ProxyHeaderError(
            "the signature is of version 2, and the version is not",
        ));
    }
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if length > REST_MAX {
        return Err(ProxyHeaderError("the header of version 2 is longer than 4112 bytes"));
    }
    if rest.len() < length {
        return Ok(Progress::Wants(length - rest.len()));
    }
    match version & 0xf {
        // The proxy's own connection, which checks that the node answers.
        0 => return Ok(Progress::Whole(None)),
        1 => {}
        _ => return Err(ProxyHeaderError("the command of version 2 is neither LOCAL nor PROXY")),
    }
    let short = ProxyHeaderError("the header of version 2 is shorter than its addresses");
    let port = |at: usize| match rest.get(at..at + 2) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => Err(short),
    };
    let client = match family {
        0x11 if length >= 12 => {
            let source: [u8; 4] = rest.first_chunk().copied().ok_or(short)?;
            Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(source)), port(8)?))
        }
        0x21 if length >= 36 => {
            let source: [u8; 16] = rest.first_chunk().copied().ok_or(short)?;
            Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(source)), port(32)?))
        }
        0x11 | 0x21 => return Err(short),
        // Unspecified, datagrams, or sockets at paths: nothing that names a client here.
        _ => None,
    };
    Ok(Progress::Whole(client))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives the bytes as a reader does, never more than were asked for. Returns the client of a whole header, and how
    /// many bytes it took.
    fn read(bytes: &[u8]) -> Result<(Option<SocketAddr>, usize), String> {
        let mut taken = 0;
        loop {
            match super::read(&bytes[..taken]).map_err(|e| e.to_string())? {
                Progress::Whole(client) => return Ok((client, taken)),
                Progress::Wants(0) => panic!("a header that is not whole wants more"),
                Progress::Wants(_) if taken == bytes.len() => return Err("cut off".to_owned()),
                // A socket gives what has come.
                Progress::Wants(more) => taken = bytes.len().min(taken + more),
            }
        }
    }

    fn v2(version: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([version, family]);
        bytes.extend(u16::try_from(rest.len()).expect("it is short").to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    const V4: [u8; 12] = [192, 0, 2, 7, 10, 0, 0, 1, 0xab, 0xcd, 0x23, 0x52];

    #[test]
    fn headers_say_who_the_client_is_and_take_nothing_behind_them() {
        let address = |text: &str| Some(text.parse::<SocketAddr>().expect("an address"));
        let mut v6 = [0; 36];
        (v6[15], v6[32], v6[33]) = (1, 0x12, 0x34);
        let with_values = [&V4[..], &[3, 0, 4, 1, 2, 3, 4]].concat();
        for (header, client) in [
            (
                b"PROXY TCP4 192.0.2.7 10.0.0.1 43981 9042\r\n".to_vec(),
                address("192.0.2.7:43981"),
            ),
            (
                b"PROXY TCP6 2001:db8::7 ::1 1 9042\r\n".to_vec(),
                address("[2001:db8::7]:1"),
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n".to_vec(), None),
            (v2(0x21, 0x11, &V4), address("192.0.2.7:43981")),
            (v2(0x21, 0x11, &with_values), address("192.0.2.7:43981")),
            (v2(0x21, 0x21, &v6), address("[::1]:4660")),
            (v2(0x20, 0x00, &[]), None),
            (v2(0x20, 0x11, &V4), None),
            (v2(0x21, 0x00, &[1, 2, 3]), None),
            (v2(0x21, 0x31, &[0; 216]), None),
        ] {
            let length = header.len();
            let sent = [header, b"\x04\0\0\0\x05".to_vec()].concat();
            assert_eq!(
                read(&sent),
                Ok((client, length)),
                "{:?}",
                String::from_utf8_lossy(&sent)
            );
            for cut in 0..length {
                assert_eq!(read(&sent[..cut]), Err("cut off".to_owned()), "{cut} bytes of {sent:?}");
            }
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let long = [b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 200], b"\r\n".to_vec()].concat();
        for bytes in [
            b"\x04\0\0\0\x05\0\0\0\0".to_vec(),
            b"GET / HTTP/1.1\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 43981\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 43981 9042 1\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 9042\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.7 10.0.0.1 +5 9042\r\n".to_vec(),
            b"PROXY TCP4 ::1 ::1 1 2\r\n".to_vec(),
            b"PROXY TCP5 192.0.2.7 10.0.0.1 1 2\r\n".to_vec(),
            b"PROXY UNKNOWN x\nmore\r\n".to_vec(),
            b"PROXY TCP4 \xff\xff\xff\xff\xff\xff\r\n".to_vec(),
            long,
            v2(0x11, 0x11, &V4),
            v2(0x22, 0x11, &V4),
            v2(0x21, 0x11, &V4[..11]),
            v2(0x21, 0x21, &V4),
            v2(0x21, 0x11, &[0; 5000]),
        ] {
            let refused = read(&bytes).expect_err("it is no header");
            assert_ne!(refused, "cut off", "{bytes:?}");
        }
    }
}
