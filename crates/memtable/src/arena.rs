//! Memory of one memtable: pieces of any size in large segments, named by number.
//!
//! A piece is `u32 length, bytes`, rounded up to a size class and 16 bytes of alignment; its handle is its offset in
//! units of 16 bytes. A freed piece waits in the list of its class for the next of that class, so that overwriting
//! rows over and over stays inside the space it has. A piece above [`LARGE_BYTES`] gets a segment of its own, which
//! goes back to the allocator when freed. The whole arena is dropped with its memtable.
//!
//! The first segment begins small and doubles until it is like the others: a shard has a memtable for each tablet, and
//! many hold little.

const UNIT: usize = 16;
const SEGMENT_BYTES: usize = 128 << 10;
const SEGMENT_UNITS: u32 = (SEGMENT_BYTES / UNIT) as u32;
/// What the first segment begins with.
const FIRST_UNITS: u32 = ((2 << 10) / UNIT) as u32;
/// A piece above this size has its own segment.
const LARGE_BYTES: usize = 32 << 10;
/// Bytes of a piece before its content.
pub(crate) const HEADER: usize = 4;

/// A piece of the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Handle(u32);

impl Handle {
    /// No piece.
    pub const NONE: Self = Self(u32::MAX);

    /// Whether it names no piece.
    pub fn is_none(self) -> bool {
        self.0 == u32::MAX
    }
}

/// The arena.
#[derive(Default, Debug)]
pub struct Arena {
    segments: Vec<Box<[u8]>>,
    /// Segment numbers that a large piece gave back.
    vacant: Vec<u32>,
    free: Vec<Vec<Handle>>,
    current: u32,
    /// Units used of the current segment.
    bump: u32,
    /// Units of the current segment.
    room: u32,
    used_bytes: usize,
    held_bytes: usize,
}

/// Rounded size of a piece with `len` bytes, and its class. Steps of 16 bytes to 256, then eight per doubling.
#[inline]
fn class_of(len: usize) -> (usize, usize) {
    let total = len + HEADER;
    if total <= 256 {
        let units = total.div_ceil(UNIT);
        return (units * UNIT, units);
    }
    let shift = (usize::BITS - 1 - (total - 1).leading_zeros()) as usize - 3;
    let step = 1 << shift;
    let rounded = total.div_ceil(step) * step;
    (rounded, 16 + (shift - 5) * 8 + (rounded >> shift) - 8)
}

impl Arena {
    /// Bytes of living pieces, rounding included.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Bytes of segments.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The bytes of a piece.
    #[inline]
    pub fn get(&self, handle: Handle) -> &[u8] {
        let segment = &self.segments[(handle.0 / SEGMENT_UNITS) as usize];
        let at = (handle.0 % SEGMENT_UNITS) as usize * UNIT;
        let (len, rest) = segment[at..]
            .split_first_chunk::<HEADER>()
            .expect("a piece begins with its length");
        &rest[..u32::from_le_bytes(*len) as usize]
    }

