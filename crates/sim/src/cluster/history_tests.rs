//! What reads may return, by histories that are right and histories that are wrong.

use super::*;

const KEY: Key = (0, 1, 1);
const ONE_DATACENTER: Copies = Copies([3, 0, 0]);
const NOW: Span = Span {
    sent: 0,
    answered: 0,
    weakened: 0,
};

fn here(level: Level) -> Asked {
    Asked { level, datacenter: 0 }
}

/// Writes as `timestamp effect fate`, then a read with its floor taken before them all.
fn seen(writes: &[(i32, Effect, Option<Level>)], level: Level, value: Option<i32>) -> Result<(), String> {
    let mut history = History::new(ONE_DATACENTER);
    for (timestamp, effect, acknowledged) in writes {
        history.begin(&[KEY], *timestamp, *effect, "");
        if let Some(level) = acknowledged {
            history.acknowledged(&[KEY], *timestamp, here(*level));
        }
    }
    let floor = history.floor(KEY, here(level));
    history.check(KEY, floor, here(level), NOW, value)
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
fn a_table_that_forgets_deletions_may_show_what_was_deleted_and_loses_nothing_else() {
    use Effect::{DeleteForgotten, Set};
    use Level::Quorum;
    let deleted = [
        (1, Set, Some(Quorum)),
        (2, Set, Some(Quorum)),
        (3, DeleteForgotten, Some(Quorum)),
    ];
    for value in [None, Some(1), Some(2)] {
        assert!(
            seen(&deleted, Quorum, value).is_ok(),
            "{value:?}: a replica has missed it"
        );
    }
    assert!(seen(&deleted, Quorum, Some(4)).is_err(), "nobody wrote it");
    let again = [deleted.as_slice(), &[(5, Set, Some(Quorum))]].concat();
    assert!(seen(&again, Quorum, Some(5)).is_ok());
    for value in [None, Some(1), Some(2)] {
        assert!(
            seen(&again, Quorum, value).is_err(),
            "{value:?}: the last write is lost"
        );
    }
    let between = [
        (1, Set, Some(Quorum)),
        (2, DeleteForgotten, Some(Quorum)),
        (3, Set, Some(Quorum)),
    ];
    assert!(
        seen(&between, Quorum, Some(1)).is_err(),
        "an older deletion excuses nothing"
    );
}

#[test]
fn a_deletion_that_one_row_of_a_read_shows_excuses_no_older_value_of_another() {
    let (quorum, other) = (here(Level::Quorum), (0, 1, 2));
    for (value, is_right) in [(None, true), (Some(1), false), (Some(3), true)] {
        let mut history = History::new(ONE_DATACENTER);
        history.begin(&[KEY, other], 1, Effect::Set, "");
        history.acknowledged(&[KEY, other], 1, quorum);
        // Its outcome is unknown.
        history.begin(&[KEY, other], 2, Effect::Delete, "");
        history.begin(&[other], 3, Effect::Set, "");
        let floors = BTreeMap::from([KEY, other].map(|key| (key, history.floor(key, quorum))));
        let read = [(KEY, None), (other, value)];
        for (key, value) in read {
            assert_eq!(
                history.check(key, floors[&key], quorum, NOW, value),
                Ok(()),
                "each alone is right"
            );
        }
        let checked = history.check_together(&read, &floors, quorum, NOW);
        assert_eq!(checked.is_ok(), is_right, "{value:?}: {checked:?}");
        history.begin_truncation(KEY.0, 0);
        let checked = history.check_together(&read, &floors, quorum, NOW);
        assert_eq!(checked, Ok(()), "the truncation may be the reason");
    }
}

#[test]
fn an_element_is_there_when_it_may_have_been_added_behind_all_that_was_promised() {
    let quorum = here(Level::Quorum);
    for (floor, is_right) in [(1, true), (2, false)] {
        let mut history = History::new(ONE_DATACENTER);
        history.begin(&[KEY], 1, Effect::Set, "");
        history.begin(&[KEY], 2, Effect::Delete, "");
        assert_eq!(
            history.check(KEY, floor, quorum, NOW, Some(PRESENT)).is_ok(),
            is_right,
            "{floor}"
        );
    }
}

#[test]
fn levels_overlap_where_every_choice_of_replicas_does() {
    use Level::{All, EachQuorum, LocalOne, LocalQuorum, One, Quorum};
    let at = |level, datacenter| Asked { level, datacenter };
    let (one, two, uneven) = (ONE_DATACENTER, Copies([3, 3, 0]), Copies([3, 1, 2]));
    for (copies, write, read, expected) in [
        (one, at(Quorum, 0), at(Quorum, 0), true),
        (one, at(LocalQuorum, 0), at(EachQuorum, 0), true),
        (one, at(One, 0), at(Quorum, 0), false),
        (one, at(LocalOne, 0), at(All, 0), true),
        (two, at(Quorum, 0), at(Quorum, 1), true),
        (two, at(LocalQuorum, 0), at(LocalQuorum, 0), true),
        (two, at(LocalQuorum, 0), at(LocalQuorum, 1), false),
        (two, at(LocalQuorum, 0), at(Quorum, 0), false),
        (two, at(LocalQuorum, 1), at(EachQuorum, 0), true),
        (two, at(EachQuorum, 0), at(LocalQuorum, 1), true),
        (two, at(EachQuorum, 0), at(Quorum, 1), true),
        (two, at(EachQuorum, 0), at(LocalOne, 1), false),
        (uneven, at(EachQuorum, 0), at(LocalOne, 1), true),
        (uneven, at(EachQuorum, 0), at(LocalOne, 0), false),
        (uneven, at(LocalQuorum, 2), at(Quorum, 0), false),
        (uneven, at(LocalQuorum, 0), at(Quorum, 0), false),
    ] {
        let (w, r) = (copies.least(write), copies.least(read));
        assert_eq!(copies.overlap(&w, &r), expected, "{write:?}, {read:?} of {copies:?}");
        assert_eq!(copies.overlap(&r, &w), expected, "{read:?}, {write:?} of {copies:?}");
    }
}

#[test]
fn a_read_that_goes_back_is_found() {
    let mut history = History::new(ONE_DATACENTER);
    let quorum = here(Level::Quorum);
    history.begin(&[KEY], 1, Effect::Set, "");
    assert_eq!(history.check(KEY, 0, quorum, NOW, Some(1)), Ok(()));
    let floor = history.floor(KEY, quorum);
    assert!(history.check(KEY, floor, quorum, NOW, None).is_err());
}

#[test]
fn what_was_acknowledged_before_a_truncation_with_traffic_is_gone_and_the_rest_may_be() {
    let (quorum, set) = (here(Level::Quorum), Effect::Set);
    let mut history = History::new(ONE_DATACENTER);
    for timestamp in 1..=3 {
        history.begin(&[KEY], timestamp, set, "");
    }
    history.acknowledged(&[KEY], 1, quorum);
    history.begin_truncation(KEY.0, 10);
    history.acknowledged(&[KEY], 2, quorum);
    let span = |sent, answered| Span {
        sent,
        answered,
        weakened: 0,
    };
    let see = |history: &mut History, sent, value| {
        let floor = history.floor(KEY, quorum);
        history.check(KEY, floor, quorum, span(sent, sent + 1), value)
    };
    for value in [None, Some(1), Some(2), Some(3)] {
        assert!(see(&mut history, 10, value).is_ok(), "{value:?} while it is under way");
    }
    assert!(see(&mut history, 10, Some(4)).is_err(), "nobody wrote it");
    history.end_truncation(KEY.0, 20);
    assert!(
        see(&mut history, 20, Some(1)).is_ok(),
        "it may have been read before the end"
    );
    assert!(see(&mut history, 21, None).is_ok());
    assert!(see(&mut history, 21, Some(1)).is_err(), "it was acknowledged before");
    assert!(see(&mut history, 21, Some(2)).is_ok());
    assert!(see(&mut history, 21, None).is_err(), "it was seen");
    history.begin(&[KEY], 4, set, "");
    history.acknowledged(&[KEY], 4, quorum);
    assert!(see(&mut history, 21, Some(2)).is_err(), "a later one was acknowledged");
}

#[test]
fn a_refused_write_and_truncated_ones_never_show() {
    let mut history = History::new(ONE_DATACENTER);
    let one = here(Level::One);
    history.begin(&[KEY], 1, Effect::Set, "");
    history.refused(&[KEY], 1);
    assert!(history.check(KEY, 0, one, NOW, Some(1)).is_err());
    let timestamp = history.timestamp(1) + 1;
    history.begin(&[KEY], timestamp, Effect::Set, "");
    history.acknowledged(&[KEY], timestamp, here(Level::All));
    history.last = timestamp;
    history.truncated(0);
    history.all_have_everything();
    assert!(history.check(KEY, 0, one, NOW, Some(timestamp)).is_err());
    assert!(history.check(KEY, history.floor(KEY, one), one, NOW, None).is_ok());
}

/// A write at a level, an operation that weakens promises or none, and a read at a level that finds nothing.
fn is_missed(written: Level, is_weak: bool, read: Level) -> bool {
    let mut history = History::new(ONE_DATACENTER);
    history.begin(&[KEY], 1, Effect::Set, "");
    history.acknowledged(&[KEY], 1, here(written));
    if is_weak {
        history.begin_weak();
        history.end_weak();
    }
    let span = Span {
        weakened: history.weakened(),
        ..NOW
    };
    let floor = history.floor(KEY, here(read));
    history.check(KEY, floor, here(read), span, None).is_err()
}

#[test]
fn what_one_replica_promised_may_be_lost_with_a_replica_and_what_a_quorum_promised_may_not() {
    use Level::{All, LocalQuorum, One, Quorum};
    for (written, read, is_kept) in [
        (One, All, false),
        (Quorum, Quorum, true),
        (Quorum, All, true),
        (LocalQuorum, Quorum, true),
        (All, One, true),
    ] {
        assert!(is_missed(written, false, read), "{written:?}, {read:?}");
        assert_eq!(is_missed(written, true, read), is_kept, "{written:?}, {read:?}");
    }
}

#[test]
fn what_was_under_way_when_a_replica_went_promises_nothing_with_fewer_than_a_quorum() {
    let mut history = History::new(ONE_DATACENTER);
    let (one, all) = (here(Level::One), here(Level::All));
    history.begin(&[KEY], 1, Effect::Set, "");
    history.begin_weak();
    history.acknowledged(&[KEY], 1, one);
    assert_eq!(history.floor(KEY, all), 0, "begun before, acknowledged meanwhile");
    history.begin(&[KEY], 2, Effect::Set, "");
    history.end_weak();
    history.acknowledged(&[KEY], 2, one);
    assert_eq!(history.floor(KEY, all), 0, "begun meanwhile, acknowledged behind it");
    history.begin(&[KEY], 3, Effect::Set, "");
    history.acknowledged(&[KEY], 3, one);
    assert_eq!(history.floor(KEY, all), 3);
}

#[test]
fn a_repair_promises_what_was_acknowledged_before_it_unless_replicas_become_others() {
    let one = here(Level::One);
    for (is_other, expected) in [(false, 1), (true, 0)] {
        let mut history = History::new(ONE_DATACENTER);
        history.begin(&[KEY], 1, Effect::Set, "");
        history.acknowledged(&[KEY], 1, one);
        history.begin_repair();
        history.begin(&[KEY], 2, Effect::Set, "");
        history.acknowledged(&[KEY], 2, one);
        if is_other {
            history.begin_change();
        }
        history.end_repair();
        assert_eq!(history.floor(KEY, one), expected);
    }
}

#[test]
fn while_replicas_move_writes_promise_as_ever_and_reads_nothing() {
    let (one, quorum, all) = (here(Level::One), here(Level::Quorum), here(Level::All));
    for (moves, after_read) in [(false, 1), (true, 0)] {
        let mut history = History::new(ONE_DATACENTER);
        if moves {
            history.begin_move();
        }
        history.begin(&[KEY], 1, Effect::Set, "");
        history.acknowledged(&[KEY], 1, quorum);
        assert_eq!(history.floor(KEY, quorum), 1, "the write");
        history.check(KEY, 1, all, NOW, Some(1)).unwrap();
        assert_eq!(history.floor(KEY, one), after_read, "the read");
        history.end_moves();
        history.check(KEY, 1, all, NOW, Some(1)).unwrap();
        assert_eq!(history.floor(KEY, one), 1, "when they stay");
    }
}

#[test]
fn a_value_whose_time_ends_is_there_before_and_gone_behind_it() {
    let at = |time| Span {
        sent: time,
        answered: time,
        weakened: 0,
    };
    let quorum = here(Level::Quorum);
    for (time, value, expected) in [
        (5, Some(1), true),
        (5, None, false),
        (15, Some(1), true),
        (15, None, true),
        (25, Some(1), false),
        (25, None, true),
    ] {
        let mut history = History::new(ONE_DATACENTER);
        history.begin(&[KEY], 1, Effect::Expire { from: 10, until: 20 }, "");
        history.acknowledged(&[KEY], 1, quorum);
        let floor = history.floor(KEY, quorum);
        let checked = history.check(KEY, floor, quorum, at(time), value);
        assert_eq!(checked.is_ok(), expected, "{value:?} at {time}");
    }
}

#[test]
fn when_hints_were_handed_over_a_single_replica_has_what_was_acknowledged() {
    let mut history = History::new(ONE_DATACENTER);
    let one = here(Level::One);
    history.begin(&[KEY], 1, Effect::Set, "");
    history.acknowledged(&[KEY], 1, here(Level::Quorum));
    history.begin(&[KEY], 2, Effect::Set, "");
    assert_eq!(history.floor(KEY, one), 0);
    history.all_have_everything();
    assert_eq!(history.floor(KEY, one), 1);
}
