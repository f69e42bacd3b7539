//! A big-endian cursor over borrowed bytes, and how to write bytes with their length.
//!
//! Every read either advances past what it returned, or fails and leaves the cursor where it was. A failure says where
//! the bytes ended and how many were needed, so that a decoder adds only the name of what it was reading.

use crate::vint;

/// The bytes ended before what was being read did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Offset, from the start of the cursor's bytes, of what was being read.
    pub at: usize,
    /// How many bytes it needed; for a vint whose first byte is missing, one.
    pub wanted: usize,
}

impl std::fmt::Display for Truncated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "bytes end too early: {} more needed at offset {}",
            self.wanted, self.at
        )
    }
}

impl std::error::Error for Truncated {}

/// Appends a vint of the length and the bytes. [`Reader::get_sized`] reads them.
#[inline]
pub fn put_sized(out: &mut Vec<u8>, bytes: &[u8]) {
    vint::put_unsigned(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads big-endian values one after the other.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// A cursor at the start of `bytes`.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Offset of the next byte to be read.
    #[inline]
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// What is not read yet.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// True when everything is read.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// [`Truncated`] when fewer remain.
    #[inline]
    pub fn get_slice(&mut self, len: usize) -> Result<&'a [u8], Truncated> {
        match self.rest().get(..len) {
            Some(slice) => {
                self.at += len;
                Ok(slice)
            }
            None => Err(Truncated {
                at: self.at,
                wanted: len,
            }),
        }
    }

    /// The next `N` bytes by value.
    ///
    /// # Errors
    /// [`Truncated`] when fewer remain.
    #[inline]
    pub fn get_array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        match self.rest().first_chunk::<N>() {
            Some(array) => {
                self.at += N;
                Ok(*array)
            }
            None => Err(Truncated { at: self.at, wanted: N }),
        }
    }

    /// One byte.
    ///
    /// # Errors
    /// [`Truncated`] at the end of the bytes.
    #[inline]
    pub fn get_u8(&mut self) -> Result<u8, Truncated> {
        self.get_array::<1>().map(|[byte]| byte)
    }

    /// Two bytes, unsigned.
    ///
    /// # Errors
    /// [`Truncated`] when fewer than two bytes remain.
    #[inline]
    pub fn get_u16(&mut self) -> Result<u16, Truncated> {
        self.get_array().map(u16::from_be_bytes)
    }

    /// Four bytes, unsigned.
    ///
    /// # Errors
    /// [`Truncated`] when fewer than four bytes remain.
    #[inline]
    pub fn get_u32(&mut self) -> Result<u32, Truncated> {
        self.get_array().map(u32::from_be_bytes)
    }

    /// Four bytes, signed.
    ///
    /// # Errors
    /// [`Truncated`] when fewer than four bytes remain.
    #[inline]
    pub fn get_i32(&mut self) -> Result<i32, Truncated> {
        self.get_array().map(i32::from_be_bytes)
    }

    /// Eight bytes, unsigned.
    ///
    /// # Errors
    /// [`Truncated`] when fewer than eight bytes remain.
    #[inline]
    pub fn get_u64(&mut self) -> Result<u64, Truncated> {
        self.get_array().map(u64::from_be_bytes)
    }

    /// Eight bytes, signed.
    ///
    /// # Errors
    /// [`Truncated`] when fewer than eight bytes remain.
    #[inline]
    pub fn get_i64(&mut self) -> Result<i64, Truncated> {
        self.get_array().map(i64::from_be_bytes)
    }

    /// An unsigned vint.
    ///
    /// # Errors
    /// [`Truncated`] when the bytes end inside it.
    #[inline]
    pub fn get_vint(&mut self) -> Result<u64, Truncated> {
        match vint::get_unsigned(self.rest()) {
            Some((value, len)) => {
                self.at += len;
                Ok(value)
            }
            None => Err(self.truncated_vint()),
        }
    }

    /// A vint, and so many bytes.
    ///
    /// # Errors
    /// [`Truncated`] when fewer remain.
    #[inline]
    pub fn get_sized(&mut self) -> Result<&'a [u8], Truncated> {
        let len = self.get_vint()?;
        self.get_slice(usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// A signed (zigzag) vint.
    ///
    /// # Errors
    /// [`Truncated`] when the bytes end inside it.
    #[inline]
    pub fn get_signed_vint(&mut self) -> Result<i64, Truncated> {
        match vint::get_signed(self.rest()) {
            Some((value, len)) => {
                self.at += len;
                Ok(value)
            }
            None => Err(self.truncated_vint()),
        }
    }

    #[cold]
    fn truncated_vint(&self) -> Truncated {
        let wanted = self.rest().first().map_or(1, |first| first.leading_ones() as usize + 1);
        Truncated { at: self.at, wanted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_in_order_and_big_endian() {
        let bytes = [
            1, 0, 2, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfd, b'a', b'b',
            0x80, 0x80, 3, 9,
        ];
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.get_u8(), Ok(1));
        assert_eq!(reader.get_u16(), Ok(2));
        assert_eq!(reader.get_u32(), Ok(3));
        assert_eq!(reader.get_i32(), Ok(-2));
        assert_eq!(reader.get_i64(), Ok(-3));
        assert_eq!(reader.get_slice(2), Ok(&b"ab"[..]));
        assert_eq!(reader.get_vint(), Ok(128));
        assert_eq!(reader.get_signed_vint(), Ok(-2));
        assert_eq!((reader.at(), reader.rest()), (24, &[9][..]));
        assert!(!reader.is_empty());
    }

    #[test]
    fn a_truncated_read_names_its_place_and_does_not_move() {
        let mut reader = Reader::new(&[0xe0, 1, 2]);
        assert_eq!(reader.get_u32(), Err(Truncated { at: 0, wanted: 4 }));
        assert_eq!(reader.get_vint(), Err(Truncated { at: 0, wanted: 4 }));
        assert_eq!(reader.get_slice(4), Err(Truncated { at: 0, wanted: 4 }));
        assert_eq!(
            reader.get_slice(usize::MAX),
            Err(Truncated {
                at: 0,
                wanted: usize::MAX
            })
        );
        assert_eq!(reader.get_slice(3), Ok(&[0xe0, 1, 2][..]));
        assert_eq!(reader.get_vint(), Err(Truncated { at: 3, wanted: 1 }));
        assert_eq!(
            reader.get_u8().expect_err("the end").to_string(),
            "bytes end too early: 1 more needed at offset 3"
        );
        assert!(reader.is_empty());
    }
}
