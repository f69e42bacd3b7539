//! Index.db: where each partition starts, and for the large ones where every so many bytes of rows do.
//!
//! ```text
//! entry     u16 key length, key, vint position in the data, vint length of the promoted index, promoted index
//! promoted  vint length of the partition's head, its deletion (i32, i64), vint n, n x block,
//!           n x u32 offset of a block's entry from the first on
//! block     first prefix, last prefix, vint offset in the partition, signed vint width - 65536,
//!           u8 1 and the deletion (i32, i64) that is open at its end, or u8 0
//! prefix    u8 kind; of a row: values; of a bound: u16 components, values
//! ```

use std::ops::Range;
use std::rc::Rc;

use mutation::{Bound, BoundKind, Tombstone};
use stdx::bytes::Reader;
use stdx::vint;

use crate::data::clustering::{self, Widths, decode_values, encode_bound, encode_row, kind, marker_side};
use crate::data::decode::whole_deletion;
use crate::data::encode::put_whole_deletion;
use crate::error::Damage;

const WIDTH_BASE: i64 = 65_536;

/// Gathers the promoted index of the partition that is being written.
#[derive(Default)]
pub(crate) struct PromotedWriter {
    blocks: Vec<u8>,
    offsets: Vec<u32>,
    first: Vec<u8>,
    last: Vec<u8>,
    block_start: u64,
    has_items: bool,
}

/// The first or last item of a block.
#[derive(Clone, Copy)]
pub(crate) enum Prefix<'a> {
    Row(&'a [u8]),
    Marker(u8, &'a Bound),
}

impl Prefix<'_> {
    fn encode(self, widths: &Widths, out: &mut Vec<u8>) -> Result<(), &'static str> {
        match self {
            Self::Row(key) => encode_row(key, widths, out),
            Self::Marker(kind, bound) => encode_bound(kind, &bound.prefix, widths, out),
        }
    }
}

impl PromotedWriter {
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.offsets.clear();
        self.has_items = false;
    }

    /// Notes an item at `place` of the partition; `open` is the deletion that is open after it. Closes the block when
    /// it is wide enough.
    pub(crate) fn item(
        &mut self,
        prefix: Prefix<'_>,
        place: Range<u64>,
        open: Option<Tombstone>,
        block_bytes: u64,
        widths: &Widths,
    ) -> Result<(), &'static str> {
        if !self.has_items {
            self.has_items = true;
            self.block_start = place.start;
            self.first.clear();
            prefix.encode(widths, &mut self.first)?;
        }
        self.last.clear();
        prefix.encode(widths, &mut self.last)?;
        if place.end - self.block_start >= block_bytes {
            self.close(place.end, open)?;
        }
        Ok(())
    }

    fn close(&mut self, end: u64, open: Option<Tombstone>) -> Result<(), &'static str> {
        self.offsets
            .push(u32::try_from(self.blocks.len()).map_err(|_| "a promoted index of more than 4 GiB")?);
        self.blocks.extend_from_slice(&self.first);
        self.blocks.extend_from_slice(&self.last);
        vint::put_unsigned(&mut self.blocks, self.block_start);
        vint::put_signed(&mut self.blocks, (end - self.block_start).cast_signed() - WIDTH_BASE);
        match open {
            Some(t) => {
                self.blocks.push(1);
                put_whole_deletion(t, &mut self.blocks);
            }
            None => self.blocks.push(0),
        }
        self.has_items = false;
        Ok(())
    }

    /// The partition ends at `end`. Appends its entry to Index.db.
    pub(crate) fn entry(
        &mut self,
        key: &[u8],
        position: u64,
        head_len: u64,
        tombstone: Tombstone,
        end: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        if self.has_items && !self.offsets.is_empty() {
            self.close(end, None)?;
        }
        out.extend_from_slice(
            &u16::try_from(key.len())
                .map_err(|_| "a key of more than 65,535 bytes")?
                .to_be_bytes(),
        );
        out.extend_from_slice(key);
        vint::put_unsigned(out, position);
        if self.offsets.len() < 2 {
            out.push(0);
            return Ok(());
        }
        let n = self.offsets.len() as u64;
        let head = vint::unsigned_len(head_len) + 12 + vint::unsigned_len(n);
        vint::put_unsigned(out, (head + self.blocks.len() + 4 * self.offsets.len()) as u64);
        vint::put_unsigned(out, head_len);
        put_whole_deletion(tombstone, out);
        vint::put_unsigned(out, n);
        out.extend_from_slice(&self.blocks);
        for offset in &self.offsets {
            out.extend_from_slice(&offset.to_be_bytes());
        }
        Ok(())
    }
}

