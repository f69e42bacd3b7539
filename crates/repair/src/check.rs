//! Checking a stretch: the buckets that differ are found, their units exchanged and merged, and each replica gets what
//! it lacks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mutation::cut::cut as cut_mutation;
use mutation::{Mutation, PartitionBlock};
use types::Token;

use crate::error::RepairError;
use crate::message::{self, Apply, Compare, Exchange, Given, Malformed, UnitHashes, decode_compared, decode_exchanged};
use crate::part::{Missing, Part, merge};
use crate::position::Position;
use crate::run::{Hashed, Mode, POSITIONS_BYTES_MAX, Run};
use crate::serve::EXCHANGE_BYTES_MAX;

/// Bytes of buckets, as they were read, that are exchanged as one stretch.
const JOINED_BYTES_MAX: usize = 256 << 10;
/// Most stretches of one request.
const STRETCHES_MAX: usize = 256;
/// Bytes of mutations in one request, about. A longer mutation is sent in cuts.
const APPLY_BYTES_MAX: usize = 1 << 20;

/// What this replica has of a stretch that is exchanged.
struct Own {
    stretch: UnitHashes,
    parts: Vec<Part>,
    /// The number of each hash.
    numbers: BTreeMap<u128, usize>,
}

/// What replicas have of one partition: this one, and the others.
#[derive(Default)]
struct Had {
    own: Option<Part>,
    others: Vec<Option<Part>>,
}

/// What is to be written to one replica.
#[derive(Default)]
struct Outbound {
    mutations: Vec<Vec<u8>>,
    units: u64,
}

impl Run {
    /// Makes a stretch equal on all replicas.
    pub(crate) async fn check(&self, hashed: Hashed) -> Result<(), RepairError> {
        let mut differs = vec![false; hashed.buckets.len()];
        let (mut asked, mut from) = (0, hashed.from.clone());
        // The participants are asked together, so each compares the same at about the same time.
        while asked < hashed.buckets.len() && !self.request.others.is_empty() {
            let buckets = &hashed.buckets[asked..];
            let contents = self
                .ask_all(message::COMPARE, &Compare::encode(self.id, &from, buckets))
                .await?;
            let mut compared = buckets.len();
            for (other, content) in self.request.others.iter().zip(contents) {
                let answer = decode_compared(&content).map_err(|malformed| other.malformed(malformed))?;
                if answer.is_empty() || answer.len() > buckets.len() {
                    return Err(other.malformed(Malformed("another number of buckets")));
                }
                compared = compared.min(answer.len());
                for (number, one) in answer.into_iter().enumerate() {
                    differs[asked + number] |= one;
                }
            }
            asked += compared;
            from = hashed.buckets[asked - 1].end.clone();
        }
        self.exchange_all(joined(&hashed, &differs)).await
    }

    /// Exchanges parts of a stretch until none is left.
    async fn exchange_all(&self, mut left: VecDeque<(Position, Position)>) -> Result<(), RepairError> {
        while !left.is_empty() {
            self.asking.stop.check()?;
            let own = self.gather(&mut left).await?;
            let exchange = Exchange {
                id: self.id,
                has_others: self.request.others.len() > 1,
                stretches: own.iter().map(|own| own.stretch.clone()).collect(),
            };
            let contents = self.ask_all(message::EXCHANGE, &exchange.encode()).await?;
            let mut given = Vec::with_capacity(contents.len());
            for (other, content) in self.request.others.iter().zip(&contents) {
                let answer = decode_exchanged(content).map_err(|malformed| other.malformed(malformed))?;
                if answer.is_empty() || answer.len() > own.len() {
                    return Err(other.malformed(Malformed("another number of stretches")));
                }
                given.push(VecDeque::from(answer));
            }
            drop(contents);
            let answered = given.iter().map(VecDeque::len).min().unwrap_or(0);
            let mut outbound: Vec<Outbound> = (0..=given.len()).map(|_| Outbound::default()).collect();
            let mut again = Vec::new();
            for (number, own) in own.into_iter().enumerate() {
                let to = own.stretch.to.clone();
                if number >= answered {
                    again.push((own.stretch.from.clone(), to));
                    continue;
                }
                let given: Vec<Given> = given.iter_mut().filter_map(VecDeque::pop_front).collect();
                let end = self.merge_stretch(own, given, &mut outbound).await?;
                if let Some(end) = end {
                    again.push((end, to));
                }
            }
            again.into_iter().rev().for_each(|one| left.push_front(one));
            self.write_all(outbound).await?;
        }
        Ok(())
    }

