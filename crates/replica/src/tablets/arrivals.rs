//! Ranges of counters that came from other nodes since the start, and the names under which the shard adds to them
//! there.
//!
//! An element of a counter has the name of the shard that adds to it, and the shard takes what it has of the element
//! for the newest (see crate `coordinator`, counters). That is not so in a range that left the shard and comes back by
//! way of a replica which missed an addition: what the shard added on top of the older element would replace the newer
//! one everywhere. So each range that comes from another node has a name of its own, and what was added under others
//! stays as it is.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use types::Token;
use uuid::Uuid;

use crate::tablets::tablet::{TableStore, TokenRange};

/// A name that no shard has had.
#[must_use]
pub fn new_counter_source() -> [u8; 16] {
    let source = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
    *uuid::Builder::from_random_bytes(*source.as_bytes())
        .as_uuid()
        .as_bytes()
}

/// The arrivals of one table: disjoint ranges by their last tokens, each with its first one, which is not inside, and
/// its name.
#[derive(Default)]
pub(crate) struct Arrivals(BTreeMap<Token, (Token, [u8; 16])>);

impl Arrivals {
    fn note(&mut self, range: TokenRange) {
        let meeting = self.0.range((Excluded(range.after), Unbounded));
        let meeting = meeting.take_while(|(_, (after, _))| *after < range.to);
        let meeting: Vec<_> = meeting.map(|(to, known)| (*to, *known)).collect();
        for (to, (after, source)) in meeting {
            self.0.remove(&to);
            if after < range.after {
                self.0.insert(range.after, (after, source));
            }
            if range.to < to {
                self.0.insert(to, (range.to, source));
            }
        }
        self.0.insert(range.to, (range.after, new_counter_source()));
    }

    fn source(&self, token: Token) -> Option<[u8; 16]> {
        let (to, (after, source)) = self.0.range(token..).next()?;
        let range = TokenRange { after: *after, to: *to };
        range.contains(token).then_some(*source)
    }
}

impl TableStore {
    /// Notes ranges whose data comes from other nodes. Does nothing for tables without counters.
    pub(crate) fn note_arrivals(&self, ranges: impl IntoIterator<Item = TokenRange>) {
        if self.table.borrow().is_counter() {
            let mut arrivals = self.arrivals.borrow_mut();
            ranges.into_iter().for_each(|range| arrivals.note(range));
        }
    }

    /// Under which name this shard adds to counters of a token, where that is not its own one because the token's data
    /// came from another node since the start.
    pub fn counter_source(&self, token: Token) -> Option<[u8; 16]> {
        self.arrivals.borrow().source(token)
    }

    /// Whether counters of this table came from other nodes since the start: the shard's name may not be used in
    /// another run.
    pub fn has_arrivals(&self) -> bool {
        !self.arrivals.borrow().0.is_empty()
    }

    /// Has all ranges that have come use the shard's name, which is new since.
    pub fn forget_arrivals(&self) {
        self.arrivals.borrow_mut().0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_arrival_of_a_token_names_its_source_and_former_ones_are_forgotten() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.source(Token(5)), None);
        arrivals.note(TokenRange::of(0, 10));
        let first = arrivals.source(Token(5));
        assert!(first.is_some() && arrivals.source(Token(10)) == first);
        assert_eq!(arrivals.source(Token(11)), None);
        // A half of it comes once more.
        arrivals.note(TokenRange::of(0, 5));
        let second = arrivals.source(Token(5));
        assert!(second.is_some() && second != first);
        assert_eq!(arrivals.source(Token(6)), first);
        // And a part of both, from the middle.
        arrivals.note(TokenRange::of(4, 7));
        let third = arrivals.source(Token(5));
        assert!(third != second && arrivals.source(Token(7)) == third);
        assert_eq!(
            [3, 4, 8].map(|token| arrivals.source(Token(token))),
            [second, second, first]
        );
        arrivals.note(TokenRange::ALL);
        assert_eq!(arrivals.0.len(), 1);
        assert!(arrivals.source(Token(11)) == arrivals.source(Token(5)) && arrivals.source(Token(5)) != third);
    }
}
