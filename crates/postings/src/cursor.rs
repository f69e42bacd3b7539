//! Cursors: the ordinals of a posting list, one after the other or from any ordinal on.

use crate::block::unpack_block;
use crate::list::{Child, FAN, List, get_node, span};
use crate::{Damage, File, Pages, reader_at};

/// A position in a posting list. It has one block in memory, and of a long list the lowest skip node above it.
#[derive(Clone, Debug)]
pub struct Cursor {
    list: List,
    /// The ordinals of the block that is loaded; those before `at` have been returned or skipped.
    ordinals: Vec<u64>,
    at: usize,
    /// The block to load next, [`List::blocks`] after the last.
    next_block: u64,
    /// The children of the node above `next_block`, and which of them are those; empty if it is not loaded.
    node: Vec<Child>,
    node_blocks: std::ops::Range<u64>,
    /// The first ordinal after those of `node`.
    node_end: u64,
    /// Every ordinal of the file is less.
    rows: u64,
    pages: u64,
}

/// Where a descent through the skip nodes leads.
#[derive(Clone, Copy, Debug)]
enum Target {
    Block(u64),
    Ordinal(u64),
}

impl Cursor {
    /// Before the first ordinal of a list of `file`.
    pub(crate) const fn new(file: &File, list: List) -> Self {
        Self {
            list,
            ordinals: Vec::new(),
            at: 0,
            next_block: 0,
            node: Vec::new(),
            node_blocks: 0..0,
            node_end: 0,
            rows: file.rows,
            pages: file.pages,
        }
    }

    /// The next ordinal of the block that is loaded, without reading; `None` at its end, where [`Cursor::next`] loads
    /// the next block.
    #[inline]
    pub fn next_loaded(&mut self) -> Option<u64> {
        let ordinal = *self.ordinals.get(self.at)?;
        self.at += 1;
        Some(ordinal)
    }

    /// The next ordinal; `None` after the last.
    ///
    /// # Errors
    /// Those of `pages`, and [`Pages::damaged`].
    #[inline]
    pub async fn next<P: Pages>(&mut self, pages: &P) -> Result<Option<u64>, P::Error> {
        if let Some(ordinal) = self.next_loaded() {
            return Ok(Some(ordinal));
        }
        if self.next_block == self.list.blocks() {
            return Ok(None);
        }
        self.load_next(pages).await?;
        Ok(self.next_loaded())
    }

    /// Advances to the first ordinal that is not less than `ordinal` nor before the cursor, and returns it as
    /// [`Cursor::next`] does; `None` if there is none.
    ///
    /// # Errors
    /// Those of `pages`, and [`Pages::damaged`].
    #[inline]
    pub async fn seek<P: Pages>(&mut self, pages: &P, ordinal: u64) -> Result<Option<u64>, P::Error> {
        if self.ordinals.last().is_none_or(|last| *last < ordinal) {
            self.at = self.ordinals.len();
            if self.next_block == self.list.blocks() {
                return Ok(None);
            }
            self.load_for(pages, ordinal).await?;
        }
        self.skip_to(ordinal);
        // The block that may have it can end before it: then it is the first of the next one.
        self.next(pages).await
    }

    /// Steps over what is less in the block that is loaded.
    fn skip_to(&mut self, ordinal: u64) {
        let rest = &self.ordinals[self.at..];
        // Cursors that leap together are mostly a few ordinals apart.
        let mut step = 1;
        while step < rest.len() && rest[step] < ordinal {
            step *= 2;
        }
        let from = step / 2;
        let near = &rest[from..rest.len().min(step + 1)];
        self.at += from + near.partition_point(|other| *other < ordinal);
    }

