//! What clients did and saw, and whether a cluster may have shown it to them.
//!
//! The model. A *register* is one value that a table holds under one key. Every write has a timestamp of its own, which is also the value that it
//! sets, so a value that is read names its write. Of two writes the one with the larger timestamp wins. For each register and number of
//! replicas n, a *floor* is the largest timestamp of which it is known that n replicas at least have it or a later one: because a write was
//! acknowledged at a level that wants n, or because a read at such a level has returned it.
//!
//! A read at a level that wants m of r replicas meets every write that more than r - m of them have. So what it returns is never below the
//! floors for more than r - m, as they were when it was sent. It may be above: a write that is under way, or of which nobody knows how it
//! ended, is seen or not, but once seen by enough it stays. What a read returns has been written by somebody; nothing that a
//! coordinator refused to begin (`Unavailable`) is ever seen; that nothing is there means that a deletion is the latest.

use std::collections::BTreeMap;

/// Replicas of every key.
pub const REPLICAS: usize = 3;

/// A table's number, a partition key, a clustering key.
pub type Key = (u8, i32, i32);

/// How many replicas must have done it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// One.
    One,
    /// Two of three.
    Quorum,
    /// Three.
    All,
}

impl Level {
    /// Its number in the protocol.
    #[must_use]
    pub fn code(self) -> u16 {
        match self {
            Self::One => 1,
            Self::Quorum => 4,
            Self::All => 5,
        }
    }

    fn replicas(self) -> usize {
        match self {
            Self::One => 1,
            Self::Quorum => 2,
            Self::All => 3,
        }
    }
}

/// What a write does to a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Its timestamp becomes the value.
    Set,
    /// There is no value any more.
    Delete,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Under way, or nobody knows.
    Unknown,
    Acknowledged(Level),
    /// Not begun.
    Refused,
}

#[derive(Debug)]
struct Write {
    effect: Effect,
    fate: Fate,
    story: String,
}

#[derive(Default)]
struct Register {
    writes: BTreeMap<i32, Write>,
    /// By number of replicas.
    floors: [i32; REPLICAS + 1],
    /// What was acknowledged up to here and set a value was truncated since.
    truncated: Option<i32>,
}

impl Register {
    fn floor(&self, level: Level) -> i32 {
        let met = REPLICAS - level.replicas() + 1..=REPLICAS;
        met.map(|n| self.floors[n]).max().unwrap_or(0)
    }

    fn raise(&mut self, level: Level, timestamp: i32) {
        let floor = &mut self.floors[level.replicas()];
        *floor = timestamp.max(*floor);
    }

    fn check(&mut self, floor: i32, level: Level, value: Option<i32>) -> Result<(), String> {
        let Some(value) = value else {
            // Whichever deletion it is, it is this one or a later one.
            let mut deletions = self.writes.range(floor..).filter(|(_, w)| w.effect == Effect::Delete);
            let seen = deletions.find(|(_, w)| w.fate != Fate::Refused).map(|(t, _)| *t);
            return match seen {
                Some(timestamp) => {
                    self.raise(level, timestamp);
                    Ok(())
                }
                None if floor == 0 || self.truncated.is_some_and(|t| floor <= t) => Ok(()),
                None => Err(format!("nothing is there, but {floor} was promised")),
            };
        };
        match self.writes.get(&value) {
            None => return Err(format!("{value} is there, which nobody wrote")),
            Some(write) if write.effect == Effect::Delete => {
                return Err(format!("{value} is there, which was the timestamp of a deletion"));
            }
            Some(write) if write.fate == Fate::Refused => {
                return Err(format!(
                    "{value} is there, although its coordinator said that it did not begin"
                ));
            }
            Some(write) => {
                if matches!(write.fate, Fate::Acknowledged(_)) && self.truncated.is_some_and(|t| value <= t) {
                    return Err(format!("{value} is there, although the table was truncated since"));
                }
            }
        }
        if value < floor {
            return Err(format!("{value} is there, but {floor} or a later one was promised"));
        }
        self.raise(level, value);
        Ok(())
    }
}

/// See the module.
#[derive(Default)]
pub struct History {
    registers: BTreeMap<Key, Register>,
    last: i32,
    /// Timestamps that were drawn and will be used later, out of order.
    kept: Vec<i32>,
}

impl History {
    /// A timestamp that nobody else has; now and then one from before, so that writes do not come in order.
    pub fn timestamp(&mut self, dice: u64) -> i32 {
        if dice.is_multiple_of(16) {
            self.last += 1;
            self.kept.push(self.last);
        } else if dice.is_multiple_of(17)
            && let Some(kept) = self.kept.pop()
        {
            return kept;
        }
        self.last += 1;
        self.last
    }

    /// A write is about to be sent.
    pub fn begin(&mut self, keys: &[Key], timestamp: i32, effect: Effect, story: &str) {
        for key in keys {
            let write = Write {
                effect,
                fate: Fate::Unknown,
                story: story.to_owned(),
            };
            self.registers.entry(*key).or_default().writes.insert(timestamp, write);
        }
    }

    /// It was acknowledged.
    pub fn acknowledged(&mut self, keys: &[Key], timestamp: i32, level: Level) {
        self.settle(keys, timestamp, Fate::Acknowledged(level));
        for key in keys {
            self.registers.entry(*key).or_default().raise(level, timestamp);
        }
    }

