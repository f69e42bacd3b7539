//! The EXECUTE frame of a run, and the answers to it.
//!
//! ```text
//! header 9: 04 00 stream[2] 0a length[4]
//! body: id [short bytes]  consistency [short]  flags [byte]  n [short]  values, the key last
//! ```

use crate::load::{Answer, LoadError, Outcome, Protocol};

pub(super) const HEADER_BYTES: usize = 9;
pub(super) const REQUEST_VERSION: u8 = 4;
const RESPONSE_VERSION: u8 = 0x84;

pub(super) const OPCODE_ERROR: u8 = 0x00;
pub(super) const OPCODE_RESULT: u8 = 0x08;
const OPCODE_EXECUTE: u8 = 0x0a;

/// Values follow; the client knows the result's metadata.
const FLAGS: u8 = 0x03;

/// No answer of ours is this long: what is, is not CQL.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The bytes of an EXECUTE whose last value is a key of 8 bytes, at the end.
#[derive(Clone, Debug)]
pub(super) struct ExecuteFrame {
    bytes: Vec<u8>,
}

impl ExecuteFrame {
    pub(super) fn new(id: &[u8], consistency: u16, values: &[Vec<u8>]) -> ExecuteFrame {
        let mut bytes = vec![REQUEST_VERSION, 0, 0, 0, OPCODE_EXECUTE, 0, 0, 0, 0];
        bytes.extend_from_slice(&u16::try_from(id.len()).expect("it came in 2 bytes").to_be_bytes());
        bytes.extend_from_slice(id);
        bytes.extend_from_slice(&consistency.to_be_bytes());
        bytes.push(FLAGS);
        bytes.extend_from_slice(
            &u16::try_from(values.len() + 1)
                .expect("at most 1,000 columns")
                .to_be_bytes(),
        );
        for value in values {
            bytes.extend_from_slice(&u32::try_from(value.len()).expect("at most a megabyte").to_be_bytes());
            bytes.extend_from_slice(value);
        }
        bytes.extend_from_slice(&8_u32.to_be_bytes());
        bytes.extend_from_slice(&[0; 8]);
        let body_bytes = u32::try_from(bytes.len() - HEADER_BYTES).expect("at most a gigabyte");
        bytes[5..HEADER_BYTES].copy_from_slice(&body_bytes.to_be_bytes());
        ExecuteFrame { bytes }
    }
}

/// What a good answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Nothing,
    /// At least one row.
    Row,
    /// A row whose first column is true: the condition held.
    Applied,
}

/// How a connection of a run speaks.
pub(super) struct Frames {
    execute: ExecuteFrame,
    expected: Expected,
}

impl Frames {
    pub(super) fn new(execute: ExecuteFrame, expected: Expected) -> Frames {
        Frames { execute, expected }
    }
}

impl Protocol for Frames {
    #[inline]
    fn append_request(&mut self, out: &mut Vec<u8>, slot: u16, key: u64) {
        let start = out.len();
        out.extend_from_slice(&self.execute.bytes);
        let end = out.len();
        out[start + 2..start + 4].copy_from_slice(&slot.to_be_bytes());
        out[end - 8..].copy_from_slice(&key.to_be_bytes());
    }

    #[inline]
    fn next_answer(&mut self, input: &[u8]) -> Result<Option<Answer>, LoadError> {
        let Some(frame) = ResponseFrame::parse(input)? else {
            return Ok(None);
        };
        let outcome = match frame.opcode {
            OPCODE_RESULT => match self.expected {
                Expected::Row if frame.row_count() == 0 => Outcome::Empty,
                Expected::Applied if !frame.is_applied() => Outcome::NotApplied,
                Expected::Nothing | Expected::Row | Expected::Applied => Outcome::Done,
            },
            OPCODE_ERROR => {
                let (name, text) = frame.error();
                Outcome::Failed { name, text }
            }
            other => {
                return Err(LoadError::Protocol(format!(
                    "opcode {other:#04x} as the answer to EXECUTE"
                )));
            }
        };
        Ok(Some(Answer {
            bytes: HEADER_BYTES + frame.body.len(),
            slot: frame.stream,
            outcome,
        }))
    }
}

