//! Reads the notations of the specification ([int], [string], [bytes], …) from a body. Each read names its field, so
//! that an error can.

use crate::codes::Consistency;
use crate::error::ProtocolError;

/// A cursor over the body of one frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    /// What has not been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The bytes read since `start`, which is an earlier copy of this reader.
    pub(crate) fn since(&self, start: Reader<'a>) -> &'a [u8] {
        let length = start.bytes.len().saturating_sub(self.bytes.len());
        start.bytes.get(..length).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], ProtocolError> {
        match self.bytes.split_at_checked(count) {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(taken)
            }
            None => Err(truncated(field, count, self.bytes.len())),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ProtocolError> {
        match self.bytes.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.bytes = rest;
                Ok(*taken)
            }
            None => Err(truncated(field, N, self.bytes.len())),
        }
    }

    #[inline]
    pub(crate) fn byte(&mut self, field: &'static str) -> Result<u8, ProtocolError> {
        Ok(self.array::<1>(field)?[0])
    }

    #[inline]
    pub(crate) fn short(&mut self, field: &'static str) -> Result<u16, ProtocolError> {
        Ok(u16::from_be_bytes(self.array(field)?))
    }

    #[inline]
    pub(crate) fn int(&mut self, field: &'static str) -> Result<i32, ProtocolError> {
        Ok(i32::from_be_bytes(self.array(field)?))
    }

    #[inline]
    pub(crate) fn long(&mut self, field: &'static str) -> Result<i64, ProtocolError> {
        Ok(i64::from_be_bytes(self.array(field)?))
    }

    #[inline]
    pub(crate) fn short_bytes(&mut self, field: &'static str) -> Result<&'a [u8], ProtocolError> {
        let length = self.short(field)?;
        self.take(usize::from(length), field)
    }

    pub(crate) fn string(&mut self, field: &'static str) -> Result<&'a str, ProtocolError> {
        utf8(self.short_bytes(field)?, field)
    }

    pub(crate) fn long_string(&mut self, field: &'static str) -> Result<&'a str, ProtocolError> {
        let length = self.int(field)?;
        let Ok(length) = usize::try_from(length) else {
            return Err(ProtocolError::OutOfRange {
                field,
                expected: "a length of 0 or more",
                found: length.into(),
            });
        };
        utf8(self.take(length, field)?, field)
    }

    /// A [bytes]: any negative length is null.
    pub(crate) fn bytes(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, ProtocolError> {
        match usize::try_from(self.int(field)?) {
            Ok(length) => Ok(Some(self.take(length, field)?)),
            Err(_) => Ok(None),
        }
    }

    #[inline]
    pub(crate) fn consistency(&mut self, field: &'static str) -> Result<Consistency, ProtocolError> {
        let number = self.short(field)?;
        Consistency::from_number(number).ok_or(ProtocolError::OutOfRange {
            field,
            expected: "a consistency level from 0x0000 (ANY) to 0x000A (LOCAL_ONE)",
            found: number.into(),
        })
    }
}

#[cold]
fn truncated(field: &'static str, needed: usize, remaining: usize) -> ProtocolError {
    ProtocolError::Truncated {
        field,
        needed,
        remaining,
    }
}

fn utf8<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, ProtocolError> {
    std::str::from_utf8(bytes).map_err(|_| ProtocolError::NotUtf8 { field })
}
