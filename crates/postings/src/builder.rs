//! Building a file: terms and ordinals come row by row, and leave term by term.
//!
//! Memory has a hash map from each term to its ordinals, as differences in vints. When that is larger than
//! `memory_max` it is sorted and put aside as a *run*; in the end all runs are merged. Rows come in order, so the
//! ordinals of a term in one run are before those in the next, or begin with the last of these.
//!
//! Memory is about `memory_max`, or a page for each run while they are merged if that is more.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use stdx::vint;

use crate::dictionary::DictionaryWriter;
use crate::list::ListWriter;
use crate::page::{Address, PageWriter};
use crate::run::{RunReader, RunWriter, Spill};
use crate::samples::{GROUP, Samples, Widths};
use crate::{File, SAMPLE, TERM_MAX};

/// What an entry of the map takes besides the bytes of its term and its differences: the entry, with the free part of
/// the table, what the allocator adds to two pieces of memory, and the entry once more while the map is sorted.
const ENTRY_BYTES: usize = 192;
/// The run of the samples.
const SAMPLES_RUN: usize = 0;

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Pages of the file.
    pub pages: u64,
    /// Terms of the dictionary.
    pub terms: u64,
    /// Ordinals of all posting lists.
    pub postings: u64,
}

/// The ordinals of one term in memory.
#[derive(Debug)]
struct Ordinals {
    first: u64,
    last: u64,
    /// Vints of the differences, each at least one.
    differences: Vec<u8>,
}

/// Makes the file of one index of one sstable.
#[derive(Debug)]
pub struct Builder<S: Spill> {
    index_id: u32,
    memory_max: usize,
    spill: S,
    terms: HashMap<Box<[u8]>, Ordinals, foldhash::fast::FixedState>,
    /// Bytes of `terms` and `samples`.
    memory: usize,
    /// The greatest ordinal, if there is one.
    last: Option<u64>,
    /// Runs of terms: 1 to this.
    runs: usize,
    samples: Vec<u8>,
    samples_run: RunWriter,
    /// The samples before those of `samples` are in their run.
    has_samples_run: bool,
    last_sample: [u64; 2],
    widths: Widths,
}

impl<S: Spill> Builder<S> {
    /// A builder for the index of this id.
    pub fn new(index_id: u32, memory_max: usize, spill: S) -> Self {
        Self {
            index_id,
            memory_max,
            spill,
            terms: HashMap::default(),
            memory: 0,
            last: None,
            runs: 0,
            samples: Vec::new(),
            samples_run: RunWriter::new(SAMPLES_RUN),
            has_samples_run: false,
            last_sample: [0; 2],
            widths: Widths::default(),
        }
    }

    /// Lists a row under a term of at most [`TERM_MAX`] bytes. The terms of a row come in any order; a term that comes
    /// twice counts once.
    ///
    /// # Errors
    /// Those of [`Spill`].
    ///
    /// # Panics
    /// If an ordinal is less than the one before, or a term is too long.
    pub fn add(&mut self, term: &[u8], ordinal: u64) -> Result<(), S::Error> {
        assert!(term.len() <= TERM_MAX, "a term of {} bytes", term.len());
        assert!(self.last <= Some(ordinal), "ordinal {ordinal} after {:?}", self.last);
        self.last = Some(ordinal);
        if let Some(ordinals) = self.terms.get_mut(term) {
            if ordinals.last != ordinal {
                let capacity = ordinals.differences.capacity();
                vint::put_unsigned(&mut ordinals.differences, ordinal - ordinals.last);
                ordinals.last = ordinal;
                self.memory += ordinals.differences.capacity() - capacity;
            }
        } else {
            let ordinals = Ordinals {
                first: ordinal,
                last: ordinal,
                differences: Vec::new(),
            };
            self.terms.insert(term.into(), ordinals);
            self.memory += ENTRY_BYTES + term.len();
        }
        if self.memory > self.memory_max {
            self.spill()?;
        }
        Ok(())
    }

