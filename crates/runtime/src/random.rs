//! Randomness. Each thread of a production node has a generator seeded by the kernel; in the simulator everything draws
//! from the seed of the run. The generator (xoshiro256++ by Blackman and Vigna, public domain) is fast and well spread;
//! it is not for secrets.

use std::cell::RefCell;
use stdx::random::SplitMix64;

/// A number that the other nodes cannot guess better than by chance, but an attacker might: not for keys or passwords.
#[must_use]
pub fn random_u64() -> u64 {
    if crate::sim::world::is_simulated() {
        return crate::sim::world::world().random_u64();
    }
    thread_local! {
        static GENERATOR: RefCell<Generator> = RefCell::new(Generator::from_seed(seed_from_kernel()));
    }
    GENERATOR.with_borrow_mut(Generator::next)
}

/// Fills a buffer with unpredictable bytes: for identities and secrets.
///
/// # Panics
/// When the kernel has no randomness, which does not happen once a machine has booted.
pub fn random_bytes(buffer: &mut [u8]) {
    if crate::sim::world::is_simulated() {
        let world = crate::sim::world::world();
        for part in buffer.chunks_mut(8) {
            part.copy_from_slice(&world.random_u64().to_le_bytes()[..part.len()]);
        }
        return;
    }
    for part in buffer.chunks_mut(256) {
        fill_from_kernel(part);
    }
}

/// The machine's boot: a number that changes when the power was lost, not when a process was killed. 0 where the system
/// does not reveal.
#[must_use]
pub fn boot_id() -> u128 {
    if crate::sim::world::is_simulated() {
        let (_, node) = crate::sim::world::world_and_node();
        return u128::from(node.boots.get()) << 64 | u128::from(node.id.0);
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0)
}

/// xoshiro256++.
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    state: [u64; 4],
}

impl Generator {
    /// Spreads the seed over the state by splitmix64, as the authors advise.
    pub(crate) fn from_seed(seed: u64) -> Self {
        let mut words = SplitMix64::new(seed);
        Self {
            state: std::array::from_fn(|_| words.draw()),
        }
    }

    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }
}

fn seed_from_kernel() -> u64 {
    let mut seed = [0_u8; 8];
    fill_from_kernel(&mut seed);
    u64::from_ne_bytes(seed)
}

/// At most 256 bytes, which the kernel gives at once.
fn fill_from_kernel(buffer: &mut [u8]) {
    // SAFETY: the pointer and length describe the buffer; getrandom writes at most that many bytes.
    let filled = unsafe { libc::getrandom(buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    let filled = usize::try_from(filled).unwrap_or(0);
    assert_eq!(
        filled,
        buffer.len(),
        "the kernel always has random bytes once it has booted"
    );
}
