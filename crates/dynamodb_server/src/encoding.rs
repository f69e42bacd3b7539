//! Content codings of bodies: gzip (RFC 1952) and deflate, which is the zlib format (RFC 9110, section 8.4.1; RFC
//! 1950). All functions have preemption points.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use http::Head;
use stdx::preempt;

use crate::Refusal;

/// The longest body of a request, before and after it is decompressed: the documented limit of the service.
pub const BODY_BYTES_MAX: usize = 16 << 20;

/// Deflate makes at most so many bytes of one.
const EXPANSION_MAX: usize = 1032;
/// What is decompressed or compressed between two preemption points: some 40 µs.
const STEP_BYTES: usize = 8 << 10;

/// How a body is coded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coding {
    Gzip,
    /// The zlib format.
    Deflate,
}

impl Coding {
    /// Its name in headers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }
}

/// The coding of a request's body; None where it is sent as it is.
pub(crate) fn of_request(head: &Head<'_>) -> Result<Option<Coding>, Refusal> {
    let mut values = head.values("content-encoding");
    let (value, next) = (values.next(), values.next());
    let refused = |value: &[u8]| {
        let text = String::from_utf8_lossy(&value[..value.len().min(40)]).into_owned();
        let message = format!("Unsupported Content-Encoding '{text}': expected gzip or deflate");
        Refusal::with_status(415, "SerializationException", message)
    };
    match (value.map(<[u8]>::to_ascii_lowercase).as_deref(), next) {
        (None | Some(b"" | b"identity"), None) => Ok(None),
        (Some(b"gzip" | b"x-gzip"), None) => Ok(Some(Coding::Gzip)),
        (Some(b"deflate"), None) => Ok(Some(Coding::Deflate)),
        (Some(value), None) => Err(refused(value)),
        (_, Some(next)) => Err(refused(next)),
    }
}

/// The coding of the answer: what the client likes best of what it accepts; None: as it is.
pub(crate) fn of_answer(head: &Head<'_>) -> Option<Coding> {
    let mut weights = [None, None, None];
    for value in head.values("accept-encoding") {
        for item in std::str::from_utf8(value).unwrap_or_default().split(',') {
            let mut parts = item.split(';').map(str::trim);
            let at = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
                "gzip" | "x-gzip" => 0,
                "deflate" => 1,
                "*" => 2,
                _ => continue,
            };
            let quality = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
            weights[at] = Some(quality.map_or(1.0, |quality| quality.parse::<f32>().unwrap_or(0.0)));
        }
    }
    let [gzip, deflate, any] = weights;
    let weight = |own: Option<f32>| own.or(any).unwrap_or(0.0);
    let (gzip, deflate) = (weight(gzip), weight(deflate));
    if gzip > 0.0 && gzip >= deflate {
        Some(Coding::Gzip)
    } else if deflate > 0.0 {
        Some(Coding::Deflate)
    } else {
        None
    }
}

/// How many bytes a coded body can have once it is decompressed. The end of gzip has its length modulo 2^32, which
/// [`decompress`] compares; zlib's has none.
pub(crate) fn decompressed_bytes_max(coding: Coding, body: &[u8]) -> Result<usize, Refusal> {
    let possible = body.len().saturating_mul(EXPANSION_MAX).min(BODY_BYTES_MAX);
    match (coding, body.last_chunk::<4>()) {
        (Coding::Gzip, None) => Err(damaged(Coding::Gzip)),
        (Coding::Gzip, Some(length)) => match usize::try_from(u32::from_le_bytes(*length)) {
            Ok(length) if length <= BODY_BYTES_MAX => Ok(length),
            _ => Err(too_long()),
        },
        (Coding::Deflate, _) => Ok(possible),
    }
}

fn too_long() -> Refusal {
    Refusal::of_http(
        413,
        format!("the body has more than {BODY_BYTES_MAX} bytes decompressed"),
    )
}

fn damaged(coding: Coding) -> Refusal {
    Refusal::serialization(format!("the body is not {}", coding.name()))
}

/// Decompresses a body that has at most so many bytes then.
///
/// # Errors
/// When it has more, or is damaged.
pub(crate) fn decompress(coding: Coding, body: &[u8], bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::new();
    preempt::reserve(&mut out, bytes_max.min(body.len().saturating_mul(8)));
    let left = match coding {
        Coding::Gzip => {
            let mut decoder = GzDecoder::new(body);
            read_all(coding, &mut decoder, &mut out, bytes_max)?;
            decoder.into_inner()
        }
        Coding::Deflate => {
            let mut decoder = ZlibDecoder::new(body);
            read_all(coding, &mut decoder, &mut out, bytes_max)?;
            decoder.into_inner()
        }
    };
    if left.is_empty() { Ok(out) } else { Err(damaged(coding)) }
}

fn read_all(coding: Coding, decoder: &mut impl Read, out: &mut Vec<u8>, bytes_max: usize) -> Result<(), Refusal> {
    let mut piece = [0; STEP_BYTES];
    loop {
        match decoder.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) if out.len() + count > bytes_max => {
                return Err(if bytes_max < BODY_BYTES_MAX {
                    damaged(coding)
                } else {
                    too_long()
                });
            }
            Ok(count) => preempt::append(out, &piece[..count]),
            Err(_) => return Err(damaged(coding)),
        }
        preempt::long_step();
    }
}

