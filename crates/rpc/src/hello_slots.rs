//! Slots of connections that have not identified themselves yet. Connections from addresses of members have slots of
//! their own.
//!
//! When all slots are taken, the connection that has waited longest gives its slot to the new one and is closed. So a
//! silent connection keeps a slot only until another needs it, and a flood of strangers takes no slot of a member.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use runtime::Notify;

use crate::config::HELLOS_MAX;

/// The slots of one shard.
#[derive(Default)]
pub(crate) struct HelloSlots {
    members: Line,
    others: Line,
}

/// Those that are under way, in the order in which they came.
#[derive(Default)]
struct Line(RefCell<VecDeque<Rc<SlotState>>>);

#[derive(Default)]
struct SlotState {
    is_needed: Cell<bool>,
    needed: Notify,
}

/// A connection's slot; given back when it is dropped.
pub(crate) struct HelloSlot<'a> {
    line: &'a Line,
    taken: Rc<SlotState>,
}

impl HelloSlots {
    /// A slot for a connection from the address of a member, or of another.
    pub(crate) fn enter(&self, is_member: bool) -> HelloSlot<'_> {
        let line = if is_member { &self.members } else { &self.others };
        let mut under_way = line.0.borrow_mut();
        if under_way.len() >= HELLOS_MAX
            && let Some(oldest) = under_way.pop_front()
        {
            oldest.is_needed.set(true);
            oldest.needed.notify_all();
        }
        let taken = Rc::<SlotState>::default();
        under_way.push_back(taken.clone());
        HelloSlot { line, taken }
    }
}

impl HelloSlot<'_> {
    /// What comes of `work`; None when the slot is needed before.
    pub(crate) async fn unless_needed<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let (mut needed, mut work) = (pin!(self.taken.needed.notified()), pin!(work));
        if self.taken.is_needed.get() {
            return None;
        }
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => needed.as_mut().poll(context).map(|()| None),
        })
        .await
    }
}

impl Drop for HelloSlot<'_> {
    fn drop(&mut self) {
        self.line.0.borrow_mut().retain(|taken| !Rc::ptr_eq(taken, &self.taken));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::task::{Context, Waker};

    use super::*;

    fn is_closed(slot: &HelloSlot<'_>) -> bool {
        let waits = pin!(slot.unless_needed(pending::<()>()));
        matches!(waits.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(None))
    }

    #[test]
    fn the_oldest_gives_way_and_members_do_not_give_way_to_others() {
        let slots = HelloSlots::default();
        let member = slots.enter(true);
        let mut others: Vec<_> = (0..HELLOS_MAX).map(|_| slots.enter(false)).collect();
        assert!(!others.iter().any(is_closed), "there are as many slots");
        others.push(slots.enter(false));
        let closed: Vec<bool> = others.iter().map(is_closed).collect();
        assert!(closed[0] && !closed[1..].contains(&true), "not the oldest: {closed:?}");
        others.remove(1);
        others.push(slots.enter(false));
        assert_eq!(
            others.iter().filter(|slot| is_closed(slot)).count(),
            1,
            "one had left its slot"
        );
        assert!(!is_closed(&member), "a member gave way to others");
    }
}