/// An entry of Index.db, without decoding its promoted index.
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    /// Of the partition, in the data.
    pub(crate) position: u64,
    /// Of the promoted index: where it starts from the entry on, and its length, which may be 0.
    pub(crate) promoted: (usize, usize),
}

impl<'a> Entry<'a> {
    /// Reads the entry at the start of `bytes`, of which the promoted index may be cut off.
    #[inline]
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, stdx::bytes::Truncated> {
        let mut r = Reader::new(bytes);
        let key_len = usize::from(r.get_u16()?);
        let key = r.get_slice(key_len)?;
        let position = r.get_vint()?;
        let len = usize::try_from(r.get_vint()?).unwrap_or(usize::MAX);
        Ok(Self {
            key,
            position,
            promoted: (r.at(), len),
        })
    }
}

/// The last bytes of a key, as one number: keys of one table mostly begin alike, and differ at their end.
#[inline]
fn tail(key: &[u8]) -> u64 {
    match key.last_chunk::<8>() {
        Some(tail) => u64::from_le_bytes(*tail),
        None => key.iter().fold(0, |tail, byte| tail << 8 | u64::from(*byte)),
    }
}

/// Skips the entries at the start of `bytes` whose key differs and that have no promoted index. Returns how many bytes.
#[inline]
pub(crate) fn skip_others(bytes: &[u8], key: &[u8]) -> usize {
    let (mut at, sought) = (0, tail(key));
    loop {
        at += skip_others_of_one_length(&bytes[at..], key, sought);
        let Some((len, rest)) = bytes[at..].split_first_chunk::<2>() else {
            return at;
        };
        let key_len = usize::from(u16::from_be_bytes(*len));
        let Some((found, rest)) = rest.split_at_checked(key_len) else {
            return at;
        };
        let Some(first) = rest.first() else { return at };
        let position_len = position_len(*first);
        if rest.get(position_len) != Some(&0) || found == key {
            return at;
        }
        at += 2 + key_len + position_len + 1;
    }
}

/// The bytes of an entry's position: a vint, whose first byte says so. After it comes the length of the promoted index.
#[inline]
fn position_len(first: u8) -> usize {
    first.leading_ones() as usize + 1
}

/// As [`skip_others`], up to an entry whose key has another length, or the last ones, with one check of bounds for each
/// entry: half of all instructions of a look-up.
#[inline]
fn skip_others_of_one_length(bytes: &[u8], key: &[u8], sought: u64) -> usize {
    /// Of the position and of the length of the promoted index.
    const AFTER_KEY_MAX: usize = 10;
    let (mut at, n) = (0, key.len());
    while let Some(entry) = bytes.get(at..).and_then(|rest| rest.get(..2 + n + AFTER_KEY_MAX)) {
        let (key_len, rest) = entry.split_at(2);
        let (found, rest) = rest.split_at(n);
        let position_len = position_len(rest[0]);
        let is_other = usize::from(u16::from_be_bytes([key_len[0], key_len[1]])) == n
            && rest[position_len] == 0
            && (tail(found) != sought || found != key);
        if !is_other {
            break;
        }
        at += 2 + n + position_len + 1;
    }
    at
}

/// A stretch of Index.db: a part of a cached chunk, or of a copy of several.
#[derive(Clone, Default)]
pub(crate) struct IndexBytes {
    pub(crate) bytes: Rc<Vec<u8>>,
    pub(crate) at: usize,
    pub(crate) len: usize,
}

impl IndexBytes {
    #[inline]
    pub(crate) fn get(&self) -> &[u8] {
        &self.bytes[self.at..self.at + self.len]
    }

    #[inline]
    pub(crate) fn skip(&mut self, n: usize) {
        self.at += n;
        self.len -= n;
    }
}

impl From<Vec<u8>> for IndexBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            at: 0,
            len: bytes.len(),
            bytes: Rc::new(bytes),
        }
    }
}

