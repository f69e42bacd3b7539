//! The insides of serialised collections, tuples and vectors.
//!
//! ```text
//! list, set = i32 count, count * element               element = i32 length, bytes
//! map       = i32 count, count * (element, element)
//! tuple     = up to its count of elements; length -1 is a null, elements that are missing at the end are nulls
//! vector    = dimension * bytes, when elements have a fixed length; else dimension * (vint length, bytes)
//! ```
//! This is the form of native protocol 3 and later, which sstables and frozen cells share. Iterators give borrowed
//! bytes and check lengths only, not the elements. They end after their first error.

use stdx::bytes::Reader;
use stdx::preempt;
use stdx::vint;

/// What is wrong with the outer form of a collection, tuple or vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes end before the count, a length or an element does.
    Truncated,
    /// An element of a collection is null.
    Null,
    /// So many bytes follow the last element.
    Extraneous(usize),
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truncated => f.write_str("Not enough bytes to read the value"),
            Self::Null => f.write_str("Null value read when not allowed"),
            Self::Extraneous(len) => write!(f, "Unexpected {len} extraneous bytes after the value"),
        }
    }
}

impl std::error::Error for Malformed {}

/// What is left of elements whose number is known, up to the first that is malformed.
#[derive(Clone, Debug)]
struct Elements<'a> {
    reader: Reader<'a>,
    remaining: u32,
    has_failed: bool,
}

impl<'a> Elements<'a> {
    const fn new(reader: Reader<'a>, remaining: u32) -> Self {
        Self {
            reader,
            remaining,
            has_failed: false,
        }
    }

    /// The next element, which follows the length that `read_len` reads.
    #[inline]
    fn next(
        &mut self,
        read_len: impl FnOnce(&mut Reader<'a>) -> Result<usize, Malformed>,
    ) -> Option<Result<&'a [u8], Malformed>> {
        preempt::point();
        let item = match self.remaining {
            _ if self.has_failed => return None,
            0 if self.reader.is_empty() => return None,
            0 => Err(Malformed::Extraneous(self.reader.rest().len())),
            _ => {
                read_len(&mut self.reader).and_then(|len| self.reader.get_slice(len).map_err(|_| Malformed::Truncated))
            }
        };
        self.remaining = self.remaining.saturating_sub(1);
        self.has_failed = item.is_err();
        Some(item)
    }
}

/// The elements of a serialised list or set.
#[derive(Clone, Debug)]
pub struct CollectionIter<'a>(Elements<'a>);

impl<'a> CollectionIter<'a> {
    /// Starts at the first element.
    ///
    /// # Errors
    /// When the bytes do not even hold the count. A negative count is read as zero, as Cassandra does.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        Self::with_elements_each(bytes, 1)
    }

    fn with_elements_each(bytes: &'a [u8], elements_each: u32) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let count = reader.get_i32().map_err(|_| Malformed::Truncated)?;
        let remaining = u32::try_from(count).unwrap_or(0).saturating_mul(elements_each);
        Ok(Self(Elements::new(reader, remaining)))
    }

    /// How many elements are left, if the count is to be believed; at most what the bytes can hold.
    #[must_use]
    pub fn len_max(&self) -> usize {
        (self.0.remaining as usize).min(self.0.reader.rest().len() / 4)
    }
}

impl<'a> Iterator for CollectionIter<'a> {
    type Item = Result<&'a [u8], Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(|reader| {
            let len = reader.get_i32().map_err(|_| Malformed::Truncated)?;
            usize::try_from(len).map_err(|_| Malformed::Null)
        })
    }
}

/// The keys and values of a serialised map.
#[derive(Clone, Debug)]
pub struct MapIter<'a>(CollectionIter<'a>);

impl<'a> MapIter<'a> {
    /// Starts at the first pair.
    ///
    /// # Errors
    /// When the bytes do not even hold the count.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        CollectionIter::with_elements_each(bytes, 2).map(Self)
    }

    /// How many pairs are left, if the count is to be believed; at most what the bytes can hold.
    #[must_use]
    pub fn len_max(&self) -> usize {
        self.0.len_max() / 2
    }
}

