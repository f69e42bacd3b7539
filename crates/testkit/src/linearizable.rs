//! Whether what clients saw of one partition fits one order of their operations.
//!
//! The partition is a few rows of one value each. An operation *requires* something of the rows and may *change* them,
//! both at one moment between the time it was sent and the time it was answered; what a client saw is a requirement
//! that changes nothing. An operation without an answer takes place once, at any time after it was sent, or never. One
//! that may be left out takes place before its answer or never.
//!
//! The search is the just-in-time linearization of Lowe (Testing for linearizability, 2017): going through the history
//! in time, it keeps every *configuration* that is possible: the rows, and which of the operations under way have taken
//! place. When an operation is answered, it takes place in each configuration, perhaps after others that are under way
//! (one that only looks does so as soon as it can); configurations in which it cannot are given up. When none is left,
//! the answer was wrong.
//!
//! An operation without an answer would be under way until the end, and each one doubles the configurations. It is
//! forgotten as soon as it has taken place in all of them, or can take place in none any more: it requires a value that
//! is in none, and that no operation under way or to come sets. Of two configurations with the same rows that differ in
//! such operations alone, the one in which fewer have taken place is kept, because whatever follows from the other
//! follows from it ([`Frontier`]). A history that is too hard all the same is a failure of its own: it is not known
//! whether it hides a wrong answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Rows of a partition.
pub const ROWS: usize = 2;

/// The values of the rows; None where there is no row.
pub type Rows = [Option<i32>; ROWS];

/// Replaces every value that no operation requires.
const UNSEEN: i32 = i32::MIN;
/// Configurations beyond which a history is given up as too hard.
const CONFIGURATIONS_MAX: usize = 100_000;

/// What an operation requires of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requires {
    /// Nothing.
    Anything,
    /// That it has this value, or is not there.
    Is(Option<i32>),
    /// That it is there.
    Exists,
}

/// What an operation does to a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Nothing.
    Keep,
    /// It has this value afterwards, which no other operation sets.
    Set(i32),
    /// It is gone.
    Delete,
}

/// An operation, and what is known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// When it was sent.
    pub sent: u64,
    /// When it was answered. None: it is not known whether it has taken place or will.
    pub answered: Option<u64>,
    /// By row.
    pub requires: [Requires; ROWS],
    /// By row.
    pub changes: [Change; ROWS],
    /// Whether it may never have taken place although it has an answer.
    pub may_be_left_out: bool,
    /// For the text of a failure.
    pub story: String,
}

impl Operation {
    /// The rows afterwards, if it can take place now.
    fn take_place(&self, rows: &Rows) -> Option<Rows> {
        let mut after = *rows;
        for row in 0..ROWS {
            let holds = match self.requires[row] {
                Requires::Anything => true,
                Requires::Is(value) => rows[row] == value,
                Requires::Exists => rows[row].is_some(),
            };
            if !holds {
                return None;
            }
            match self.changes[row] {
                Change::Keep => {}
                Change::Set(value) => after[row] = Some(value),
                Change::Delete => after[row] = None,
            }
        }
        Some(after)
    }

    /// Whether it changes nothing.
    fn only_looks(&self) -> bool {
        self.changes == [Change::Keep; ROWS]
    }

    fn requires_value_of(&self, other: &Self) -> bool {
        let sets = |value| other.changes.contains(&Change::Set(value));
        self.requires
            .iter()
            .any(|r| matches!(r, Requires::Is(Some(value)) if sets(*value)))
    }

    /// Whether rows that were there before are there afterwards, and no others.
    fn replaces_only(&self) -> bool {
        let rows = self.requires.iter().zip(&self.changes);
        let mut rows = rows.map(|(requires, change)| match change {
            Change::Keep => true,
            Change::Set(_) => matches!(requires, Requires::Exists | Requires::Is(Some(_))),
            Change::Delete => false,
        });
        rows.all(|replaces| replaces)
    }
}

/// Why a history was not accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Objection {
    /// No order fits it.
    NotLinearizable(String),
    /// Too many orders may fit it.
    TooHard,
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLinearizable(text) => f.write_str(text),
            Self::TooHard => write!(f, "more than {CONFIGURATIONS_MAX} configurations"),
        }
    }
}

/// The rows, and the operations that have taken place and are not answered yet, in order of their numbers.
type Configuration = (Rows, BTreeSet<usize>);

