//! Finds the keys of rows by their ordinals.

use std::rc::Rc;
use std::sync::Arc;

use mutation::candidates::Candidate;
use postings::SAMPLE;
use types::token::token_of;

use super::file::IndexFile;
use crate::data::decode::{ItemKind, Stop, item_head, partition_head};
use crate::error::Error;
use crate::read::cache::ChunkCache;
use crate::read::cursor::CachedWindow;
use crate::read::reader::Reader;

/// Walks over the rows of Data.db from samples on, without reading what is in them.
pub(super) struct Walk {
    reader: Arc<Reader>,
    cache: Rc<ChunkCache>,
    window: CachedWindow,
    /// The partition that the window is in; None: at its head, or nowhere.
    key: Option<Vec<u8>>,
    /// Where it begins.
    partition: u64,
    /// The ordinal of the next row in the window; None: nowhere.
    next: Option<u64>,
    clustering: Vec<u8>,
}

impl Walk {
    pub(super) fn new(reader: &Arc<Reader>, cache: &Rc<ChunkCache>) -> Self {
        Self {
            window: CachedWindow::new(0, &reader.data),
            reader: reader.clone(),
            cache: cache.clone(),
            key: None,
            partition: u64::MAX,
            next: None,
            clustering: Vec::new(),
        }
    }

    /// The row of an ordinal, or its partition.
    pub(super) async fn find(
        &mut self,
        file: &IndexFile,
        ordinal: u64,
        is_of_partition: bool,
    ) -> Result<Candidate, Error> {
        let is_near = self
            .next
            .is_some_and(|next| next <= ordinal && ordinal - next < 2 * SAMPLE);
        if !is_near {
            self.seek(file, ordinal / SAMPLE).await?;
        }
        loop {
            if self.key.is_none() {
                self.partition = self.window.position();
                self.read_head().await?;
            }
            let item = match item_head(&self.reader.shape.format, self.window.rest(), &mut self.clustering) {
                Ok(item) => item,
                Err(Stop::More(more)) => {
                    self.fetch(more).await?;
                    continue;
                }
                Err(Stop::Damage(damage)) => {
                    return Err(damage.in_file(self.reader.data.path(), self.window.position()));
                }
            };
            self.window.consume(item.body.end.max(1));
            match item.kind {
                ItemKind::End => self.key = None,
                ItemKind::Marker { .. } => {}
                ItemKind::StaticRow | ItemKind::Row => {
                    let here = self.next.unwrap_or(0);
                    self.next = Some(here + 1);
                    if here == ordinal {
                        let key = self.key.clone().unwrap_or_default();
                        let is_row = item.kind == ItemKind::Row && !is_of_partition;
                        return Ok(Candidate {
                            token: token_of(&key),
                            key,
                            clustering: is_row.then(|| self.clustering.clone()),
                        });
                    }
                }
            }
        }
    }

    /// Goes to the row of a sample.
    async fn seek(&mut self, file: &IndexFile, sample: u64) -> Result<(), Error> {
        let (partition, row) = file.file.sample(&file.pages(&self.cache), sample).await?;
        let end = self.reader.data.len();
        if partition >= end || row >= end || row < partition {
            let expected = format!("samples inside of the {end} bytes of the data");
            return Err(Error::damaged(file.path(), 0, expected));
        }
        if self.partition != partition || self.key.is_none() {
            self.window.seek(partition, &self.reader.data);
            self.partition = partition;
            self.read_head().await?;
        }
        self.window.seek(row, &self.reader.data);
        self.next = Some(sample * SAMPLE);
        Ok(())
    }

    async fn read_head(&mut self) -> Result<(), Error> {
        loop {
            match partition_head(self.window.rest()) {
                Ok(head) => {
                    self.key = Some(self.window.rest()[head.key.clone()].to_vec());
                    self.window.consume(head.len);
                    return Ok(());
                }
                Err(Stop::More(more)) => self.fetch(more).await?,
                Err(Stop::Damage(damage)) => {
                    return Err(damage.in_file(self.reader.data.path(), self.window.position()));
                }
            }
        }
    }

    async fn fetch(&mut self, more: usize) -> Result<(), Error> {
        self.window.fetch(more, &self.reader.data, &self.cache).await
    }
}
