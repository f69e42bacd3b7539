//! Posting lists: how one is written, and what finds a block of it by number or by ordinal.
//!
//! A list of more than [`BLOCK`] ordinals has *skip nodes* above its blocks. All blocks but the last are full, and so
//! are all nodes of a level but its last, so the number of entries of each node follows from the count of the list.
//!
//! ```text
//! node  = 0xb0 + level (u8), for each child its first ordinal and its address
//! first = vint; after the first child the difference to the one before, less one
//! address = vint; after the first child the difference to the one before, less one
//! ```
//! Nodes of level 0 point to blocks, the others to nodes of the level below. A reader goes from the root, which the
//! dictionary names, to one block, and reads one page for each level.

use stdx::bytes::Reader;
use stdx::vint;

use crate::Damage;
use crate::block::{BLOCK, put_block};
use crate::page::{Address, PageWriter};

/// The children of a node, but for the last node of each level.
pub(crate) const FAN: usize = 128;
const NODE: u8 = 0xb0;
/// A list of up to so many ordinals is in its entry of the dictionary.
pub(crate) const INLINE_MAX: u64 = 32;

/// A posting list: how many ordinals it has, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    pub(crate) count: u64,
    pub(crate) first: u64,
    /// Of the only block, or of the root of the skip nodes; [`Address::NONE`] for a list of one ordinal.
    pub(crate) address: Address,
}

impl List {
    /// How many rows the list has; at least one.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) const fn blocks(&self) -> u64 {
        self.count.div_ceil(BLOCK as u64)
    }

    /// How many levels of nodes are above the blocks.
    pub(crate) fn levels(&self) -> u32 {
        let (mut levels, mut nodes) = (0, self.blocks());
        while nodes > 1 {
            nodes = nodes.div_ceil(FAN as u64);
            levels += 1;
        }
        levels
    }

    /// The ordinals of a block.
    pub(crate) fn block_len(&self, block: u64) -> usize {
        usize::try_from(self.count - block * BLOCK as u64).map_or(BLOCK, |rest| rest.min(BLOCK))
    }

    /// The children of the node of `level` that is above `block`.
    pub(crate) fn node_len(&self, level: u32, block: u64) -> usize {
        let children = self.blocks().div_ceil(span(level));
        let before = block / span(level + 1) * FAN as u64;
        usize::try_from(children.saturating_sub(before)).map_or(FAN, |rest| rest.min(FAN))
    }
}

/// The blocks below a child of a node of `level`.
pub(crate) fn span(level: u32) -> u64 {
    (FAN as u64).saturating_pow(level)
}

/// A child of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) first: u64,
    pub(crate) address: Address,
}

fn put_node(level: usize, children: &[Child], out: &mut Vec<u8>) {
    out.push(NODE + u8::try_from(level).expect("few levels hold all that 64 bits count"));
    let mut next = (0, 0);
    for child in children {
        vint::put_unsigned(out, child.first - next.0);
        vint::put_unsigned(out, child.address.number() - next.1);
        next = (child.first + 1, child.address.number() + 1);
    }
}

/// Reads the `count` children of a node of `level`.
pub(crate) fn get_node(
    reader: &mut Reader<'_>,
    level: u32,
    count: usize,
    pages: u64,
    out: &mut Vec<Child>,
) -> Result<(), Damage> {
    let at = reader.at();
    if u32::from(reader.get_u8()?) != u32::from(NODE) + level {
        return Err(Damage::new(at, "a skip node of the level below"));
    }
    out.clear();
    let mut next = (0_u64, 0_u64);
    for _ in 0..count {
        let at = reader.at();
        let ascending = |base: u64, difference: u64| {
            let sum = base.checked_add(difference).filter(|sum| *sum < u64::MAX);
            sum.ok_or(Damage::new(at, "ascending children"))
        };
        let first = ascending(next.0, reader.get_vint()?)?;
        let number = ascending(next.1, reader.get_vint()?)?;
        out.push(Child {
            first,
            address: Address::checked(number, pages, at)?,
        });
        next = (first + 1, number + 1);
    }
    Ok(())
}