/// Whether the operations fit one order, which begins with no row.
///
/// # Errors
/// When none fits, with the answer that shows it; or when it is too hard to say.
pub fn check(operations: &[Operation]) -> Result<(), Objection> {
    let operations = &without_unseen_values(operations)[..];
    let matters = |o: &Operation| {
        // One without an answer that only replaces values by others which no operation requires can be left out of any
        // order.
        o.answered.is_some() || !o.replaces_only() || operations.iter().any(|other| other.requires_value_of(o))
    };
    // At equal times what was sent comes before what was answered: they overlap.
    let mut events: Vec<(u64, bool, usize)> = Vec::new();
    for (number, operation) in operations.iter().enumerate().filter(|(_, o)| matters(o)) {
        events.push((operation.sent, false, number));
        events.extend(operation.answered.map(|time| (time, true, number)));
    }
    events.sort_unstable();
    let mut is_sent = vec![false; operations.len()];
    let mut under_way: BTreeSet<usize> = BTreeSet::new();
    let mut possible: BTreeSet<Configuration> = BTreeSet::from([Configuration::default()]);
    for (_, is_answer, number) in events {
        if !is_answer {
            under_way.insert(number);
            is_sent[number] = true;
            possible = std::mem::take(&mut possible)
                .into_iter()
                .map(|(rows, done)| looked(operations, &under_way, rows, done))
                .collect();
            continue;
        }
        let next = answer(operations, &under_way, &possible, number)?;
        if next.is_empty() {
            return Err(Objection::NotLinearizable(story(
                operations, &under_way, &possible, number,
            )));
        }
        possible = next;
        under_way.remove(&number);
        forget(operations, &is_sent, &mut under_way, &mut possible);
    }
    Ok(())
}

/// The operations, of which those without an answer set [`UNSEEN`] instead of values that no operation requires.
fn without_unseen_values(operations: &[Operation]) -> Vec<Operation> {
    let mut all = operations.to_vec();
    let required = operations.iter().flat_map(|o| o.requires);
    let met: BTreeSet<i32> = required
        .filter_map(|requires| match requires {
            Requires::Is(value) => value,
            Requires::Anything | Requires::Exists => None,
        })
        .collect();
    for operation in all.iter_mut().filter(|o| o.answered.is_none()) {
        for change in &mut operation.changes {
            if matches!(change, Change::Set(value) if !met.contains(value)) {
                *change = Change::Set(UNSEEN);
            }
        }
    }
    all
}

/// Forgets operations without an answer that are the same for all configurations, or for all that can follow from them.
fn forget(
    operations: &[Operation],
    is_sent: &[bool],
    under_way: &mut BTreeSet<usize>,
    possible: &mut BTreeSet<Configuration>,
) {
    let is_over = |number: usize| {
        let operation = &operations[number];
        let can_come = |value: i32| {
            let mut setters = operations.iter().enumerate();
            setters.any(|(other, o)| {
                o.changes.contains(&Change::Set(value)) && (!is_sent[other] || under_way.contains(&other))
            })
        };
        let is_dead = (0..ROWS).any(|row| match operation.requires[row] {
            Requires::Is(Some(value)) => possible.iter().all(|(rows, _)| rows[row] != Some(value)) && !can_come(value),
            _ => false,
        });
        operation.answered.is_none() && (is_dead || possible.iter().all(|(_, done)| done.contains(&number)))
    };
    let over: Vec<usize> = under_way.iter().copied().filter(|number| is_over(*number)).collect();
    if over.is_empty() {
        return;
    }
    under_way.retain(|number| !over.contains(number));
    *possible = std::mem::take(possible)
        .into_iter()
        .map(|(rows, mut done)| {
            done.retain(|number| !over.contains(number));
            (rows, done)
        })
        .collect();
}

/// A configuration in which all that only look, and can now, have: nothing follows from it that would not follow if
/// they looked later.
fn looked(
    operations: &[Operation],
    under_way: &BTreeSet<usize>,
    rows: Rows,
    mut done: BTreeSet<usize>,
) -> Configuration {
    let looks = |number: &&usize| operations[**number].only_looks() && operations[**number].take_place(&rows).is_some();
    done.extend(under_way.iter().filter(looks));
    (rows, done)
}

