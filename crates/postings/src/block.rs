//! A block of a posting list: up to [`BLOCK`] ordinals, ascending. Whatever points to a block has its first ordinal,
//! and knows how many ordinals the block has.
//!
//! ```text
//! packed = width (u8, 0 to 64), for each ordinal but the first: its difference to the one before, less one, in `width`
//!          bits; the first in the lowest bits of the first byte
//! bitmap = 0x80, length (vint), a bit for each number after the first ordinal, lowest bits first: set if the number is
//!          in the list
//! ```
//! The writer takes the shorter one: a bitmap where about a fifth of the range or more is set, so that a term of half
//! of all rows takes one bit for each row. Rows that follow one another take no bits at all.

use stdx::bytes::Reader;
use stdx::vint;

use crate::Damage;

/// The most ordinals of a block.
pub(crate) const BLOCK: usize = 128;
const WIDTH_MAX: u8 = 64;
const BITMAP: u8 = 0x80;
/// A bitmap is shorter than 127 differences of 64 bits, so it is never longer.
const BITMAP_BYTES_MAX: usize = (BLOCK - 1) * 8;
/// From this width on, the eight bytes at which a difference begins may not have all of it.
const WIDE: u8 = 58;

/// Appends the block of `ordinals`: strictly ascending, at least two.
pub(crate) fn put_block(ordinals: &[u64], out: &mut Vec<u8>) {
    let (&[first, ..], &[.., last]) = (ordinals, ordinals) else {
        panic!("a block has at least two ordinals");
    };
    let differences = ordinals.windows(2).map(|pair| pair[1] - pair[0] - 1);
    let bits = differences.clone().fold(0, |bits, difference| bits | difference);
    let width = 64 - bits.leading_zeros();
    let packed_len = packed_len(ordinals.len(), width);
    let bitmap_len = usize::try_from((last - first).div_ceil(8)).unwrap_or(usize::MAX);
    if bitmap_len.saturating_add(1) < packed_len {
        out.push(BITMAP);
        vint::put_unsigned(out, bitmap_len as u64);
        let start = out.len();
        out.resize(start + bitmap_len, 0);
        for ordinal in &ordinals[1..] {
            let bit = usize::try_from(ordinal - first - 1).expect("the bitmap is short");
            out[start + bit / 8] |= 1 << (bit % 8);
        }
        return;
    }
    out.push(u8::try_from(width).expect("at most 64"));
    let (mut word, mut filled) = (0_u128, 0);
    for difference in differences {
        word |= u128::from(difference) << filled;
        filled += width;
        while filled >= 8 {
            out.push(word.to_le_bytes()[0]);
            word >>= 8;
            filled -= 8;
        }
    }
    out.extend((filled > 0).then(|| word.to_le_bytes()[0]));
}

const fn packed_len(count: usize, width: u32) -> usize {
    ((count - 1) * width as usize).div_ceil(8)
}

/// The bytes of a block after its first byte, and that byte.
fn split_block<'a>(reader: &mut Reader<'a>, count: usize) -> Result<(u8, &'a [u8]), Damage> {
    let at = reader.at();
    let form = reader.get_u8()?;
    let len = match form {
        0..=WIDTH_MAX => packed_len(count, u32::from(form)),
        BITMAP => match usize::try_from(reader.get_vint()?) {
            Ok(len) if len <= BITMAP_BYTES_MAX => len,
            _ => return Err(Damage::new(at, "a bitmap of at most 1016 bytes")),
        },
        _ => return Err(Damage::new(at, "a width of at most 64, or the mark of a bitmap")),
    };
    Ok((form, reader.get_slice(len)?))
}

/// Advances past a block of `count` ordinals.
pub(crate) fn skip_block(reader: &mut Reader<'_>, count: usize) -> Result<(), Damage> {
    split_block(reader, count).map(|_| ())
}

/// Appends the `count` ordinals of a block that begins with `first`; all are less than `end`.
pub(crate) fn unpack_block(
    reader: &mut Reader<'_>,
    first: u64,
    count: usize,
    end: u64,
    out: &mut Vec<u64>,
) -> Result<(), Damage> {
    let at = reader.at();
    let (form, bytes) = split_block(reader, count)?;
    out.reserve_exact(count);
    out.push(first);
    let has_overflow = if form == BITMAP {
        let set: usize = bytes.iter().map(|byte| byte.count_ones() as usize).sum();
        if set != count - 1 {
            return Err(Damage::new(at, "a bitmap with a bit for each ordinal"));
        }
        unpack_bitmap(bytes, first, out);
        false
    } else {
        unpack_differences(bytes, form, first, count, out)
    };
    if has_overflow || out.last().is_none_or(|last| *last >= end) {
        return Err(Damage::new(at, "ordinals below the number of rows"));
    }
    Ok(())
}

