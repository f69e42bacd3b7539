//! What nodes say to each other about work near the data, as bytes.
//!
//! ```text
//! request  u8 format 1, u8 kind of work, vint length and the work,
//!          vint count of spans: i64 after, i64 to, u8 0, or u8 1 and a place
//! place    i64 token, vint length and key; u8 0, or inside that partition
//!          u8 1 (2: it had rows), u8 side (0 before, 1 after), vint length and prefix
//! answer   u8 format 1; u8 0, vint count of spans that are done, then what was found in each;
//!          u8 0, or u8 1, what was found in the next span, and its place
//!          or u8 1 and an error
//! ```
//!
//! Numbers are little endian. The header of the request says when the answer is due. Work, what is found, and errors
//! are packed by [`Work`]. A node that does not do the work, because it has another schema or does not know the kind,
//! answers so, and the coordinator asks elsewhere, at last itself.

use std::net::IpAddr;

use mutation::{Bound, BoundKind};
use runtime::Instant;
use stdx::bytes::{Reader, put_sized};
use stdx::vint;
use topology::{Consistency, Unavailable};
use types::Token;

use super::{Malformed, ResumePoint, Span, StepFound, Work, step};
use crate::{Context, CoordinatorError, Tally};

/// The format of requests.
const REQUEST_FORMAT: u8 = 1;
/// The format of answers.
const ANSWER_FORMAT: u8 = 1;

fn text(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    String::from_utf8(reader.get_sized()?.to_vec()).map_err(|_| Malformed)
}

fn le_u16(reader: &mut Reader<'_>) -> Result<u16, Malformed> {
    Ok(u16::from_le_bytes(reader.get_array()?))
}

fn le_i64(reader: &mut Reader<'_>) -> Result<i64, Malformed> {
    Ok(i64::from_le_bytes(reader.get_array()?))
}

fn level(reader: &mut Reader<'_>) -> Result<Consistency, Malformed> {
    Consistency::from_number(le_u16(reader)?).ok_or(Malformed)
}

impl ResumePoint {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.from.0.0.to_le_bytes());
        put_sized(out, &self.from.1);
        let Some((bound, had_rows)) = &self.inside else {
            return out.push(0);
        };
        out.push(1 + u8::from(*had_rows));
        out.push(u8::from(bound.kind == BoundKind::After));
        put_sized(out, &bound.prefix);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let from = (Token(le_i64(reader)?), reader.get_sized()?.to_vec());
        let inside = match reader.get_u8()? {
            0 => None,
            flag @ (1 | 2) => {
                let kind = match reader.get_u8()? {
                    0 => BoundKind::Before,
                    1 => BoundKind::After,
                    _ => return Err(Malformed),
                };
                let prefix = reader.get_sized()?.into();
                Some((Bound { prefix, kind }, flag == 2))
            }
            _ => return Err(Malformed),
        };
        Ok(Self { from, inside })
    }
}

/// The kind of work of a request.
pub(super) fn kind_of(body: &[u8]) -> Option<u8> {
    match body {
        [REQUEST_FORMAT, kind, ..] => Some(*kind),
        _ => None,
    }
}

/// A request for a step of work.
pub fn encode_request(kind: u8, work: &[u8], spans: &[Span]) -> Vec<u8> {
    let mut out = vec![REQUEST_FORMAT, kind];
    put_sized(&mut out, work);
    vint::put_unsigned(&mut out, spans.len() as u64);
    for span in spans {
        out.extend_from_slice(&span.after.0.to_le_bytes());
        out.extend_from_slice(&span.to.0.to_le_bytes());
        out.push(u8::from(span.place.is_some()));
        if let Some(place) = &span.place {
            place.encode(&mut out);
        }
    }
    out
}

/// The work of such a request, and its spans.
///
/// # Errors
/// When the bytes are something else.
pub fn decode_request(body: &[u8]) -> Result<(&[u8], Vec<Span>), Malformed> {
    let reader = &mut Reader::new(body);
    if reader.get_u8()? != REQUEST_FORMAT {
        return Err(Malformed);
    }
    reader.get_u8()?;
    let work = reader.get_sized()?;
    let mut spans = Vec::new();
    for _ in 0..reader.get_vint()? {
        let (after, to) = (Token(le_i64(reader)?), Token(le_i64(reader)?));
        let place = match reader.get_u8()? {
            0 => None,
            _ => Some(ResumePoint::decode(reader)?),
        };
        spans.push(Span { after, to, place });
    }
    if reader.rest().is_empty() {
        Ok((work, spans))
    } else {
        Err(Malformed)
    }
}

/// Does a step that another node asks for by a deadline; the answer to it.
pub(super) async fn serve<W: Work>(context: &Context, body: &[u8], deadline: Instant) -> Vec<u8> {
    let refused = |reason: String| {
        let mut out = vec![ANSWER_FORMAT, 1];
        W::put_error(&W::refused(reason), &mut out);
        out
    };
    let Ok((work, spans)) = decode_request(body) else {
        return refused("expected a request for work near the data, format 1".to_owned());
    };
    let work = match W::decode(work) {
        Ok(work) => work,
        Err(reason) => return refused(reason),
    };
    let timeout = deadline.saturating_duration_since(runtime::now());
    encode_answer(&step(context, &work, &spans, timeout).await, &work)
}

