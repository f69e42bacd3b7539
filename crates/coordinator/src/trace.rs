//! Traces that follow a request to its replicas.
//!
//! The header of a request to a replica on another node has the id of its trace ([`rpc::Purpose`]).
//!
//! A replica notes its own steps and keeps them itself, as Cassandra's do: the answer has no field for them, and the
//! steps that matter most are those of a replica that answers too late. They are kept when its work ends, even if the
//! coordinator has stopped waiting. The query engine registers the function that keeps them
//! ([`Traces::on_end`]).

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use rpc::Purpose;
use runtime::{ShardId, Submitted};

use crate::{Coordinator, Verb};

pub use replica::trace::{Event, Trace, TraceId, note};

/// Keeps the events of a trace: called once, when the work of a shard has ended.
pub type Keeper = Box<dyn Fn(Rc<Trace>)>;

/// What a part of the current request is for, as another node gets it.
#[inline]
pub(crate) fn purpose(verb: Verb) -> Purpose {
    Purpose {
        verb: verb as u16,
        trace: current_id(),
    }
}

/// Does on this shard what another shard of this node asked for, with a trace of its own if that request is traced.
pub async fn beside<T>(id: Option<TraceId>, work: impl Future<Output = T>) -> T {
    let Some(id) = id else { return work.await };
    let trace = Trace::begin(id);
    let done = trace.during(work).await;
    Coordinator::local().traces.keep(trace);
    done
}

/// Does a part of the current request on another shard of this node, or on this one: preemptible, and with a trace if
/// the request is traced.
pub fn submit<T, F>(shard: ShardId, work: impl FnOnce() -> F + Send + 'static) -> Submitted<T>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let traced = current_id();
    runtime::submit_async_to(shard, move || runtime::preemptible(beside(traced, work())))
}

/// `work` for a task of its own, with the trace that is the current one now.
pub fn carried<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let trace = Trace::current();
    async move {
        match trace {
            Some(trace) => trace.during(work).await,
            None => work.await,
        }
    }
}

/// The id of the current trace.
#[inline]
#[must_use]
pub fn current_id() -> Option<TraceId> {
    Trace::current().map(|trace| trace.id)
}

/// Keeps the events that one shard notes as a replica.
#[derive(Default)]
pub struct Traces {
    keeper: RefCell<Option<Keeper>>,
}

impl Traces {
    /// Registers what keeps the events that this shard notes as a replica.
    pub fn on_end(&self, keeper: Keeper) {
        *self.keeper.borrow_mut() = Some(keeper);
    }

    /// Keeps the events of work that has ended.
    pub(crate) fn keep(&self, trace: Rc<Trace>) {
        if let Some(keeper) = &*self.keeper.borrow() {
            keeper(trace);
        }
    }
}
