//! Reads the rows that indexes list for a query, with what surrounds them in their partitions.

use std::rc::Rc;
use std::sync::Arc;

use memory::RowMemory;
use mutation::candidates::{CandidatesFrom, PassedPosition};
use mutation::{Bound, ClusteringSlice, PartitionBlock};
use schema::Table;
use sstable::ChunkCache;
use types::Token;
use types::token::KeyHash;

use crate::read::indexed::{CandidateReader, Listing};
use crate::read::point::{RowName, row_of};
use crate::read::{BlockLimits, PartitionRead, PartitionReader, ReadError, ScanReader};
use crate::tablets::tablet::Version;

/// Rows of one partition that are read together at most.
const ROWS_TOGETHER: usize = 128;

/// The rows of candidates, partition by partition in the order of tokens.
pub(crate) struct IndexedScan {
    table: Arc<Table>,
    cache: Rc<ChunkCache>,
    candidates: CandidateReader,
    limits: BlockLimits,
    row_memory: Option<Arc<dyn RowMemory>>,
    /// The first that is not read.
    pending: Option<Listing>,
    /// A tablet that is scanned.
    scan: Option<ScanReader>,
    /// The one partition that is read, and the slices of it.
    within: Option<(Vec<u8>, Vec<ClusteringSlice>)>,
    /// The partition that was begun last.
    begun: Option<(Token, Vec<u8>)>,
    current: Option<Current>,
}

/// The rows that are being read.
struct Current {
    rows: Rows,
    key: (Token, Vec<u8>),
    /// Where they end in the partition, if more of it may come.
    end: Option<Bound>,
    /// Whether a block of it was given that did not end the partition.
    is_open: bool,
}

enum Rows {
    One(Box<PartitionRead>, Rc<Version>),
    Several(Box<PartitionReader>),
}

impl IndexedScan {
    pub(crate) fn new(
        table: Arc<Table>,
        cache: Rc<ChunkCache>,
        candidates: CandidateReader,
        limits: BlockLimits,
        row_memory: Option<Arc<dyn RowMemory>>,
    ) -> Self {
        Self {
            table,
            cache,
            candidates,
            limits,
            row_memory,
            pending: None,
            scan: None,
            within: None,
            begun: None,
            current: None,
        }
    }

    /// This read, of some slices of one partition alone.
    pub(crate) fn within(self, key: &[u8], slices: &[ClusteringSlice]) -> Self {
        let within = Some((key.to_vec(), slices.to_vec()));
        Self { within, ..self }
    }

    pub(crate) fn set_limits(&mut self, limits: BlockLimits) {
        self.limits = limits;
    }

    /// The next merged block; None at the end. Consecutive blocks of one partition have the same key, all but its last
    /// say in `covered` how far they go.
    pub(crate) async fn next_block(&mut self) -> Result<Option<PartitionBlock>, ReadError> {
        loop {
            if self.current.is_none()
                && let Some(scan) = &mut self.scan
            {
                if let Some(block) = scan.next_block().await? {
                    return Ok(Some(block));
                }
                self.scan = None;
            }
            let Some(current) = &mut self.current else {
                if !self.begin().await? {
                    return Ok(None);
                }
                continue;
            };
            let block = match &mut current.rows {
                Rows::Several(reader) => reader.next_block().await?,
                Rows::One(read, version) => {
                    let name = RowName {
                        hash: read.hash,
                        key: &read.key,
                        clustering: &read.slices[0].start.prefix,
                    };
                    let memory = self.row_memory.clone();
                    let block = version.read_row_within(&self.table, &self.cache, name, memory).await?;
                    self.current = None;
                    match block {
                        Some(mut block) => {
                            block.covered = None;
                            return Ok(Some(block));
                        }
                        None => continue,
                    }
                }
            };
            if let Some(mut block) = block {
                if block.covered.is_some() {
                    current.is_open = true;
                } else {
                    block.covered.clone_from(&current.end);
                    self.current = None;
                }
                return Ok(Some(block));
            }
            let ended = self.current.take().filter(|ended| ended.is_open && ended.end.is_none());
            if let Some(Current { key: (token, key), .. }) = ended {
                return Ok(Some(PartitionBlock::new(token, &key)));
            }
        }
    }

    /// Leaves the rest of the current partition unread.
    pub(crate) async fn skip_partition(&mut self) -> Result<(), ReadError> {
        let was_reading = self.current.take().is_some();
        if let Some(scan) = &mut self.scan
            && !was_reading
        {
            return scan.skip_partition().await;
        }
        let Some((token, key)) = self.begun.take() else {
            return Ok(());
        };
        while let Some(Listing::Candidate(next)) = self.peek().await? {
            if (next.token, &next.key) != (token, &key) {
                break;
            }
            self.pending = None;
        }
        Ok(())
    }

