//! Turns on partitions: statements that read a partition and then write it do so one after the other, first come, first
//! served.
//!
//! A partition of a table has a queue as long as a statement waits in it, has its turn, or has ended its turn and still
//! waits for the log. The queue remembers the log position after what its turns wrote, so that a statement that only
//! read what others wrote can wait until that is durable.
//!
//! Invariants
//! - One [`Turn`] for each partition at a time. A place in the queue is given up by dropping the future, a turn by
//!   dropping it.
//! - An empty queue is not remembered: memory follows the statements in progress.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use commitlog::ReplayPosition;
use runtime::{Permit, Semaphore};
use schema::TableId;

/// A table, and the key of one of its partitions.
type PartitionName = (TableId, Rc<[u8]>);

type Queues = RefCell<HashMap<PartitionName, Rc<Queue>, foldhash::fast::FixedState>>;

/// The queues for turns on the partitions of one shard. Each kind of statement has queues of its own.
#[derive(Clone, Default)]
pub struct PartitionTurns(Rc<Queues>);

struct Queue {
    turn: Semaphore,
    /// The position after what was written last.
    written: Cell<ReplayPosition>,
}

/// A turn on a partition: no other statement has one.
#[must_use = "dropping the turn ends it"]
pub struct Turn {
    // Dropped before `place`, which then knows whether another statement continues.
    permit: Permit,
    place: Queued,
}

/// A turn that has ended, whose writes may not be durable yet.
pub struct Ended(Queued);

/// Keeps the queue while a statement is in it.
struct Queued {
    queues: Rc<Queues>,
    name: PartitionName,
    queue: Rc<Queue>,
}

impl Drop for Queued {
    fn drop(&mut self) {
        // The two are the map's and this one: no other statement knows of what was written here.
        if Rc::strong_count(&self.queue) == 2 {
            self.queues.borrow_mut().remove(&self.name);
        }
    }
}

impl PartitionTurns {
    /// Waits for a turn on a partition.
    pub async fn take(&self, table: TableId, key: &[u8]) -> Turn {
        let name: PartitionName = (table, key.into());
        let queue = {
            let mut queues = self.0.borrow_mut();
            let queue = queues.entry(name.clone()).or_insert_with(|| {
                Rc::new(Queue {
                    turn: Semaphore::new(1),
                    written: Cell::default(),
                })
            });
            Rc::clone(queue)
        };
        let place = Queued {
            queues: Rc::clone(&self.0),
            name,
            queue,
        };
        let permit = place.queue.turn.acquire(1).await;
        Turn { permit, place }
    }

    /// The number of partitions on which a statement has a turn, waits for one, or waits for the log after one.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.0.borrow().len()
    }
}

impl Turn {
    /// Something was written in this turn; `position` is the one after it.
    pub fn wrote(&self, position: ReplayPosition) {
        self.place.queue.written.set(position);
    }

    /// Lets the next statement begin. The queue remembers what was written as long as the returned value is kept.
    pub fn end(self) -> Ended {
        drop(self.permit);
        Ended(self.place)
    }
}

impl Ended {
    /// The position after everything that was written in the turns so far.
    #[must_use]
    pub fn written(&self) -> ReplayPosition {
        self.0.queue.written.get()
    }
}
