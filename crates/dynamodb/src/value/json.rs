//! Attribute values as JSON: `{"S": "text"}`, `{"N": "1"}`, `{"B": "base64"}`, `{"L": [...]}` and so on.
//!
//! Writing appends to a buffer without a tree in between. Reading is by serde's seeds, so that the parser of a request
//! reads values where they are in its body: [`ItemSeed`] for a map of attributes, [`ValueSeed`] for one value. The
//! service reads a whole body before it validates values. So reading continues after an invalid value: [`Problems`]
//! keeps the first one, and the value is NULL. A wrong type of JSON is a SerializationException and ends reading.

use std::cell::RefCell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeSeed;
use stdx::preempt;

use super::{AttributeValue, Item};
use crate::Error;

mod read;

/// Reads a map of attributes: the names and their values.
#[derive(Clone, Copy)]
pub struct ItemSeed<'p>(pub &'p Problems);

/// Reads one value.
#[derive(Clone, Copy)]
pub struct ValueSeed<'p>(pub &'p Problems);

/// Skips a value of JSON, whatever it is, with preemption points; serde's own way has none.
#[derive(Clone, Copy)]
pub struct Skip;

/// What was wrong with the values that seeds have read.
#[derive(Default)]
pub struct Problems {
    fatal: RefCell<Option<Error>>,
    first: RefCell<Option<Problem>>,
}

/// An invalid value.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    /// The ValidationException, without the text that some operations place before it.
    pub error: Error,
    /// Whether PutItem and UpdateItem place "1 validation error detected: " before the message.
    pub is_counted: bool,
    /// The name of the attribute at the top level, if the value is in a map of attributes.
    pub attribute: Option<String>,
}

impl Problems {
    /// The first invalid value, if there is one.
    pub fn take(&self) -> Option<Problem> {
        self.first.take()
    }

    /// Fails with the first invalid value, if there is one, without a prefix.
    ///
    /// # Errors
    /// A ValidationException.
    pub fn check(&self) -> Result<(), Error> {
        self.take().map_or(Ok(()), |problem| Err(problem.error))
    }

    /// The service's error for one that serde returned: of a seed that ended reading, or of JSON that is none.
    pub fn serialization_error(&self, error: &serde_json::Error) -> Error {
        self.fatal.take().unwrap_or_else(|| syntax_error(error))
    }

    /// Notes an invalid value, unless there was one before.
    fn note(&self, error: Error, is_counted: bool) {
        self.first.borrow_mut().get_or_insert(Problem {
            error,
            is_counted,
            attribute: None,
        });
    }

    /// Notes the attribute that the first invalid value is in, once.
    fn note_attribute(&self, name: &str) {
        if let Some(problem) = self.first.borrow_mut().as_mut() {
            problem.attribute.get_or_insert_with(|| name.to_owned());
        }
    }

    /// Notes an error that ends reading, as serde's.
    fn fail<E: serde::de::Error>(&self, error: Error) -> E {
        self.fatal.borrow_mut().get_or_insert(error);
        E::custom("a value of another type")
    }
}

/// The service's error for a body that is not JSON, or not of the types that an action takes.
pub fn syntax_error(error: &serde_json::Error) -> Error {
    match error.classify() {
        serde_json::error::Category::Data => Error::serialization("Unexpected value type in payload"),
        serde_json::error::Category::Eof => Error::serialization("Unexpected end-of-input"),
        _ => Error::serialization("Unexpected token received from parser"),
    }
}

/// Reads a text that is one map of attributes.
///
/// # Errors
/// A SerializationException or ValidationException, without a prefix.
pub fn read_item(json: &[u8]) -> Result<Item, Error> {
    let problems = Problems::default();
    read(json, ItemSeed(&problems), &problems)
}

/// Reads a text that is one value.
///
/// # Errors
/// A SerializationException or ValidationException, without a prefix.
pub fn read_value(json: &[u8]) -> Result<AttributeValue, Error> {
    let problems = Problems::default();
    read(json, ValueSeed(&problems), &problems)
}

fn read<'de, S: DeserializeSeed<'de>>(json: &'de [u8], seed: S, problems: &Problems) -> Result<S::Value, Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = seed.deserialize(&mut deserializer);
    let value = value.map_err(|e| problems.serialization_error(&e))?;
    deserializer.end().map_err(|e| syntax_error(&e))?;
    problems.check()?;
    Ok(value)
}

/// Appends an item: `{"name": value, ...}`.
pub fn write_item(out: &mut Vec<u8>, item: &Item) {
    let mut separator = b'{';
    for (name, value) in item {
        preempt::push(out, separator);
        write_string(out, name);
        out.push(b':');
        write_value(out, value);
        separator = b',';
    }
    if item.is_empty() {
        out.push(b'{');
    }
    out.push(b'}');
}

