//! One request to several replicas, awaited by one task.
//!
//! The task that asks polls all branches itself: there is no task, no queue and no timer for each. Requests to other
//! nodes are on their way when they are added; work for this node begins when answers are first awaited. Dropping a fan
//! cancels what has not answered. If all of it has to be done, the caller hands the fan to a task when it has waited
//! enough.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Poll};

use runtime::{Instant, ShardId, Sleep};
use smallvec::SmallVec;
use topology::Replica;

use crate::service::ReplicaError;
use crate::{ClusterView, Context, Coordinator, TargetError, Verb, trace};

/// A replica's answer: a value of this node, or the bytes that another node sent.
pub(crate) enum Response<T> {
    Local(T),
    Remote(Vec<u8>),
}

/// One replica's answer or error.
pub(crate) type Outcome<T> = (Replica, Result<Response<T>, TargetError>);

type Work<T> = Pin<Box<dyn Future<Output = Result<T, ReplicaError>>>>;

enum Branch<T> {
    Here(Work<T>),
    There(rpc::Call),
    /// The outcome is known; it is returned once.
    Known(Option<Result<Response<T>, TargetError>>),
}

/// See the module.
pub(crate) struct Fan<T> {
    branches: SmallVec<[(Replica, Branch<T>); 4]>,
    /// How many have not answered.
    outstanding: usize,
    /// The instant that the timer was set to.
    timer: Option<(Instant, Sleep)>,
}

impl<T: 'static> Fan<T> {
    pub(crate) fn new() -> Self {
        Self {
            branches: SmallVec::new(),
            outstanding: 0,
            timer: None,
        }
    }

    fn push(&mut self, replica: Replica, branch: Branch<T>) {
        self.outstanding += 1;
        self.branches.push((replica, branch));
    }

    /// Asks another node; a request with a fenced verb is stamped already. The other node receives until when an answer
    /// is waited for; the fan itself waits as long as [`Fan::next`] says.
    pub(crate) fn call(
        &mut self,
        (context, view): (&Context, &ClusterView),
        replica: Replica,
        verb: Verb,
        body: Vec<u8>,
        until: Instant,
    ) {
        let branch = match (&context.rpc, view.peer(replica.node)) {
            (Some(rpc), Some(peer)) => {
                let shard = u32::from(replica.shard);
                let timeout = until.saturating_duration_since(runtime::now());
                let call = rpc.call(&peer, shard, trace::purpose(verb), body, timeout);
                Branch::There(call.without_timer())
            }
            _ => Branch::Known(Some(Err(TargetError::without_connections()))),
        };
        self.push(replica, branch);
    }

    /// Asks this shard.
    pub(crate) fn here(&mut self, replica: Replica, work: impl Future<Output = Result<T, ReplicaError>> + 'static) {
        self.push(replica, Branch::Here(Box::pin(work)));
    }

    /// Asks another shard of this node.
    pub(crate) fn beside<F>(&mut self, replica: Replica, work: impl FnOnce(Rc<Coordinator>) -> F + Send + 'static)
    where
        F: Future<Output = Result<T, ReplicaError>> + 'static,
        T: Send,
    {
        let shard = ShardId(u32::from(replica.shard));
        self.here(replica, trace::submit(shard, move || work(Coordinator::local())));
    }

    /// The next answer; None when none has come by `until`, or all replicas have answered.
    pub(crate) async fn next(&mut self, until: Instant) -> Option<Outcome<T>> {
        if self.outstanding == 0 {
            return None;
        }
        poll_fn(|context| self.poll_next(until, context)).await
    }

    fn poll_next(&mut self, until: Instant, context: &mut task::Context<'_>) -> Poll<Option<Outcome<T>>> {
        for (replica, branch) in &mut self.branches {
            let result = match branch {
                Branch::Here(work) => work
                    .as_mut()
                    .poll(context)
                    .map(|r| r.map(Response::Local).map_err(TargetError::from)),
                Branch::There(call) => Pin::new(call)
                    .poll(context)
                    .map(|r| r.map(Response::Remote).map_err(TargetError::from)),
                Branch::Known(result) => match result.take() {
                    Some(result) => Poll::Ready(result),
                    None => continue,
                },
            };
            if let Poll::Ready(result) = result {
                *branch = Branch::Known(None);
                self.outstanding -= 1;
                return Poll::Ready(Some((*replica, result)));
            }
        }
        let timer = match &mut self.timer {
            Some((at, timer)) if *at == until => timer,
            other => &mut other.insert((until, runtime::sleep_until(until))).1,
        };
        Pin::new(timer).poll(context).map(|()| None)
    }
}