    /// Loads the last block after those that are loaded which begins at `ordinal` or before, or the next block.
    async fn load_for<P: Pages>(&mut self, pages: &P, ordinal: u64) -> Result<(), P::Error> {
        if self.list.levels() > 0 {
            if self.node_blocks.contains(&self.next_block) && ordinal < self.node_end {
                let begun = self.node.partition_point(|child| child.first <= ordinal) as u64;
                self.next_block = self.next_block.max(self.node_blocks.start + begun.saturating_sub(1));
            } else {
                let next_block = self.next_block;
                self.load_node(pages, Target::Ordinal(ordinal)).await?;
                // The block that would have the ordinal may have been loaded already.
                self.next_block = self.next_block.max(next_block);
            }
        }
        self.load_next(pages).await
    }

    /// Loads the next block, which exists. After an error the cursor is at the end of its list.
    async fn load_next<P: Pages>(&mut self, pages: &P) -> Result<(), P::Error> {
        let last = self.ordinals.last().copied();
        self.ordinals.clear();
        self.at = 0;
        let loaded = self.load_block(pages, last).await;
        if loaded.is_ok() {
            self.next_block += 1;
        } else {
            self.ordinals.clear();
            self.next_block = self.list.blocks();
        }
        loaded
    }

    /// Loads `next_block`, whose ordinals are after `last`.
    async fn load_block<P: Pages>(&mut self, pages: &P, last: Option<u64>) -> Result<(), P::Error> {
        let child = self.child(pages).await?;
        let (page_number, at) = (child.address.page(), child.address.offset());
        if last >= Some(child.first) || child.first >= self.rows {
            let damage = Damage::new(at, "a block that begins after the one before");
            return Err(damage.on(pages, page_number));
        }
        let count = self.list.block_len(self.next_block);
        if count == 1 {
            self.ordinals.push(child.first);
            return Ok(());
        }
        let page = pages.page(page_number).await?;
        reader_at(&page, at)
            .and_then(|mut reader| unpack_block(&mut reader, child.first, count, self.rows, &mut self.ordinals))
            .map_err(|damage| damage.on(pages, page_number))
    }

    /// What points to `next_block`.
    async fn child<P: Pages>(&mut self, pages: &P) -> Result<Child, P::Error> {
        if self.list.levels() == 0 {
            let List { first, address, .. } = self.list;
            return Ok(Child { first, address });
        }
        if !self.node_blocks.contains(&self.next_block) {
            self.load_node(pages, Target::Block(self.next_block)).await?;
        }
        let of_node = self.next_block - self.node_blocks.start;
        Ok(self.node[usize::try_from(of_node).expect("a node has few children")])
    }

    /// Loads the lowest node above a block, from the root, and sets `next_block`.
    async fn load_node<P: Pages>(&mut self, pages: &P, target: Target) -> Result<(), P::Error> {
        let List { first, address, .. } = self.list;
        let mut node = Child { first, address };
        let mut block = 0;
        self.node_end = u64::MAX;
        // After an error nothing is loaded.
        self.node_blocks = 0..0;
        for level in (0..self.list.levels()).rev() {
            let page = pages.page(node.address.page()).await?;
            let count = self.list.node_len(level, block);
            let at = node.address.offset();
            reader_at(&page, at)
                .and_then(|mut reader| get_node(&mut reader, level, count, self.pages, &mut self.node))
                .and_then(|()| match self.node.first() {
                    Some(child) if child.first == node.first => Ok(()),
                    _ => Err(Damage::new(at, "a skip node that begins as its parent says")),
                })
                .map_err(|damage| damage.on(pages, node.address.page()))?;
            if level == 0 {
                self.node_blocks = block..block + self.node.len() as u64;
            }
            let chosen = match target {
                Target::Block(wanted) => usize::try_from((wanted - block) / span(level)).unwrap_or(FAN),
                Target::Ordinal(ordinal) => self
                    .node
                    .partition_point(|child| child.first <= ordinal)
                    .saturating_sub(1),
            };
            node = self.node[chosen.min(count - 1)];
            if level > 0 {
                let end = self.node.get(chosen + 1).map_or(self.node_end, |child| child.first);
                self.node_end = self.node_end.min(end);
            }
            block += chosen as u64 * span(level);
        }
        self.next_block = block;
        Ok(())
    }
}