    /// What this replica has of the next stretches, as many as one request may have.
    async fn gather(&self, left: &mut VecDeque<(Position, Position)>) -> Result<Vec<Own>, RepairError> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while bytes < POSITIONS_BYTES_MAX
            && taken.len() < STRETCHES_MAX
            && let Some((from, to)) = left.pop_front()
        {
            bytes += from.len() + to.len();
            taken.push((from, to));
        }
        let stretches: Vec<_> = taken.iter().map(|(from, to)| (from, to)).collect();
        let gathered = self.side.gather(&stretches, EXCHANGE_BYTES_MAX).await?;
        for one in taken.drain(gathered.len()..).rev() {
            left.push_front(one);
        }
        let mut all = Vec::with_capacity(taken.len());
        for ((from, mut to), gathered) in taken.into_iter().zip(gathered) {
            if let Some(end) = gathered.end {
                left.push_front((end.clone(), std::mem::replace(&mut to, end)));
            }
            let hashes: BTreeSet<u128> = gathered.parts.iter().flat_map(Part::hashes).collect();
            let hashes: Vec<u128> = hashes.into_iter().collect();
            let numbers = hashes.iter().enumerate().map(|(number, hash)| (*hash, number));
            all.push(Own {
                numbers: numbers.collect(),
                stretch: UnitHashes { from, to, hashes },
                parts: gathered.parts,
            });
        }
        Ok(all)
    }

    /// Merges what all replicas have of a stretch, and notes what each lacks. Where it ends, when a participant did not
    /// get to its end.
    async fn merge_stretch(
        &self,
        own: Own,
        given: Vec<Given>,
        outbound: &mut [Outbound],
    ) -> Result<Option<Position>, RepairError> {
        let table = &self.side.table;
        let order = &table.clustering_order;
        for (one, other) in given.iter().zip(&self.request.others) {
            let is_inside = |end: &Position| {
                end.compare(&own.stretch.from, order).is_gt() && end.compare(&own.stretch.to, order).is_le()
            };
            if one.end.as_ref().is_some_and(|end| !is_inside(end)) {
                return Err(other.malformed(Malformed("a stretch ends outside of where it was asked for")));
            }
        }
        let ends = given.iter().filter_map(|given| given.end.clone());
        let end = ends.min_by(|a, b| a.compare(b, order));
        let mut partitions: BTreeMap<(Token, Vec<u8>), Had> = BTreeMap::new();
        let had = |parts: &mut BTreeMap<(Token, Vec<u8>), Had>, part: Part, other: Option<usize>| {
            let had = parts.entry((part.block.token, part.block.key().to_vec())).or_default();
            had.others.resize_with(given.len(), || None);
            match other {
                None => had.own = Some(part),
                Some(other) => had.others[other] = Some(part),
            }
        };
        for part in own.parts {
            had(&mut partitions, part, None);
        }
        for (number, one) in given.iter().enumerate() {
            for bytes in &one.mutations {
                let other = &self.request.others[number];
                let checked = self.side.token_of_peers(bytes);
                let token = checked.map_err(|malformed| other.malformed(malformed))?;
                let mutation = Mutation::new(bytes).expect("it was checked just now");
                let block = PartitionBlock::of_mutation(&table.layout, order, token, &mutation);
                let begins = !is_inside(&own.stretch.from, &block);
                had(
                    &mut partitions,
                    Part::new(table, self.side.counting, &block, begins),
                    Some(number),
                );
                runtime::give_way().await;
            }
        }
        for ((token, key), mut had) in partitions {
            if let Some(end) = &end
                && !clip(&mut had, (token, &key), end, order)
            {
                continue;
            }
            self.merge_partition(&had, (&own.numbers, &given), outbound);
            runtime::give_way().await;
        }
        Ok(end)
    }

    /// Notes what each replica lacks of a partition.
    fn merge_partition(
        &self,
        had: &Had,
        (numbers, given): (&BTreeMap<u128, usize>, &[Given]),
        outbound: &mut [Outbound],
    ) {
        let table = &self.side.table;
        let parts: Vec<&Part> = had.own.iter().chain(had.others.iter().flatten()).collect();
        let Some(merged) = merge(table, self.side.counting, &parts) else {
            return;
        };
        let bytes_max = self.side.shard.log.mutation_bytes_max().min(APPLY_BYTES_MAX);
        let mut note = |replica: usize, missing: Option<Missing>| {
            let Some(Missing { mutation, units }) = missing else {
                return;
            };
            outbound[replica].units += units;
            match Mutation::new(&mutation) {
                Some(whole) if mutation.len() > bytes_max => {
                    let cuts = cut_mutation(&whole, &table.layout, bytes_max / 2);
                    outbound[replica].mutations.extend(cuts);
                }
                _ => outbound[replica].mutations.push(mutation),
            }
        };
        let own: Vec<&PartitionBlock> = had.own.iter().map(|part| &part.block).collect();
        note(0, merged.missing(table, &own));
        for (number, (part, given)) in had.others.iter().zip(given).enumerate() {
            let has = |hash: u128| numbers.get(&hash).is_some_and(|number| given.has(*number));
            let same = had.own.as_ref().map(|own| own.pick(&has, false));
            let have: Vec<&PartitionBlock> = same.iter().chain(part.iter().map(|part| &part.block)).collect();
            note(number + 1, merged.missing(table, &have));
        }
    }

    /// Writes to each replica what it lacked, and counts it.
    async fn write_all(&self, outbound: Vec<Outbound>) -> Result<(), RepairError> {
        let is_marking = self.side.leaves_out_known;
        // A repair that marks counts what replicas did not have in marked sstables either: they say so.
        for (replica, outbound) in outbound.iter().enumerate().filter(|_| !is_marking) {
            self.count_differing(replica, outbound.units);
        }
        let is_preview = self.request.mode == Mode::Preview;
        let mut outbound = outbound.into_iter();
        let own = outbound.next().unwrap_or_default();
        if !is_preview {
            let own: Vec<&[u8]> = own.mutations.iter().map(|mutation| &mutation[..]).collect();
            if !own.is_empty() {
                let units = self.side.write(&own).await?;
                if is_marking {
                    self.count_differing(0, units);
                }
            }
        }
        let mut calls = Vec::new();
        for ((number, other), outbound) in self.request.others.iter().enumerate().zip(outbound) {
            for body in bodies(self.id, &outbound.mutations) {
                self.count_bytes(body.len(), 0);
                if !is_preview {
                    let call = self.asking.call(other, message::APPLY, &body);
                    calls.push((number, body, call));
                }
            }
        }
        for (number, body, call) in calls {
            let other = &self.request.others[number];
            let answer = self.asking.answer(other, (message::APPLY, &body), call).await?;
            let content = other.content(&answer)?;
            if is_marking {
                let units = message::decode_applied(content).map_err(|malformed| other.malformed(malformed))?;
                self.count_differing(number + 1, units);
            }
        }
        Ok(())
    }

    fn count_differing(&self, replica: usize, units: u64) {
        self.asking.repairs.count(|metrics| metrics.differing_rows += units);
        self.repaired.borrow_mut().differed[replica].rows += units;
    }
}