/// A response at the start of the input.
#[derive(Debug)]
pub(super) struct ResponseFrame<'a> {
    pub(super) opcode: u8,
    pub(super) flags: u8,
    pub(super) stream: u16,
    pub(super) body: &'a [u8],
}

impl<'a> ResponseFrame<'a> {
    #[inline]
    pub(super) fn parse(input: &'a [u8]) -> Result<Option<ResponseFrame<'a>>, LoadError> {
        let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [version, flags, stream0, stream1, opcode, length @ ..] = *header;
        let length = u32::from_be_bytes(length) as usize;
        if version != RESPONSE_VERSION || length > BODY_BYTES_MAX {
            let message = format!("expected the header of a response in version 4, got {header:02x?}");
            return Err(LoadError::Protocol(message));
        }
        let stream = u16::from_be_bytes([stream0, stream1]);
        Ok(rest.get(..length).map(|body| ResponseFrame {
            opcode,
            flags,
            stream,
            body,
        }))
    }

    /// Rows in a RESULT whose metadata was left out: kind, flags, columns, count.
    fn row_count(&self) -> u32 {
        match self.body {
            [0, 0, 0, 2, 0, 0, 0, 4, _, _, _, _, count0, count1, count2, count3, ..] => {
                u32::from_be_bytes([*count0, *count1, *count2, *count3])
            }
            // With metadata or more pages the count is elsewhere, and the last four bytes are 0 when there is no row.
            [0, 0, 0, 2, ..] => u32::from(!self.body.ends_with(&[0, 0, 0, 0])),
            _ => 0,
        }
    }

    /// Whether the first column of the first row is the boolean true. Servers answer conditional statements with
    /// metadata, because the columns depend on whether the condition held.
    fn is_applied(&self) -> bool {
        self.first_cell() == Some(&[1])
    }

    /// The first cell of a RESULT that has rows of blobs and booleans.
    fn first_cell(&self) -> Option<&'a [u8]> {
        const GLOBAL_TABLE: u32 = 1;
        const MORE_PAGES: u32 = 2;
        const NO_METADATA: u32 = 4;
        let rest = self.body.strip_prefix(&[0, 0, 0, 2])?;
        let (flags, rest) = read_int(rest)?;
        let (columns, mut rest) = read_int(rest)?;
        if flags & MORE_PAGES != 0 {
            (_, rest) = read_bytes(rest)?;
        }
        if flags & NO_METADATA == 0 {
            let named_each = flags & GLOBAL_TABLE == 0;
            if !named_each {
                rest = skip_strings(rest, 2)?;
            }
            for _ in 0..columns {
                // Keyspace and table, where they are not said once; the name; the type's number.
                rest = skip_strings(rest, if named_each { 3 } else { 1 })?.get(2..)?;
            }
        }
        let (rows, rest) = read_int(rest)?;
        let (cell, _) = read_bytes(rest)?;
        (rows > 0).then_some(cell)
    }

