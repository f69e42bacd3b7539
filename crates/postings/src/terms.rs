//! Reading the dictionary: the terms of a range in order, and how many postings are before a term.

use std::ops::Bound;
use std::rc::Rc;

use crate::dictionary::{Child, Position, find, get_child, get_key, get_list, skip_key};
use crate::page::Address;
use crate::{Damage, File, List, Pages, reader_at};

/// The terms of a range, one after the other.
#[derive(Clone, Debug)]
pub struct Terms {
    file: File,
    /// Until the first term is found: the range begins here.
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    /// For each level above 0, from the top: the page of a block, and the child to read next.
    path: Vec<(u64, Position)>,
    page: Rc<Vec<u8>>,
    page_number: u64,
    /// The entry of `page` to read next.
    position: Position,
    term: Vec<u8>,
    /// `term` is one of the dictionary.
    has_term: bool,
    list: List,
}

impl Terms {
    pub(crate) async fn new<P: Pages>(
        file: &File,
        pages: &P,
        from: Bound<&[u8]>,
        to: Bound<Vec<u8>>,
    ) -> Result<Self, P::Error> {
        let mut terms = Self {
            file: *file,
            from: from.map(<[u8]>::to_vec),
            to,
            path: Vec::new(),
            page: Rc::default(),
            page_number: 0,
            position: Position { at: 0, remaining: 0 },
            term: Vec::new(),
            has_term: false,
            list: List {
                count: 0,
                first: 0,
                address: Address::NONE,
            },
        };
        if let Some(level) = file.levels.checked_sub(1) {
            let key = match from {
                Bound::Included(key) | Bound::Excluded(key) => Some(key),
                Bound::Unbounded => None,
            };
            terms.descend(pages, file.root, level, key).await?;
        }
        Ok(terms)
    }

    /// Advances to the next term; false if the range has no more.
    ///
    /// # Errors
    /// Those of `pages`, and [`Pages::damaged`].
    pub async fn next<P: Pages>(&mut self, pages: &P) -> Result<bool, P::Error> {
        loop {
            if self.position.remaining == 0 && !self.next_block(pages).await? {
                return Ok(false);
            }
            self.read_entry().map_err(|damage| damage.on(pages, self.page_number))?;
            if self.is_before_range() {
                continue;
            }
            self.from = Bound::Unbounded;
            let is_in_range = match &self.to {
                Bound::Included(to) => self.term <= *to,
                Bound::Excluded(to) => self.term < *to,
                Bound::Unbounded => true,
            };
            if !is_in_range {
                self.position.remaining = 0;
                self.path.clear();
            }
            return Ok(is_in_range);
        }
    }

    /// The term that [`Terms::next`] found.
    #[must_use]
    pub fn term(&self) -> &[u8] {
        &self.term
    }