impl<'a> Iterator for MapIter<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let pair = self.0.next()?.and_then(|key| match self.0.next() {
            Some(value) => value.map(|value| (key, value)),
            None => Err(Malformed::Truncated),
        });
        Some(pair)
    }
}

/// The elements of a serialised tuple, or the fields of a user-defined type. `None` is a null.
///
/// It ends where the bytes do; what the type has beyond that is null.
#[derive(Clone, Debug)]
pub struct TupleIter<'a> {
    reader: Reader<'a>,
}

impl<'a> TupleIter<'a> {
    /// Starts at the first element.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self {
            reader: Reader::new(bytes),
        }
    }

    /// What is not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.reader.rest()
    }
}

impl<'a> Iterator for TupleIter<'a> {
    type Item = Result<Option<&'a [u8]>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        preempt::point();
        let item = match self.reader.get_i32() {
            Err(_) => Err(Malformed::Truncated),
            Ok(len) => usize::try_from(len)
                .ok()
                .map(|len| self.reader.get_slice(len).map_err(|_| Malformed::Truncated))
                .transpose(),
        };
        if item.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(item)
    }
}

/// The elements of a serialised vector.
#[derive(Clone, Debug)]
pub struct VectorIter<'a> {
    elements: Elements<'a>,
    element_len: Option<usize>,
}

impl<'a> VectorIter<'a> {
    /// Starts at the first of `dimension` elements, each of `element_len` bytes when elements have a fixed length.
    #[must_use]
    pub const fn new(bytes: &'a [u8], dimension: u32, element_len: Option<usize>) -> Self {
        // No value has elements of no bytes, so none is looped over.
        let count = if let Some(0) = element_len { 0 } else { dimension };
        Self {
            elements: Elements::new(Reader::new(bytes), count),
            element_len,
        }
    }
}

impl<'a> Iterator for VectorIter<'a> {
    type Item = Result<&'a [u8], Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let element_len = self.element_len;
        self.elements.next(|reader| match element_len {
            Some(len) => Ok(len),
            None => {
                let len = reader.get_vint().map_err(|_| Malformed::Truncated)?;
                usize::try_from(len).map_err(|_| Malformed::Truncated)
            }
        })
    }
}

/// Appends a serialised list, set or map to a buffer, element by element.
#[derive(Debug)]
pub struct CollectionBuilder<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    count: i32,
}

impl<'a> CollectionBuilder<'a> {
    /// Starts at the end of `out`.
    #[must_use]
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        Self { out, start, count: 0 }
    }

    /// Appends an element of a list or set.
    pub fn push(&mut self, element: &[u8]) {
        put_element(self.out, Some(element));
        self.count += 1;
    }

    /// Appends a key and its value.
    pub fn push_pair(&mut self, key: &[u8], value: &[u8]) {
        put_element(self.out, Some(key));
        put_element(self.out, Some(value));
        self.count += 1;
    }

    /// Writes the count in front of the elements. Without it the collection reads as empty, with extraneous bytes after
    /// it.
    pub fn finish(self) {
        self.out[self.start..self.start + 4].copy_from_slice(&self.count.to_be_bytes());
    }
}

/// Appends a serialised tuple or user-defined type to a buffer, element by element. `None` is a null.
#[derive(Debug)]
pub struct TupleBuilder<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> TupleBuilder<'a> {
    /// Starts at the end of `out`.
    #[must_use]
    pub const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Appends an element or field.
    pub fn push(&mut self, element: Option<&[u8]>) {
        put_element(self.out, element);
    }
}

/// Appends one element of a vector.
pub(crate) fn put_vector_element(out: &mut Vec<u8>, element: &[u8], is_fixed: bool) {
    if !is_fixed {
        vint::put_unsigned(out, element.len() as u64);
    }
    out.extend_from_slice(element);
}

