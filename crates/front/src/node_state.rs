//! What the shards of a node share of their clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clients::Clients;

/// What the shards of a node share of their clients.
#[derive(Debug)]
pub struct NodeState {
    /// The connected clients.
    pub clients: Arc<Clients>,
    /// How many of the requests are traced whose clients do not ask for it.
    pub trace_probability: TraceProbability,
    /// From when on a request is slow.
    pub slow_request: SlowThreshold,
}

impl NodeState {
    /// Of a node with so many shards, without clients.
    #[must_use]
    pub fn new(shards: u32) -> Arc<Self> {
        Arc::new(Self {
            clients: Arc::new(Clients::new(shards)),
            trace_probability: TraceProbability::default(),
            slow_request: SlowThreshold::default(),
        })
    }
}

/// A probability that operators set, shared by the shards: 0 at the start.
#[derive(Debug, Default)]
pub struct TraceProbability(AtomicU64);

impl TraceProbability {
    /// From 0 to 1.
    #[must_use]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Sets it; false when it is not from 0 to 1, and stays as it was.
    pub fn set(&self, probability: f64) -> bool {
        let is_valid = (0.0..=1.0).contains(&probability);
        if is_valid {
            self.0.store(probability.abs().to_bits(), Ordering::Relaxed);
        }
        is_valid
    }

    /// Draws: true with this probability.
    #[inline]
    #[must_use]
    pub fn draw(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0 && self.draw_anew()
    }

    #[cold]
    fn draw_anew(&self) -> bool {
        let number = u32::try_from(runtime::random_u64() >> 32).expect("32 bits are left");
        f64::from(number) < self.get() * f64::from(u32::MAX) + 1.0
    }
}

/// How long a request may take before it is logged as slow, shared by the shards.
#[derive(Debug, Default)]
pub struct SlowThreshold(AtomicU64);

impl SlowThreshold {
    /// Sets it; zero: none is logged.
    pub fn set(&self, threshold: Duration) {
        let microseconds = u64::try_from(threshold.as_micros()).unwrap_or(u64::MAX);
        self.0.store(microseconds, Ordering::Relaxed);
    }

    /// None: none is logged.
    #[must_use]
    pub fn get(&self) -> Option<Duration> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            microseconds => Some(Duration::from_micros(microseconds)),
        }
    }
}
