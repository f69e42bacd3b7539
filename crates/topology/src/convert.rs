//! Maps of tables that go from the token ring to tablets of equal size, or back.
//!
//! A table in *conversion* has a map that is cut at arbitrary tokens. Its tablets, the *pieces*, move as tablets do.
//! The pieces of what is to be one tablet of equal size are a *group*. Nothing here changes the replicas of a token or
//! their shards:
//!
//! - [`TabletMap::cut`] cuts a map at more tokens. The ring's map, cut where tablets of equal size end, is the first
//!   map of a table that leaves the ring.
//! - [`TabletMap::aligned`] makes one tablet of each group, when the pieces of each have the same replicas.
//! - [`TabletMap::says_the_same`] says whether two maps have the same replicas for every token: then a table may go
//!   from one to the other.

use crate::resize::{ResizeError, have_same_replicas};
use crate::tablet_map::{Boundaries, Builder, TabletId, TabletMap};

impl TabletMap {
    /// The map cut at the ends of other tablets besides, as of a command of the metadata's log at `index`. Each piece
    /// has the replicas of the tablet that it is a part of.
    ///
    /// # Errors
    /// When a tablet is in transition, or the map would have too many tablets.
    pub fn cut(&self, index: u64, boundaries: &Boundaries) -> Result<Self, ResizeError> {
        self.check_at_rest()?;
        let ends = self.boundaries().joined(boundaries);
        let version = index.max(self.version().saturating_add(1));
        let mut builder = Builder::new(version, ends.clone())?;
        for last in ends.last_tokens() {
            builder.push(self.tablet_of(last).replicas, None)?;
        }
        Ok(builder.finish()?)
    }

    /// Whether each of these tablets ends where one of the map's does.
    #[must_use]
    pub fn is_cut_at(&self, boundaries: &Boundaries) -> bool {
        boundaries.last_tokens().all(|last| self.boundaries().has_end(last))
    }

    /// 2 to this power is the most tablets of equal size of which the map's tablets are parts.
    #[must_use]
    pub fn whole_tablets(&self) -> u8 {
        match self.boundaries() {
            Boundaries::PowerOfTwo(log2) => *log2,
            // Tablets of half the size end where the larger ones do, too.
            ends @ Boundaries::LastTokens(_) => {
                let most = self.tablet_count().ilog2();
                let all = (1..=most).filter_map(|log2| u8::try_from(log2).ok());
                let fits = |log2: &u8| {
                    Boundaries::PowerOfTwo(*log2)
                        .last_tokens()
                        .all(|last| ends.has_end(last))
                };
                all.take_while(fits).last().unwrap_or(0)
            }
        }
    }

    /// The map with one tablet for each group, as of a command of the metadata's log at `index`.
    ///
    /// # Errors
    /// When a tablet is in transition, or two pieces of a group have different replicas.
    pub fn aligned(&self, index: u64) -> Result<Self, ResizeError> {
        self.check_at_rest()?;
        let log2 = self.whole_tablets();
        let version = index.max(self.version().saturating_add(1));
        let mut builder = Builder::new(version, Boundaries::PowerOfTwo(log2))?;
        let mut first = None;
        for piece in self.tablets() {
            let is_last = Boundaries::PowerOfTwo(log2).has_end(self.boundaries().last_token(piece.id.0));
            let group = *first.get_or_insert(piece);
            if !have_same_replicas(&group, &piece) {
                return Err(ResizeError::Apart(TabletId(piece.id.0.saturating_sub(1))));
            }
            if is_last {
                builder.push(group.replicas, None)?;
                first = None;
            }
        }
        Ok(builder.finish()?)
    }

    /// How many pieces move, or have other replicas than the first of their group.
    #[must_use]
    pub fn apart(&self) -> usize {
        let groups = Boundaries::PowerOfTwo(self.whole_tablets());
        let mut first = None;
        let mut count = 0;
        for piece in self.tablets() {
            let group = *first.get_or_insert(piece);
            count += usize::from(piece.transition.is_some() || !have_same_replicas(&group, &piece));
            if groups.has_end(self.boundaries().last_token(piece.id.0)) {
                first = None;
            }
        }
        count
    }