    /// Begins to read slices that end their partition.
    fn several(&self, token: Token, version: Rc<Version>, read: PartitionRead) -> Current {
        let key = (token, read.key.clone());
        let mut reader = PartitionReader::new(self.table.clone(), version, self.cache.clone(), read);
        reader.set_row_memory(self.row_memory.clone());
        Current {
            rows: Rows::Several(Box::new(reader)),
            key,
            end: None,
            is_open: false,
        }
    }

    /// Begins to scan a tablet: the rest of the partition in which the read begins first.
    fn begin_scan(&mut self) {
        let Some(Listing::Scan(version, range, from)) = self.pending.take() else {
            return;
        };
        self.begun = None;
        if let Some((key, slices)) = self.within.clone() {
            let read = PartitionRead {
                hash: KeyHash::of(&key),
                key: key.clone(),
                slices,
                reversed: false,
                limits: self.limits,
            };
            self.current = Some(self.several(from.token, version, read));
            return;
        }
        let CandidatesFrom { token, mut key, passed } = from;
        if let PassedPosition::To(bound) = passed {
            let read = PartitionRead {
                hash: KeyHash::of(&key),
                key: key.clone(),
                slices: vec![ClusteringSlice {
                    start: bound,
                    end: Bound::top(),
                }],
                reversed: false,
                limits: self.limits,
            };
            self.current = Some(self.several(token, version.clone(), read));
            key.push(0);
        } else if passed == PassedPosition::All {
            key.push(0);
        }
        let (table, cache, limits) = (self.table.clone(), self.cache.clone(), self.limits);
        let scan = ScanReader::new(table, version, cache, range, (token, key), limits);
        self.scan = Some(scan.with_row_memory(self.row_memory.clone()));
    }

    async fn peek(&mut self) -> Result<Option<&Listing>, ReadError> {
        while self.pending.is_none() {
            let Some(next) = self.candidates.next().await? else {
                break;
            };
            if self.is_within(&next) {
                self.pending = Some(next);
            }
        }
        Ok(self.pending.as_ref())
    }

    /// Whether it is of what is read.
    fn is_within(&self, listing: &Listing) -> bool {
        let (Some((key, slices)), Listing::Candidate(candidate)) = (&self.within, listing) else {
            return true;
        };
        let order = &self.table.clustering_order;
        let is_in = |clustering: &Vec<u8>| {
            let is_of = |slice: &ClusteringSlice| {
                slice.start.compare_key(order, clustering).is_lt() && slice.end.compare_key(order, clustering).is_gt()
            };
            slices.iter().any(is_of)
        };
        candidate.key == *key && candidate.clustering.as_ref().is_none_or(is_in)
    }

    /// Begins to read the next candidates that are of one partition; false at the end.
    async fn begin(&mut self) -> Result<bool, ReadError> {
        let first = match self.peek().await? {
            None => return Ok(false),
            Some(Listing::Scan(..)) => {
                self.begin_scan();
                return Ok(true);
            }
            Some(Listing::Candidate(first)) => first,
        };
        let key = (first.token, first.key.clone());
        let version = self
            .candidates
            .version()
            .expect("the tablet of a candidate is being read");
        let mut slices = Vec::new();
        let mut end = None;
        while let Some(next) = self.peek().await? {
            let next = match next {
                Listing::Candidate(next) if (next.token, &next.key) == (key.0, &key.1) => next,
                Listing::Candidate(_) | Listing::Scan(..) => {
                    end = None;
                    break;
                }
            };
            let Some(clustering) = &next.clustering else {
                slices = vec![ClusteringSlice::all()];
                self.pending = None;
                continue;
            };
            if slices.len() == ROWS_TOGETHER {
                break;
            }
            end = Some(Bound::after(clustering));
            slices.push(ClusteringSlice {
                start: Bound::before(clustering),
                end: Bound::after(clustering),
            });
            self.pending = None;
        }
        if self.pending.is_none() {
            end = None;
        }
        let is_row = matches!(&slices[..], [slice] if row_of(&self.table, slice).is_some());
        let read = PartitionRead {
            hash: KeyHash::of(&key.1),
            key: key.1.clone(),
            slices,
            reversed: false,
            limits: self.limits,
        };
        let rows = if is_row {
            Rows::One(Box::new(read), version)
        } else {
            let mut reader = PartitionReader::new(self.table.clone(), version, self.cache.clone(), read);
            reader.set_row_memory(self.row_memory.clone());
            Rows::Several(Box::new(reader))
        };
        self.begun = Some(key.clone());
        self.current = Some(Current {
            rows,
            key,
            end,
            is_open: false,
        });
        Ok(true)
    }
}
