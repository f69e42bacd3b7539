//! Reads the bytes of a record field by field, along the tables of its fields.

use crate::error::{Problem, RecordError};
use crate::{DEPTH_MAX, Field, Known, Message, Need, Of};
use prost::encoding::{WireType, decode_key, decode_varint};

/// A record around the place that is read.
#[derive(Clone, Copy)]
struct Outer<'a> {
    message: &'static Message,
    bytes: &'a [u8],
}

/// One pass over a record.
pub(crate) struct Walk<'a> {
    known: &'a Known,
    outer: Vec<Outer<'a>>,
    /// Receives each field that is known, with the bytes that follow its value.
    visit: Option<Visit<'a>>,
}

/// What is to be done at a field: the records around it, the field, and how many bytes of the whole follow its value.
type Visit<'a> = Box<dyn FnMut(&[Outer<'a>], &Field, usize) + 'a>;

impl<'a> Walk<'a> {
    pub(crate) fn new(known: &'a Known) -> Self {
        Self {
            known,
            outer: Vec::new(),
            visit: None,
        }
    }

    /// Checks a whole record.
    pub(crate) fn check(mut self, bytes: &'a [u8], message: &'static Message) -> Result<(), RecordError> {
        self.record(bytes, message, 0)
    }

    fn record(&mut self, bytes: &'a [u8], message: &'static Message, after: usize) -> Result<(), RecordError> {
        self.outer.push(Outer { message, bytes });
        if self.outer.len() > DEPTH_MAX {
            return Err(self.damaged(None, format!("records stand more than {DEPTH_MAX} deep in each other")));
        }
        let (mut rest, mut last) = (bytes, 0);
        while !rest.is_empty() {
            let (number, wire) = decode_key(&mut rest).map_err(|e| self.damaged(None, e))?;
            let Some(field) = message.field(number).filter(|field| self.known.has(field.feature)) else {
                return Err(self.unknown(message, number));
            };
            if number < last || (number == last && !field.is_repeated) {
                let why = if number == last {
                    "it occurs twice"
                } else {
                    "it comes after a later field"
                };
                return Err(self.damaged(Some(field), why));
            }
            last = number;
            let value = self.value(&mut rest, field, wire)?;
            if let Of::Record(inner) = field.of {
                self.record(value, inner, after + rest.len())?;
            }
            if let Some(visit) = &mut self.visit {
                visit(&self.outer, field, after + rest.len());
            }
        }
        self.outer.pop();
        Ok(())
    }

