//! The outcomes that the seeds of a test had.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Counts outcomes, for tests that want to see each of them.
#[derive(Clone, Default)]
pub struct Tally(Rc<RefCell<BTreeMap<String, u32>>>);

impl Tally {
    /// Counts one.
    pub fn note(&self, outcome: impl Into<String>) {
        *self.0.borrow_mut().entry(outcome.into()).or_default() += 1;
    }

    /// Whether an outcome was counted.
    #[must_use]
    pub fn has(&self, outcome: &str) -> bool {
        self.0.borrow().contains_key(outcome)
    }
}

impl std::fmt::Debug for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.borrow().fmt(f)
    }
}
