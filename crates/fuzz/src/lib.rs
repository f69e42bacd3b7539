//! Changed messages for everything that reads bytes of another node.
//!
//! A [`Target`] takes bytes and must not panic. Its inputs begin with real messages, which a [`Mutator`] changes by chance; the chance follows from a
//! seed, so a find is played again by its seed and round. There is no coverage to guide the changes: what makes them reach deep is that
//! checksums are put right before the bytes are read, and that lengths and numbers are replaced by those at which code breaks.
//!
//! - The decoders: frames, hellos, blocks and errors of `rpc`; membership messages, commands and metadata of `cluster`; the
//!   records of `schema`; requests and answers of replicas.
//! - The metadata group ([`raft`]): its own messages, overheard and changed, are given to running members in the simulator.

pub mod mutator;
pub mod raft;

use mutator::Mutator;

/// Something that reads bytes of another node.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Real messages to begin with.
    seeds: fn() -> Vec<Vec<u8>>,
    read: fn(&[u8]),
}

/// The decoders.
pub const DECODERS: &[Target] = &[
    Target {
        name: "rpc",
        seeds: rpc::fuzz::seeds,
        read: rpc::fuzz::read,
    },
    Target {
        name: "cluster",
        seeds: cluster::fuzz::seeds,
        read: cluster::fuzz::read,
    },
    Target {
        name: "schema",
        seeds: schema::fuzz::seeds,
        read: schema::fuzz::read,
    },
    Target {
        name: "coordinator",
        seeds: coordinator::fuzz::seeds,
        read: coordinator::fuzz::read,
    },
];

/// Inputs of one round.
pub const INPUTS_PER_ROUND: u64 = 10_000;

impl Target {
    /// Reads so many changed messages as one round has. A panic is a find.
    pub fn play(&self, seed: u64) {
        let seeds = (self.seeds)();
        let mut mutator = Mutator::new(seed);
        for _ in 0..INPUTS_PER_ROUND {
            let input = mutator.change(&seeds);
            (self.read)(&input);
        }
    }
}
