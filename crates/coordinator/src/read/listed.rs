//! Reads of rows that indexes list, where replicas differ.
//!
//! Each replica answers with the rows that its indexes list and that match there. A replica that lacks the newest write
//! of a row may leave the row out, or have a row that matches no more; so what it leaves out says nothing, and what the
//! others send is not merged with it. Instead the rows that any of them names are read by their keys at the level, as
//! any read of rows is, and the consumer checks them again.
//!
//! A row that matches in what the level has seen is named by a replica: the one that has the value which is newest.
//! That holds for one look-up. A row may match two look-ups by values that no single replica has both of, so where
//! several replicas answer, one look-up names the rows, and the others are left to the consumer.

use std::collections::VecDeque;
use std::sync::Arc;

use mutation::terms::IndexLookup;
use mutation::{Bound, ClusteringSlice, PartitionBlock};
use runtime::Instant;
use topology::{Acks, Counts, Replica};
use types::Token;

use super::ReplicatedRead;
use crate::message::{Answer, Extent, Listing, ReadCommand, ReadPosition};
use crate::read::fan::Fan;
use crate::{CoordinatorError, TargetError};

/// Which rows a read of tokens wants.
pub(super) struct Listed {
    /// What indexes are asked for. The first one names rows where several replicas answer.
    lookups: Arc<[IndexLookup]>,
    first: Arc<[IndexLookup]>,
    /// Rows by their keys that are read before anything else, and how far they go in their partition.
    named: VecDeque<(Extent, Option<Bound>)>,
    /// The read of some of them.
    current: Option<Verification>,
}

struct Verification {
    read: Box<ReplicatedRead>,
    key: (Token, Vec<u8>),
    /// How far the rows go in their partition, if there may be more after them.
    end: Option<Bound>,
    /// A block was returned that did not end the partition.
    is_open: bool,
}

/// The rows of one partition that replicas name.
struct Named {
    key: (Token, Vec<u8>),
    rows: Vec<Box<[u8]>>,
    /// It was named without rows.
    is_whole: bool,
}

impl ReplicatedRead {
    /// This read, of the rows that match the look-ups, which are for a read of tokens.
    #[must_use]
    pub fn listed_by(self, lookups: Vec<IndexLookup>) -> Self {
        let first = lookups.iter().take(1).cloned().collect();
        let listed = (!lookups.is_empty()).then(|| Listed {
            lookups: lookups.into(),
            first,
            named: VecDeque::new(),
            current: None,
        });
        Self { listed, ..self }
    }

    /// What replicas are asked to list.
    pub(super) fn listing(&self) -> Option<Listing> {
        let listed = self.listed.as_ref()?;
        let is_alone = self.requirement.block_for() <= 1;
        let lookups = if is_alone { &listed.lookups } else { &listed.first };
        Some(Listing {
            lookups: lookups.clone(),
            names_only: false,
        })
    }

    /// Replicas differ: from here on the rows that any of them names are read by their keys.
    pub(super) async fn verify(
        &mut self,
        (from, answer): (Replica, Answer),
        digests: Vec<(Replica, Answer)>,
        extent: &Extent,
        deadline: Instant,
    ) -> Result<(), CoordinatorError> {
        self.reads.context.count(|m| m.digest_mismatches += 1);
        let order = self.table.clustering_order.clone();
        let ends = digests.iter().map(|(_, other)| other).chain([&answer]);
        let nearest = ends
            .filter_map(|a| a.end.as_ref())
            .min_by(|a, b| a.compare(b, &order, false));
        let nearest = nearest.cloned();
        let mut acks = Acks::new(self.requirement.clone(), Counts::default());
        acks.ack(from.node, self.view.locality.datacenter(from.node));
        let asked: Vec<Replica> = digests.iter().map(|(replica, _)| *replica).collect();
        let mut answers = self
            .names((from, &asked), extent, nearest.as_ref(), (acks, deadline))
            .await?;
        answers.push(answer);
        // One that has much that is dead may have paused before the others.
        let ends = answers.iter().filter_map(|answer| answer.end.as_ref());
        let nearest = ends.min_by(|a, b| a.compare(b, &order, false)).cloned();
        let blocks = answers.into_iter().flat_map(|answer| answer.blocks);
        let within = |block| match &nearest {
            Some(nearest) => nearest.clip(block, &order, false).0,
            None => Some(block),
        };
        let named = self.named(&blocks.filter_map(within).collect::<Vec<_>>());
        let Some(listed) = &mut self.listed else { return Ok(()) };
        for Named { key, rows, is_whole } in named {
            let continues = nearest.as_ref().filter(|end| (end.token, &end.key) == (key.0, &key.1));
            let end = continues.and_then(|end| end.inside.clone());
            let slices = if is_whole {
                vec![ClusteringSlice {
                    start: Bound::bottom(),
                    end: end.clone().unwrap_or_else(Bound::top),
                }]
            } else {
                rows.iter().map(|row| ClusteringSlice::exactly(row)).collect()
            };
            let extent = Extent::Partition {
                key: key.1,
                slices,
                reversed: false,
            };
            listed.named.push_back((extent, end));
        }
        self.left = nearest.and_then(|end| extent.clone().behind_place(&end, &order));
        Ok(())
    }

