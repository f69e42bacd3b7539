use super::*;
use uuid::Uuid;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// The right offset.
const RIGHT: i64 = 1_700_000_000 * SECOND;

fn sample(off_us: i64, is_trusted: bool) -> ClockSample {
    ClockSample {
        offset_us: RIGHT + off_us,
        error_us: 1000,
        is_trusted,
        taken_us: 0,
    }
}

/// Clocks as text: seconds off the right one; `d` is a day; a clock followed by `?` is not trusted by its node.
fn clock(text: &str) -> (i64, bool) {
    let (text, is_trusted) = text.strip_suffix('?').map_or((text, true), |text| (text, false));
    let us = match text.strip_suffix('d') {
        Some(days) => days.parse::<i64>().expect("days") * DAY,
        None => text.parse::<i64>().expect("seconds") * SECOND,
    };
    (us, is_trusted)
}

fn judged(own: &str, trusted: &str, peers: &str, has_peers: bool) -> String {
    let samples: Vec<ClockSample> = peers
        .split_whitespace()
        .map(clock)
        .map(|(us, is_trusted)| sample(us, is_trusted))
        .collect();
    let verdict = decide(&Evidence {
        limits: ClockLimits::default(),
        own_us: RIGHT + clock(own).0,
        trusted_us: (trusted != "-").then(|| RIGHT + clock(trusted).0),
        samples: &samples,
        has_peers,
    });
    let state = match verdict.state {
        ClockState::Trusted => "trusted".to_owned(),
        ClockState::Suspect(doubt) => format!("{doubt:?}").to_lowercase(),
        ClockState::OutOfService => "out".to_owned(),
    };
    format!(
        "{state}, ahead {} s, believed {}",
        verdict.ahead_us / SECOND,
        (verdict.believed_us - RIGHT) / SECOND
    )
}

#[test]
fn a_clock_is_judged_by_its_peers_and_by_where_it_was() {
    // Own clock, where it was when it was last trusted, the peers' clocks, what follows.
    let cases = [
        // Of two peers the earlier is believed.
        ("1d", "-", "0 3", "out, ahead 86396 s, believed 0"),
        // Alone.
        ("0", "-", "", "trusted, ahead 0 s, believed 0"),
        ("4", "0", "", "trusted, ahead 0 s, believed 4"),
        ("1d", "0", "", "stepped, ahead 86400 s, believed 0"),
        ("-1d", "0", "", "stepped, ahead -86400 s, believed 0"),
        // Among three.
        ("0", "0", "0 0", "trusted, ahead 0 s, believed 0"),
        ("3", "3", "0 0", "trusted, ahead 2 s, believed 3"),
        ("1d", "0", "0 0", "out, ahead 86399 s, believed 0"),
        ("-1d", "0", "0 0", "out, ahead -86399 s, believed 0"),
        ("30", "0", "0 0", "outvoted, ahead 29 s, believed 0"),
        ("30", "30", "0 0", "outvoted, ahead 29 s, believed 0"),
        ("0", "0", "0 1d?", "trusted, ahead 0 s, believed 0"),
        ("0", "0", "1d 1d", "out, ahead -86399 s, believed 86400"),
        // One wrong time server for all: no node is a witness.
        ("1d", "0", "1d? 1d?", "stepped, ahead 86400 s, believed 0"),
        ("1d", "0", "1d? 0", "stepped, ahead 86400 s, believed 0"),
        // A step that is confirmed by nodes that did not step.
        ("0", "-1d", "0 0", "trusted, ahead 0 s, believed 0"),
        ("0", "-1d", "0 -1d", "stepped, ahead 86400 s, believed -86400"),
        // Two nodes: neither outvotes the other, and the steady clock decides.
        ("1d", "0", "0", "stepped, ahead 86400 s, believed 0"),
        ("0", "0", "1d?", "trusted, ahead 0 s, believed 0"),
        // A node that starts.
        ("0", "-", "0 0", "trusted, ahead 0 s, believed 0"),
        ("0", "-", "0 1d", "trusted, ahead 0 s, believed 0"),
        ("0", "-", "0?", "trusted, ahead 0 s, believed 0"),
        ("1d", "-", "0 0", "out, ahead 86399 s, believed 0"),
        ("1d", "-", "0", "outvoted, ahead 86400 s, believed 0"),
        ("1d", "-", "0?", "outvoted, ahead 86400 s, believed 86400"),
        ("1d", "-", "0 1d 0 1d", "trusted, ahead 0 s, believed 86400"),
    ];
    for (own, trusted, peers, expected) in cases {
        let story = format!("own {own}, trusted {trusted}, peers {peers}");
        assert_eq!(judged(own, trusted, peers, !peers.is_empty()), expected, "{story}");
    }
    let unheard = judged("0", "-", "", true);
    assert_eq!(
        unheard, "unheard, ahead 0 s, believed 0",
        "its peers have not been heard"
    );
}

