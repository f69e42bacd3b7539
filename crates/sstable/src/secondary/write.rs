//! Writes the index files of an sstable while its rows are written.

use std::path::PathBuf;

use mutation::RowView;
use mutation::terms::{IndexTerms, TermPlace};
use postings::{Builder, SAMPLE, Spill};
use schema::{RowLayout, Table};
use stdx::planted::{self, Bug};

use crate::directory::component::Descriptor;
use crate::error::Error;
use crate::io::{self, InputFile, OutputFile};

/// Bytes of terms and ordinals that one index gathers in memory; what is more waits in files.
const MEMORY_MAX: usize = 32 << 20;

/// Files in which a builder puts aside what it has no memory for.
pub(crate) struct Runs {
    /// The file of the index; those of runs are called after it.
    path: PathBuf,
    writers: Vec<Option<OutputFile>>,
    readers: Vec<Option<InputFile>>,
}

impl Runs {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            writers: Vec::new(),
            readers: Vec::new(),
        }
    }

    fn path_of(&self, run: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".run{run}"));
        name.into()
    }
}

impl Spill for Runs {
    type Error = Error;

    fn write(&mut self, run: usize, bytes: &[u8]) -> Result<(), Error> {
        while self.writers.len() <= run {
            self.writers.push(None);
        }
        if self.writers[run].is_none() {
            self.writers[run] = Some(OutputFile::create(self.path_of(run))?);
        }
        if let Some(file) = &mut self.writers[run] {
            file.buffer().extend_from_slice(bytes);
            file.spill()?;
        }
        Ok(())
    }

    fn read(&mut self, run: usize, offset: u64, max: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        if let Some(file) = self.writers.get_mut(run).and_then(Option::take) {
            file.close()?;
        }
        while self.readers.len() <= run {
            self.readers.push(None);
        }
        if self.readers[run].is_none() {
            let path = self.path_of(run);
            if !io::exists(&path) {
                return Ok(());
            }
            self.readers[run] = Some(InputFile::open(path)?);
        }
        let Some(file) = &self.readers[run] else { return Ok(()) };
        let left = usize::try_from(file.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        file.read_blocking(offset, left.min(max), out)
    }

    fn damaged(&self, run: usize, offset: u64) -> Error {
        Error::damaged(&self.path_of(run), offset, "what was written there")
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        for run in 0..self.writers.len().max(self.readers.len()) {
            if let Err(error) = io::remove_if_exists(&self.path_of(run)) {
                log::warn!("leftover of an index that was written: {error}");
            }
        }
    }
}

/// One index.
struct IndexWriter {
    terms: IndexTerms,
    builder: Builder<Runs>,
    path: PathBuf,
}

/// The indexes of a table, of an sstable that is being written.
pub(crate) struct IndexWriters {
    writers: Vec<IndexWriter>,
    /// The next row's.
    ordinal: u64,
    /// Where its partition begins in the data.
    partition: u64,
    /// Its partition is listed by its key.
    is_key_listed: bool,
}

impl IndexWriters {
    /// Of all of a table's indexes; `path` says where an index's file is written.
    pub(crate) fn new(table: &Table, path: impl Fn(&IndexTerms) -> PathBuf) -> Self {
        Self::of(IndexTerms::of_table(table), path)
    }

    pub(crate) fn of(indexes: Vec<IndexTerms>, path: impl Fn(&IndexTerms) -> PathBuf) -> Self {
        let writer = |terms: IndexTerms| {
            let path = path(&terms);
            IndexWriter {
                builder: Builder::new(terms.id.0, MEMORY_MAX, Runs::new(path.clone())),
                terms,
                path,
            }
        };
        Self {
            writers: indexes.into_iter().map(writer).collect(),
            ordinal: 0,
            partition: 0,
            is_key_listed: false,
        }
    }

    /// Of the indexes that the table of an sstable has.
    pub(crate) fn of_sstable(table: &Table, descriptor: &Descriptor) -> Self {
        Self::new(table, |terms| descriptor.index_path(terms.id))
    }

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.writers.is_empty()
    }

    /// Begins a partition at a place in the data.
    pub(crate) fn begin_partition(&mut self, at: u64) {
        self.partition = at;
        self.is_key_listed = false;
    }

    /// Lists a partition by its static row, which begins at `at`.
    pub(crate) fn static_row(
        &mut self,
        layout: &RowLayout,
        key: &[u8],
        row: RowView<'_>,
        at: u64,
    ) -> Result<(), Error> {
        let ordinal = self.count(key, at)?;
        for writer in &mut self.writers {
            if writer.terms.place == TermPlace::Static {
                let (builder, mut result) = (&mut writer.builder, Ok(()));
                writer
                    .terms
                    .of_row(layout, row, &mut |term| note(&mut result, builder.add(term, ordinal)));
                result?;
            }
        }
        Ok(())
    }

    /// Lists a row, which begins at `at`.
    pub(crate) fn row(
        &mut self,
        layout: &RowLayout,
        key: &[u8],
        (clustering, row): (&[u8], RowView<'_>),
        at: u64,
    ) -> Result<(), Error> {
        let ordinal = self.count(key, at)?;
        if planted::is_planted(Bug::LostPosting) && ordinal % 7 == 3 {
            return Ok(());
        }
        for writer in &mut self.writers {
            let (builder, mut result) = (&mut writer.builder, Ok(()));
            let mut add = |term: &[u8]| note(&mut result, builder.add(term, ordinal));
            match writer.terms.place {
                TermPlace::Regular => writer.terms.of_row(layout, row, &mut add),
                TermPlace::Clustering(_) => writer.terms.of_clustering(clustering, &mut add),
                TermPlace::PartitionKey(_) | TermPlace::Static => {}
            }
            result?;
        }
        Ok(())
    }

    /// Counts a row, and lists its partition by the key if it is the first. The row's ordinal.
    fn count(&mut self, key: &[u8], at: u64) -> Result<u64, Error> {
        let ordinal = self.ordinal;
        self.ordinal += 1;
        let is_sample = ordinal.is_multiple_of(SAMPLE);
        let is_first = !std::mem::replace(&mut self.is_key_listed, true);
        if !is_sample && !is_first {
            return Ok(ordinal);
        }
        for writer in &mut self.writers {
            if is_sample {
                writer.builder.sample(self.partition, at)?;
            }
            if is_first {
                let (builder, mut result) = (&mut writer.builder, Ok(()));
                writer
                    .terms
                    .of_key(key, &mut |term| note(&mut result, builder.add(term, ordinal)));
                result?;
            }
        }
        Ok(ordinal)
    }

    /// Writes the files and makes them durable. Their bytes.
    pub(crate) fn finish(self) -> Result<u64, Error> {
        let mut bytes = 0;
        for IndexWriter { builder, path, .. } in self.writers {
            let mut file = OutputFile::create(path)?;
            builder.finish(self.ordinal, &mut |page| {
                file.buffer().extend_from_slice(page);
                file.spill()
            })?;
            bytes += file.finish()?;
        }
        Ok(bytes)
    }
}

/// Keeps the first error.
fn note(result: &mut Result<(), Error>, other: Result<(), Error>) {
    if result.is_ok() {
        *result = other;
    }
}