    /// Its coordinator said that it did not begin.
    pub fn refused(&mut self, keys: &[Key], timestamp: i32) {
        self.settle(keys, timestamp, Fate::Refused);
    }

    /// It ended one way or another.
    pub fn in_doubt(&mut self, keys: &[Key], timestamp: i32, why: &str) {
        for key in keys {
            if let Some(write) = self.registers.entry(*key).or_default().writes.get_mut(&timestamp) {
                write.story.push_str(" -> ");
                write.story.push_str(why);
            }
        }
    }

    fn settle(&mut self, keys: &[Key], timestamp: i32, fate: Fate) {
        for key in keys {
            let register = self.registers.entry(*key).or_default();
            if let Some(write) = register.writes.get_mut(&timestamp) {
                write.fate = fate;
            }
        }
    }

    /// What a read that is sent now must not go below.
    #[must_use]
    pub fn floor(&self, key: Key, level: Level) -> i32 {
        self.registers.get(&key).map_or(0, |r| r.floor(level))
    }

    /// A read that was sent when the floor was that has returned this.
    ///
    /// # Errors
    /// When it must not.
    pub fn check(&mut self, key: Key, floor: i32, level: Level, value: Option<i32>) -> Result<(), String> {
        let register = self.registers.entry(key).or_default();
        let checked = register.check(floor, level, value);
        checked.map_err(|text| format!("{key:?} read at {level:?}: {text}\n{}", story(register)))
    }

    /// A table was truncated while nobody wrote to it: what was written before is gone, and must not return.
    pub fn truncated(&mut self, table: u8) {
        let last = self.last;
        // Whoever used one later would seem to have written before.
        self.kept.clear();
        for (_, register) in self
            .registers
            .range_mut((table, i32::MIN, i32::MIN)..=(table, i32::MAX, i32::MAX))
        {
            register.truncated = Some(last);
            register.floors = [0; REPLICAS + 1];
        }
    }

    /// Writes that were begun.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.registers.values().map(|r| r.writes.len()).sum()
    }
}

/// The last writes to a register, and what is known of them.
fn story(register: &Register) -> String {
    let lines = register.writes.iter().rev().take(12);
    let lines = lines.map(|(timestamp, write)| format!("  {timestamp}: {:?}, {}", write.fate, write.story));
    let lines: Vec<String> = lines.collect();
    format!(
        "  floors by replicas: {:?}; truncated up to {:?}\n{}",
        &register.floors[1..],
        register.truncated,
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = (0, 1, 1);

    /// Writes as `timestamp effect fate`, then a read with its floor taken before them all.
    fn seen(writes: &[(i32, Effect, Option<Level>)], level: Level, value: Option<i32>) -> Result<(), String> {
        let mut history = History::default();
        for (timestamp, effect, acknowledged) in writes {
            history.begin(&[KEY], *timestamp, *effect, "");
            if let Some(level) = acknowledged {
                history.acknowledged(&[KEY], *timestamp, *level);
            }
        }
        let floor = history.floor(KEY, level);
        history.check(KEY, floor, level, value)
    }

    #[test]
    fn a_read_may_return_what_overlapping_levels_allow_and_nothing_else() {
        use Effect::{Delete, Set};
        use Level::{All, One, Quorum};
        let set = [(1, Set, Some(Quorum))];
        assert!(seen(&set, Quorum, Some(1)).is_ok());
        assert!(seen(&set, Quorum, None).is_err(), "a lost write is found");
        assert!(
            seen(&set, One, None).is_ok(),
            "levels that do not overlap promise nothing"
        );
        assert!(seen(&[(1, Set, Some(One))], All, None).is_err());
        let deleted = [(1, Set, Some(Quorum)), (2, Delete, Some(Quorum))];
        assert!(seen(&deleted, Quorum, None).is_ok());
        assert!(seen(&deleted, Quorum, Some(1)).is_err(), "what was deleted returned");
        let doubt = [(1, Set, Some(Quorum)), (2, Delete, None), (3, Set, None)];
        for value in [None, Some(1), Some(3)] {
            assert!(seen(&doubt, Quorum, value).is_ok(), "a write in doubt is seen or not");
        }
        assert!(seen(&doubt, Quorum, Some(4)).is_err(), "what nobody wrote is found");
    }

    #[test]
    fn a_read_that_goes_back_is_found() {
        let mut history = History::default();
        history.begin(&[KEY], 1, Effect::Set, "");
        assert_eq!(history.check(KEY, 0, Level::Quorum, Some(1)), Ok(()));
        let floor = history.floor(KEY, Level::Quorum);
        assert!(history.check(KEY, floor, Level::Quorum, None).is_err());
    }

    #[test]
    fn a_refused_write_and_truncated_ones_never_show() {
        let mut history = History::default();
        history.begin(&[KEY], 1, Effect::Set, "");
        history.refused(&[KEY], 1);
        assert!(history.check(KEY, 0, Level::One, Some(1)).is_err());
        let timestamp = history.timestamp(1) + 1;
        history.begin(&[KEY], timestamp, Effect::Set, "");
        history.acknowledged(&[KEY], timestamp, Level::All);
        history.last = timestamp;
        history.truncated(0);
        assert!(history.check(KEY, 0, Level::One, Some(timestamp)).is_err());
        assert!(history.check(KEY, 0, Level::One, None).is_ok());
    }
}