/// The configurations in which an operation has taken place.
fn answer(
    operations: &[Operation],
    under_way: &BTreeSet<usize>,
    possible: &BTreeSet<Configuration>,
    number: usize,
) -> Result<BTreeSet<Configuration>, Objection> {
    let mut next = Frontier::default();
    let mut seen = Frontier::default();
    for configuration in possible {
        seen.insert(operations, configuration.clone());
    }
    let mut to_see: Vec<Configuration> = possible.iter().cloned().collect();
    while let Some((rows, mut done)) = to_see.pop() {
        if done.remove(&number) {
            next.insert(operations, (rows, done));
            continue;
        }
        let others = under_way.iter().filter(|other| !operations[**other].only_looks());
        let mut tried: Vec<&Operation> = Vec::new();
        for other in others.filter(|other| !done.contains(other)) {
            let operation = &operations[*other];
            if operation.answered.is_none() {
                // Of those that are alike the first one takes place first.
                if tried
                    .iter()
                    .any(|twin| twin.requires == operation.requires && twin.changes == operation.changes)
                {
                    continue;
                }
                tried.push(operation);
            }
            let Some(after) = operations[*other].take_place(&rows) else {
                continue;
            };
            let mut done = done.clone();
            done.insert(*other);
            let configuration = looked(operations, under_way, after, done);
            if seen.insert(operations, configuration.clone()) {
                to_see.push(configuration);
            }
        }
        if seen.seen > CONFIGURATIONS_MAX {
            return Err(Objection::TooHard);
        }
    }
    if operations[number].may_be_left_out {
        for configuration in possible.iter().filter(|(_, done)| !done.contains(&number)) {
            next.insert(operations, configuration.clone());
        }
    }
    Ok(next.configurations())
}

/// Configurations, but for those from which nothing can follow that cannot follow from another one: with the same rows,
/// in which fewer of the operations have taken place that may as well never do.
#[derive(Default)]
struct Frontier {
    /// By rows, and by what must take place and has, the smallest sets of what need not and has.
    smallest: BTreeMap<Configuration, Vec<BTreeSet<usize>>>,
    /// How many were put in.
    seen: usize,
}

impl Frontier {
    /// Adds a configuration. False if the search need not continue from it.
    fn insert(&mut self, operations: &[Operation], (rows, done): Configuration) -> bool {
        let is_free = |number: &usize| operations[*number].answered.is_none() || operations[*number].may_be_left_out;
        let (free, bound): (BTreeSet<usize>, BTreeSet<usize>) = done.into_iter().partition(is_free);
        let smallest = self.smallest.entry((rows, bound)).or_default();
        if smallest.iter().any(|other| other.is_subset(&free)) {
            return false;
        }
        smallest.retain(|other| !free.is_subset(other));
        smallest.push(free);
        self.seen += 1;
        true
    }

    fn configurations(self) -> BTreeSet<Configuration> {
        let each = |((rows, bound), smallest): (Configuration, Vec<BTreeSet<usize>>)| {
            smallest
                .into_iter()
                .map(move |free| (rows, bound.union(&free).copied().collect()))
        };
        self.smallest.into_iter().flat_map(each).collect()
    }
}

