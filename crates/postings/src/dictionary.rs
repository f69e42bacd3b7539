//! The dictionary: a tree of blocks of terms.
//!
//! ```text
//! block   = 0xd0 + level (u8), number of entries (u16), for each 16th entry its offset in the block (u16), entries
//! entry   = shared length (vint), length (vint), bytes: the key, after what it shares with the key before it in the
//!           block; each 16th shares nothing
//!           level 0: count (vint), first ordinal (vint), of a list of 2 to 32 ordinals its block, of a longer list its
//!           address (vint)
//!           above: postings of the child in all (vint), address of the child (vint)
//! ```
//! The keys of level 0 are the terms. Above, the key of a block is the shortest that is greater than all terms before
//! the block and not greater than its own; that of the first block of a level is empty.
//!
//! Four blocks are one page.

use stdx::bytes::Reader;
use stdx::vint;

use crate::block::skip_block;
use crate::list::{Body, INLINE_MAX, List, Written};
use crate::page::{Address, PAYLOAD_MAX, PageWriter};
use crate::{Damage, TERM_MAX, reader_at};

/// The bytes of a block, at most.
const BLOCK_BYTES_MAX: usize = PAYLOAD_MAX / 4;
const HEADER: usize = 3;
const BLOCK: u8 = 0xd0;
/// Every so many entries one has its whole key.
const RESTART: usize = 16;

/// One block as it grows.
#[derive(Debug, Default)]
struct BlockWriter {
    restarts: Vec<usize>,
    entries: Vec<u8>,
    count: usize,
    last: Vec<u8>,
    /// The key of this block in the level above.
    key: Vec<u8>,
    /// The postings of all entries.
    postings: u64,
}

impl BlockWriter {
    fn shared(&self, key: &[u8]) -> usize {
        if self.count.is_multiple_of(RESTART) {
            return 0;
        }
        self.last.iter().zip(key).take_while(|(a, b)| a == b).count()
    }

    /// Whether an entry fits.
    fn fits(&self, key: &[u8], value: &[u8]) -> bool {
        let shared = self.shared(key);
        let unshared = key.len() - shared;
        let entry = vint::unsigned_len(shared as u64) + vint::unsigned_len(unshared as u64) + unshared + value.len();
        let restarts = (self.count + 1).div_ceil(RESTART);
        HEADER + 2 * restarts + self.entries.len() + entry <= BLOCK_BYTES_MAX
    }

    fn push(&mut self, key: &[u8], value: &[u8], postings: u64) {
        let shared = self.shared(key);
        if self.count.is_multiple_of(RESTART) {
            self.restarts.push(self.entries.len());
        }
        vint::put_unsigned(&mut self.entries, shared as u64);
        stdx::bytes::put_sized(&mut self.entries, &key[shared..]);
        self.entries.extend_from_slice(value);
        self.count += 1;
        self.last.clear();
        self.last.extend_from_slice(key);
        self.postings += postings;
    }

    /// Appends the block and begins the next one.
    fn take(&mut self, level: usize, out: &mut Vec<u8>) {
        out.push(BLOCK + u8::try_from(level).expect("few levels"));
        let short = |number: usize| u16::try_from(number).expect("a block is short").to_be_bytes();
        out.extend_from_slice(&short(self.count));
        let start = HEADER + 2 * self.restarts.len();
        for restart in &self.restarts {
            out.extend_from_slice(&short(start + restart));
        }
        out.extend_from_slice(&self.entries);
        self.restarts.clear();
        self.entries.clear();
        self.count = 0;
        self.postings = 0;
    }
}

/// Writes the dictionary from terms in order.
#[derive(Debug, Default)]
pub(crate) struct DictionaryWriter {
    levels: Vec<BlockWriter>,
    bytes: Vec<u8>,
    value: Vec<u8>,
    pub(crate) terms: u64,
    pub(crate) postings: u64,
}

impl DictionaryWriter {
    /// Appends a term, greater than all before, with its list.
    pub(crate) fn add<E>(
        &mut self,
        term: &[u8],
        list: &Written<'_>,
        pages: &mut PageWriter,
        out: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.terms += 1;
        self.postings += list.count;
        self.value.clear();
        vint::put_unsigned(&mut self.value, list.count);
        vint::put_unsigned(&mut self.value, list.first);
        match list.body {
            Body::Inline(block) => self.value.extend_from_slice(block),
            Body::At(address) => vint::put_unsigned(&mut self.value, address.number()),
        }
        if self.levels.is_empty() {
            self.levels.push(BlockWriter::default());
        }
        if !self.levels[0].fits(term, &self.value) {
            self.put_block(0, pages, out)?;
            let block = &mut self.levels[0];
            let shared = block.last.iter().zip(term).take_while(|(a, b)| a == b).count();
            block.key = term[..=shared].to_vec();
        }
        self.levels[0].push(term, &self.value, list.count);
        Ok(())
    }

