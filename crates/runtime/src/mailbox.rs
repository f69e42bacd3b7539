//! Messages between shards of a node. Every ordered pair of shards has a bounded ring; a message is a closure that the
//! target runs in its mailbox poller, not in a task, and the same allocation travels back with the answer.
//!
//! When a ring is full, messages wait in an overflow queue of the sender, up to [`OVERFLOW_MAX`] for each target;
//! beyond that a message waits inside its own future, and messages are then only roughly in order. Until then they run
//! in the order they were sent. An answer is never made to wait beyond the overflow: answers are bounded by the
//! questions in flight.
//!
//! A target that has handled its last ring is rung at once. One that is still rung gets the next ring later, for all
//! that a few polls have sent: after every poll of a background task, after 16 of others, and when a slice ends. A
//! burst then moves the shared cache lines once, not once per message.

use crate::executor::{self, Executor, ShardId};
use crate::gate::Gate;
use crate::spsc::{Consumer, Producer};
use crate::task::Then;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Messages that wait for room in one target's ring before senders are made to wait themselves.
pub(crate) const OVERFLOW_MAX: usize = 16_384;

/// What travels in a ring.
pub(crate) enum Message {
    Ask(Arc<dyn Envelope>),
    Answer(Arc<dyn Envelope>),
}

/// One shard's ends of all its rings.
pub(crate) struct Mailboxes {
    to: Vec<Producer<Message>>,
    from: Vec<Consumer<Message>>,
    ring_capacity: usize,
    /// Targets that were sent something and not rung since.
    unrung: RefCell<Vec<u32>>,
    is_unrung: Vec<Cell<bool>>,
    overflow: RefCell<Vec<VecDeque<Message>>>,
    overflowing: Cell<usize>,
    /// Senders whose message found even the overflow full.
    waiting_for_room: RefCell<VecDeque<Waker>>,
    pub(crate) sent: Cell<u64>,
    pub(crate) received: Cell<u64>,
    pub(crate) overflowed: Cell<u64>,
}

impl Mailboxes {
    /// The mailboxes of all shards of a node.
    pub(crate) fn for_shards(shards: usize) -> Vec<Self> {
        // With many shards there are many rings; keep their memory within some tens of megabytes.
        let ring_capacity = if shards <= 16 { 1024 } else { 256 };
        let mut boxes: Vec<Self> = (0..shards).map(|_| Self::empty(shards, ring_capacity)).collect();
        for source in 0..shards {
            for target in 0..shards {
                let (producer, consumer) = crate::spsc::ring(if source == target { 1 } else { ring_capacity });
                boxes[source].to.push(producer);
                boxes[target].from.push(consumer);
            }
        }
        boxes
    }

    fn empty(shards: usize, ring_capacity: usize) -> Self {
        Self {
            to: Vec::with_capacity(shards),
            from: Vec::with_capacity(shards),
            ring_capacity,
            unrung: RefCell::default(),
            is_unrung: vec![Cell::new(false); shards],
            overflow: RefCell::new((0..shards).map(|_| VecDeque::new()).collect()),
            overflowing: Cell::new(0),
            waiting_for_room: RefCell::new(VecDeque::new()),
            sent: Cell::new(0),
            received: Cell::new(0),
            overflowed: Cell::new(0),
        }
    }

    /// Sends, or gives the message back when the overflow is full too. Answers are never given back.
    fn send(&self, own: u32, target_shard: u32, gate: &Gate, message: Message) -> Result<(), Message> {
        let target = target_shard as usize;
        let mut message = message;
        if self.overflowing.get() == 0 || self.overflow.borrow()[target].is_empty() {
            match self.to[target].push(message) {
                Ok(()) => {
                    self.sent.set(self.sent.get() + 1);
                    if !gate.is_rung() {
                        gate.ring_mailbox(own as usize);
                    } else if !self.is_unrung[target].replace(true) {
                        self.unrung.borrow_mut().push(target_shard);
                    }
                    return Ok(());
                }
                Err(back) => {
                    gate.ring_mailbox(own as usize);
                    message = back;
                }
            }
        }
        let queue = &mut self.overflow.borrow_mut()[target];
        if queue.len() >= OVERFLOW_MAX && matches!(message, Message::Ask(_)) {
            return Err(message);
        }
        queue.push_back(message);
        self.overflowing.set(self.overflowing.get() + 1);
        self.overflowed.set(self.overflowed.get() + 1);
        Ok(())
    }

