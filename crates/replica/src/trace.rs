//! The trace of one request: what a node did for it, step by step, if its client asked for that.
//!
//! A [`Trace`] is what one shard notes. While the task that works on the request is polled, its trace is the task's
//! companion (`runtime::set_companion`), and [`note`] adds to it. Requests that are not traced pay for [`note`] with
//! one look at a cell of the thread.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use runtime::Instant;

/// Events kept of one request on one shard; a scan of many tablets has more.
const EVENTS_MAX: usize = 500;

/// A request's id in `system_traces`.
pub type TraceId = [u8; 16];

/// One step of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Since the trace began on this shard.
    pub elapsed: Duration,
    /// Of the wall clock, microseconds since 1970.
    pub at_us: i64,
    /// What was done.
    pub activity: String,
}

/// The events of one request on one shard.
#[derive(Debug)]
pub struct Trace {
    /// The request.
    pub id: TraceId,
    began: Instant,
    began_us: i64,
    events: RefCell<Vec<Event>>,
}

impl Trace {
    /// Begins now.
    #[must_use]
    pub fn begin(id: TraceId) -> Rc<Self> {
        Rc::new(Self {
            id,
            began: runtime::now(),
            began_us: runtime::wall_clock_us(),
            events: RefCell::default(),
        })
    }

    /// When it began: microseconds since 1970.
    #[must_use]
    pub fn began_us(&self) -> i64 {
        self.began_us
    }

    /// Adds an event.
    pub fn note(&self, activity: impl Into<String>) {
        let mut events = self.events.borrow_mut();
        if events.len() < EVENTS_MAX {
            let elapsed = self.elapsed();
            events.push(Event {
                elapsed,
                at_us: self.began_us + i64::try_from(elapsed.as_micros()).unwrap_or(0),
                activity: activity.into(),
            });
        }
    }

    /// The time since it began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Removes and returns the events so far.
    #[must_use]
    pub fn take(&self) -> Vec<Event> {
        self.events.take()
    }

    /// Runs `work` with this as the current trace.
    pub async fn during<T>(self: &Rc<Self>, work: impl Future<Output = T>) -> T {
        Traced {
            trace: Rc::clone(self),
            work: pin!(work),
        }
        .await
    }

    /// Calls `work` with this as the current trace.
    pub fn within<T>(self: &Rc<Self>, work: impl FnOnce() -> T) -> T {
        let _current = Current::set(Some(Rc::clone(self)));
        work()
    }

    /// The trace of the request that the thread works on, if that is traced.
    #[inline]
    #[must_use]
    pub fn current() -> Option<Rc<Self>> {
        if runtime::has_companion() {
            runtime::companion()?.downcast().ok()
        } else {
            None
        }
    }
}

/// Adds an event to the current trace, if there is one.
#[inline]
pub fn note(activity: impl FnOnce() -> String) {
    if runtime::has_companion() {
        note_traced(activity);
    }
}

#[cold]
fn note_traced(activity: impl FnOnce() -> String) {
    if let Some(trace) = Trace::current() {
        trace.note(activity());
    }
}

struct Traced<'w, W> {
    trace: Rc<Trace>,
    work: Pin<&'w mut W>,
}

impl<W: Future> Future for Traced<'_, W> {
    type Output = W::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<W::Output> {
        let _current = Current::set(Some(Rc::clone(&self.trace)));
        self.work.as_mut().poll(context)
    }
}

/// Puts the former trace back.
struct Current(Option<Rc<dyn Any>>);

impl Current {
    fn set(trace: Option<Rc<Trace>>) -> Self {
        Self(runtime::set_companion(trace.map(|trace| trace as Rc<dyn Any>)))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        runtime::set_companion(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use runtime::sim::Simulation;

    use super::*;

    #[test]
    fn events_go_to_the_request_that_is_worked_on() {
        let mut sim = Simulation::new(1);
        let node = sim.add_node(1);
        let said = Arc::new(Mutex::new(Vec::new()));
        let out = said.clone();
        sim.start(node, move |_| {
            let out = out.clone();
            Box::pin(async move {
                let (first, second) = (Trace::begin([1; 16]), Trace::begin([2; 16]));
                let work = |name: &'static str| async move {
                    note(|| format!("{name} begins"));
                    runtime::sleep(Duration::from_millis(5)).await;
                    note(|| format!("{name} ends"));
                };
                let (one, other) = (first.clone(), second.clone());
                let beside = runtime::spawn(async move { other.during(work("second")).await });
                one.during(work("first")).await;
                beside.await;
                note(|| "nobody's".to_owned());
                let mut said = out.lock().expect("one thread");
                for trace in [first, second] {
                    let events = trace.take();
                    assert!(events[1].elapsed >= Duration::from_millis(5));
                    said.extend(events.into_iter().map(|event| event.activity));
                }
            })
        });
        assert!(sim.run_until_ended(node, Duration::from_secs(10)), "it did not end");
        let said = said.lock().expect("one thread");
        assert_eq!(*said, ["first begins", "first ends", "second begins", "second ends"]);
    }
}