/// Requests with all of these mutations.
fn bodies(id: message::RepairId, mutations: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (mut bodies, mut begun, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut end = |mutations: &mut Vec<&[u8]>| {
        if !mutations.is_empty() {
            let mutations = std::mem::take(mutations);
            bodies.push(Apply { id, mutations }.encode());
        }
    };
    for mutation in mutations {
        if bytes + mutation.len() > APPLY_BYTES_MAX {
            end(&mut begun);
            bytes = 0;
        }
        bytes += mutation.len();
        begun.push(mutation);
    }
    end(&mut begun);
    bodies
}

/// Buckets that differ, neighbours joined.
fn joined(hashed: &Hashed, differs: &[bool]) -> VecDeque<(Position, Position)> {
    let (mut joined, mut from, mut bytes): (VecDeque<(Position, Position)>, _, _) = (VecDeque::new(), &hashed.from, 0);
    let mut was_different = false;
    for ((bucket, size), differs) in hashed.buckets.iter().zip(&hashed.bytes).zip(differs) {
        match joined.back_mut() {
            Some((_, to)) if *differs && was_different && bytes + size <= JOINED_BYTES_MAX => {
                *to = bucket.end.clone();
                bytes += size;
            }
            _ if *differs => {
                joined.push_back((from.clone(), bucket.end.clone()));
                bytes = *size;
            }
            _ => {}
        }
        was_different = *differs;
        from = &bucket.end;
    }
    joined
}

/// Whether a position is inside the partition of a block.
fn is_inside(position: &Position, block: &PartitionBlock) -> bool {
    match position {
        Position::Token(_) => false,
        Position::Inside { token, key, .. } => (*token, &key[..]) == (block.token, block.key()),
    }
}

/// Drops what a partition has after a position. Returns whether it has anything before it.
fn clip(had: &mut Had, partition: (Token, &[u8]), end: &Position, order: &schema::ClusteringOrder) -> bool {
    let (token, key, bound) = match end {
        Position::Token(token) => return partition.0 <= *token,
        Position::Inside { token, key, bound } => (*token, &key[..], bound),
    };
    match partition.cmp(&(token, key)) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Greater => false,
        std::cmp::Ordering::Equal => {
            let parts = had.own.iter_mut().chain(had.others.iter_mut().flatten());
            parts.for_each(|part| part.cut(order, bound));
            true
        }
    }
}
