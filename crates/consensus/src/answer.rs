//! One value that a task of this shard waits for.

use runtime::Notify;
use std::cell::RefCell;
use std::rc::Rc;

/// Both ends of it.
pub(crate) struct Answer<T>(Rc<Inner<T>>);

struct Inner<T> {
    value: RefCell<Option<T>>,
    told: Notify,
}

impl<T> Clone for Answer<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Answer<T> {
    pub(crate) fn new() -> Self {
        Self(Rc::new(Inner {
            value: RefCell::new(None),
            told: Notify::new(),
        }))
    }

    pub(crate) fn give(&self, value: T) {
        *self.0.value.borrow_mut() = Some(value);
        self.0.told.notify_all();
    }

    pub(crate) async fn wait(self) -> T {
        loop {
            let told = self.0.told.notified();
            if let Some(value) = self.0.value.borrow_mut().take() {
                return value;
            }
            told.await;
        }
    }
}