/// Compresses an answer.
pub(crate) fn compress(coding: Coding, level: u32, body: &[u8]) -> Vec<u8> {
    let level = Compression::new(level.clamp(1, 9));
    let out = Vec::with_capacity(body.len() / 4);
    // Writing to a vector does not fail.
    match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(out, level);
            write_all(&mut encoder, body);
            encoder.finish().unwrap_or_default()
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(out, level);
            write_all(&mut encoder, body);
            encoder.finish().unwrap_or_default()
        }
    }
}

fn write_all(encoder: &mut impl Write, body: &[u8]) {
    for piece in body.chunks(STEP_BYTES) {
        let _ = encoder.write_all(piece);
        preempt::long_step();
    }
}

/// The CRC-32 of a body.
pub(crate) fn crc32(body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for piece in body.chunks(preempt::STEP_BYTES) {
        hasher.update(piece);
        preempt::long_step();
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use http::Limits;

    use super::*;

    const LIMITS: Limits = Limits {
        head_bytes_max: 16 << 10,
        body_bytes_max: 1,
        takes_chunks: true,
    };

    fn with_head<T>(header: &str, ask: impl FnOnce(&Head<'_>) -> T) -> T {
        let text = format!("POST / HTTP/1.1\r\n{header}\r\n\r\n");
        let head = http::read_head(text.as_bytes(), &LIMITS).expect("it is a head");
        ask(&head.expect("it is whole"))
    }

    #[test]
    fn a_body_is_what_it_was_before_it_was_compressed() {
        let body: Vec<u8> = (0..100_000_u32).flat_map(|n| (n % 1000).to_be_bytes()).collect();
        for coding in [Coding::Gzip, Coding::Deflate] {
            let coded = compress(coding, 6, &body);
            assert!(coded.len() < body.len() / 4, "{coding:?}: {} bytes", coded.len());
            let bytes_max = decompressed_bytes_max(coding, &coded).expect("it is short");
            assert_eq!(decompress(coding, &coded, bytes_max).as_ref(), Ok(&body));
            let cut = decompress(coding, &coded[..coded.len() / 2], BODY_BYTES_MAX);
            assert_eq!(cut, Err(damaged(coding)), "{coding:?} that is cut off");
            let longer = [&coded[..], b"x"].concat();
            assert_eq!(decompress(coding, &longer, BODY_BYTES_MAX), Err(damaged(coding)));
        }
    }

    #[test]
    fn a_body_that_grows_beyond_the_limit_is_refused_and_its_memory_is_bounded() {
        let zeros = vec![0; BODY_BYTES_MAX + 1];
        let gzip = compress(Coding::Gzip, 9, &zeros);
        assert_eq!(decompressed_bytes_max(Coding::Gzip, &gzip), Err(too_long()));
        // Its end claims to be short.
        let mut lying = gzip;
        let length = lying.len() - 4;
        lying[length..].copy_from_slice(&100_u32.to_le_bytes());
        let bytes_max = decompressed_bytes_max(Coding::Gzip, &lying).expect("it claims to be short");
        assert_eq!(decompress(Coding::Gzip, &lying, bytes_max), Err(damaged(Coding::Gzip)));
        let deflate = compress(Coding::Deflate, 9, &zeros);
        let bytes_max = decompressed_bytes_max(Coding::Deflate, &deflate).expect("it may be short");
        assert_eq!(decompress(Coding::Deflate, &deflate, bytes_max), Err(too_long()));
    }

    #[test]
    fn the_answer_is_coded_as_the_client_likes_best() {
        let cases = [
            ("Accept: x", None),
            ("Accept-Encoding: identity", None),
            ("Accept-Encoding: gzip", Some(Coding::Gzip)),
            ("Accept-Encoding: br, Deflate", Some(Coding::Deflate)),
            ("Accept-Encoding: gzip, deflate", Some(Coding::Gzip)),
            ("Accept-Encoding: gzip;q=0.5, deflate;q=0.8", Some(Coding::Deflate)),
            ("Accept-Encoding: gzip;q=0, deflate; q=0.0", None),
            ("Accept-Encoding: *", Some(Coding::Gzip)),
            ("Accept-Encoding: *, gzip;q=0", Some(Coding::Deflate)),
            ("Accept-Encoding: gzip;q=x", None),
        ];
        for (header, expected) in cases {
            assert_eq!(with_head(header, of_answer), expected, "{header}");
        }
        let coding = |header: &str| with_head(header, of_request).map_err(|refusal| refusal.status);
        assert_eq!(coding("Content-Encoding: GZIP"), Ok(Some(Coding::Gzip)));
        assert_eq!(coding("Content-Encoding: identity"), Ok(None));
        assert_eq!(coding("Content-Encoding: br"), Err(415));
        assert_eq!(coding("Content-Encoding: gzip\r\nContent-Encoding: gzip"), Err(415));
    }
}