/// Appends a value: `{"S": "text"}`.
pub fn write_value(out: &mut Vec<u8>, value: &AttributeValue) {
    preempt::point();
    let open = |out: &mut Vec<u8>, start: &str| {
        preempt::reserve(out, start.len());
        out.extend_from_slice(start.as_bytes());
    };
    match value {
        AttributeValue::S(text) => {
            open(out, "{\"S\":");
            write_string(out, text);
        }
        AttributeValue::N(number) => {
            open(out, "{\"N\":\"");
            number.append_text(out);
            out.push(b'"');
        }
        AttributeValue::B(bytes) => {
            open(out, "{\"B\":");
            write_binary(out, bytes);
        }
        AttributeValue::Bool(true) => open(out, "{\"BOOL\":true"),
        AttributeValue::Bool(false) => open(out, "{\"BOOL\":false"),
        AttributeValue::Null => open(out, "{\"NULL\":true"),
        AttributeValue::L(list) => {
            open(out, "{\"L\":");
            write_list(out, list, write_value);
        }
        AttributeValue::M(map) => {
            open(out, "{\"M\":");
            write_item(out, map);
        }
        AttributeValue::Ss(set) => {
            open(out, "{\"SS\":");
            write_list(out, set.as_slice(), |out, text| write_string(out, text));
        }
        AttributeValue::Ns(set) => {
            open(out, "{\"NS\":");
            write_list(out, set.as_slice(), |out, number| {
                out.push(b'"');
                number.append_text(out);
                out.push(b'"');
            });
        }
        AttributeValue::Bs(set) => {
            open(out, "{\"BS\":");
            write_list(out, set.as_slice(), |out, bytes| write_binary(out, bytes));
        }
    }
    out.push(b'}');
}

fn write_list<T>(out: &mut Vec<u8>, elements: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    preempt::push(out, b'[');
    for (number, element) in elements.iter().enumerate() {
        preempt::point();
        if number > 0 {
            preempt::push(out, b',');
        }
        write(out, element);
    }
    preempt::push(out, b']');
}

/// Appends a text in quotes, escaped.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    preempt::reserve(out, text.len() + 2);
    out.push(b'"');
    for piece in text.as_bytes().chunks(preempt::STEP_BYTES) {
        write_escaped(out, piece);
        if text.len() > preempt::STEP_BYTES {
            preempt::long_step();
        }
    }
    out.push(b'"');
}

fn write_escaped(out: &mut Vec<u8>, mut rest: &[u8]) {
    let is_special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    let find = |bytes: &[u8]| {
        let plain = plain_words(bytes);
        bytes[plain..].iter().position(is_special).map(|at| plain + at)
    };
    while let Some(at) = find(rest) {
        let (plain, special) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((byte, after)) = special.split_first() else {
            return;
        };
        write_escape(out, *byte);
        rest = after;
    }
    out.extend_from_slice(rest);
}

/// The length of the words of eight bytes at the beginning that have no byte to be escaped.
fn plain_words(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    // A byte below n borrows into its highest bit, which it does not have itself. See "Determine if a word has a byte
    // less than n" of Anderson's Bit Twiddling Hacks.
    let has_less = |word: u64, n: u8| word.wrapping_sub(ONES * u64::from(n)) & !word & HIGH != 0;
    let is_plain = |word: u64| {
        let has = |byte: u8| has_less(word ^ (ONES * u64::from(byte)), 1);
        !(has_less(word, 0x20) || has(b'"') || has(b'\\'))
    };
    let words = bytes.as_chunks::<8>().0;
    words
        .iter()
        .take_while(|word| is_plain(u64::from_ne_bytes(**word)))
        .count()
        * 8
}

fn write_escape(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        _ => {
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 15)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Appends bytes as base64 in quotes.
pub fn write_binary(out: &mut Vec<u8>, bytes: &[u8]) {
    /// A multiple of three, so that only the last piece is padded.
    const PIECE_BYTES: usize = 24 << 10;
    preempt::reserve(out, bytes.len().div_ceil(3) * 4 + 2);
    out.push(b'"');
    for piece in bytes.chunks(PIECE_BYTES) {
        let start = out.len();
        out.resize(start + piece.len().div_ceil(3) * 4, 0);
        let written = STANDARD.encode_slice(piece, &mut out[start..]).unwrap_or(0);
        out.truncate(start + written);
        if bytes.len() > PIECE_BYTES {
            preempt::long_step();
        }
    }
    out.push(b'"');
}
