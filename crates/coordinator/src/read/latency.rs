//! How long reads of a table take, and from when on another replica is worth asking: the table's `speculative_retry`.
//!
//! Each shard counts the reads that it coordinated, by table, in buckets that grow with the latency: eight to each
//! doubling, so a percentile is right to an eighth. A read costs one increment and an addition. After every [`RENEWAL`]
//! reads the delay is computed again, and when [`SAMPLES_MAX`] are counted, all counts are halved: what was long ago
//! matters less and less. Reads that timed out are not counted: a few of them would be the percentile, and then a slow
//! replica is waited for just when it should not be.

use std::cell::Cell;
use std::time::Duration;

use stdx::histogram::{Histogram, buckets_of};

/// Reads counted before all counts are halved.
const SAMPLES_MAX: u64 = 2048;
/// Reads before a percentile is believed; until then it is [`DELAY_DEFAULT`].
const SAMPLES_MIN: u64 = 32;
/// Reads after which the delay is computed again.
const RENEWAL: u32 = 32;
/// The delay of a percentile of which nothing is known yet.
const DELAY_DEFAULT: Duration = Duration::from_millis(50);

/// When another replica is asked.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Policy {
    Never,
    Always,
    Fixed(Duration),
    /// Of the latencies so far.
    Percentile(f64),
    /// The earlier of the two.
    Min(f64, Duration),
    /// The later of the two.
    Max(f64, Duration),
}

impl Policy {
    /// From the option's text: `99p`, `99.9PERCENTILE`, `50ms`, `MIN(99p,50ms)`, `ALWAYS`, `NEVER`, `NONE`. What is
    /// none of these, which no schema has, is taken for the default.
    fn parse(option: &str) -> Self {
        let option = option.trim().to_ascii_lowercase();
        match option.as_str() {
            "never" | "none" => return Self::Never,
            "always" => return Self::Always,
            _ => {}
        }
        for (function, of) in [("min", Self::Min as fn(f64, Duration) -> Self), ("max", Self::Max)] {
            let inner = option.strip_prefix(function).map(str::trim);
            let inner = inner.and_then(|text| text.strip_prefix('(')?.strip_suffix(')'));
            if let Some((left, right)) = inner.and_then(|text| text.split_once(',')) {
                return match (Self::term(left), Self::term(right)) {
                    (Some(Self::Percentile(p)), Some(Self::Fixed(delay)))
                    | (Some(Self::Fixed(delay)), Some(Self::Percentile(p))) => of(p, delay),
                    _ => Self::Percentile(99.0),
                };
            }
        }
        Self::term(&option).unwrap_or(Self::Percentile(99.0))
    }

    fn term(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, unit) = text.split_at(digits);
        let number: f64 = number.parse().ok()?;
        match unit.trim() {
            "p" | "percentile" => Some(Self::Percentile(number)),
            "ms" => Duration::try_from_secs_f64(number / 1000.0).ok().map(Self::Fixed),
            _ => None,
        }
    }

    fn delay(self, reads: &ReadTimes) -> Option<Duration> {
        Some(match self {
            Self::Never => return None,
            Self::Always => Duration::ZERO,
            Self::Fixed(delay) => delay,
            Self::Percentile(p) => percentile(reads, p).unwrap_or(DELAY_DEFAULT),
            Self::Min(p, delay) => percentile(reads, p).map_or(delay, |of| of.min(delay)),
            Self::Max(p, delay) => percentile(reads, p).map_or(delay, |of| of.max(delay)),
        })
    }
}

/// Reads by how long they took, in microseconds, up to 2^26.
type ReadTimes = Histogram<3, { buckets_of(3, 26) }>;

/// The latency that so many of a hundred reads do not exceed; None while too few are counted.
fn percentile(reads: &ReadTimes, p: f64) -> Option<Duration> {
    (reads.total() >= SAMPLES_MIN).then(|| Duration::from_micros(reads.quantile(p / 100.0) + 1))
}