/// Writes posting lists, one after the other, from ascending ordinals.
#[derive(Debug)]
pub(crate) struct ListWriter {
    block: Vec<u64>,
    count: u64,
    first: u64,
    /// For each level the children of a node that is not full yet.
    levels: Vec<Vec<Child>>,
    bytes: Vec<u8>,
}

/// What the dictionary has of a list.
#[derive(Debug)]
pub(crate) struct Written<'a> {
    pub(crate) count: u64,
    pub(crate) first: u64,
    /// The block of a list of 2 to [`INLINE_MAX`] ordinals; else the address of the block or of the root.
    pub(crate) body: Body<'a>,
}

#[derive(Debug)]
pub(crate) enum Body<'a> {
    Inline(&'a [u8]),
    At(Address),
}

impl ListWriter {
    pub(crate) fn new() -> Self {
        Self {
            block: Vec::with_capacity(BLOCK),
            count: 0,
            first: 0,
            levels: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Appends an ordinal to the current list. The last one once more is ignored.
    pub(crate) fn push<E>(
        &mut self,
        ordinal: u64,
        pages: &mut PageWriter,
        out: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(&last) = self.block.last() {
            if last == ordinal {
                return Ok(());
            }
            assert!(last < ordinal, "ordinals of a term ascend");
        }
        // A full block stays until the next ordinal, which may be the same as its last one.
        if self.block.len() == BLOCK {
            self.put_block(pages, out)?;
        }
        if self.count == 0 {
            self.first = ordinal;
        }
        self.block.push(ordinal);
        self.count += 1;
        Ok(())
    }

    /// The last ordinal of the current list.
    pub(crate) fn last(&self) -> Option<u64> {
        self.block.last().copied()
    }

    /// Ends the current list, which has at least one ordinal.
    pub(crate) fn finish<E>(
        &mut self,
        pages: &mut PageWriter,
        out: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Written<'_>, E> {
        let (count, first) = (std::mem::take(&mut self.count), self.first);
        self.bytes.clear();
        if count <= INLINE_MAX {
            if count > 1 {
                put_block(&self.block, &mut self.bytes);
            }
            self.block.clear();
            let body = Body::Inline(&self.bytes);
            return Ok(Written { count, first, body });
        }
        self.put_block(pages, out)?;
        let address = self.put_root(pages, out)?;
        let body = Body::At(address);
        Ok(Written { count, first, body })
    }

    fn put_block<E>(&mut self, pages: &mut PageWriter, out: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        self.bytes.clear();
        let address = match self.block[..] {
            // Only the last block of a list may have one ordinal, which its parent has.
            [_] => pages.next_address(),
            _ => {
                put_block(&self.block, &mut self.bytes);
                pages.put(&self.bytes, out)?
            }
        };
        let first = self.block[0];
        self.block.clear();
        self.add_child(0, Child { first, address }, pages, out)
    }

    fn add_child<E>(
        &mut self,
        level: usize,
        child: Child,
        pages: &mut PageWriter,
        out: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.levels.len() == level {
            self.levels.push(Vec::with_capacity(FAN));
        }
        if self.levels[level].len() == FAN {
            self.put_node(level, pages, out)?;
        }
        self.levels[level].push(child);
        Ok(())
    }

    fn put_node<E>(
        &mut self,
        level: usize,
        pages: &mut PageWriter,
        out: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.bytes.clear();
        put_node(level, &self.levels[level], &mut self.bytes);
        let first = self.levels[level][0].first;
        self.levels[level].clear();
        let address = pages.put(&self.bytes, out)?;
        self.add_child(level + 1, Child { first, address }, pages, out)
    }

    /// Writes the nodes that are not full. The root is the only child of the level above it.
    fn put_root<E>(
        &mut self,
        pages: &mut PageWriter,
        out: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Address, E> {
        let mut level = 0;
        while level + 1 < self.levels.len() || self.levels[level].len() > 1 {
            self.put_node(level, pages, out)?;
            level += 1;
        }
        let root = self.levels[level][0].address;
        self.levels.clear();
        Ok(root)
    }
}
