//! How fast streams of a shard go while the shard serves requests.
//!
//! A stream takes all that the processors give: without requests that is what an operator wants. With requests it would
//! make them wait for the processor, for milliseconds each. So each end checks every [`LOOK_PERIOD`] whether its shard
//! has executed reads or writes, and if so, how much of the time its thread waited for a processor or kept others
//! waiting. If that is too much, the stream gets slower at once, else a little faster, as TCP reacts to lost packets.
//! In the long run one look in forty finds too much ([`SLOWER`], [`FASTER`]), so that it hardly affects the slowest
//! hundredth of the requests. A stream is never slower than [`RATE_MIN`], so a movement ends.
//!
//! Limits that operators set apply as well.

use std::cell::Cell;
use std::time::Duration;

use runtime::{Instant, ProcessorTime};

/// How often a shard is looked at.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// A shard without requests for so many looks is not busy with them.
const QUIET_LOOKS: u32 = 5;
/// Bytes per second of a stream when requests begin to come.
const RATE_AT_FIRST: f64 = 32e6;
/// Bytes per second of a stream at least, however busy the shard is.
const RATE_MIN: f64 = 16e6;
/// Bytes per second above which nothing is counted.
const RATE_MAX: f64 = 4e9;
/// What the rate is multiplied by after a look that saw too much.
const SLOWER: f64 = 0.7;
/// And after any other.
const FASTER: f64 = 1.01;
/// Of the time that passes, how much the thread may wait for a processor: requests that arrive then wait with it.
const WAITED_MAX: f64 = 0.02;
/// Of the time that passes, how much the thread may run: what runs longer keeps what comes in line.
const RAN_MAX: f64 = 0.6;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Bytes per second; `None` while the shard has no requests.
    rate: Cell<Option<f64>>,
    /// When the next bytes may go.
    next_at: Cell<Option<Instant>>,
    seen: Cell<Option<Seen>>,
    quiet: Cell<u32>,
}

/// A shard at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    at: Instant,
    requests: u64,
    time: ProcessorTime,
}

impl Seen {
    /// This shard now. `None` where the kernel does not report it, as in the simulator.
    fn now() -> Option<Self> {
        Some(Self {
            at: runtime::now(),
            requests: replica::requests(),
            time: runtime::processor_time()?,
        })
    }
}

impl Pace {
    /// Waits until so many more bytes may go.
    pub(crate) async fn wait(&self, bytes: u64) {
        let now = runtime::now();
        if self.seen.get().is_none_or(|seen| now >= seen.at + LOOK_PERIOD)
            && let Some(seen) = Seen::now()
        {
            self.look(seen);
        }
        let Some(rate) = self.rate.get() else {
            self.next_at.set(None);
            return;
        };
        let at = self.next_at.get().map_or(now, |at| at.max(now));
        #[expect(clippy::cast_precision_loss, reason = "a chunk is short")]
        let takes = Duration::from_secs_f64(bytes as f64 / rate);
        self.next_at.set(Some(at + takes));
        if at > now {
            runtime::sleep_until(at).await;
        }
    }

    fn look(&self, now: Seen) {
        let Some(before) = self.seen.replace(Some(now)) else {
            return;
        };
        let passed = (now.at - before.at).as_secs_f64();
        if now.requests == before.requests {
            self.quiet.set(self.quiet.get().saturating_add(1));
            if self.quiet.get() >= QUIET_LOOKS {
                self.rate.set(None);
            }
            return;
        }
        self.quiet.set(0);
        let part = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64() / passed;
        let is_too_much =
            part(now.time.waited, before.time.waited) > WAITED_MAX || part(now.time.ran, before.time.ran) > RAN_MAX;
        let rate = match self.rate.get() {
            None => RATE_AT_FIRST,
            Some(rate) if is_too_much => rate * SLOWER,
            Some(rate) => rate * FASTER,
        };
        self.rate.set(Some(rate.clamp(RATE_MIN, RATE_MAX)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shard that is looked at again and again.
    struct Looks {
        pace: Pace,
        seen: Seen,
    }

    impl Looks {
        fn new() -> Self {
            let seen = Seen {
                at: Instant::from_nanos(0),
                requests: 0,
                time: ProcessorTime::default(),
            };
            let pace = Pace::default();
            pace.look(seen);
            Self { pace, seen }
        }

        /// So many looks, between two of which the shard had so many requests, and ran and waited for so many
        /// milliseconds; the rate.
        fn after(&mut self, looks: u32, requests: u64, (ran, waited): (u64, u64)) -> Option<f64> {
            for _ in 0..looks {
                self.seen.at = self.seen.at + LOOK_PERIOD;
                self.seen.requests += requests;
                self.seen.time.ran += Duration::from_millis(ran);
                self.seen.time.waited += Duration::from_millis(waited);
                self.pace.look(self.seen);
            }
            self.pace.rate.get()
        }
    }

    #[test]
    fn a_stream_alone_takes_all_there_is() {
        assert_eq!(Looks::new().after(100, 0, (20, 10)), None);
    }

    #[test]
    fn a_stream_beside_requests_gives_way_until_the_shard_has_time() {
        let mut looks = Looks::new();
        assert_eq!(looks.after(1, 1, (19, 0)), Some(RATE_AT_FIRST), "the first request");
        assert_eq!(
            looks.after(100, 1, (19, 0)),
            Some(RATE_MIN),
            "the thread runs all the time"
        );
        assert!(looks.after(300, 1, (5, 0)) > Some(300e6), "it has time");
        assert_eq!(looks.after(100, 1, (5, 1)), Some(RATE_MIN), "it waits for a processor");
    }

    #[test]
    fn a_stream_is_in_the_way_in_few_looks() {
        // The thread waits in each look in which the stream is fast.
        let mut looks = Looks::new();
        let (mut slow, mut in_the_way) = (0, 0);
        for _ in 0..10_000 {
            let is_fast = looks.pace.rate.get() > Some(100e6);
            in_the_way += u32::from(is_fast);
            slow += u32::from(looks.pace.rate.get() < Some(50e6));
            looks.after(1, 1, (5, u64::from(is_fast)));
        }
        assert!((100..300).contains(&in_the_way), "{in_the_way} of 10,000 looks");
        assert!(
            slow < 200,
            "{slow} of 10,000 looks with less than half of what there is"
        );
    }

    #[test]
    fn a_stream_goes_at_full_speed_when_requests_have_ended() {
        let mut looks = Looks::new();
        assert_eq!(looks.after(100, 1, (19, 0)), Some(RATE_MIN));
        assert_eq!(looks.after(QUIET_LOOKS - 1, 0, (19, 0)), Some(RATE_MIN), "a pause");
        assert_eq!(looks.after(1, 0, (19, 0)), None, "the end");
    }
}