    /// The name and the text of an ERROR.
    pub(super) fn error(&self) -> (String, String) {
        let Some((code, rest)) = self.body.split_first_chunk::<4>() else {
            return ("ERROR".to_string(), "without a code".to_string());
        };
        let text = rest
            .split_first_chunk::<2>()
            .and_then(|(length, text)| text.get(..usize::from(u16::from_be_bytes(*length))));
        let behind_text = text.and_then(|text| rest.get(2 + text.len()..)).unwrap_or_default();
        let text = String::from_utf8_lossy(text.unwrap_or_default()).into_owned();
        let code = u32::from_be_bytes(*code);
        let name = match code {
            0x0000 => "SERVER_ERROR",
            0x000a => "PROTOCOL_ERROR",
            0x0100 => "BAD_CREDENTIALS",
            0x1000 => "UNAVAILABLE",
            0x1001 => "OVERLOADED",
            0x1002 => "IS_BOOTSTRAPPING",
            0x1100 if is_of_conditional_write(behind_text) => "WRITE_TIMEOUT of CAS",
            0x1100 => "WRITE_TIMEOUT",
            0x1200 => "READ_TIMEOUT",
            0x1300 => "READ_FAILURE",
            0x1500 => "WRITE_FAILURE",
            0x1700 => "CAS_WRITE_UNKNOWN",
            0x2000 => "SYNTAX_ERROR",
            0x2100 => "UNAUTHORIZED",
            0x2200 => "INVALID",
            0x2300 => "CONFIG_ERROR",
            0x2400 => "ALREADY_EXISTS",
            0x2500 => "UNPREPARED",
            other => return (format!("ERROR {other:#06x}"), text),
        };
        (name.to_string(), text)
    }
}

/// What follows the text of a WRITE_TIMEOUT: consistency level, answers received, answers required, kind of write.
fn is_of_conditional_write(behind_text: &[u8]) -> bool {
    behind_text.get(10..).is_some_and(|kind| kind.starts_with(b"\0\x03CAS"))
}

fn read_int(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*number), rest))
}

/// Bytes after their length; a null has none.
fn read_bytes(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = read_int(bytes)?;
    rest.split_at_checked(usize::try_from(length as i32).unwrap_or(0))
}

fn skip_strings(mut bytes: &[u8], count: u32) -> Option<&[u8]> {
    for _ in 0..count {
        let (length, rest) = bytes.split_first_chunk()?;
        bytes = rest.get(usize::from(u16::from_be_bytes(*length))..)?;
    }
    Some(bytes)
}

