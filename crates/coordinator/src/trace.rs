//! What a coordinator notes of one request whose client asked for a trace.
//!
//! A request that is traced runs in a task of its own. While that task is polled its trace is the thread's current one, and [`note`] adds to it; what sends
//! requests to replicas keeps it, for their answers come outside of the task. Nothing else pays for traces but a look at a cell for each request to replicas.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use runtime::Instant;

/// So many events are kept of one request: a scan of many tablets has more.
const EVENTS_MAX: usize = 500;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Trace>>> = const { RefCell::new(None) };
    /// Whether there is a current trace: cheaper to ask.
    static IS_TRACED: Cell<bool> = const { Cell::new(false) };
}

/// The events of one request.
#[derive(Debug)]
pub struct Trace {
    began: Instant,
    events: RefCell<Vec<(Duration, String)>>,
}

impl Trace {
    /// Begins now.
    #[must_use]
    pub fn begin() -> Rc<Self> {
        Rc::new(Self {
            began: runtime::now(),
            events: RefCell::default(),
        })
    }

    /// Adds an event.
    pub fn note(&self, activity: impl Into<String>) {
        let mut events = self.events.borrow_mut();
        if events.len() < EVENTS_MAX {
            events.push((self.elapsed(), activity.into()));
        }
    }

    /// How long ago it began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The events so far, each with the time since the beginning.
    #[must_use]
    pub fn take(&self) -> Vec<(Duration, String)> {
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

    /// The trace of the request that is being worked on, if it is traced.
    #[inline]
    #[must_use]
    pub fn current() -> Option<Rc<Self>> {
        match IS_TRACED.get() {
            false => None,
            true => CURRENT.with_borrow(Clone::clone),
        }
    }
}

/// Adds an event to the current trace, if there is one.
#[inline]
pub fn note(activity: impl FnOnce() -> String) {
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
struct Current(Option<Rc<Trace>>);

impl Current {
    fn set(trace: Option<Rc<Trace>>) -> Self {
        IS_TRACED.set(trace.is_some());
        Self(CURRENT.replace(trace))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        IS_TRACED.set(self.0.is_some());
        CURRENT.set(self.0.take());
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
                let (first, second) = (Trace::begin(), Trace::begin());
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
                    assert!(events[1].0 >= Duration::from_millis(5));
                    said.extend(events.into_iter().map(|(_, activity)| activity));
                }
            })
        });
        assert!(sim.run_until_ended(node, Duration::from_secs(10)), "it did not end");
        let said = said.lock().expect("one thread");
        assert_eq!(*said, ["first begins", "first ends", "second begins", "second ends"]);
    }
}