fn put_element(out: &mut Vec<u8>, element: Option<&[u8]>) {
    match element {
        Some(bytes) => {
            let len = i32::try_from(bytes.len()).expect("frames and cells are limited to 256 MiB");
            preempt::reserve(out, size_of_val(&len) + bytes.len());
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(bytes);
        }
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_and_joined() {
        let mut bytes = b"before".to_vec();
        let mut builder = CollectionBuilder::new(&mut bytes);
        builder.push(b"a");
        builder.push(b"");
        builder.finish();
        assert_eq!(bytes, b"before\0\0\0\x02\0\0\0\x01a\0\0\0\0");
        let iter = CollectionIter::new(&bytes[6..]).expect("it has a count");
        assert_eq!(iter.len_max(), 2);
        assert_eq!(iter.collect::<Vec<_>>(), [Ok(&b"a"[..]), Ok(&b""[..])]);
    }

    #[test]
    fn a_map_is_split_and_joined() {
        let mut bytes = Vec::new();
        let mut builder = CollectionBuilder::new(&mut bytes);
        builder.push_pair(b"k", b"v");
        builder.finish();
        assert_eq!(bytes, b"\0\0\0\x01\0\0\0\x01k\0\0\0\x01v");
        let pairs: Vec<_> = MapIter::new(&bytes).expect("it has a count").collect();
        assert_eq!(pairs, [Ok((&b"k"[..], &b"v"[..]))]);
    }

    #[test]
    fn a_tuple_may_hold_nulls_and_end_early() {
        let mut bytes = Vec::new();
        let mut builder = TupleBuilder::new(&mut bytes);
        builder.push(None);
        builder.push(Some(b"x"));
        assert_eq!(bytes, b"\xff\xff\xff\xff\0\0\0\x01x");
        assert_eq!(
            TupleIter::new(&bytes).collect::<Vec<_>>(),
            [Ok(None), Ok(Some(&b"x"[..]))]
        );
    }

    #[test]
    fn damaged_collections_say_what_is_wrong_once() {
        let list = |bytes: &'static [u8]| CollectionIter::new(bytes).map(|iter| iter.collect::<Vec<_>>());
        assert_eq!(list(b"\0\0\0"), Err(Malformed::Truncated));
        assert_eq!(list(b"\0\0\0\x02\0\0\0\x01"), Ok(vec![Err(Malformed::Truncated)]));
        assert_eq!(list(b"\0\0\0\x01\xff\xff\xff\xff"), Ok(vec![Err(Malformed::Null)]));
        assert_eq!(list(b"\0\0\0\0xyz"), Ok(vec![Err(Malformed::Extraneous(3))]));
        assert_eq!(
            list(b"\xff\xff\xff\xff"),
            Ok(vec![]),
            "Cassandra reads a negative count as an empty list"
        );
        let map = MapIter::new(b"\0\0\0\x01\0\0\0\x01k").expect("it has a count");
        assert_eq!(map.collect::<Vec<_>>(), [Err(Malformed::Truncated)]);
        let tuple = TupleIter::new(b"\0\0\0\x05x");
        assert_eq!(tuple.collect::<Vec<_>>(), [Err(Malformed::Truncated)]);
    }

    #[test]
    fn vectors_have_lengths_only_when_elements_vary() {
        let fixed = VectorIter::new(&[0, 1, 0, 2], 2, Some(2));
        assert_eq!(fixed.collect::<Vec<_>>(), [Ok(&[0, 1][..]), Ok(&[0, 2][..])]);
        let variable = VectorIter::new(b"\x01a\x02bc", 2, None);
        assert_eq!(variable.collect::<Vec<_>>(), [Ok(&b"a"[..]), Ok(&b"bc"[..])]);
        let long = VectorIter::new(b"\x01a\xff\xff\xff\xff\xff\xff\xff\xff\xff", 2, None);
        assert_eq!(long.collect::<Vec<_>>(), [Ok(&b"a"[..]), Err(Malformed::Truncated)]);
    }
}
