//! Open files of indexes.

use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use postings::{File, PAGE, Pages, check_page};
use schema::{IndexId, Table};

use crate::data::chunks::{Chunks, Cut};
use crate::directory::component::Descriptor;
use crate::error::Error;
use crate::io::{self, InputFile};
use crate::read::cache::ChunkCache;

/// The end of the name of an index's file.
pub(crate) fn index_suffix(id: IndexId) -> String {
    format!("CetoIndex_{}.db", id.0)
}

/// Whether a file with this end of its name was left by the making of an index's file.
pub(crate) fn is_unfinished_index(suffix: &str) -> bool {
    let made = suffix
        .strip_prefix("CetoIndex_")
        .and_then(|rest| rest.split_once(".db."));
    made.is_some_and(|(_, stage)| stage.starts_with("tmp") || stage.starts_with("run"))
}

/// The file of one index of an sstable.
pub(crate) struct IndexFile {
    pub(crate) file: File,
    pub(crate) chunks: Chunks,
}

impl IndexFile {
    /// Opens the file; None when there is none. Blocks.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub(crate) fn open(descriptor: &Descriptor, id: IndexId) -> Result<Option<Self>, Error> {
        let path = descriptor.index_path(id);
        if !io::exists(&path) {
            return Ok(None);
        }
        let input = InputFile::open(path.clone())?;
        let (page, len) = (PAGE as u64, input.len());
        let pages = len.div_ceil(page);
        let Some(last) = pages.checked_sub(1) else {
            return Err(Error::damaged(&path, 0, "an index file with a page"));
        };
        let mut raw = Vec::new();
        let last_len = usize::try_from(len - last * page).unwrap_or(PAGE);
        input.read_blocking(last * page, last_len, &mut raw)?;
        let Some(payload) = check_page(&raw) else {
            return Err(Error::damaged(&path, last * page, "a page with its checksum"));
        };
        let file = File::open(payload, pages)
            .map_err(|damage| Error::damaged(&path, last * page + damage.at as u64, damage.expected))?;
        if file.index_id() != id.0 {
            let expected = format!("the file of index {}, not of {}", id.0, file.index_id());
            return Err(Error::damaged(&path, last * page, expected));
        }
        let chunk_len = u32::try_from(PAGE).expect("a small page");
        let chunks = Chunks::new(input, Cut::Sealed { chunk_len })?;
        Ok(Some(Self { file, chunks }))
    }

    /// Its pages, by way of a cache.
    pub(crate) fn pages<'c>(&'c self, cache: &'c ChunkCache) -> CachedPages<'c> {
        CachedPages {
            chunks: &self.chunks,
            cache,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.chunks.path()
    }
}

/// The pages of an index's file, by way of a shard's cache.
pub(crate) struct CachedPages<'c> {
    chunks: &'c Chunks,
    cache: &'c ChunkCache,
}

impl Pages for CachedPages<'_> {
    type Error = Error;

    async fn page(&self, number: u64) -> Result<Rc<Vec<u8>>, Error> {
        self.chunks.chunk(number, Some(self.cache)).await
    }

    fn damaged(&self, page: u64, at: usize, expected: &str) -> Error {
        Error::damaged(self.chunks.path(), page * PAGE as u64 + at as u64, expected)
    }
}

/// The index files of an open sstable. They come and go while it is open.
#[derive(Default)]
pub(crate) struct IndexFiles(Mutex<Vec<(IndexId, Arc<IndexFile>)>>);

impl IndexFiles {
    /// Opens those of a table's indexes. A damaged one is left out: the sstable is not indexed then. Blocks.
    pub(crate) fn open(descriptor: &Descriptor, table: &Table) -> Self {
        let files = Self::default();
        for index in &table.indexes {
            files.add(descriptor, index.id);
        }
        files
    }

    /// Opens the file of an index that was made. Whether it is there and whole. Blocks.
    pub(crate) fn add(&self, descriptor: &Descriptor, id: IndexId) -> bool {
        match IndexFile::open(descriptor, id) {
            Ok(Some(file)) => {
                let mut files = self.lock();
                files.retain(|(other, _)| *other != id);
                files.push((id, Arc::new(file)));
                true
            }
            Ok(None) => false,
            Err(error) => {
                log::error!("{error}. The index is not used for this sstable until its file is built again");
                false
            }
        }
    }

    pub(crate) fn get(&self, id: IndexId) -> Option<Arc<IndexFile>> {
        let files = self.lock();
        files
            .iter()
            .find(|(other, _)| *other == id)
            .map(|(_, file)| file.clone())
    }

    /// Forgets a file, and says whether it was there.
    pub(crate) fn remove(&self, id: IndexId) -> bool {
        let mut files = self.lock();
        let before = files.len();
        files.retain(|(other, _)| *other != id);
        files.len() < before
    }

    /// Calls a function with each file.
    pub(crate) fn each(&self, mut f: impl FnMut(IndexId, &IndexFile)) {
        self.lock().iter().for_each(|(id, file)| f(*id, file));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(IndexId, Arc<IndexFile>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
