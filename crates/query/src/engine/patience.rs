//! How long a statement that reads much may run: until its time is up, or its result is not awaited any more.
//!
//! It travels with the statement's consumer from shard to shard, so that no shard continues to read for a result that
//! is not awaited. It is checked now and then between blocks; waits for other nodes have timeouts of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coordinator::{CoordinatorError, Deadline, Tally};
use runtime::Instant;
use topology::Consistency;

use crate::QueryError;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    limit: Duration,
    /// The statement says how long (`USING TIMEOUT`).
    is_own: bool,
    deadline: Instant,
    /// The result is not awaited any more.
    is_over: Arc<AtomicBool>,
    level: Consistency,
    block_for: u16,
}

/// Waits for a statement's result. Dropping it reports that the result is not awaited any more.
pub(crate) struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Patience {
    /// Begins now.
    pub(crate) fn new((limit, is_own): (Duration, bool), level: Consistency, block_for: u16) -> (Self, Waiting) {
        let is_over = Arc::new(AtomicBool::new(false));
        let patience = Self {
            limit,
            is_own,
            deadline: runtime::now() + limit,
            is_over: Arc::clone(&is_over),
            level,
            block_for,
        };
        (patience, Waiting(is_over))
    }

    /// When the time is up, if the statement itself says how long it has.
    pub(crate) const fn own_deadline(&self) -> Deadline {
        if self.is_own {
            Deadline::at(self.deadline)
        } else {
            Deadline::USUAL
        }
    }

    /// What is left of the time.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(runtime::now())
    }

    /// What comes of `work`, if it comes in time.
    pub(crate) async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, QueryError> {
        let result = runtime::timeout_at(self.deadline, work).await;
        result.map_err(|_| self.timeout())
    }

    /// Whether to continue.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        if self.is_over.load(Ordering::Relaxed) || self.left().is_zero() {
            Err(self.timeout())
        } else {
            Ok(())
        }
    }

    /// The error of a statement whose time is up.
    pub(crate) fn timeout(&self) -> QueryError {
        QueryError::of_replicas(CoordinatorError::ReadTimeout {
            tally: Tally {
                consistency: self.level,
                received: 0,
                block_for: self.block_for,
            },
            data_present: false,
            missing: format!(
                "what was left to read after {:?}, the time of the whole statement",
                self.limit
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use runtime::sim::Simulation;

    use super::*;

    #[test]
    fn a_statement_goes_on_until_its_time_is_up_or_nobody_waits_for_it() {
        let mut sim = Simulation::new(1);
        let node = sim.add_node(1);
        let said = Arc::new(Mutex::new(String::new()));
        let out = said.clone();
        sim.start(node, move |_| {
            let out = out.clone();
            Box::pin(async move {
                let (patience, _waiting) = Patience::new((Duration::from_secs(10), false), Consistency::Quorum, 2);
                runtime::sleep(Duration::from_secs(9)).await;
                assert_eq!(patience.check(), Ok(()), "its time is not up");
                runtime::sleep(Duration::from_secs(1)).await;
                let error = patience.check().expect_err("ten seconds have passed");
                *out.lock().expect("one thread") = error.message();
                let (patience, waiting) = Patience::new((Duration::from_secs(10), false), Consistency::Quorum, 2);
                let elsewhere = patience.clone();
                drop(waiting);
                assert!(elsewhere.check().is_err(), "it goes on though nobody waits for it");
            })
        });
        assert!(sim.run_until_ended(node, Duration::from_secs(60)), "it did not end");
        assert_eq!(
            *said.lock().expect("one thread"),
            "Operation timed out - received only 0 responses of 2 at QUORUM; no answer from what was left to read after 10s, the time \
             of the whole statement"
        );
    }
}