    /// The bytes of a piece, to overwrite.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> &mut [u8] {
        let segment = &mut self.segments[(handle.0 / SEGMENT_UNITS) as usize];
        let at = (handle.0 % SEGMENT_UNITS) as usize * UNIT;
        let (len, rest) = segment[at..]
            .split_first_chunk_mut::<HEADER>()
            .expect("a piece begins with its length");
        &mut rest[..u32::from_le_bytes(*len) as usize]
    }

    /// A piece of `len` bytes whose content is not defined yet.
    #[inline]
    pub fn allocate(&mut self, len: usize) -> Handle {
        let (rounded, class) = class_of(len);
        self.used_bytes += rounded;
        let handle = if rounded > LARGE_BYTES {
            self.allocate_large(rounded)
        } else if let Some(h) = self.free.get_mut(class).and_then(Vec::pop) {
            h
        } else {
            self.carve(rounded)
        };
        let segment = &mut self.segments[(handle.0 / SEGMENT_UNITS) as usize];
        let at = (handle.0 % SEGMENT_UNITS) as usize * UNIT;
        let len = u32::try_from(len).expect("a piece is smaller than 4 GiB");
        segment[at..at + HEADER].copy_from_slice(&len.to_le_bytes());
        handle
    }

    fn carve(&mut self, rounded: usize) -> Handle {
        let units = u32::try_from(rounded / UNIT).expect("small pieces fit a segment");
        if self.bump + units > self.room {
            self.make_room(units);
        }
        let handle = Handle(self.current * SEGMENT_UNITS + self.bump);
        self.bump += units;
        handle
    }

    /// Makes the current segment larger, or another one current.
    #[cold]
    fn make_room(&mut self, units: u32) {
        if self.room == 0 || self.room == SEGMENT_UNITS {
            let is_first = self.room == 0;
            self.room = if is_first {
                FIRST_UNITS.max(units.next_power_of_two())
            } else {
                SEGMENT_UNITS
            };
            self.current = self.add_segment(self.room as usize * UNIT);
            self.bump = 0;
            return;
        }
        // What is used is at most half a segment, and a piece at most a quarter.
        let room = (self.bump + units).next_power_of_two();
        let segment = &mut self.segments[self.current as usize];
        let mut bytes = std::mem::take(segment).into_vec();
        bytes.resize(room as usize * UNIT, 0);
        *segment = bytes.into_boxed_slice();
        self.held_bytes += (room - self.room) as usize * UNIT;
        self.room = room;
    }

    #[cold]
    fn allocate_large(&mut self, rounded: usize) -> Handle {
        Handle(self.add_segment(rounded) * SEGMENT_UNITS)
    }

    #[cold]
    fn add_segment(&mut self, bytes: usize) -> u32 {
        self.held_bytes += bytes;
        let segment = vec![0; bytes].into_boxed_slice();
        if let Some(i) = self.vacant.pop() {
            self.segments[i as usize] = segment;
            return i;
        }
        self.segments.push(segment);
        u32::try_from(self.segments.len() - 1).expect("an arena holds fewer than 2^19 segments")
    }

    /// Gives a piece back.
    #[inline]
    pub fn free(&mut self, handle: Handle) {
        let (rounded, class) = class_of(self.get(handle).len());
        self.used_bytes -= rounded;
        if rounded > LARGE_BYTES {
            let i = handle.0 / SEGMENT_UNITS;
            self.held_bytes -= rounded;
            self.segments[i as usize] = Box::default();
            self.vacant.push(i);
            return;
        }
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        self.free[class].push(handle);
    }

    /// Makes a piece of another length out of one whose content is no longer needed; the same piece if it can.
    #[inline]
    pub fn resize(&mut self, handle: Handle, len: usize) -> Handle {
        let (rounded, _) = class_of(len);
        if class_of(self.get(handle).len()).0 == rounded {
            let at = (handle.0 % SEGMENT_UNITS) as usize * UNIT;
            let segment = &mut self.segments[(handle.0 / SEGMENT_UNITS) as usize];
            let len = u32::try_from(len).expect("a piece is smaller than 4 GiB");
            segment[at..at + HEADER].copy_from_slice(&len.to_le_bytes());
            return handle;
        }
        self.free(handle);
        self.allocate(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_never_shrink_a_piece_and_waste_at_most_an_eighth() {
        let mut last = (0, 0);
        for len in 0..200_000 {
            let (rounded, class) = class_of(len);
            assert!(rounded >= len + HEADER, "a piece of {len} bytes got {rounded}");
            assert!(
                rounded <= (len + HEADER) * 9 / 8 + UNIT,
                "a piece of {len} bytes wastes {rounded}"
            );
            assert!(rounded % UNIT == 0);
            assert!(
                (rounded == last.0) == (class == last.1),
                "classes and sizes go together at {len}"
            );
            last = (rounded, class);
        }
    }

    #[test]
    fn pieces_of_any_size_in_any_order_do_not_touch_each_other() {
        let mut arena = Arena::default();
        let sizes = [65_535, 20, 40_000, 100, 1, 32_764, 32_765, 131_072, 7];
        let pieces: Vec<(Handle, u8)> = sizes
            .iter()
            .zip(1..)
            .map(|(&size, fill)| {
                let h = arena.allocate(size);
                arena.get_mut(h).fill(fill);
                (h, fill)
            })
            .collect();
        for ((h, fill), size) in pieces.iter().zip(sizes) {
            assert_eq!(arena.get(*h).len(), size, "a piece keeps its length");
            assert!(
                arena.get(*h).iter().all(|b| b == fill),
                "a piece of {size} bytes keeps its content"
            );
        }
    }

    #[test]
    fn little_takes_little_and_stays_as_it_is_while_the_segment_grows() {
        let mut arena = Arena::default();
        let first = arena.allocate(100);
        arena.get_mut(first).fill(1);
        assert_eq!(arena.held_bytes(), 2 << 10, "a memtable with one row");
        let mut held = arena.held_bytes();
        let mut pieces = vec![first];
        for n in 0..5000 {
            let piece = arena.allocate(20 + n % 200);
            arena.get_mut(piece).fill(1);
            pieces.push(piece);
            assert!(
                arena.held_bytes() <= (held * 2).min(held + SEGMENT_BYTES),
                "after {n} pieces {} bytes are held, before {held}",
                arena.held_bytes()
            );
            held = arena.held_bytes();
            assert!(
                held < arena.used_bytes() * 2 || held == 2 << 10,
                "after {n} pieces more than half of {held} bytes is unused"
            );
        }
        assert!(held > 3 * SEGMENT_BYTES, "several segments");
        for piece in pieces {
            assert!(arena.get(piece).iter().all(|b| *b == 1), "a piece lost its content");
        }
    }

    #[test]
    fn a_first_piece_that_is_almost_large_fits() {
        let mut arena = Arena::default();
        let small = arena.allocate(LARGE_BYTES - HEADER);
        let next = arena.allocate(LARGE_BYTES - HEADER);
        arena.get_mut(small).fill(1);
        arena.get_mut(next).fill(2);
        assert!(arena.get(small).iter().all(|b| *b == 1) && arena.held_bytes() == 2 * LARGE_BYTES);
    }

    #[test]
    fn freed_pieces_are_used_again() {
        let mut arena = Arena::default();
        let a = arena.allocate(100);
        arena.get_mut(a).fill(7);
        let big = arena.allocate(1 << 20);
        let held = arena.held_bytes();
        arena.free(a);
        arena.free(big);
        assert_eq!(arena.used_bytes(), 0);
        assert_eq!(arena.allocate(101), a, "the freed piece of the same class comes back");
        arena.allocate(1 << 20);
        assert_eq!(arena.held_bytes(), held);
    }
}