fn story(
    operations: &[Operation],
    under_way: &BTreeSet<usize>,
    possible: &BTreeSet<Configuration>,
    number: usize,
) -> String {
    let rows: BTreeSet<Rows> = possible.iter().map(|(rows, _)| *rows).collect();
    let rows: Vec<Rows> = rows.into_iter().take(8).collect();
    let others = under_way.iter().filter(|other| **other != number);
    let others: Vec<String> = others.map(|other| format!("  {}", operations[*other].story)).collect();
    let operation = &operations[number];
    let answered = operation.answered.unwrap_or(operation.sent);
    let mut before: Vec<&Operation> = operations
        .iter()
        .filter(|o| o.answered.is_some_and(|time| time < answered))
        .collect();
    before.sort_by_key(|o| o.answered);
    let before: Vec<String> = before.iter().rev().take(12).map(|o| format!("  {}", o.story)).collect();
    format!(
        "no order fits the answer to {}\nrows that were possible: {rows:?}\nunder way then:\n{}\nanswered before, the last first:\n{}",
        operation.story,
        others.join("\n"),
        before.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: (Requires, Change) = (Requires::Anything, Change::Keep);

    fn operation(sent: u64, answered: Option<u64>, rows: [(Requires, Change); ROWS]) -> Operation {
        Operation {
            sent,
            answered,
            requires: rows.map(|(requires, _)| requires),
            changes: rows.map(|(_, change)| change),
            may_be_left_out: false,
            story: format!("{sent} to {answered:?}: {rows:?}"),
        }
    }

    fn read(sent: u64, answered: u64, value: Option<i32>) -> Operation {
        operation(sent, Some(answered), [(Requires::Is(value), Change::Keep), OTHER])
    }

    fn swap(sent: u64, answered: Option<u64>, from: Option<i32>, to: i32) -> Operation {
        operation(sent, answered, [(Requires::Is(from), Change::Set(to)), OTHER])
    }

    fn both(sent: u64, answered: u64, requires: Rows, to: Option<i32>) -> Operation {
        let change = to.map_or(Change::Keep, Change::Set);
        operation(
            sent,
            Some(answered),
            requires.map(|value| (Requires::Is(value), change)),
        )
    }

    #[test]
    fn histories_that_fit_one_order_are_told_from_those_that_do_not() {
        let first = swap(1, Some(4), None, 1);
        let lost = swap(2, None, Some(1), 2);
        let replaced = |sent, answered, to| operation(sent, answered, [(Requires::Exists, Change::Set(to)), OTHER]);
        let deleted =
            |sent, answered, from| operation(sent, answered, [(Requires::Is(Some(from)), Change::Delete), OTHER]);
        let cases = [
            ("nothing", vec![], true),
            (
                "a read of the old value within a swap",
                vec![first.clone(), read(2, 3, None)],
                true,
            ),
            (
                "a read of the old value behind a swap",
                vec![first.clone(), read(5, 6, None)],
                false,
            ),
            (
                "two swaps from one value",
                vec![first.clone(), swap(2, Some(3), None, 2)],
                false,
            ),
            (
                "the new value, then the old one",
                vec![first.clone(), read(2, 2, Some(1)), read(3, 3, None)],
                false,
            ),
            (
                "a swap that was lost and comes late",
                vec![first.clone(), lost.clone(), read(5, 6, Some(1)), read(7, 8, Some(2))],
                true,
            ),
            (
                "a swap that was lost and is taken back",
                vec![first.clone(), lost.clone(), read(5, 6, Some(2)), read(7, 8, Some(1))],
                false,
            ),
            (
                "a swap that was lost and takes place twice",
                vec![
                    first.clone(),
                    lost.clone(),
                    read(5, 6, Some(2)),
                    swap(7, Some(8), Some(2), 3),
                    read(9, 10, Some(2)),
                ],
                false,
            ),
            (
                "a value that nobody set",
                vec![first.clone(), read(5, 6, Some(9))],
                false,
            ),
            ("IF EXISTS where nothing was", vec![replaced(1, Some(2), 5)], false),
            (
                "IF EXISTS that was lost, and is seen by a condition only",
                vec![
                    first.clone(),
                    replaced(5, None, 5),
                    deleted(6, Some(7), 5),
                    read(8, 9, None),
                ],
                true,
            ),
            (
                "IF EXISTS that was lost behind a deletion",
                vec![
                    first.clone(),
                    deleted(5, Some(6), 1),
                    replaced(7, None, 5),
                    read(8, 9, Some(5)),
                ],
                false,
            ),
            (
                "a row that a lost INSERT made, replaced before anybody has seen it",
                vec![swap(1, None, None, 5), replaced(2, Some(3), 6), read(4, 5, Some(6))],
                true,
            ),
            (
                "a batch that is seen half",
                vec![both(1, 2, [None, None], Some(1)), both(3, 4, [Some(1), None], None)],
                false,
            ),
            (
                "a batch that is seen whole",
                vec![both(1, 2, [None, None], Some(1)), both(3, 4, [Some(1), Some(1)], None)],
                true,
            ),
        ];
        for (name, operations, fits) in cases {
            assert_eq!(check(&operations).is_ok(), fits, "{name}: {:?}", check(&operations));
        }
    }

    #[test]
    fn what_may_be_left_out_takes_place_before_its_answer_or_never() {
        let emptied = |sent, answered| Operation {
            may_be_left_out: true,
            ..operation(sent, Some(answered), [(Requires::Anything, Change::Delete); ROWS])
        };
        let first = swap(1, Some(2), None, 1);
        let history = |then: &[Operation]| check(&[&[first.clone(), emptied(5, 9)], then].concat()).is_ok();
        assert!(
            history(&[read(10, 11, None)]) && history(&[read(10, 11, Some(1))]),
            "it is known by a read"
        );
        assert!(history(&[read(6, 7, Some(1)), read(10, 11, None)]), "between the reads");
        assert!(!history(&[read(3, 4, None)]), "before it was sent");
        assert!(
            !history(&[read(10, 11, Some(1)), read(12, 13, None)]),
            "behind its answer"
        );
        assert!(!history(&[read(6, 7, None), read(10, 11, Some(1))]), "undone");
    }

    /// It never becomes known whether the lost operation took place before the deletion, and it makes no difference.
    #[test]
    fn operations_without_an_answer_are_forgotten_when_they_make_no_difference() {
        let mut operations = Vec::new();
        for round in 0..60_u64 {
            let (time, value) = (round * 10, i32::try_from(round).expect("few rounds"));
            operations.push(swap(time, Some(time + 1), None, value));
            operations.push(swap(time + 2, None, Some(value), 1000 + value));
            let deletion = [(Requires::Exists, Change::Delete), OTHER];
            operations.push(operation(time + 4, Some(time + 5), deletion));
        }
        assert_eq!(check(&operations), Ok(()));
        operations.push(read(1000, 1001, Some(1003)));
        assert!(check(&operations).is_err(), "a value that can come no more is read");
    }

    /// Each may take place before or after everything that follows: there are ever more of them, and one configuration
    /// for each pair of rows.
    #[test]
    fn operations_without_an_answer_that_require_nothing_do_not_make_a_history_too_hard() {
        let mut operations = Vec::new();
        for round in 0..60_u64 {
            let (time, value) = (round * 10, i32::try_from(round).expect("few rounds"));
            operations.push(operation(time, None, [(Requires::Anything, Change::Delete); ROWS]));
            operations.push(swap(time + 1, Some(time + 2), None, value));
            let deletion = [(Requires::Exists, Change::Delete), OTHER];
            operations.push(operation(time + 4, Some(time + 5), deletion));
        }
        assert_eq!(check(&operations), Ok(()));
        operations.push(read(1000, 1001, Some(3)));
        assert!(check(&operations).is_err(), "a value that was deleted is read");
    }

    #[test]
    fn many_operations_without_an_answer_that_are_alike_do_not_make_a_history_too_hard() {
        let deleted = operation(1, None, [(Requires::Exists, Change::Delete), OTHER]);
        let mut operations = vec![deleted; 40];
        operations.extend((0..40).map(|n| swap(1, None, None, 1000 + n)));
        operations.extend((1..8).map(|n| swap(1, Some(100), (n > 1).then(|| n - 1), n)));
        assert_eq!(check(&operations), Ok(()));
        operations.push(read(101, 102, Some(2)));
        assert!(check(&operations).is_err(), "a deletion brings no older value back");
    }

    /// Clients that contend look more often than they change anything.
    #[test]
    fn many_looks_at_once_do_not_make_a_history_too_hard() {
        let mut operations: Vec<Operation> = (1..4).map(|n| swap(1, Some(100), (n > 1).then(|| n - 1), n)).collect();
        operations.extend((0..40).map(|n| read(1, 100, Some(1 + n % 3))));
        assert_eq!(check(&operations), Ok(()));
        operations.push(read(101, 102, Some(2)));
        assert!(check(&operations).is_err(), "the last one is behind all");
    }

    /// Random histories of a register that behaves: every one fits; with one answer changed to a value from before,
    /// none does.
    #[test]
    fn random_histories_of_a_real_register_fit_and_changed_ones_do_not() {
        let mut state = 7u64;
        let mut below = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for round in 0..200 {
            let mut value = None;
            let mut operations = Vec::new();
            let mut time = 10;
            let mut next = 0;
            for _ in 0..60 {
                // Each takes place at `time`, was sent before it and answered after it.
                time += 1 + below(4);
                let (sent, answered) = (time - below(9), time + below(9));
                next += 1;
                match below(4) {
                    0 => operations.push(read(sent, answered, value)),
                    1 if below(3) == 0 => {
                        // Lost; it takes place or not.
                        operations.push(swap(sent, None, value, next));
                        value = if below(2) == 0 { Some(next) } else { value };
                    }
                    _ => {
                        operations.push(swap(sent, Some(answered), value, next));
                        value = Some(next);
                    }
                }
            }
            operations.push(read(time + 20, time + 21, value));
            assert_eq!(check(&operations), Ok(()), "round {round}");
            if let Some(last) = operations.last_mut() {
                last.requires[0] = Requires::Is(None);
            }
            let objection = check(&operations).expect_err("a row that was never deleted is gone");
            assert!(
                matches!(objection, Objection::NotLinearizable(_)),
                "round {round}: {objection}"
            );
        }
    }
}
