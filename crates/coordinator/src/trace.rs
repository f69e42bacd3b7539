//! Traces that follow a request to its replicas.
//!
//! A request to a replica on another node is wrapped when it is traced: [`Verb::Traced`](crate::Verb::Traced), then
//!
//! | bytes | what |
//! |---|---|
//! | 0..16 | id of the trace |
//! | 16..18 | the verb, big-endian |
//! | 18.. | the body of that verb |
//!
//! A replica notes its own steps and keeps them itself, as Cassandra's do: the answer has no field for them, and the
//! steps that matter most are those of a replica that answers too late. They are kept when its work ends, even if the
//! coordinator has stopped waiting. The query engine registers the function that keeps them
//! ([`Coordinator::on_trace`]).

use std::future::Future;
use std::rc::Rc;

use runtime::{ShardId, Submitted};

use crate::{Coordinator, Verb};

pub use replica::trace::{Event, Trace, TraceId, note};

/// Bytes before the body of a wrapped request.
pub(crate) const WRAPPED_BYTES: usize = size_of::<TraceId>() + size_of::<u16>();

/// Keeps the events of a trace: called once, when the work of a shard has ended.
pub type Keeper = Box<dyn Fn(Rc<Trace>)>;

/// Writes what precedes the body of a wrapped request.
pub(crate) fn put_wrapping(id: &TraceId, verb: Verb, out: &mut Vec<u8>) {
    out.extend_from_slice(id);
    out.extend_from_slice(&(verb as u16).to_be_bytes());
}

/// A request as it is sent: wrapped if it is traced.
pub(crate) fn wrapped(verb: Verb, body: Vec<u8>) -> (Verb, Vec<u8>) {
    let Some(id) = Trace::current().map(|trace| trace.id) else {
        return (verb, body);
    };
    let mut out = Vec::with_capacity(WRAPPED_BYTES + body.len());
    put_wrapping(&id, verb, &mut out);
    out.extend_from_slice(&body);
    (Verb::Traced, out)
}

/// The trace, the verb and the body of a wrapped request; None: it is cut short.
pub(crate) fn unwrapped(body: &[u8]) -> Option<(TraceId, u16, &[u8])> {
    let (id, rest) = body.split_first_chunk()?;
    let (verb, body) = rest.split_first_chunk()?;
    Some((*id, u16::from_be_bytes(*verb), body))
}

/// Does on this shard what another shard of this node asked for, with a trace of its own if that request is traced.
pub async fn beside<T>(id: Option<TraceId>, work: impl Future<Output = T>) -> T {
    let Some(id) = id else { return work.await };
    let trace = Trace::begin(id);
    let done = trace.during(work).await;
    Coordinator::local().keep_trace(trace);
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

impl Coordinator {
    /// Registers what keeps the events that this shard notes as a replica.
    pub fn on_trace(&self, keeper: Keeper) {
        *self.trace_keeper.borrow_mut() = Some(keeper);
    }

    /// Keeps the events of work that has ended.
    pub(crate) fn keep_trace(&self, trace: Rc<Trace>) {
        if let Some(keeper) = &*self.trace_keeper.borrow() {
            keeper(trace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_request_is_read_back_and_a_short_one_is_none() {
        let mut body = Vec::new();
        put_wrapping(&[7; 16], Verb::Read, &mut body);
        assert_eq!(body.len(), WRAPPED_BYTES);
        body.extend_from_slice(b"body");
        assert_eq!(unwrapped(&body), Some(([7; 16], Verb::Read as u16, &b"body"[..])));
        assert!((0..WRAPPED_BYTES).all(|length| unwrapped(&body[..length]).is_none()));
    }
}