    /// The names of what each of these replicas lists, up to a place. Another one takes the place of one that fails.
    async fn names(
        &mut self,
        (first, asked): (Replica, &[Replica]),
        extent: &Extent,
        until: Option<&ReadPosition>,
        (mut acks, deadline): (Acks, Instant),
    ) -> Result<Vec<Answer>, CoordinatorError> {
        let command = || ReadCommand {
            until: until.cloned(),
            withholds: false,
            listing: self.listing().map(|listing| Listing {
                names_only: true,
                ..listing
            }),
            ..self.command(extent, false)
        };
        let mut fan = Fan::new();
        let mut outstanding = asked.to_vec();
        for replica in asked {
            self.send(&mut fan, *replica, command());
        }
        let live = self.targets.live().iter();
        let mut spare: Vec<Replica> = live
            .filter(|replica| **replica != first && !asked.contains(replica))
            .copied()
            .collect();
        let mut answers = Vec::new();
        while !outstanding.is_empty() {
            let Some((replica, response)) = fan.next(deadline).await else {
                self.reads.context.count(|m| m.timeouts += 1);
                return Err(self.read_timeout(&acks, true, &outstanding));
            };
            outstanding.retain(|other| *other != replica);
            self.note_answer(replica, &response);
            match self.answer(response) {
                Ok(answer) => {
                    acks.ack(replica.node, self.view.locality.datacenter(replica.node));
                    answers.push(answer);
                }
                Err(error) => {
                    let stands_in = spare.iter().position(|spare| self.can_replace(*spare, replica));
                    let is_stale = matches!(error, TargetError::Stale(_));
                    let Some(at) = stands_in.filter(|_| !is_stale) else {
                        let failure = self.read_failure(&acks, true, &[(replica, error)], &outstanding);
                        self.is_stale |= is_stale;
                        return Err(failure);
                    };
                    let spare = spare.remove(at);
                    self.send(&mut fan, spare, command());
                    outstanding.push(spare);
                }
            }
        }
        Ok(answers)
    }

    /// The rows that blocks name, each once, in the order of reads.
    fn named(&self, blocks: &[PartitionBlock]) -> Vec<Named> {
        let order = &self.table.clustering_order;
        let mut sorted: Vec<&PartitionBlock> = blocks.iter().collect();
        sorted.sort_by_key(|block| (block.token, block.key()));
        let mut named: Vec<Named> = Vec::new();
        for block in sorted {
            let is_same = |last: &&mut Named| (last.key.0, &last.key.1[..]) == (block.token, block.key());
            let place = match named.last_mut().filter(is_same) {
                Some(last) => last,
                None => {
                    named.push(Named {
                        key: (block.token, block.key().to_vec()),
                        rows: Vec::new(),
                        is_whole: false,
                    });
                    named.last_mut().expect("it was pushed just now")
                }
            };
            place.is_whole |= block.has_no_rows() && block.static_row().is_some();
            place
                .rows
                .extend(block.rows().map(|(clustering, _)| Box::from(clustering)));
        }
        for Named { rows, .. } in &mut named {
            rows.sort_by(|a, b| order.compare(a, b));
            rows.dedup_by(|a, b| order.compare(a, b).is_eq());
        }
        named.retain(|named| named.is_whole || !named.rows.is_empty());
        named
    }

    /// The next block of rows that are read by their keys; None when there are none to read.
    pub(super) async fn next_verified(&mut self) -> Result<Option<PartitionBlock>, CoordinatorError> {
        loop {
            let Some(listed) = &mut self.listed else {
                return Ok(None);
            };
            if let Some(current) = &mut listed.current {
                // The future of a read has the future of another one in it.
                if let Some(mut block) = Box::pin(current.read.next_block()).await? {
                    current.is_open = block.covered.is_some();
                    if !current.is_open {
                        block.covered.clone_from(&current.end);
                    }
                    return Ok(Some(block));
                }
                let ended = listed
                    .current
                    .take()
                    .filter(|ended| ended.is_open && ended.end.is_none());
                if let Some(Verification { key: (token, key), .. }) = ended {
                    return Ok(Some(PartitionBlock::new(token, &key)));
                }
                continue;
            }
            let Some((extent, end)) = listed.named.pop_front() else {
                return Ok(None);
            };
            let key = match &extent {
                Extent::Partition { key, .. } => (types::token::token_of(key), key.clone()),
                Extent::Tokens { from, .. } => from.clone(),
            };
            let (reads, view) = (&self.reads, self.reads.context.view());
            let read = Self::new(reads, &view, &self.table, self.level, extent, self.now, self.stretch)?;
            let read = read
                .bypassing_cache(self.bypasses_cache)
                .with_row_memory(self.row_memory.clone())
                .until(self.deadline);
            if let Some(listed) = &mut self.listed {
                listed.current = Some(Verification {
                    read: Box::new(read),
                    key,
                    end,
                    is_open: false,
                });
            }
        }
    }

    /// Leaves out what is read by keys of the partition of the block returned last.
    pub(super) fn skip_verified(&mut self) {
        let Some(listed) = &mut self.listed else { return };
        if listed
            .current
            .as_ref()
            .is_some_and(|current| Some(&current.key) == self.last_key.as_ref())
        {
            listed.current = None;
        }
    }
}