/// The promoted index of a partition, decoded block by block as it is asked.
pub(crate) struct Promoted {
    bytes: IndexBytes,
    /// Length of the partition's head.
    pub(crate) head_len: u64,
    pub(crate) tombstone: Tombstone,
    count: usize,
    /// Where the blocks start in `bytes`, and where their offsets do.
    blocks_at: usize,
    offsets_at: usize,
}

/// A block of rows.
pub(crate) struct IndexBlock {
    /// No item of the block is before this.
    pub(crate) first: Bound,
    /// No item of the block is after this.
    pub(crate) last: Bound,
    /// In the partition.
    pub(crate) offset: u64,
    pub(crate) width: u64,
    /// The deletion open at its end.
    pub(crate) open: Option<Tombstone>,
}

impl Promoted {
    pub(crate) fn decode(index_bytes: IndexBytes) -> Result<Self, Damage> {
        let bytes = index_bytes.get();
        let mut r = Reader::new(bytes);
        let head_len = r.get_vint()?;
        let at = r.at();
        let tombstone = whole_deletion(&r.get_array::<12>()?).ok_or_else(|| Damage::new(at, "a partition deletion"))?;
        let at = r.at();
        let count = usize::try_from(r.get_vint()?).unwrap_or(usize::MAX);
        let blocks_at = r.at();
        let offsets_at = count
            .checked_mul(4)
            .and_then(|o| bytes.len().checked_sub(o))
            .filter(|&o| o >= blocks_at && count > 0)
            .ok_or_else(|| Damage::new(at, "a number of index blocks that fits the index"))?;
        Ok(Self {
            head_len,
            tombstone,
            count,
            blocks_at,
            offsets_at,
            bytes: index_bytes,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn block(&self, i: usize, widths: &Widths) -> Result<IndexBlock, Damage> {
        let at = self.offsets_at + 4 * i;
        let wrong = || Damage::new(at, "the offset of an index block");
        let all = self.bytes.get();
        let offset = all
            .get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .map(u32::from_be_bytes);
        let start = self.blocks_at + offset.ok_or_else(wrong)? as usize;
        let bytes = all.get(start..self.offsets_at).ok_or_else(wrong)?;
        let shifted = |d: Damage| Damage { at: d.at + start, ..d };
        let mut r = Reader::new(bytes);
        let mut decode = || -> Result<IndexBlock, Damage> {
            let first = get_prefix(&mut r, widths, BoundKind::Before)?;
            let last = get_prefix(&mut r, widths, BoundKind::After)?;
            let offset = r.get_vint()?;
            let at = r.at();
            let width = r
                .get_signed_vint()?
                .checked_add(WIDTH_BASE)
                .and_then(|w| u64::try_from(w).ok());
            let width = width.ok_or_else(|| Damage::new(at, "the width of an index block"))?;
            let open = if r.get_u8()? == 0 {
                None
            } else {
                let at = r.at();
                whole_deletion(&r.get_array::<12>()?)
                    .ok_or_else(|| Damage::new(at, "an open deletion"))
                    .map(|t| (!t.is_none()).then_some(t))?
            };
            Ok(IndexBlock {
                first,
                last,
                offset,
                width,
                open,
            })
        };
        decode().map_err(shifted)
    }
}

/// A row's key becomes the bound on the given side of it; a marker is its own bound.
fn get_prefix(r: &mut Reader<'_>, widths: &Widths, side: BoundKind) -> Result<Bound, Damage> {
    let at = r.at();
    let prefix_kind = r.get_u8()?;
    let mut prefix = Vec::new();
    if prefix_kind == kind::ROW {
        decode_values(r, widths, widths.len(), &mut prefix)?;
        return Ok(Bound {
            prefix: prefix.into(),
            kind: side,
        });
    }
    let marker = marker_side(prefix_kind).ok_or_else(|| Damage::new(at, "the kind of a clustering prefix"))?;
    let count = usize::from(r.get_u16()?);
    if count > widths.len() {
        return Err(Damage::new(at + 1, format!("at most {} components", widths.len())));
    }
    clustering::decode_values(r, widths, count, &mut prefix)?;
    Ok(Bound {
        prefix: prefix.into(),
        kind: marker,
    })
}
