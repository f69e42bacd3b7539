//! Time. Four clocks, never mixed:
//!
//! - [`now`]: monotonic, for deadlines and durations; in the simulator the virtual clock. It is reckoned from the
//!   processor's counter, and compared with the kernel's clock every [`RECKONED_MAX`]: requests ask for it dozens of
//!   times.
//! - [`wall_clock_us`]: microseconds since 1970 as far as the system's clock is believed ([`crate::belief`]), for write
//!   timestamps and expiry, reckoned likewise.
//! - [`system_clock_us`]: what the system's clock says, for log lines and for the comparison with other nodes; in the
//!   simulator virtual, with the node's skew.
//! - [`ticks`]: a raw counter of the processor, for slices and run times inside the executor; never leaves this crate.

use crate::belief::{ClockBelief, SharedBelief};
use crate::sim::world;
use std::cell::Cell;
use std::ops::{Add, Sub};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point on the monotonic clock: nanoseconds since an arbitrary start of this process (or of the simulation).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instant(u64);

impl Instant {
    /// Nanoseconds since the arbitrary start.
    #[must_use]
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `nanos` nanoseconds after the arbitrary start.
    #[must_use]
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Time that passed since this instant.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        now().saturating_duration_since(self)
    }
}

impl Sub for Instant {
    type Output = Duration;
    /// Saturates at zero: clocks of the same node do not go back, and no caller wants a panic for it.
    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

/// The current instant of the monotonic clock.
#[must_use]
#[inline]
pub fn now() -> Instant {
    if world::is_simulated() {
        return world::simulated_now();
    }
    Reckoning::now()
}

/// How long the time is reckoned from the processor's counter alone. What the counter's rate is off by, 0.1 %, is two
/// microseconds then.
const RECKONED_MAX: Duration = Duration::from_millis(2);

/// What a thread knows of the time.
#[derive(Clone, Copy)]
struct Reckoning {
    /// The counter when the kernel was asked for the time.
    ticks: u64,
    /// The kernel's answer.
    nanos: u64,
    /// The wall clock then.
    wall_us: i64,
    /// The latest instant that was returned: the next is no earlier.
    told: u64,
}

thread_local! {
    static KNOWN: Cell<Reckoning> = const { Cell::new(Reckoning { ticks: 0, nanos: 0, wall_us: 0, told: 0 }) };
}

impl Reckoning {
    #[inline]
    fn now() -> Instant {
        let mut known = KNOWN.get();
        let rate = rate();
        let passed = ticks().wrapping_sub(known.ticks);
        // A counter that went back, on another processor, has passed very much.
        if passed > rate.reckoned_max {
            known = Self::ask(known.told);
        } else {
            known.told = known
                .told
                .max(known.nanos + ((passed * rate.nanos_per_tick) >> RATE_SHIFT));
        }
        KNOWN.set(known);
        Instant(known.told)
    }

    #[cold]
    fn ask(told: u64) -> Self {
        let (ticks, nanos) = (ticks(), os_now().0);
        let (told, wall_us) = (told.max(nanos), os_wall_clock_us());
        Self {
            ticks,
            nanos,
            wall_us,
            told,
        }
    }
}

/// Microseconds since 1970: by the system's clock as long as it is believed, else by the steady clock from the last
/// time that was.
#[must_use]
#[inline]
pub fn wall_clock_us() -> i64 {
    if world::is_simulated() {
        return simulated_wall_clock_us();
    }
    let now = Reckoning::now();
    KNOWN.get().wall_us + i64::try_from(now.0.saturating_sub(KNOWN.get().nanos) / 1000).unwrap_or(0)
}

#[cold]
fn simulated_wall_clock_us() -> i64 {
    let (steady_us, offset_us, belief) = world::simulated_clocks();
    belief.map_or(steady_us + offset_us, |belief| belief.wall_us(steady_us, offset_us))
}

#[cold]
fn os_wall_clock_us() -> i64 {
    match BELIEF.get() {
        Some(belief) => {
            let steady_us = os_steady_us();
            belief.wall_us(steady_us, os_system_clock_us() - steady_us)
        }
        None => os_system_clock_us(),
    }
}

/// Microseconds since 1970 as the system's clock says, right or wrong.
#[must_use]
pub fn system_clock_us() -> i64 {
    if world::is_simulated() {
        let (steady_us, offset_us, _) = world::simulated_clocks();
        return steady_us + offset_us;
    }
    os_system_clock_us()
}

fn os_system_clock_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let true_us = i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX);
    true_us.saturating_add(WRONG_BY_US.load(Ordering::Relaxed))
}

/// Microseconds since the machine booted, including time in which it was suspended. This clock is never set.
#[must_use]
pub fn steady_clock_us() -> i64 {
    if world::is_simulated() {
        return world::simulated_clocks().0;
    }
    os_steady_us()
}

fn os_steady_us() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, to a place that lives through the call.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    assert_eq!(code, 0, "every Linux since 2.6.39 has this clock");
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}

/// Two looks at the steady clock with one at the system's between them are of one moment when they are no farther
/// apart.
const ONE_MOMENT_US: i64 = 10_000;
/// So often the clocks are read again for a pair of one moment.
const PAIR_ATTEMPTS: u32 = 10;

/// The system's wall clock less the steady clock, in microseconds: it changes only when the wall clock is set, or
/// slewed.
#[must_use]
pub fn clock_offset_us() -> i64 {
    if world::is_simulated() {
        return world::simulated_clocks().1;
    }
    let mut offset_us = 0;
    for _ in 0..PAIR_ATTEMPTS {
        let before = os_steady_us();
        offset_us = os_system_clock_us() - before;
        // A thread that was stopped in between would take the pause for a step.
        if os_steady_us() - before <= ONE_MOMENT_US {
            break;
        }
    }
    offset_us
}