/// A shard's answer about work.
pub fn encode_answer<W: Work>(answer: &Result<StepFound<W::Output>, W::Error>, work: &W) -> Vec<u8> {
    let mut out = vec![ANSWER_FORMAT];
    match answer {
        Ok(step) => {
            out.push(0);
            vint::put_unsigned(&mut out, step.done.len() as u64);
            step.done.iter().for_each(|found| work.put_found(found, &mut out));
            out.push(u8::from(step.begun.is_some()));
            if let Some((found, place)) = &step.begun {
                work.put_found(found, &mut out);
                place.encode(&mut out);
            }
        }
        Err(error) => {
            out.push(1);
            W::put_error(error, &mut out);
        }
    }
    out
}

/// A shard's answer about work on at most `spans` spans.
///
/// # Errors
/// When the bytes are something else.
pub fn decode_answer<W: Work>(
    body: &[u8],
    work: &W,
    spans: usize,
) -> Result<Result<StepFound<W::Output>, W::Error>, Malformed> {
    let reader = &mut Reader::new(body);
    if reader.get_u8()? != ANSWER_FORMAT {
        return Err(Malformed);
    }
    let answer = match reader.get_u8()? {
        0 => {
            let count = usize::try_from(reader.get_vint()?).map_err(|_| Malformed)?;
            let has_more = |begun: u8| count + usize::from(begun) > spans;
            if has_more(0) {
                return Err(Malformed);
            }
            let done = (0..count)
                .map(|_| work.get_found(reader))
                .collect::<Result<Vec<_>, _>>()?;
            let begun = match reader.get_u8()? {
                0 => None,
                1 if !has_more(1) => Some((work.get_found(reader)?, ResumePoint::decode(reader)?)),
                _ => return Err(Malformed),
            };
            Ok(StepFound { done, begun })
        }
        1 => Err(W::get_error(reader)?),
        _ => return Err(Malformed),
    };
    if reader.rest().is_empty() {
        Ok(answer)
    } else {
        Err(Malformed)
    }
}

/// Packs an error of replicas, which [`Work::put_error`] may contain: u8 1, 2 or 3 and what belongs to it. False, and
/// nothing is packed, for errors that reads do not have.
pub fn put_replicas_error(error: &CoordinatorError, out: &mut Vec<u8>) -> bool {
    let put_tally = |out: &mut Vec<u8>, tally: &Tally, data_present: bool| {
        for number in [tally.consistency as u16, tally.received, tally.block_for] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.push(u8::from(data_present));
    };
    match error {
        CoordinatorError::Unavailable(unavailable) => {
            out.push(1);
            for number in [unavailable.consistency as u16, unavailable.required, unavailable.alive] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        CoordinatorError::ReadTimeout {
            tally,
            data_present,
            missing,
        } => {
            out.push(2);
            put_tally(out, tally, *data_present);
            put_sized(out, missing.as_bytes());
        }
        CoordinatorError::ReadFailure {
            tally,
            data_present,
            failures,
            reason,
        } => {
            out.push(3);
            put_tally(out, tally, *data_present);
            put_sized(out, reason.as_bytes());
            vint::put_unsigned(out, failures.len() as u64);
            for (address, code) in failures {
                match address {
                    IpAddr::V4(v4) => {
                        out.push(4);
                        out.extend_from_slice(&v4.octets());
                    }
                    IpAddr::V6(v6) => {
                        out.push(16);
                        out.extend_from_slice(&v6.octets());
                    }
                }
                out.extend_from_slice(&code.to_le_bytes());
            }
        }
        _ => return false,
    }
    true
}

/// Unpacks an error of replicas after its first byte, `kind`; None: it is none of those.
///
/// # Errors
/// When the bytes are something else.
pub fn get_replicas_error(kind: u8, reader: &mut Reader<'_>) -> Result<Option<CoordinatorError>, Malformed> {
    let tally = |reader: &mut Reader<'_>| -> Result<(Tally, bool), Malformed> {
        let tally = Tally {
            consistency: level(reader)?,
            received: le_u16(reader)?,
            block_for: le_u16(reader)?,
        };
        Ok((tally, reader.get_u8()? == 1))
    };
    Ok(Some(match kind {
        1 => CoordinatorError::Unavailable(Unavailable {
            consistency: level(reader)?,
            required: le_u16(reader)?,
            alive: le_u16(reader)?,
            datacenter: None,
        }),
        2 => {
            let (tally, data_present) = tally(reader)?;
            CoordinatorError::ReadTimeout {
                tally,
                data_present,
                missing: text(reader)?,
            }
        }
        3 => {
            let (tally, data_present) = tally(reader)?;
            let reason = text(reader)?;
            let mut failures = Vec::new();
            for _ in 0..reader.get_vint()? {
                let address: IpAddr = match reader.get_u8()? {
                    4 => reader.get_array::<4>()?.into(),
                    16 => reader.get_array::<16>()?.into(),
                    _ => return Err(Malformed),
                };
                failures.push((address, le_u16(reader)?));
            }
            CoordinatorError::ReadFailure {
                tally,
                data_present,
                failures,
                reason,
            }
        }
        _ => return Ok(None),
    }))
}
