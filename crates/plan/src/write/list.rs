//! A list while a statement changes it, one change after the other.
//!
//! Elements are in the order of their paths, in runs of at most [`RUN_MAX`]. A place is found by the lengths of the
//! runs, a path by binary search, and a change moves the elements of one run: many changes of a long list take far less
//! than a pass over the list for each of them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use schema::RowLayout;
use stdx::{LongVec, preempt};

/// The most elements of a run.
const RUN_MAX: usize = 512;

/// Path and value of an element.
type Entry<'l> = (Cow<'l, [u8]>, Cow<'l, [u8]>);
/// The paths of elements by their values.
type PathsByValue<'l> = HashMap<Cow<'l, [u8]>, Vec<Cow<'l, [u8]>>>;

/// See the module.
pub(super) struct PresentList<'l> {
    /// None of them is empty.
    runs: LongVec<Vec<Entry<'l>>>,
    layout: &'l RowLayout,
    /// The id of the column.
    id: usize,
    /// The paths of elements by their values, once the list was searched. Each element is among those of its value;
    /// paths of elements that were changed since are not removed.
    by_value: Option<PathsByValue<'l>>,
    is_searched: bool,
}

impl<'l> PresentList<'l> {
    /// The list as it is stored.
    pub(super) fn new(elements: &'l [(Vec<u8>, Vec<u8>)], layout: &'l RowLayout, id: usize) -> Self {
        let entry = |(path, value): &'l (Vec<u8>, Vec<u8>)| (Cow::Borrowed(&path[..]), Cow::Borrowed(&value[..]));
        // With room for elements that are added.
        let runs = elements.chunks(RUN_MAX / 2);
        Self {
            runs: runs
                .map(|run| {
                    preempt::point();
                    run.iter().map(entry).collect()
                })
                .collect(),
            layout,
            id,
            by_value: None,
            is_searched: false,
        }
    }