/// Reads of one kind.
pub(crate) struct Latencies {
    reads: ReadTimes,
    /// When another replica is asked; None: never.
    delay: Cell<Option<Duration>>,
    /// Reads until the delay is computed again.
    left: Cell<u32>,
    policy: Policy,
}

impl Latencies {
    fn new(policy: Policy) -> Self {
        let reads = ReadTimes::default();
        Self {
            delay: Cell::new(policy.delay(&reads)),
            left: Cell::new(RENEWAL),
            reads,
            policy,
        }
    }

    /// How long after a read began another replica is asked; None: never.
    #[inline]
    pub(crate) fn delay(&self) -> Option<Duration> {
        self.delay.get()
    }

    /// Counts a read.
    #[inline]
    pub(crate) fn record(&self, latency: Duration) {
        self.reads
            .add(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX), 1);
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            self.renew();
        }
    }

    #[cold]
    fn renew(&self) {
        self.left.set(RENEWAL);
        if self.reads.total() >= SAMPLES_MAX {
            self.reads.halve();
        }
        self.delay.set(self.policy.delay(&self.reads));
    }
}

/// The reads of a table that this shard coordinated.
pub(crate) struct TableLatencies {
    /// The text of the policy.
    pub(crate) option: String,
    /// Reads of one partition.
    pub(crate) partition: Latencies,
    /// Stretches of token ranges.
    pub(crate) range: Latencies,
}

impl TableLatencies {
    pub(crate) fn new(option: &str) -> Self {
        let policy = Policy::parse(option);
        Self {
            option: option.to_owned(),
            partition: Latencies::new(policy),
            range: Latencies::new(policy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn every_spelling_of_the_option_is_the_policy_that_cassandra_takes_it_for() {
        for (option, policy) in [
            ("NONE", Policy::Never),
            ("never", Policy::Never),
            ("ALWAYS", Policy::Always),
            ("99p", Policy::Percentile(99.0)),
            ("99.9PERCENTILE", Policy::Percentile(99.9)),
            ("12.5ms", Policy::Fixed(Duration::from_micros(12_500))),
            ("MIN(99p,50ms)", Policy::Min(99.0, ms(50))),
            ("max( 20ms , 90percentile )", Policy::Max(90.0, ms(20))),
        ] {
            assert_eq!(Policy::parse(option), policy, "{option}");
        }
    }

    /// The delay of a policy after so many reads of each latency, one kind after the other.
    fn delay(option: &str, reads: &[(u32, Duration)]) -> Option<Duration> {
        let latencies = TableLatencies::new(option).partition;
        for (count, latency) in reads {
            (0..*count).for_each(|_| latencies.record(*latency));
        }
        latencies.delay()
    }

    #[test]
    fn a_percentile_follows_what_reads_take() {
        let about = |found: Option<Duration>, wanted: Duration| {
            let found = found.expect("the policy has a delay");
            assert!(
                found >= wanted && found <= wanted + wanted / 7,
                "{found:?}, not about {wanted:?}"
            );
        };
        about(delay("99p", &[]), ms(50));
        about(delay("99p", &[(200, ms(2))]), ms(2));
        about(delay("99p", &[(900, ms(2)), (92, ms(30))]), ms(30));
        about(delay("50p", &[(900, ms(2)), (92, ms(30))]), ms(2));
        about(delay("MIN(99p,10ms)", &[(900, ms(2)), (92, ms(30))]), ms(10));
        about(delay("MAX(99p,10ms)", &[(992, ms(2))]), ms(10));
        about(delay("MIN(99p,10ms)", &[]), ms(10));
        // What was long ago is forgotten.
        about(delay("99p", &[(2000, ms(900)), (20_000, ms(2))]), ms(2));
        about(delay("99p", &[(20_000, ms(2)), (200, ms(900))]), ms(900));
        assert_eq!(delay("NONE", &[(500, ms(2))]), None);
        assert_eq!(delay("ALWAYS", &[(500, ms(2))]), Some(Duration::ZERO));
        assert_eq!(delay("7ms", &[(500, ms(2))]), Some(ms(7)));
    }
}