    /// Adds the position in Data.db of the next row whose ordinal is a multiple of [`SAMPLE`]: where its partition
    /// begins and where the row does. Neither is less than before.
    ///
    /// # Errors
    /// Those of [`Spill`].
    ///
    /// # Panics
    /// If a position is less than the one before.
    pub fn sample(&mut self, partition: u64, row: u64) -> Result<(), S::Error> {
        let sample = [partition, row];
        self.widths.add(sample);
        let capacity = self.samples.capacity();
        for (position, last) in sample.into_iter().zip(self.last_sample) {
            let difference = position.checked_sub(last).expect("samples do not descend");
            vint::put_unsigned(&mut self.samples, difference);
        }
        self.last_sample = sample;
        self.memory += self.samples.capacity() - capacity;
        if self.memory > self.memory_max {
            self.spill()?;
        }
        Ok(())
    }

    /// Writes the file of an sstable of `rows` rows: gives its pages to `out`, in order, with their checksums.
    ///
    /// # Errors
    /// Those of [`Spill`] and `out`.
    ///
    /// # Panics
    /// If an ordinal is not less than `rows`, or there are not as many samples as `rows` has.
    pub fn finish(
        mut self,
        rows: u64,
        out: &mut impl FnMut(&[u8]) -> Result<(), S::Error>,
    ) -> Result<Totals, S::Error> {
        assert!(self.last < Some(rows), "ordinals are less than {rows}");
        let mut pages = PageWriter::new();
        let mut output = Output {
            pages: &mut pages,
            lists: ListWriter::new(),
            dictionary: DictionaryWriter::default(),
            out,
        };
        if self.runs == 0 {
            for (term, ordinals) in sort(&mut self.terms) {
                output.put_all(&ordinals)?;
                output.end_term(&term)?;
            }
        } else {
            self.spill_terms()?;
            output.merge(self.runs, &mut self.spill)?;
        }
        let mut dictionary = output.dictionary;
        let (root, levels) = dictionary.finish(&mut pages, out)?;
        let samples = self.put_samples(&mut pages, out)?;
        assert_eq!(samples.count, rows.div_ceil(SAMPLE), "samples of {rows} rows");
        let file = File {
            index_id: self.index_id,
            pages: 0,
            levels,
            rows,
            postings: dictionary.postings,
            terms: dictionary.terms,
            root,
            samples,
        };
        let mut footer = Vec::new();
        file.put(&mut footer);
        pages.put(&footer, out)?;
        Ok(Totals {
            pages: pages.finish(out)?,
            terms: dictionary.terms,
            postings: dictionary.postings,
        })
    }

    /// Writes what is in memory.
    #[cold]
    fn spill(&mut self) -> Result<(), S::Error> {
        self.samples_run.write(&mut self.spill, &self.samples)?;
        self.samples = Vec::new();
        self.has_samples_run = true;
        self.spill_terms()
    }

    /// Writes the terms in memory as a run.
    fn spill_terms(&mut self) -> Result<(), S::Error> {
        self.memory = self.samples.capacity();
        if self.terms.is_empty() {
            return Ok(());
        }
        self.runs += 1;
        let mut run = RunWriter::new(self.runs);
        let mut head = Vec::new();
        for (term, ordinals) in sort(&mut self.terms) {
            head.clear();
            stdx::bytes::put_sized(&mut head, &term);
            let len = vint::unsigned_len(ordinals.first) + ordinals.differences.len();
            vint::put_unsigned(&mut head, len as u64);
            vint::put_unsigned(&mut head, ordinals.first);
            run.write(&mut self.spill, &head)?;
            run.write(&mut self.spill, &ordinals.differences)?;
        }
        run.flush(&mut self.spill)
    }

    fn put_samples(
        &mut self,
        pages: &mut PageWriter,
        out: &mut impl FnMut(&[u8]) -> Result<(), S::Error>,
    ) -> Result<Samples, S::Error> {
        let (count, widths) = self.widths.finish();
        let new = |address| Samples::new(address, count, widths).expect("differences of u64 have up to 64 bits");
        let samples = std::mem::take(&mut self.samples);
        let mut run = if self.has_samples_run {
            self.samples_run.write(&mut self.spill, &samples)?;
            self.samples_run.flush(&mut self.spill)?;
            RunReader::new(SAMPLES_RUN)
        } else {
            RunReader::of_bytes(SAMPLES_RUN, samples)
        };
        let unwritten = new(Address::NONE);
        let mut first = None;
        let (mut group, mut bytes) = (Vec::new(), Vec::new());
        let mut last = [0_u64; 2];
        for number in 0..count {
            for position in &mut last {
                let (difference, _) = run.vint(&mut self.spill)?;
                *position = position.saturating_add(difference);
            }
            group.push((last[0], last[1]));
            if group.len() as u64 == GROUP || number + 1 == count {
                bytes.clear();
                unwritten.put(&group, &mut bytes);
                group.clear();
                let address = pages.put(&bytes, out)?;
                first.get_or_insert(address);
            }
        }
        Ok(first.map_or(unwritten, new))
    }
}