#[test]
fn the_round_trip_counts_in_favour_of_the_clock() {
    let limits = ClockLimits::default();
    let slow = |off_us| ClockSample {
        error_us: 3 * SECOND,
        ..sample(off_us, true)
    };
    for (off_us, is_off) in [(-7 * SECOND, false), (-9 * SECOND, true), (2 * SECOND, false)] {
        let samples = [slow(off_us), slow(off_us)];
        let ahead = ahead_of_median(RIGHT, &samples);
        assert_eq!(is_beyond(ahead, limits.suspect), is_off, "{off_us}: {ahead}");
    }
    let answer = ClockSample::of_answer(10, 30, 1_000_020, true).expect("a time");
    assert_eq!((answer.offset_us, answer.error_us), (1_000_000, 10));
    for wrong in [i64::MIN, i64::MAX] {
        assert_eq!(ClockSample::of_answer(10, 30, wrong, true), None);
    }
}

/// A judge among peers, as a story of seconds.
struct Story {
    judge: ClockJudge,
    steady_us: i64,
    own_us: i64,
    peers: Vec<(HostId, i64, bool)>,
}

impl Story {
    fn new(peers: usize) -> Self {
        let host = |n: usize| (HostId(Uuid::from_u128(n as u128)), RIGHT, true);
        Self {
            judge: ClockJudge::new(ClockLimits::default(), RIGHT),
            steady_us: 0,
            own_us: RIGHT,
            peers: (0..peers).map(host).collect(),
        }
    }

    /// A second passes; what the node makes of its clock then.
    fn second(&mut self) -> ClockVerdict {
        self.steady_us += SECOND;
        for (host, offset_us, is_trusted) in &self.peers {
            let sample = ClockSample {
                offset_us: *offset_us,
                error_us: 500,
                is_trusted: *is_trusted,
                taken_us: self.steady_us,
            };
            self.judge.note(*host, sample);
        }
        let has_peers = !self.peers.is_empty();
        self.judge.judge(self.own_us, self.steady_us, has_peers).1
    }

    /// After how many seconds a state is reached.
    fn until(&mut self, state: ClockState) -> u32 {
        (1..60)
            .find(|_| self.second().state == state)
            .unwrap_or_else(|| panic!("never {state:?}, but {:?}", self.judge.verdict()))
    }
}

#[test]
fn a_node_that_jumps_a_day_leaves_service_after_a_while_and_returns_after_a_calm_while() {
    let mut story = Story::new(2);
    assert_eq!(story.second().state, ClockState::Trusted);
    for day in [DAY, -DAY] {
        story.own_us = RIGHT + day;
        let verdict = story.second();
        assert_eq!(verdict.state, ClockState::Suspect(ClockDoubt::Outvoted), "at once");
        assert_eq!(verdict.believed_us, RIGHT);
        assert_eq!(story.until(ClockState::OutOfService), 5);
        story.own_us = RIGHT;
        assert_eq!(story.second().state, ClockState::OutOfService, "not at once");
        assert_eq!(story.until(ClockState::Trusted), 5);
    }
}

#[test]
fn small_steps_add_up_to_no_jump() {
    let mut story = Story::new(0);
    for turn in 0..100 {
        story.own_us += 4 * SECOND;
        let verdict = story.second();
        assert_eq!(
            (verdict.state, verdict.believed_us),
            (ClockState::Trusted, story.own_us),
            "step {turn}"
        );
    }
}

#[test]
fn a_node_alone_that_jumps_stays_in_service_until_its_operator_says_that_the_clock_is_right() {
    let mut story = Story::new(0);
    story.second();
    story.own_us = RIGHT + DAY;
    for _ in 0..30 {
        let verdict = story.second();
        assert_eq!(verdict.state, ClockState::Suspect(ClockDoubt::Stepped));
        assert_eq!(verdict.believed_us, RIGHT);
    }
    story
        .judge
        .confirm(story.own_us, story.steady_us)
        .expect("nobody knows better");
    let verdict = story.second();
    assert_eq!((verdict.state, verdict.believed_us), (ClockState::Trusted, RIGHT + DAY));
}

#[test]
fn an_operator_does_not_outvote_the_peers() {
    let mut story = Story::new(2);
    story.second();
    story.own_us = RIGHT + DAY;
    story.second();
    let refused = story.judge.confirm(story.own_us, story.steady_us);
    assert_eq!(refused, Err(DAY - 500));
    assert_ne!(story.second().state, ClockState::Trusted);
}

#[test]
fn one_operators_word_is_enough_for_nodes_that_jumped_together() {
    let mut story = Story::new(2);
    story.second();
    story.own_us = RIGHT + DAY;
    for (_, offset_us, is_trusted) in &mut story.peers {
        (*offset_us, *is_trusted) = (RIGHT + DAY, false);
    }
    for _ in 0..30 {
        assert_eq!(story.second().state, ClockState::Suspect(ClockDoubt::Stepped));
    }
    story.peers[0].2 = true;
    assert_eq!(story.until(ClockState::Trusted), 6);
}

#[test]
fn old_samples_say_nothing() {
    let mut story = Story::new(2);
    story.second();
    story.peers.clear();
    story.own_us = RIGHT + DAY;
    // What the peers said until now is remembered for a while, and then only the step is known.
    assert_eq!(
        story.judge.judge(story.own_us, 2 * SECOND, true).1.state,
        ClockState::Suspect(ClockDoubt::Outvoted)
    );
    assert_eq!(
        story.judge.judge(story.own_us, 20 * SECOND, true).1.state,
        ClockState::Suspect(ClockDoubt::Stepped)
    );
}