    /// Takes the value of a field from the front: its bytes, where it has a length.
    fn value(&self, rest: &mut &'a [u8], field: &Field, wire: WireType) -> Result<&'a [u8], RecordError> {
        let expected = match field.of {
            Of::Bool | Of::U32 | Of::U64 | Of::S32 | Of::S64 => WireType::Varint,
            Of::Double => WireType::SixtyFourBit,
            Of::Text | Of::Bytes | Of::Record(_) => WireType::LengthDelimited,
        };
        if wire != expected {
            return Err(self.damaged(Some(field), format!("expected wire type {expected:?}, found {wire:?}")));
        }
        match expected {
            WireType::SixtyFourBit => self.bytes(rest, field, 8),
            WireType::LengthDelimited => {
                let length = decode_varint(rest).map_err(|e| self.damaged(Some(field), e))?;
                let value = self.bytes(rest, field, length)?;
                if matches!(field.of, Of::Text) && std::str::from_utf8(value).is_err() {
                    return Err(self.damaged(Some(field), "expected UTF-8"));
                }
                Ok(value)
            }
            _ => {
                let number = decode_varint(rest).map_err(|e| self.damaged(Some(field), e))?;
                let max = match field.of {
                    Of::Bool => 1,
                    Of::U32 | Of::S32 => u64::from(u32::MAX),
                    _ => u64::MAX,
                };
                if number > max {
                    return Err(self.damaged(Some(field), format!("expected at most {max}, found {number}")));
                }
                Ok(&[])
            }
        }
    }

    fn bytes(&self, rest: &mut &'a [u8], field: &Field, count: u64) -> Result<&'a [u8], RecordError> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let Some((value, behind)) = rest.split_at_checked(count) else {
            return Err(self.damaged(Some(field), format!("{count} bytes expected, {} follow", rest.len())));
        };
        *rest = behind;
        Ok(value)
    }

    fn unknown(&self, message: &Message, number: u32) -> RecordError {
        let mut reserved = message.reserved.iter();
        RecordError {
            place: place(&self.outer, None),
            problem: Problem::Unknown {
                number,
                reserved_for: reserved.find(|(kept, _)| *kept == number).map(|(_, what)| *what),
            },
        }
    }

    fn damaged(&self, field: Option<&Field>, why: impl ToString) -> RecordError {
        RecordError::damaged(place(&self.outer, field), why.to_string())
    }
}

/// The names of the records around a place, and the field: from the outermost object on, if the place is in one.
fn place(outer: &[Outer<'_>], field: Option<&Field>) -> String {
    let object = outer.iter().position(|outer| outer.title().is_some());
    let mut names: Vec<String> = outer[object.unwrap_or(0)..].iter().map(Outer::name).collect();
    names.extend(field.map(|field| field.name.to_owned()));
    names.join(", ")
}

impl Outer<'_> {
    /// What it is, and its own name.
    fn name(&self) -> String {
        match self.title() {
            Some(title) => format!("{} {title}", self.message.name),
            None => self.message.name.to_owned(),
        }
    }

    /// Its own name, as far as that can be read.
    fn title(&self) -> Option<String> {
        let parts = self
            .message
            .title
            .iter()
            .filter_map(|number| text_of(self.bytes, *number));
        let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
        (!parts.is_empty()).then(|| parts.join("."))
    }
}

/// The text of a field, in a record that may be damaged after it.
fn text_of(mut bytes: &[u8], wanted: u32) -> Option<String> {
    const TITLE_BYTES_MAX: usize = 256;
    while !bytes.is_empty() {
        let (number, wire) = decode_key(&mut bytes).ok()?;
        let length = match wire {
            WireType::Varint => decode_varint(&mut bytes).ok().map(|_| 0)?,
            WireType::SixtyFourBit => 8,
            WireType::ThirtyTwoBit => 4,
            WireType::LengthDelimited => usize::try_from(decode_varint(&mut bytes).ok()?).ok()?,
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        let (value, rest) = bytes.split_at_checked(length)?;
        if number == wanted && wire == WireType::LengthDelimited {
            let shown = &value[..length.min(TITLE_BYTES_MAX)];
            return Some(String::from_utf8_lossy(shown).into_owned());
        }
        bytes = rest;
    }
    None
}

/// The field at an offset of a record that the check has passed.
pub(crate) fn place_of(bytes: &[u8], offset: usize, message: &'static Message) -> String {
    let known = Known::everything();
    let mut found = None;
    let mut walk = Walk::new(&known);
    walk.visit = Some(Box::new(|outer, field, after| {
        if found.is_none() && bytes.len() - after > offset {
            found = Some(place(outer, Some(field)));
        }
    }));
    let checked = walk.check(bytes, message);
    debug_assert!(checked.is_ok(), "it was checked before: {checked:?}");
    found.unwrap_or_else(|| message.name.to_owned())
}

/// The features of the fields that a record has, each with the first field that came with it.
pub(crate) fn needs(bytes: &[u8], message: &'static Message) -> Vec<Need> {
    let known = Known::everything();
    let mut needs: Vec<Need> = Vec::new();
    let mut walk = Walk::new(&known);
    walk.visit = Some(Box::new(|outer, field, _| {
        if let Some(feature) = field.feature
            && needs.iter().all(|need| need.feature != feature)
        {
            needs.push(Need {
                feature,
                place: place(outer, Some(field)),
            });
        }
    }));
    let checked = walk.check(bytes, message);
    assert!(
        checked.is_ok(),
        "a record has a field that its table lacks: {checked:?}"
    );
    needs
}
