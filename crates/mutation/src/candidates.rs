//! Rows that an index lists for a query, in the order of reads. Each is read again before it is an answer.

use std::cmp::Ordering;

use schema::ClusteringOrder;
use types::Token;

use crate::Bound;

/// What an index lists: a row, or a whole partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The token of the key.
    pub token: Token,
    /// The serialised partition key.
    pub key: Vec<u8>,
    /// The clustering key; None for the whole partition.
    pub clustering: Option<Vec<u8>>,
}

impl Candidate {
    /// The order of two candidates: by token, key and clustering key, the whole partition first.
    #[must_use]
    pub fn compare(&self, order: &ClusteringOrder, other: &Self) -> Ordering {
        let places = (self.token, &self.key).cmp(&(other.token, &other.key));
        places.then_with(|| match (&self.clustering, &other.clustering) {
            (Some(a), Some(b)) => order.compare(a, b),
            (a, b) => a.is_some().cmp(&b.is_some()),
        })
    }
}

/// A position; the candidates after it are asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CandidatesFrom {
    /// Partitions before it come before the position.
    pub token: Token,
    /// Of that token, keys before it come before the position.
    pub key: Vec<u8>,
    /// What of that partition comes before the position.
    pub passed: PassedPosition,
}

/// What of a partition was had already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PassedPosition {
    /// Nothing.
    Nothing,
    /// The rows before this bound, and the partition as a whole.
    To(Bound),
    /// Everything.
    All,
}

impl PassedPosition {
    const fn rank(&self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::To(_) => 1,
            Self::All => 2,
        }
    }
}

impl CandidatesFrom {
    /// After a candidate.
    #[must_use]
    pub fn behind(candidate: &Candidate) -> Self {
        Self {
            token: candidate.token,
            key: candidate.key.clone(),
            passed: match &candidate.clustering {
                None => PassedPosition::All,
                Some(clustering) => PassedPosition::To(Bound::after(clustering)),
            },
        }
    }

    /// Just before a candidate.
    #[must_use]
    pub fn at(candidate: &Candidate) -> Self {
        Self {
            token: candidate.token,
            key: candidate.key.clone(),
            passed: match &candidate.clustering {
                None => PassedPosition::Nothing,
                Some(clustering) => PassedPosition::To(Bound::before(clustering)),
            },
        }
    }

    /// Before all partitions of a token and those after it.
    #[must_use]
    pub const fn token(token: Token) -> Self {
        Self {
            token,
            key: Vec::new(),
            passed: PassedPosition::Nothing,
        }
    }

    /// The order of two places.
    #[must_use]
    pub fn compare(&self, order: &ClusteringOrder, other: &Self) -> Ordering {
        let places = (self.token, &self.key).cmp(&(other.token, &other.key));
        places.then_with(|| match (&self.passed, &other.passed) {
            (PassedPosition::To(a), PassedPosition::To(b)) => a.compare(order, b),
            (a, b) => a.rank().cmp(&b.rank()),
        })
    }

    /// Whether a candidate comes after it.
    #[must_use]
    pub fn is_before(&self, order: &ClusteringOrder, candidate: &Candidate) -> bool {
        match (candidate.token, &candidate.key).cmp(&(self.token, &self.key)) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => match (&self.passed, &candidate.clustering) {
                (PassedPosition::Nothing, _) => true,
                (PassedPosition::To(bound), Some(name)) => bound.compare_key(order, name).is_lt(),
                (PassedPosition::To(_) | PassedPosition::All, _) => false,
            },
        }
    }
}

/// Candidates in order, the first ones of all that are offered.
#[derive(Debug)]
pub struct FirstCandidates<'o> {
    order: &'o ClusteringOrder,
    max: usize,
    kept: Vec<Candidate>,
    /// The first `max` are sorted, and others were left out.
    is_cut: bool,
}

impl<'o> FirstCandidates<'o> {
    /// Keeps at most `max`.
    #[must_use]
    pub const fn new(order: &'o ClusteringOrder, max: usize) -> Self {
        Self {
            order,
            max,
            kept: Vec::new(),
            is_cut: false,
        }
    }

    /// How many are kept.
    #[must_use]
    pub const fn max(&self) -> usize {
        self.max
    }

    /// The order of the rows of a partition.
    #[must_use]
    pub const fn order(&self) -> &'o ClusteringOrder {
        self.order
    }

    /// Takes one.
    pub fn offer(&mut self, candidate: Candidate) {
        if self.is_cut
            && let Some(last) = self.kept.get(self.max - 1)
            && candidate.compare(self.order, last).is_ge()
        {
            return;
        }
        self.kept.push(candidate);
        if self.kept.len() >= self.max.saturating_mul(2) {
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.kept.sort_by(|a, b| a.compare(self.order, b));
        self.kept.dedup_by(|a, b| a.compare(self.order, b).is_eq());
        if self.kept.len() > self.max {
            self.is_cut = true;
            self.kept.truncate(self.max);
        }
    }

    /// The first ones in order, and whether others were left out.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Candidate>, bool) {
        self.settle();
        (self.kept, self.is_cut)
    }
}