    /// Whether both maps have the same replicas for every token, shards included, and nothing moves in either.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        if self.check_at_rest().is_err() || other.check_at_rest().is_err() {
            return false;
        }
        let (mut one, mut two) = (self.tablets().peekable(), other.tablets().peekable());
        while let (Some(a), Some(b)) = (one.peek(), two.peek()) {
            if !have_same_replicas(a, b) {
                return false;
            }
            let (end_a, end_b) = (
                self.boundaries().last_token(a.id.0),
                other.boundaries().last_token(b.id.0),
            );
            if end_a <= end_b {
                one.next();
            }
            if end_b <= end_a {
                two.next();
            }
        }
        true
    }

    fn check_at_rest(&self) -> Result<(), ResizeError> {
        self.moving()
            .next()
            .map_or(Ok(()), |moving| Err(ResizeError::Moving(moving.id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use types::Token;

    use crate::node::NodeNumber;
    use crate::tablet_map::{Replica, ReplicaList, Stage};
    use crate::{MoveStep, Transition};
    use stdx::random::SplitMix64;

    fn replicas(of: &[(u16, u16)]) -> ReplicaList {
        let replica = |(node, shard): &(u16, u16)| Replica {
            node: NodeNumber(*node),
            shard: *shard,
        };
        of.iter().map(replica).collect()
    }

    /// A map that is cut at random tokens, and has one of a few replica sets for each piece.
    fn random_map(random: &mut SplitMix64, pieces: u64) -> TabletMap {
        let sets = [
            replicas(&[(0, 0), (1, 0)]),
            replicas(&[(1, 0), (0, 0)]),
            replicas(&[(0, 1), (1, 0)]),
            replicas(&[(2, 0), (3, 1)]),
        ];
        let mut ends: BTreeSet<Token> = (1..pieces).map(|_| Token(random.draw().cast_signed())).collect();
        ends.remove(&Token::MIN);
        ends.insert(Token::MAX);
        let of = ends.iter().map(|_| sets[random.below(4) as usize].clone());
        let of: Vec<ReplicaList> = of.collect();
        let ends: Vec<Token> = ends.into_iter().collect();
        TabletMap::new(7, Boundaries::LastTokens(ends.into()), &of).expect("a map")
    }

    /// Tokens at and around each end of a map's tablets.
    fn tokens(map: &TabletMap) -> Vec<Token> {
        let ends = map.boundaries().last_tokens();
        let around = ends.flat_map(|end| [end.0.saturating_sub(1), end.0, end.0.saturating_add(1)]);
        around.map(Token).chain([Token::MIN, Token(0)]).collect()
    }

    fn same_at(one: &TabletMap, other: &TabletMap, token: Token) -> bool {
        have_same_replicas(&one.tablet_of(token), &other.tablet_of(token))
    }

    #[test]
    fn a_cut_changes_the_replicas_of_no_token() {
        let random = &mut SplitMix64::new(1);
        for _ in 0..200 {
            let pieces = 1 + random.below(40);
            let map = random_map(random, pieces);
            let log2 = random.below(7) as u8;
            let cut = map.cut(9, &Boundaries::PowerOfTwo(log2)).expect("nothing moves");
            assert_eq!(cut.version(), 9);
            assert!(cut.is_cut_at(&Boundaries::PowerOfTwo(log2)) && cut.is_cut_at(map.boundaries()));
            assert!(cut.whole_tablets() >= log2);
            assert!(cut.says_the_same(&map) && map.says_the_same(&cut));
            for token in tokens(&cut) {
                assert_eq!(
                    cut.tablet_of(token).replicas,
                    map.tablet_of(token).replicas,
                    "{token:?}"
                );
            }
            let again = random_map(random, 10);
            let twice = cut.cut(10, again.boundaries()).expect("nothing moves");
            assert!(twice.says_the_same(&map) && twice.is_cut_at(again.boundaries()));
        }
    }

    #[test]
    fn two_maps_say_the_same_exactly_when_every_token_has_the_same_replicas() {
        let random = &mut SplitMix64::new(2);
        let mut same = 0;
        for _ in 0..2000 {
            let (one, other) = (random_map(random, 3), random_map(random, 3));
            let all = tokens(&one).into_iter().chain(tokens(&other));
            let is_same = all.into_iter().all(|token| same_at(&one, &other, token));
            assert_eq!(one.says_the_same(&other), is_same, "{one:?} {other:?}");
            same += u32::from(is_same);
        }
        assert!(same > 10, "{same} pairs were the same");
    }

    #[test]
    fn groups_of_pieces_with_the_same_replicas_become_one_tablet_each_and_others_do_not() {
        let random = &mut SplitMix64::new(3);
        let mut aligned = 0;
        for _ in 0..2000 {
            let pieces = 1 + random.below(3);
            let map = random_map(random, pieces);
            let log2 = random.below(3) as u8;
            let cut = map.cut(9, &Boundaries::PowerOfTwo(log2)).expect("nothing moves");
            let group = |token| crate::tablet_map::equal_part(token, cut.whole_tablets());
            let of = tokens(&cut);
            let fits = of.iter().all(|a| {
                let mut others = of.iter().filter(|b| group(*a) == group(**b));
                others.all(|b| have_same_replicas(&cut.tablet_of(*a), &cut.tablet_of(*b)))
            });
            match cut.aligned(10) {
                Ok(equal) => {
                    assert!(fits && equal.says_the_same(&map) && cut.apart() == 0);
                    assert_eq!(equal.boundaries(), &Boundaries::PowerOfTwo(cut.whole_tablets()));
                    aligned += 1;
                }
                Err(error) => {
                    assert!(
                        !fits && cut.apart() > 0 && matches!(error, ResizeError::Apart(_)),
                        "{error}"
                    );
                }
            }
        }
        assert!(aligned > 100, "{aligned} were aligned");
    }

    #[test]
    fn a_map_with_a_tablet_that_moves_is_left_as_it_is() {
        let mut map = random_map(&mut SplitMix64::new(4), 5);
        let still = map.clone();
        let first = map.tablets().next().expect("a tablet");
        let begin = MoveStep::Begin {
            tablet: first.id,
            replicas: first.replicas.iter().copied().collect(),
            next: replicas(&[(7, 0), (8, 0)]),
        };
        assert_eq!(map.step(9, &[begin]), Ok(1));
        let stage = |transition: &Transition| transition.stage;
        let moving = map.moving().next().and_then(|tablet| tablet.transition.map(stage));
        assert_eq!(moving, Some(Stage::AllowWriteBothReadOld));
        let error = ResizeError::Moving(TabletId(0));
        assert_eq!(map.cut(10, &Boundaries::PowerOfTwo(1)), Err(error.clone()));
        assert_eq!(map.aligned(10), Err(error));
        assert!(!map.says_the_same(&still) && !still.says_the_same(&map));
    }
}
