//! Values that are bound at execution, and what a term evaluates to.

use std::borrow::Cow;

use stdx::planted::{self, Bug};
use stdx::preempt;
use types::CqlType;

/// A value bound to a marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound<'a> {
    /// Serialised bytes.
    Value(&'a [u8]),
    /// Null.
    Null,
    /// Not given: leaves what is there as it is.
    Unset,
}

/// The bound values of an execution: one for each marker.
#[derive(Clone, Copy, Debug)]
pub enum BoundValues<'a> {
    /// As they are in a request.
    Lent(&'a [Bound<'a>]),
    /// Those that an execution owns: lending them costs nothing, however many there are.
    Owned(&'a [OwnedBound]),
}

impl<'a> BoundValues<'a> {
    /// None at all.
    pub const NONE: Self = Self::Lent(&[]);

    /// The value of a marker.
    #[inline]
    pub fn get(self, index: usize) -> Option<Bound<'a>> {
        match self {
            Self::Lent(values) => values.get(index).copied(),
            Self::Owned(values) => values.get(index).map(OwnedBound::borrow),
        }
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        matches!(self, Self::Lent([]) | Self::Owned([]))
    }

    /// How many there are.
    pub fn len(self) -> usize {
        match self {
            Self::Lent(values) => values.len(),
            Self::Owned(values) => values.len(),
        }
    }

    /// All of them.
    pub fn iter(self) -> impl ExactSizeIterator<Item = Bound<'a>> {
        (0..self.len()).map(move |index| self.get(index).expect("the index is below the length"))
    }
}

impl<'a> From<&'a [Bound<'a>]> for BoundValues<'a> {
    fn from(values: &'a [Bound<'a>]) -> Self {
        Self::Lent(values)
    }
}

/// What an execution brings: bound values and the moment.
#[derive(Clone, Copy, Debug)]
pub struct BindContext<'a> {
    /// One for each marker.
    pub values: BoundValues<'a>,
    /// Wall clock at the start of the statement, microseconds since the epoch.
    pub now_us: i64,
    /// The client's own moment for TTLs and expiry, seconds since the epoch. Write timestamps, functions and the
    /// seconds of deletions keep to the wall clock.
    pub now_in_seconds: Option<i32>,
    /// A random number of this execution: seeds `uuid()` and the clock sequence of `now()`.
    pub random: u64,
}

impl BindContext<'_> {
    /// The moment that decides what has expired, and from which TTLs count, seconds since the epoch.
    #[inline]
    pub fn expiry_now(&self) -> u32 {
        expiry_now(self.now_us, self.now_in_seconds)
    }

    /// The second of the wall clock at the start of the statement, since the epoch: the second of its deletions.
    #[inline]
    pub fn server_second(&self) -> u32 {
        if planted::is_planted(Bug::ClientDatesDeletions) {
            self.expiry_now()
        } else {
            expiry_now(self.now_us, None)
        }
    }
}

#[inline]
fn expiry_now(now_us: i64, now_in_seconds: Option<i32>) -> u32 {
    match now_in_seconds {
        Some(s) => u32::try_from(s).unwrap_or(0),
        None => u32::try_from(now_us / 1_000_000).unwrap_or(0),
    }
}

/// A bound value that its execution owns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnedBound {
    /// Serialised bytes.
    Value(Vec<u8>),
    /// Null.
    Null,
    /// Not given.
    Unset,
}

impl OwnedBound {
    /// Takes a value over.
    pub fn from(bound: Bound<'_>) -> Self {
        match bound {
            Bound::Value(v) => Self::Value(v.to_vec()),
            Bound::Null => Self::Null,
            Bound::Unset => Self::Unset,
        }
    }

    /// Lends it out.
    pub fn borrow(&self) -> Bound<'_> {
        match self {
            Self::Value(v) => Bound::Value(v),
            Self::Null => Bound::Null,
            Self::Unset => Bound::Unset,
        }
    }
}

/// The values and the moment of one execution, owned, so that they can go to another shard.
#[derive(Clone, Debug)]
pub struct Execution {
    /// One for each marker.
    pub values: Vec<OwnedBound>,
    /// Wall clock at the start of the statement, microseconds since the epoch.
    pub now_us: i64,
    /// The client's own moment for TTLs and expiry, seconds since the epoch.
    pub now_in_seconds: Option<i32>,
    /// Random bits.
    pub random: u64,
}

impl Execution {
    /// Runs `f` with the values. It can be suspended at preemption points (`stdx::preempt`): no `RefCell` that other
    /// tasks use may be borrowed.
    pub fn with<R>(&self, f: impl FnOnce(&BindContext<'_>) -> R) -> R {
        self.with_at(self.now_us, f)
    }

    /// Runs `f` with the values lent out and another moment as the start of the statement, microseconds since the
    /// epoch: a write that waited before it began is dated by when it began.
    pub fn with_at<R>(&self, now_us: i64, f: impl FnOnce(&BindContext<'_>) -> R) -> R {
        let context = BindContext {
            values: BoundValues::Owned(&self.values),
            now_us,
            now_in_seconds: self.now_in_seconds,
            random: self.random,
        };
        preempt::allowed(|| f(&context))
    }

    /// As [`Execution::with`], without preemption: for callers that have borrowed what other tasks use.
    pub fn with_unpreempted<R>(&self, f: impl FnOnce(&BindContext<'_>) -> R) -> R {
        preempt::offer(None, || self.with(f))
    }

    /// As [`BindContext::expiry_now`].
    pub fn expiry_now(&self) -> u32 {
        expiry_now(self.now_us, self.now_in_seconds)
    }
}

/// What a term is worth in one execution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Evaluated<'a> {
    /// Serialised bytes, valid for the receiver's type.
    Value(Cow<'a, [u8]>),
    /// Null.
    Null,
    /// An unset marker.
    Unset,
}

/// A column of a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResultColumn {
    /// Its name or alias.
    pub name: String,
    /// Its type.
    pub cql_type: CqlType,
}