    /// How many rows have the term.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.list.count
    }

    /// The rows that have the term.
    #[must_use]
    pub const fn list(&self) -> List {
        self.list
    }

    fn is_before_range(&self) -> bool {
        match &self.from {
            Bound::Included(from) => self.term < *from,
            Bound::Excluded(from) => self.term <= *from,
            Bound::Unbounded => false,
        }
    }

    fn read_entry(&mut self) -> Result<(), Damage> {
        let mut reader = reader_at(&self.page, self.position.at)?;
        get_key(&mut reader, !self.has_term, &mut self.term)?;
        self.has_term = true;
        self.list = get_list(&mut reader, self.page_number, self.file.pages, self.file.rows)?;
        self.position.at = reader.at();
        self.position.remaining -= 1;
        Ok(())
    }

    /// Goes to the first entry of the next block of level 0; false if there is none.
    async fn next_block<P: Pages>(&mut self, pages: &P) -> Result<bool, P::Error> {
        while let Some((page_number, position)) = self.path.last_mut() {
            if position.remaining == 0 {
                self.path.pop();
                continue;
            }
            let page_number = *page_number;
            let page = pages.page(page_number).await?;
            let child = read_child(&page, position, self.file.pages).map_err(|damage| damage.on(pages, page_number))?;
            let above = u32::try_from(self.path.len()).expect("few levels");
            self.descend(pages, child.address, self.file.levels - 1 - above, None)
                .await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Goes down from a block to an entry of level 0: the last whose key is whole and is not greater than `key`.
    async fn descend<P: Pages>(
        &mut self,
        pages: &P,
        mut address: Address,
        level: u32,
        key: Option<&[u8]>,
    ) -> Result<(), P::Error> {
        for level in (0..=level).rev() {
            let page_number = address.page();
            let page = pages.page(page_number).await?;
            let mut position =
                find(&page, address.offset(), level, key).map_err(|damage| damage.on(pages, page_number))?;
            if level == 0 {
                (self.page, self.page_number, self.position) = (page, page_number, position);
                return Ok(());
            }
            let child = choose(&page, &mut position, key, self.file.pages, |_| ());
            address = child.map_err(|damage| damage.on(pages, page_number))?.address;
            self.path.push((page_number, position));
        }
        Ok(())
    }
}

fn read_child(page: &[u8], position: &mut Position, pages: u64) -> Result<Child, Damage> {
    let mut reader = reader_at(page, position.at)?;
    skip_key(&mut reader)?;
    let child = get_child(&mut reader, pages)?;
    position.at = reader.at();
    position.remaining -= 1;
    Ok(child)
}

/// Reads the last child, from `position` on, whose key is not greater than `key`, and steps over it; without a key or
/// such a child the first one. Gives each child before it to `passed`.
fn choose(
    page: &[u8],
    position: &mut Position,
    key: Option<&[u8]>,
    pages: u64,
    mut passed: impl FnMut(Child),
) -> Result<Child, Damage> {
    let Some(key) = key else {
        return read_child(page, position, pages);
    };
    let mut other = Vec::new();
    let mut chosen = None;
    while position.remaining > 0 {
        let mut reader = reader_at(page, position.at)?;
        get_key(&mut reader, chosen.is_none(), &mut other)?;
        if chosen.is_some() && other.as_slice() > key {
            break;
        }
        if let Some(child) = chosen.replace(get_child(&mut reader, pages)?) {
            passed(child);
        }
        position.at = reader.at();
        position.remaining -= 1;
    }
    chosen.ok_or(Damage::new(position.at, "a child"))
}

/// How many postings the terms before `term` have, with or without its own.
pub(crate) async fn rank<P: Pages>(file: &File, pages: &P, term: &[u8], is_included: bool) -> Result<u64, P::Error> {
    let mut postings = 0_u64;
    let mut address = file.root;
    for level in (0..file.levels).rev() {
        let page_number = address.page();
        let page = pages.page(page_number).await?;
        // All entries before the term count, so the search begins at the first.
        let position = find(&page, address.offset(), level, None);
        let add = |other: u64| postings = postings.saturating_add(other);
        let next = position.and_then(|mut position| {
            if level == 0 {
                pass_terms(file, &page, page_number, position, term, is_included, add).map(|()| address)
            } else {
                let mut add = add;
                let child = choose(
                    &page,
                    &mut position,
                    Some(term),
                    file.pages,
                    |child| add(child.postings),
                )?;
                Ok(child.address)
            }
        });
        address = next.map_err(|damage| damage.on(pages, page_number))?;
    }
    Ok(postings)
}

/// Gives the count of each term of a block of level 0 before `term` to `passed`.
fn pass_terms(
    file: &File,
    page: &[u8],
    page_number: u64,
    position: Position,
    term: &[u8],
    is_included: bool,
    mut passed: impl FnMut(u64),
) -> Result<(), Damage> {
    let mut other = Vec::new();
    let mut reader = reader_at(page, position.at)?;
    for number in 0..position.remaining {
        get_key(&mut reader, number == 0, &mut other)?;
        let is_before = other.as_slice() < term || is_included && other == term;
        if !is_before {
            break;
        }
        passed(get_list(&mut reader, page_number, file.pages, file.rows)?.count);
    }
    Ok(())
}