static BELIEF: SharedBelief = SharedBelief::none();

/// Says how far the system's wall clock is believed from now on, on all shards of this node.
pub fn believe_clock(belief: ClockBelief) {
    if world::is_simulated() {
        world::simulated_believe(belief);
    } else {
        BELIEF.set(belief);
    }
}

/// Whether the system's wall clock is trusted at this moment: it is not in doubt and has not jumped. True while no
/// belief is set.
#[must_use]
pub fn is_clock_trusted() -> bool {
    if world::is_simulated() {
        let (_, offset_us, belief) = world::simulated_clocks();
        return belief.is_none_or(|belief| belief.trusts(offset_us));
    }
    BELIEF.get().is_none_or(|belief| belief.trusts(clock_offset_us()))
}

static WRONG_BY_US: AtomicI64 = AtomicI64::new(0);

/// Has the wall clock of this process be wrong by so much from now on: for tests of what a cluster makes of such a
/// node.
pub fn set_wall_clock_wrong_by(microseconds: i64) {
    WRONG_BY_US.store(microseconds, Ordering::Relaxed);
}

fn os_now() -> Instant {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    let start = START.get_or_init(std::time::Instant::now);
    Instant(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Processor time of this thread, in user mode and in the kernel; zero in the simulator, where all shards have one
/// thread.
pub(crate) fn thread_cpu_time() -> Duration {
    if world::is_simulated() {
        return Duration::ZERO;
    }
    real_thread_cpu_time()
}

/// Processor time of this thread, in user mode and in the kernel. In the simulator, that of the simulator's own thread.
pub(crate) fn real_thread_cpu_time() -> Duration {
    cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Processor time of this process, in user mode and in the kernel.
pub(crate) fn process_cpu_time() -> Duration {
    cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn cpu_time(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, to a place that lives through the call.
    let code = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(code, 0, "every Linux has this clock");
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The processor's counter. Only differences mean something; [`ticks_in`] converts.
#[inline]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC reads a counter and touches nothing else; every 64-bit x86 has it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let counter: u64;
        // SAFETY: CNTVCT_EL0 is the virtual counter, readable by user programs under Linux; the read has no side
        // effect.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) counter, options(nomem, nostack)) };
        counter
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        os_now().as_nanos()
    }
}

/// How many ticks a duration has. Measured once against the monotonic clock, to about 0.1 %: good for slices, not for
/// timers.
pub(crate) fn ticks_in(duration: Duration) -> u64 {
    let nanos = u128::from(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    if world::is_simulated() {
        // The ticks of a simulated shard are virtual nanoseconds.
        return u64::try_from(nanos).unwrap_or(u64::MAX);
    }
    u64::try_from(nanos * u128::from(ticks_per_ms()) / 1_000_000).unwrap_or(u64::MAX)
}

/// The duration of a difference of ticks.
pub(crate) fn ticks_to_duration(ticks: u64) -> Duration {
    if world::is_simulated() {
        return Duration::from_nanos(ticks);
    }
    let nanos = u128::from(ticks) * 1_000_000 / u128::from(ticks_per_ms());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

const RATE_SHIFT: u32 = 20;

/// How fast the processor's counter is.
struct Rate {
    ticks_per_ms: u64,
    /// In 2^-[`RATE_SHIFT`].
    nanos_per_tick: u64,
    /// Ticks of [`RECKONED_MAX`].
    reckoned_max: u64,
}

fn ticks_per_ms() -> u64 {
    rate().ticks_per_ms
}

#[inline]
fn rate() -> &'static Rate {
    static RATE: OnceLock<Rate> = OnceLock::new();
    RATE.get_or_init(|| {
        let (start, first) = both_clocks();
        while os_now().0 - start < 2_000_000 {
            std::hint::spin_loop();
        }
        let (end, last) = both_clocks();
        let ticks_per_ms = (last.wrapping_sub(first) * 1_000_000 / (end - start)).max(1);
        Rate {
            ticks_per_ms,
            nanos_per_tick: (1_000_000 << RATE_SHIFT) / ticks_per_ms,
            reckoned_max: ticks_per_ms * u64::try_from(RECKONED_MAX.as_millis()).expect("a few"),
        }
    })
}

/// Nanoseconds of the kernel and ticks of one moment: of several attempts the one that took the least, for a thread may
/// be interrupted between the two.
fn both_clocks() -> (u64, u64) {
    let attempt = || {
        let before = ticks();
        let nanos = os_now().0;
        let after = ticks();
        (after.wrapping_sub(before), nanos, after)
    };
    let (_, nanos, ticks) = (0..5).map(|_| attempt()).min().expect("five");
    (nanos, ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reckoned_time_follows_the_kernels_and_never_goes_back() {
        let (mut last, mut most_behind, mut most_ahead) = (now(), 0, 0);
        let end = os_now() + RECKONED_MAX * 5;
        while os_now() < end {
            let before = os_now();
            let reckoned = now();
            let after = os_now();
            assert!(reckoned >= last, "the time went back");
            last = reckoned;
            most_behind = most_behind.max(before.0.saturating_sub(reckoned.0));
            most_ahead = most_ahead.max(reckoned.0.saturating_sub(after.0));
        }
        let off_max = u64::try_from(RECKONED_MAX.as_nanos() / 50).expect("small");
        assert!(
            most_behind < off_max && most_ahead < off_max,
            "{most_behind} ns behind, {most_ahead} ns ahead"
        );
    }
}