    /// Writes the blocks that are not full. Returns the address of the root and the number of levels.
    pub(crate) fn finish<E>(
        &mut self,
        pages: &mut PageWriter,
        out: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(Address, u32), E> {
        let mut root = (Address::NONE, 0);
        let mut level = 0;
        while level < self.levels.len() {
            let address = if level + 1 < self.levels.len() {
                self.put_block(level, pages, out)?;
                Address::NONE
            } else {
                self.take(level, pages, out)?
            };
            level += 1;
            root = (address, u32::try_from(level).expect("few levels"));
        }
        Ok(root)
    }

    fn take<E>(
        &mut self,
        level: usize,
        pages: &mut PageWriter,
        out: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Address, E> {
        self.bytes.clear();
        self.levels[level].take(level, &mut self.bytes);
        pages.put(&self.bytes, out)
    }

    /// Writes the block of a level, and lists it in the level above.
    fn put_block<E>(
        &mut self,
        level: usize,
        pages: &mut PageWriter,
        out: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let postings = self.levels[level].postings;
        let key = std::mem::take(&mut self.levels[level].key);
        let address = self.take(level, pages, out)?;
        let above = level + 1;
        if self.levels.len() == above {
            self.levels.push(BlockWriter::default());
        }
        let mut value = Vec::new();
        vint::put_unsigned(&mut value, postings);
        vint::put_unsigned(&mut value, address.number());
        if !self.levels[above].fits(&key, &value) {
            self.put_block(above, pages, out)?;
            self.levels[above].key.clone_from(&key);
        }
        self.levels[above].push(&key, &value, postings);
        Ok(())
    }
}

/// Where the reading of a block is: before an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// Offset of the entry in its page.
    pub(crate) at: usize,
    /// How many entries remain, with this one.
    pub(crate) remaining: usize,
}

/// A child of a block above level 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    pub(crate) postings: u64,
    pub(crate) address: Address,
}

/// Before the last entry with a whole key that is not greater than `key`; before the first entry without a key or if
/// there is none.
pub(crate) fn find(page: &[u8], at: usize, level: u32, key: Option<&[u8]>) -> Result<Position, Damage> {
    let mut reader = reader_at(page, at)?;
    if u32::from(reader.get_u8()?) != u32::from(BLOCK) + level {
        return Err(Damage::new(at, "a block of the dictionary of the level below"));
    }
    let count = usize::from(reader.get_u16()?);
    if count == 0 {
        return Err(Damage::new(at, "a block of the dictionary with entries"));
    }
    let offsets = reader.get_slice(2 * count.div_ceil(RESTART))?;
    let entry_at = |restart: usize| {
        let offset = u16::from_be_bytes([offsets[2 * restart], offsets[2 * restart + 1]]);
        at + usize::from(offset)
    };
    let (mut low, mut high) = (0, count.div_ceil(RESTART));
    while let Some(key) = key
        && high - low > 1
    {
        let middle = low.midpoint(high);
        let mut reader = reader_at(page, entry_at(middle))?;
        if reader.get_vint()? != 0 {
            return Err(Damage::new(entry_at(middle), "a whole key"));
        }
        if reader.get_sized()? <= key {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(Position {
        at: entry_at(low),
        remaining: count - low * RESTART,
    })
}

/// Reads the key of an entry into `key`, which has the one before. The first entry that is read after [`find`] has none
/// before.
pub(crate) fn get_key(reader: &mut Reader<'_>, is_first: bool, key: &mut Vec<u8>) -> Result<(), Damage> {
    let at = reader.at();
    let shared = usize::try_from(reader.get_vint()?).unwrap_or(usize::MAX);
    let rest = reader.get_sized()?;
    if shared > key.len() || is_first && shared > 0 || shared + rest.len() > TERM_MAX {
        return Err(Damage::new(at, "a key of at most 1024 bytes"));
    }
    if !is_first && rest <= &key[shared..] {
        return Err(Damage::new(at, "keys in order"));
    }
    key.truncate(if is_first { 0 } else { shared });
    key.extend_from_slice(rest);
    Ok(())
}

/// Advances past the key of an entry.
pub(crate) fn skip_key(reader: &mut Reader<'_>) -> Result<(), Damage> {
    reader.get_vint()?;
    reader.get_sized()?;
    Ok(())
}

pub(crate) fn get_child(reader: &mut Reader<'_>, pages: u64) -> Result<Child, Damage> {
    let postings = reader.get_vint()?;
    let at = reader.at();
    let address = Address::checked(reader.get_vint()?, pages, at)?;
    Ok(Child { postings, address })
}

/// Reads the list of a term of page `page`.
pub(crate) fn get_list(reader: &mut Reader<'_>, page: u64, pages: u64, rows: u64) -> Result<List, Damage> {
    let at = reader.at();
    let (count, first) = (reader.get_vint()?, reader.get_vint()?);
    if count == 0 || first >= rows || count > rows - first {
        return Err(Damage::new(at, "a list of rows of the sstable"));
    }
    let at = reader.at();
    let address = match count {
        1 => Address::NONE,
        2..=INLINE_MAX => {
            skip_block(reader, usize::try_from(count).expect("few"))?;
            Address::new(page, at)
        }
        _ => Address::checked(reader.get_vint()?, pages, at)?,
    };
    Ok(List { count, first, address })
}