fn unpack_bitmap(bytes: &[u8], first: u64, out: &mut Vec<u64>) {
    let mut base = first.saturating_add(1);
    for chunk in bytes.chunks(8) {
        let mut word_bytes = [0; 8];
        word_bytes[..chunk.len()].copy_from_slice(chunk);
        let mut word = u64::from_le_bytes(word_bytes);
        while word != 0 {
            out.push(base.saturating_add(u64::from(word.trailing_zeros())));
            word &= word - 1;
        }
        base = base.saturating_add(64);
    }
}

/// Whether an ordinal had more than 64 bits.
fn unpack_differences(bytes: &[u8], width: u8, first: u64, count: usize, out: &mut Vec<u64>) -> bool {
    // Every difference can be read with the bytes after it, without a look at where the block ends.
    let mut buffer = [0; BITMAP_BYTES_MAX + 16];
    buffer[..bytes.len()].copy_from_slice(bytes);
    let mask = if width == 0 { 0 } else { u64::MAX >> (WIDTH_MAX - width) };
    let (mut ordinal, mut bit, mut has_overflow) = (first, 0, false);
    for _ in 1..count {
        let at = bit / 8;
        let difference = if width < WIDE {
            let eight: [u8; 8] = *buffer[at..].first_chunk().expect("the buffer is longer");
            (u64::from_le_bytes(eight) >> (bit % 8)) & mask
        } else {
            let sixteen: [u8; 16] = *buffer[at..].first_chunk().expect("the buffer is longer");
            #[expect(clippy::cast_possible_truncation, reason = "the mask has 64 bits")]
            let low = (u128::from_le_bytes(sixteen) >> (bit % 8)) as u64;
            low & mask
        };
        bit += usize::from(width);
        let (next, is_over) = ordinal.overflowing_add(difference);
        let (next, is_next_over) = next.overflowing_add(1);
        has_overflow |= is_over | is_next_over;
        ordinal = next;
        out.push(ordinal);
    }
    has_overflow
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ordinals: &[u64]) -> usize {
        let mut bytes = Vec::new();
        put_block(ordinals, &mut bytes);
        let end = ordinals.last().expect("some").saturating_add(1);
        let mut reader = Reader::new(&bytes);
        let mut read = Vec::new();
        unpack_block(&mut reader, ordinals[0], ordinals.len(), end, &mut read).expect("a block");
        assert_eq!(read, ordinals);
        assert!(reader.is_empty());
        let mut reader = Reader::new(&bytes);
        skip_block(&mut reader, ordinals.len()).expect("a block");
        assert!(reader.is_empty());
        bytes.len()
    }

    #[test]
    fn blocks_of_every_width_and_density() {
        for bits in 0..63_u32 {
            for count in [2_u64, 3, 7, 127, 128] {
                let step = (1_u64 << bits).min(u64::MAX / 2 / count);
                let ordinals: Vec<u64> = (0..count).map(|number| 5 + number * step).collect();
                check(&ordinals);
            }
        }
        check(&[0, u64::MAX - 1]);
        check(&[3, 4, 5, 1 << 63]);
    }

    #[test]
    fn the_shorter_form_is_taken() {
        let every = |step: u64| check(&(0..128).map(|number| number * step).collect::<Vec<_>>());
        assert_eq!(every(1), 1, "rows that follow one another");
        assert_eq!(every(2), 17, "one bit for each");
        assert_eq!(every(1_000), 160);
        let mostly: Vec<u64> = (0..160).filter(|number| number % 5 != 3).collect();
        assert_eq!(check(&mostly), 17);
        let thirds: Vec<u64> = (0..128)
            .map(|number| number * 3 + number % 2 + number / 100 * 9)
            .collect();
        assert!(check(&thirds) < 56, "a bitmap where differences take four bits");
    }

    #[test]
    fn damaged_blocks_are_refused() {
        let read = |bytes: &[u8], count: usize, end: u64| {
            unpack_block(&mut Reader::new(bytes), 5, count, end, &mut Vec::new())
        };
        assert_eq!(read(&[0], 3, 8), Ok(()));
        assert!(read(&[0], 3, 7).is_err(), "an ordinal beyond the rows");
        assert!(read(&[65], 2, 100).is_err(), "a width");
        assert!(read(&[8], 2, 100).is_err(), "the end of the bytes");
        assert!(read(&[BITMAP, 1, 0b101], 3, 100).is_ok());
        assert!(read(&[BITMAP, 1, 0b111], 3, 100).is_err(), "more bits than ordinals");
        assert!(read(&[BITMAP, 1, 0b1], 3, 100).is_err(), "fewer bits than ordinals");
        assert!(read(&[BITMAP, 0xc0, 4, 0], 3, 100).is_err(), "a long bitmap");
        let mut wide = vec![64];
        wide.extend([0xff; 16]);
        assert!(read(&wide, 3, u64::MAX).is_err(), "an overflow");
    }
}
