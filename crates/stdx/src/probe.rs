//! What a simulation learns of requests from the inside.
//!
//! A coordinator counts answers by datacenter; it does not need to know which replicas gave them. To check that each
//! acknowledged request had its answers from *distinct* replicas, in the right datacenters, it keeps their names in
//! [`Answered`] and passes them to the thread's watcher ([`Watch`]). In builds without debug assertions an [`Answered`]
//! has no size, and nothing is passed.
//!
//! To check what a request does and in which order, each layer names its steps ([`step`]); `crates/sim/tests/steps` has
//! them as text.

use std::marker::PhantomData;
use std::net::IpAddr;

/// An acknowledged request, or a part of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acknowledged {
    /// What was done.
    pub what: &'static str,
    /// The consistency level, by its number in the protocol.
    pub level: u16,
    /// The node that acknowledged it.
    pub coordinator: IpAddr,
    /// Whose answers it counted.
    pub replicas: Vec<IpAddr>,
}

type Watcher = Box<dyn Fn(&Acknowledged)>;

thread_local! {
    static WATCHER: std::cell::RefCell<Option<Watcher>> = const { std::cell::RefCell::new(None) };
}

/// Passes every acknowledgement in this thread to a function as long as it lives.
#[derive(Debug)]
pub struct Watch(());

impl Watch {
    /// Begins to watch, in place of the previous watcher.
    #[must_use]
    pub fn new(watcher: impl Fn(&Acknowledged) + 'static) -> Self {
        WATCHER.set(Some(Box::new(watcher)));
        Self(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHER.set(None);
    }
}

type StepWatcher = Box<dyn Fn(String)>;

thread_local! {
    static STEP_WATCHER: std::cell::RefCell<Option<StepWatcher>> = const { std::cell::RefCell::new(None) };
}

/// Passes every [`step`] in this thread to a function as long as it lives.
#[derive(Debug)]
pub struct StepWatch(());

impl StepWatch {
    /// Begins to watch, in place of the previous watcher.
    #[must_use]
    pub fn new(watcher: impl Fn(String) + 'static) -> Self {
        STEP_WATCHER.set(Some(Box::new(watcher)));
        Self(())
    }
}

impl Drop for StepWatch {
    fn drop(&mut self) {
        STEP_WATCHER.set(None);
    }
}

/// A request takes a step that a test watches. Nothing in builds without debug assertions.
#[inline]
pub fn step(words: impl FnOnce() -> String) {
    #[cfg(debug_assertions)]
    STEP_WATCHER.with_borrow(|watcher| {
        if let Some(watcher) = watcher {
            watcher(words());
        }
    });
    #[cfg(not(debug_assertions))]
    let _ = words;
}

/// The replicas whose answers a request has counted so far.
#[derive(Clone, Debug)]
pub struct Answered<R> {
    #[cfg(debug_assertions)]
    replicas: Vec<R>,
    names: PhantomData<R>,
}

impl<R> Default for Answered<R> {
    fn default() -> Self {
        Self {
            #[cfg(debug_assertions)]
            replicas: Vec::new(),
            names: PhantomData,
        }
    }
}

impl<R> Answered<R> {
    /// One more answer counts.
    #[inline]
    pub fn add(&mut self, replica: R) {
        #[cfg(debug_assertions)]
        self.replicas.push(replica);
        #[cfg(not(debug_assertions))]
        let _ = replica;
    }

    /// All of these count.
    #[inline]
    #[must_use]
    pub fn of(replicas: impl Iterator<Item = R>) -> Self {
        let mut answered = Self::default();
        if cfg!(debug_assertions) {
            replicas.for_each(|replica| answered.add(replica));
        }
        answered
    }

    /// The request is acknowledged. `address` is that of the node of a replica.
    #[inline]
    pub fn acknowledge(&self, what: &'static str, level: u16, coordinator: R, address: impl Fn(&R) -> IpAddr) {
        #[cfg(debug_assertions)]
        WATCHER.with_borrow(|watcher| {
            if let Some(watcher) = watcher {
                watcher(&Acknowledged {
                    what,
                    level,
                    coordinator: address(&coordinator),
                    replicas: self.replicas.iter().map(address).collect(),
                });
            }
        });
        #[cfg(not(debug_assertions))]
        let _ = (what, level, coordinator, address);
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn an_acknowledgement_is_told_to_whoever_watches_and_to_nobody_else() {
        let address = |n: &u8| IpAddr::from([10, 0, 0, *n]);
        let mut answered = Answered::default();
        answered.add(1);
        answered.add(1);
        answered.acknowledge("write", 4, 7, address);
        let seen = Rc::new(RefCell::new(Vec::new()));
        let told = seen.clone();
        let watch = Watch::new(move |a| told.borrow_mut().push(a.clone()));
        answered.acknowledge("write", 4, 7, address);
        drop(watch);
        answered.acknowledge("write", 4, 7, address);
        let expected = Acknowledged {
            what: "write",
            level: 4,
            coordinator: address(&7),
            replicas: vec![address(&1); 2],
        };
        assert_eq!(*seen.borrow(), [expected]);
    }

    #[test]
    fn a_step_is_told_to_whoever_watches_and_costs_no_words_otherwise() {
        step(|| panic!("there is no watch"));
        let seen = Rc::new(RefCell::new(Vec::new()));
        let told = seen.clone();
        let watch = StepWatch::new(move |words| told.borrow_mut().push(words));
        step(|| "one".to_owned());
        drop(watch);
        step(|| panic!("the watch is gone"));
        assert_eq!(*seen.borrow(), ["one"]);
    }
}