/// The number of a consistency level.
pub(super) fn consistency_number(name: &str) -> Result<u16, LoadError> {
    const NAMES: [&str; 11] = [
        "ANY",
        "ONE",
        "TWO",
        "THREE",
        "QUORUM",
        "ALL",
        "LOCAL_QUORUM",
        "EACH_QUORUM",
        "SERIAL",
        "LOCAL_SERIAL",
        "LOCAL_ONE",
    ];
    let number = NAMES.iter().position(|level| level.eq_ignore_ascii_case(name));
    let number =
        number.ok_or_else(|| LoadError::Options(format!("--consistency {name}: expected one of {NAMES:?}")))?;
    Ok(u16::try_from(number).expect("there are eleven"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_copy_with_another_stream_and_key() {
        let frame = ExecuteFrame::new(b"id", 4, &[b"vv".to_vec()]);
        let mut frames = Frames::new(frame, Expected::Nothing);
        let mut out = b"before".to_vec();
        frames.append_request(&mut out, 0x0102, 0x0304_0506_0708_090a);
        let expected = [
            b"before".as_slice(),
            &[
                4, 0, 1, 2, 0x0a, 0, 0, 0, 27, 0, 2, b'i', b'd', 0, 4, 3, 0, 2, 0, 0, 0, 2, b'v', b'v', 0, 0, 0, 8,
            ],
            &[3, 4, 5, 6, 7, 8, 9, 10],
        ];
        assert_eq!(out, expected.concat());
    }

    #[test]
    fn answers_are_told_apart() {
        let mut frames = Frames::new(ExecuteFrame::new(b"", 1, &[]), Expected::Row);
        let row = [0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
        let no_row = [0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0];
        let void = [0, 0, 0, 1];
        let unprepared = [0, 0, 0x25, 0, 0, 2, b'n', b'o', 0, 0];
        let failed = Outcome::Failed {
            name: "UNPREPARED".to_string(),
            text: "no".to_string(),
        };
        let cases: [(u8, &[u8], Outcome); 4] = [
            (OPCODE_RESULT, &row, Outcome::Done),
            (OPCODE_RESULT, &no_row, Outcome::Empty),
            (OPCODE_RESULT, &void, Outcome::Empty),
            (OPCODE_ERROR, &unprepared, failed),
        ];
        for (opcode, body, outcome) in cases {
            let mut input = vec![0x84, 0, 0, 9, opcode, 0, 0, 0, body.len() as u8];
            input.extend_from_slice(body);
            for cut in 0..input.len() {
                assert_eq!(frames.next_answer(&input[..cut]).ok(), Some(None), "cut at {cut}");
            }
            input.push(0xff);
            let answer = frames.next_answer(&input).expect("an answer").expect("a whole one");
            assert_eq!(
                answer,
                Answer {
                    bytes: input.len() - 1,
                    slot: 9,
                    outcome
                }
            );
        }
        let mut writes = Frames::new(ExecuteFrame::new(b"", 1, &[]), Expected::Nothing);
        let written = writes
            .next_answer(&[0x84, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0, 1])
            .expect("an answer");
        assert_eq!(written.map(|answer| answer.outcome), Some(Outcome::Done));
        for strange in [
            b"HTTP/1.1 ".as_slice(),
            &[0x84, 0, 0, 0, 8, 0xff, 0, 0, 0],
            &[0x84, 0, 0, 0, 6, 0, 0, 0, 0],
        ] {
            assert!(
                writes.next_answer(strange).is_err(),
                "{strange:?} was taken for an answer"
            );
        }
    }
    #[test]
    fn a_condition_that_did_not_hold_is_told_from_one_that_did() {
        let with_metadata = |flags: u8, tables: &[u8], applied: &[u8]| {
            let column: &[u8] = b"\0\x09[applied]\0\x04";
            [&[0, 0, 0, 2, 0, 0, 0, flags, 0, 0, 0, 1], tables, column, applied].concat()
        };
        let (yes, no) = (b"\0\0\0\x01\0\0\0\x01\x01", b"\0\0\0\x01\0\0\0\x01\x00");
        let tables = b"\0\x02ks\0\x02cf";
        let without_metadata = |applied: &[u8]| [&[0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1], applied].concat();
        let no_rows = without_metadata(&[0; 4]);
        let cases = [
            (with_metadata(1, tables, yes), true),
            (with_metadata(0, tables, yes), true),
            (with_metadata(1, tables, no), false),
            (without_metadata(yes), true),
            (without_metadata(no), false),
            (no_rows, false),
            (vec![0, 0, 0, 1], false),
        ];
        for (body, applied) in cases {
            let frame = ResponseFrame {
                opcode: OPCODE_RESULT,
                flags: 0,
                stream: 0,
                body: &body,
            };
            assert_eq!(frame.is_applied(), applied, "{body:02x?}");
            for cut in 0..body.len() {
                let frame = ResponseFrame {
                    body: &body[..cut],
                    ..frame
                };
                assert!(
                    !frame.is_applied(),
                    "{:02x?} was taken for a whole answer",
                    &body[..cut]
                );
            }
        }
    }

    #[test]
    fn errors_are_called_by_their_kinds() {
        let error = |code: u16, behind_text: &[u8]| {
            let body = [&[0, 0][..], &code.to_be_bytes(), b"\0\x04late", behind_text].concat();
            let frame = ResponseFrame {
                opcode: OPCODE_ERROR,
                flags: 0,
                stream: 0,
                body: &body,
            };
            frame.error()
        };
        let cases: [(u16, &[u8], &str); 5] = [
            (0x1100, b"\0\x08\0\0\0\x01\0\0\0\x02\0\x03CAS", "WRITE_TIMEOUT of CAS"),
            (0x1100, b"\0\x04\0\0\0\x01\0\0\0\x02\0\x06SIMPLE", "WRITE_TIMEOUT"),
            (0x1100, b"", "WRITE_TIMEOUT"),
            (0x1700, b"", "CAS_WRITE_UNKNOWN"),
            (0x1234, b"", "ERROR 0x1234"),
        ];
        for (code, behind_text, name) in cases {
            assert_eq!(error(code, behind_text), (name.to_string(), "late".to_string()));
        }
    }
}