fn sort(
    terms: &mut HashMap<Box<[u8]>, Ordinals, foldhash::fast::FixedState>,
) -> impl Iterator<Item = (Box<[u8]>, Ordinals)> {
    let mut sorted: Vec<_> = std::mem::take(terms).into_iter().collect();
    sorted.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    sorted.into_iter()
}

/// Where the terms go, in order.
struct Output<'o, O> {
    pages: &'o mut PageWriter,
    lists: ListWriter,
    dictionary: DictionaryWriter,
    out: &'o mut O,
}

impl<E, O: FnMut(&[u8]) -> Result<(), E>> Output<'_, O> {
    fn put_all(&mut self, ordinals: &Ordinals) -> Result<(), E> {
        let mut ordinal = ordinals.first;
        self.lists.push(ordinal, self.pages, self.out)?;
        let mut rest = ordinals.differences.as_slice();
        while let Some((difference, len)) = vint::get_unsigned(rest) {
            rest = &rest[len..];
            ordinal += difference;
            self.lists.push(ordinal, self.pages, self.out)?;
        }
        Ok(())
    }

    fn end_term(&mut self, term: &[u8]) -> Result<(), E> {
        let list = self.lists.finish(self.pages, self.out)?;
        self.dictionary.add(term, &list, self.pages, self.out)
    }

    /// Merges runs 1 to `runs`: the least term comes next, and of equal terms that of the earliest run.
    fn merge<S: Spill<Error = E>>(&mut self, runs: usize, spill: &mut S) -> Result<(), E> {
        let mut readers: Vec<_> = (1..=runs).map(RunReader::new).collect();
        let mut heap = BinaryHeap::new();
        for (number, reader) in readers.iter_mut().enumerate() {
            if let Some(term) = read_term(reader, spill, Vec::new())? {
                heap.push(Reverse((term, number)));
            }
        }
        let mut current: Option<Vec<u8>> = None;
        while let Some(Reverse((term, number))) = heap.pop() {
            let reader = &mut readers[number];
            let spare = match current.take() {
                Some(same) if same == term => same,
                Some(other) => {
                    self.end_term(&other)?;
                    other
                }
                None => Vec::new(),
            };
            self.put_run(reader, spill)?;
            if let Some(next) = read_term(reader, spill, spare)? {
                if next <= term {
                    return Err(reader.damaged(spill));
                }
                heap.push(Reverse((next, number)));
            }
            current = Some(term);
        }
        match current {
            Some(term) => self.end_term(&term),
            None => Ok(()),
        }
    }

    /// Appends the ordinals of a term of a run.
    fn put_run<S: Spill<Error = E>>(&mut self, reader: &mut RunReader, spill: &mut S) -> Result<(), E> {
        let (mut rest, _) = reader.vint(spill)?;
        let mut ordinal = 0_u64;
        while rest > 0 {
            let (difference, len) = reader.vint(spill)?;
            let next = ordinal.checked_add(difference).zip(rest.checked_sub(len as u64));
            (ordinal, rest) = next.ok_or_else(|| reader.damaged(spill))?;
            if self.lists.last() > Some(ordinal) {
                return Err(reader.damaged(spill));
            }
            self.lists.push(ordinal, self.pages, self.out)?;
        }
        Ok(())
    }
}

/// The next term of a run, in the memory of `term`.
fn read_term<S: Spill>(reader: &mut RunReader, spill: &mut S, mut term: Vec<u8>) -> Result<Option<Vec<u8>>, S::Error> {
    if !reader.has_more(spill)? {
        return Ok(None);
    }
    let (len, _) = reader.vint(spill)?;
    match usize::try_from(len) {
        Ok(len) if len <= TERM_MAX => reader.bytes(spill, len, &mut term)?,
        _ => return Err(reader.damaged(spill)),
    }
    Ok(Some(term))
}
