//! Tasks that a test hands to a program inside a simulation.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use super::{NodeId, Simulation};

type Task<T> = Box<dyn FnOnce(T) -> Pin<Box<dyn Future<Output = ()>>>>;

/// Tasks for one shard, which the test shares with the program there. A task gets a `T`, the program's own handle.
pub struct TaskQueue<T> {
    tasks: RefCell<VecDeque<Task<T>>>,
    waker: RefCell<Option<Waker>>,
}

impl<T> Default for TaskQueue<T> {
    fn default() -> Self {
        Self {
            tasks: RefCell::default(),
            waker: RefCell::default(),
        }
    }
}

impl<T> fmt::Debug for TaskQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = self.tasks.borrow().len();
        f.debug_struct("TaskQueue").field("tasks", &tasks).finish()
    }
}

impl<T: Clone> TaskQueue<T> {
    /// Starts the tasks as they come; never returns. For the program on the shard.
    pub async fn serve(&self, handle: T) {
        loop {
            let task = poll_fn(|context| match self.tasks.borrow_mut().pop_front() {
                Some(task) => Poll::Ready(task),
                None => {
                    *self.waker.borrow_mut() = Some(context.waker().clone());
                    Poll::Pending
                }
            })
            .await;
            drop(crate::spawn(task(handle.clone())));
        }
    }

    /// Drops the tasks that have not started, after their process has ended.
    pub fn clear(&self) {
        self.tasks.take();
        self.waker.take();
    }
}

impl Simulation {
    /// Starts a task on the shard of `node` that serves the queue; the cell gets its output.
    pub fn spawn<T: 'static, O: 'static, F: Future<Output = O> + 'static>(
        &mut self,
        node: NodeId,
        queue: &TaskQueue<T>,
        task: impl FnOnce(T) -> F + 'static,
    ) -> Rc<RefCell<Option<O>>> {
        let output = Rc::new(RefCell::new(None));
        let result = output.clone();
        queue.tasks.borrow_mut().push_back(Box::new(|handle| {
            let task = task(handle);
            Box::pin(async move {
                let value = task.await;
                *result.borrow_mut() = Some(value);
            })
        }));
        let waker = queue.waker.take();
        self.on_node(node, || {
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        output
    }

    /// Runs a task on the shard of `node` that serves the queue, and the simulation until the task ends.
    ///
    /// # Panics
    /// When it does not end within `limit`.
    pub fn run_task<T: 'static, O: 'static, F: Future<Output = O> + 'static>(
        &mut self,
        node: NodeId,
        queue: &TaskQueue<T>,
        limit: Duration,
        task: impl FnOnce(T) -> F + 'static,
    ) -> O {
        let output = self.spawn(node, queue, task);
        let is_done = self.run_until(limit, || output.borrow().is_some());
        assert!(is_done, "a task on {node} does not end");
        output.take().expect("it is done")
    }
}