    /// Rings the shards that were sent messages since the last call.
    #[inline]
    pub(crate) fn ring_targets(&self, own: u32, gates: &[&'static Gate]) {
        let mut unrung = self.unrung.borrow_mut();
        for target in unrung.drain(..) {
            self.is_unrung[target as usize].set(false);
            gates[target as usize].ring_mailbox(own as usize);
        }
    }

    /// Whether messages wait for room in a ring.
    pub(crate) fn is_overflowing(&self) -> bool {
        self.overflowing.get() > 0
    }

    /// Moves overflow into rings that have room again. Whether anything still waits.
    fn flush_overflow(&self, own: u32, gates: &[&'static Gate]) -> bool {
        if self.overflowing.get() == 0 {
            return false;
        }
        let mut moved = 0;
        for (target, queue) in self.overflow.borrow_mut().iter_mut().enumerate() {
            let before = moved;
            while let Some(message) = queue.pop_front() {
                if let Err(back) = self.to[target].push(message) {
                    queue.push_front(back);
                    break;
                }
                moved += 1;
            }
            if moved != before {
                gates[target].ring_mailbox(own as usize);
            }
        }
        self.sent.set(self.sent.get() + moved as u64);
        self.overflowing.set(self.overflowing.get() - moved);
        for waker in self.waiting_for_room.borrow_mut().drain(..) {
            waker.wake();
        }
        self.overflowing.get() > 0
    }
}

/// Receives what was sent to this shard and sends on what waits. `rung` says that the gate was answered. True when
/// there is more to do at once.
pub(crate) fn poll(executor: &Executor, rung: bool) -> bool {
    let boxes = &executor.mailboxes;
    if rung {
        let gate = executor.gate;
        gate.take_rung_mailboxes(boxes.from.len(), |source| {
            for _ in 0..boxes.ring_capacity {
                let Some(message) = boxes.from[source].pop() else {
                    return;
                };
                boxes.received.set(boxes.received.get() + 1);
                match message {
                    Message::Ask(envelope) => envelope.run(),
                    Message::Answer(envelope) => envelope.deliver(),
                }
            }
            // A sender that is faster than we are does not keep us here: come back next turn.
            gate.ring_mailbox(source);
        });
    }
    boxes.ring_targets(executor.shard, &executor.node.gates);
    boxes.flush_overflow(executor.shard, &executor.node.gates)
}

/// A message without its types.
pub(crate) trait Envelope: Send + Sync {
    /// On the target shard.
    fn run(self: Arc<Self>);
    /// Back on the shard that asked.
    fn deliver(&self);
}

/// What the future of the sender needs of its message.
trait Asked<T> {
    fn take_answer(&self, waker: &Waker) -> Option<T>;
}

/// One call and its answer. Ownership of the parts follows the message: `work` belongs to the shard that holds the
/// `Ask`, `answer` to the target until it sends the `Answer`, then to the asking shard; `delivered` and `waiter` always
/// belong to the asking shard.
struct Call<F, T> {
    origin: u32,
    work: UnsafeCell<Option<F>>,
    answer: UnsafeCell<Option<T>>,
    delivered: Cell<bool>,
    waiter: Cell<Option<Waker>>,
    run: fn(Arc<Self>),
}

// SAFETY: `run` is called once, by the target that popped the only `Ask`; it alone touches `work`, and touches `answer`
// before it pushes the `Answer`. The asking shard touches `answer` only after it popped the `Answer` (`delivered`). The
// rings hand over with release and acquire. F and T are Send, so it does not matter which thread drops the last
// reference.
unsafe impl<F: Send, T: Send> Sync for Call<F, T> {}
// SAFETY: all parts are Send.
unsafe impl<F: Send, T: Send> Send for Call<F, T> {}

impl<F: Send + 'static, T: Send + 'static> Call<F, T> {
    fn new(work: F, run: fn(Arc<Self>)) -> Arc<Self> {
        Arc::new(Self {
            origin: executor::shard().0,
            work: UnsafeCell::new(Some(work)),
            answer: UnsafeCell::new(None),
            delivered: Cell::new(false),
            waiter: Cell::new(None),
            run,
        })
    }

    /// On the target: takes the closure.
    fn take_work(&self) -> F {
        // SAFETY: called once from `run` on the target, which owns `work` while it holds the question (see the type).
        let work = unsafe { (*self.work.get()).take() };
        work.expect("a message is run once")
    }

    /// On the target: sends the answer back.
    fn send_answer(self: Arc<Self>, answer: T) {
        // SAFETY: the target owns `answer` until the message below is pushed.
        unsafe { *self.answer.get() = Some(answer) };
        let origin = self.origin;
        executor::with(|executor| {
            let gate = executor.node.gates[origin as usize];
            let sent = executor
                .mailboxes
                .send(executor.shard, origin, gate, Message::Answer(self));
            assert!(sent.is_ok(), "answers are never refused");
        });
    }
}

impl<F: Send + 'static, T: Send + 'static> Envelope for Call<F, T> {
    fn run(self: Arc<Self>) {
        (self.run)(self);
    }

    fn deliver(&self) {
        self.delivered.set(true);
        if let Some(waiter) = self.waiter.take() {
            waiter.wake();
        }
    }
}

impl<F: Send + 'static, T: Send + 'static> Asked<T> for Call<F, T> {
    fn take_answer(&self, waker: &Waker) -> Option<T> {
        if !self.delivered.get() {
            self.waiter.set(Some(waker.clone()));
            return None;
        }
        // SAFETY: the answer was delivered, so it belongs to the asking shard, where this future lives (it is not
        // Send).
        unsafe { (*self.answer.get()).take() }
    }
}

/// The answer of another shard, to be awaited. The message is sent when this is made; dropping it does not take the
/// message back.
#[must_use = "dropping this ignores the answer; say so with `drop`"]
pub struct Submitted<T> {
    state: State<T>,
    not_send: PhantomData<*const ()>,
}

enum State<T> {
    /// Asked of the own shard and answered on the spot.
    Answered(Option<T>),
    Sent(Arc<dyn Asked<T>>),
    /// Ring and overflow are full: the message waits here.
    Held {
        target: u32,
        message: Option<Message>,
        asked: Arc<dyn Asked<T>>,
    },
    /// A task of the own shard.
    Local(crate::JoinHandle<T>),
}

impl<T> Unpin for Submitted<T> {}

impl<T> Future for Submitted<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let State::Held { target, message, asked } = &mut self.state {
            match executor::with(|executor| try_send(executor, *target, message.take(), Some(context.waker()))) {
                Ok(()) => self.state = State::Sent(Arc::clone(asked)),
                Err(back) => {
                    *message = Some(back);
                    return Poll::Pending;
                }
            }
        }
        match &mut self.state {
            State::Answered(answer) => Poll::Ready(answer.take().expect("a future is not polled after it was ready")),
            State::Sent(asked) => match asked.take_answer(context.waker()) {
                Some(answer) => Poll::Ready(answer),
                None => Poll::Pending,
            },
            State::Local(handle) => Pin::new(handle).poll(context),
            State::Held { .. } => Poll::Pending,
        }
    }
}

