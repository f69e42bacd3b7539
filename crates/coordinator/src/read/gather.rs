//! Answers of several replicas, awaited together.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use runtime::{Instant, Notify};

/// Where tasks leave their results, and one task takes them.
pub(crate) struct Gather<T> {
    ready: RefCell<VecDeque<T>>,
    arrived: Notify,
}

impl<T> Gather<T> {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            ready: RefCell::default(),
            arrived: Notify::new(),
        })
    }

    /// Leaves one.
    pub(crate) fn put(&self, value: T) {
        self.ready.borrow_mut().push_back(value);
        self.arrived.notify_all();
    }

    /// Takes the next; None when it has not come by `deadline`.
    pub(crate) async fn next(&self, deadline: Instant) -> Option<T> {
        loop {
            if let Some(value) = self.ready.borrow_mut().pop_front() {
                return Some(value);
            }
            let left = deadline.saturating_duration_since(runtime::now());
            if left.is_zero() || runtime::timeout(left, self.arrived.notified()).await.is_err() {
                return self.ready.borrow_mut().pop_front();
            }
        }
    }
}