    /// How many elements it has.
    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
    }

    /// Whether it has no element, which is no list at all.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The path of the element at a place.
    pub(super) fn path(&self, mut place: usize) -> Option<&Cow<'l, [u8]>> {
        for run in &self.runs {
            match run.get(place) {
                Some((path, _)) => return Some(path),
                None => place -= run.len(),
            }
        }
        None
    }

    /// All elements, in order.
    fn iter(&self) -> impl Iterator<Item = &Entry<'l>> {
        self.runs.iter().flatten().inspect(|_| preempt::point())
    }

    /// The paths of the elements with one of these values, in order. The caller removes them.
    ///
    /// The first search passes over the list. A statement that searches it again is one that does so many times.
    pub(super) fn take_matches(&mut self, values: &HashSet<&[u8]>) -> Vec<Cow<'l, [u8]>> {
        if !std::mem::replace(&mut self.is_searched, true) {
            let matches = self.iter().filter(|(_, value)| values.contains(&**value));
            return preempt::collect(matches.map(|(path, _)| path.clone()));
        }
        let mut by_value = self.by_value.take().unwrap_or_else(|| {
            let mut by_value: HashMap<_, Vec<_>> = HashMap::new();
            for (path, value) in self.iter() {
                by_value.entry(value.clone()).or_default().push(path.clone());
            }
            by_value
        });
        let mut paths = Vec::new();
        for value in values {
            preempt::point();
            let candidates = by_value.remove(*value).unwrap_or_default();
            paths.extend(candidates.into_iter().filter(|path| self.value(path) == Some(*value)));
        }
        self.by_value = Some(by_value);
        preempt::sort_by(&mut paths, |a, b| self.layout.compare_paths(self.id, a, b));
        paths.dedup_by(|a, b| {
            preempt::point();
            a == b
        });
        paths
    }

    /// The value of the element of a path.
    fn value(&self, path: &[u8]) -> Option<&[u8]> {
        let (layout, id) = (self.layout, self.id);
        let is_before = |(present, _): &Entry<'l>| layout.compare_paths(id, present, path).is_lt();
        let run = self.runs.partition_point(|run| run.last().is_some_and(is_before));
        let entries = self.runs.get(run)?;
        let (present, value) = entries.get(entries.partition_point(is_before))?;
        (**present == *path).then_some(&**value)
    }

    /// Removes every element.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
    }

    /// Gives the element of a path another value, or removes it.
    pub(super) fn change(&mut self, path: Cow<'l, [u8]>, value: Option<&Cow<'l, [u8]>>) {
        if let (Some(by_value), Some(value)) = (&mut self.by_value, value) {
            by_value.entry(value.clone()).or_default().push(path.clone());
        }
        let (layout, id) = (self.layout, self.id);
        let is_before = |(present, _): &Entry<'l>| layout.compare_paths(id, present, &path).is_lt();
        let run = self.runs.partition_point(|run| run.last().is_some_and(&is_before));
        // What comes after all others belongs to the last run.
        let run = run.min(self.runs.len().saturating_sub(1));
        let Some(entries) = self.runs.get_mut(run) else {
            let first = value.map(|value| vec![(path, value.clone())]);
            self.runs.extend(first);
            return;
        };
        let at = entries.partition_point(is_before);
        let is_there = entries.get(at).is_some_and(|(present, _)| *present == path);
        match (value, is_there) {
            (Some(value), true) => entries[at].1 = value.clone(),
            (Some(value), false) => entries.insert(at, (path, value.clone())),
            (None, true) => drop(entries.remove(at)),
            (None, false) => {}
        }
        if entries.is_empty() {
            self.runs.remove(run);
        } else if entries.len() > RUN_MAX {
            let behind = entries.split_off(RUN_MAX / 2);
            self.runs.insert(run + 1, behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_runs_is_as_a_plain_list() {
        let path = |number: u32| number.to_be_bytes().to_vec();
        let layout = RowLayout::default();
        let stored: Vec<(Vec<u8>, Vec<u8>)> = (0..3000).map(|n| (path(2 * n), vec![0])).collect();
        let mut plain = stored.clone();
        let mut list = PresentList::new(&stored, &layout, 0);
        let mut random = 1_u32;
        for step in 0..20_000_u32 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // First more is added than removed, then all goes.
            let is_added = step < 10_000 && random & 1 << 20 != 0;
            let changed = match plain.get(random as usize % plain.len().max(1)) {
                Some((path, _)) if !is_added => path.clone(),
                _ => path(random >> 8 & 0x3fff),
            };
            let value = is_added.then(|| (step % 512).to_be_bytes().to_vec());
            if step % 16 == 0 {
                let sought = [(random % 512).to_be_bytes(), (step % 512).to_be_bytes()];
                let sought: HashSet<&[u8]> = sought.iter().map(|value| &value[..]).collect();
                let found: Vec<Vec<u8>> = list.take_matches(&sought).iter().map(|path| path.to_vec()).collect();
                let is_match = |(_, value): &&(Vec<u8>, Vec<u8>)| sought.contains(&value[..]);
                let expected: Vec<Vec<u8>> = plain.iter().filter(is_match).map(|(path, _)| path.clone()).collect();
                assert_eq!(found, expected, "step {step}");
                plain.retain(|(path, _)| !found.contains(path));
                found.into_iter().for_each(|path| list.change(Cow::Owned(path), None));
            }
            list.change(Cow::Owned(changed.clone()), value.clone().map(Cow::Owned).as_ref());
            plain.retain(|(path, _)| *path != changed);
            if let Some(value) = value {
                let at = plain.partition_point(|(present, _)| layout.compare_paths(0, present, &changed).is_lt());
                plain.insert(at, (changed, value));
            }
            assert_eq!(list.len(), plain.len(), "step {step}");
            let place = random as usize % (plain.len() + 1);
            assert_eq!(
                list.path(place).map(|path| path.to_vec()),
                plain.get(place).map(|(path, _)| path.clone()),
                "step {step}"
            );
            if step % 1000 == 0 {
                let have: Vec<_> = list
                    .iter()
                    .map(|(path, value)| (path.to_vec(), value.to_vec()))
                    .collect();
                assert_eq!(have, plain, "step {step}");
            }
        }
        assert!(plain.is_empty() && list.is_empty(), "{} are left", plain.len());
    }
}