fn try_send(executor: &Executor, target: u32, message: Option<Message>, waiter: Option<&Waker>) -> Result<(), Message> {
    let message = message.expect("a held message is there until it is sent");
    let sent = executor
        .mailboxes
        .send(executor.shard, target, executor.node.gates[target as usize], message);
    if let (Err(_), Some(waiter)) = (&sent, waiter) {
        executor
            .mailboxes
            .waiting_for_room
            .borrow_mut()
            .push_back(waiter.clone());
    }
    sent
}

fn send_call<F: Send + 'static, T: Send + 'static>(target: ShardId, call: Arc<Call<F, T>>) -> Submitted<T> {
    let asked: Arc<dyn Asked<T>> = Arc::clone(&call) as _;
    let sent = executor::with(|executor| {
        assert!(
            (target.0 as usize) < executor.node.gates.len(),
            "{target} does not exist on this node"
        );
        try_send(executor, target.0, Some(Message::Ask(call)), None)
    });
    let state = match sent {
        Ok(()) => State::Sent(asked),
        Err(message) => State::Held {
            target: target.0,
            message: Some(message),
            asked,
        },
    };
    Submitted {
        state,
        not_send: PhantomData,
    }
}

/// Runs the closure on another shard, in its mailbox poller: no task is made, so the closure should be short and must
/// not block. For the own shard it runs at once, inside this call. The closure finds the target's state by
/// [`crate::local`].
///
/// # Panics
/// When the node has no such shard.
pub fn submit_to<T: Send + 'static>(shard: ShardId, work: impl FnOnce() -> T + Send + 'static) -> Submitted<T> {
    if shard == executor::shard() {
        return Submitted {
            state: State::Answered(Some(work())),
            not_send: PhantomData,
        };
    }
    send_call(
        shard,
        Call::new(work, |call| {
            let answer = (call.take_work())();
            call.send_answer(answer);
        }),
    )
}

/// Runs the future that the closure makes as a task of another shard, in the statement group, and answers with its
/// output.
///
/// # Panics
/// When the node has no such shard.
pub fn submit_async_to<T, Fut>(shard: ShardId, work: impl FnOnce() -> Fut + Send + 'static) -> Submitted<T>
where
    T: Send + 'static,
    Fut: Future<Output = T> + 'static,
{
    if shard == executor::shard() {
        return Submitted {
            state: State::Local(executor::spawn(work())),
            not_send: PhantomData,
        };
    }
    send_call(
        shard,
        Call::new(work, |call| {
            let future = (call.take_work())();
            let answered = Then::new(future, move |answer| call.send_answer(answer));
            drop(executor::spawn_in(crate::Group::STATEMENT, answered));
        }),
    )
}
