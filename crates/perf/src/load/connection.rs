//! One connection of a run, as closed loop and as open loop.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::Shutdown;
use std::rc::Rc;

use runtime::net::{ReadHalf, TcpStream, WriteHalf};
use runtime::{Instant, Notify};

use super::{Client, LoadError, Protocol, Run};

/// Room for the answers of one read.
const INPUT_BYTES: usize = 256 * 1024;

fn disconnected(what: &str, error: io::Error) -> LoadError {
    LoadError::Io(format!("connection to the server, {what}"), error)
}

fn ended(unanswered: usize) -> LoadError {
    let error = io::Error::from(io::ErrorKind::UnexpectedEof);
    disconnected(&format!("closed by it with {unanswered} requests unanswered"), error)
}

/// Each answer is followed by the next request. Gives the connection back, with nothing in flight.
pub(super) async fn closed_loop<P: Protocol>(client: Client<P>, run: &Rc<Run>) -> Result<TcpStream, LoadError> {
    let Client {
        mut stream,
        mut protocol,
        mut keys,
    } = client;
    let depth = run.plan.depth;
    let mut sent_at = vec![runtime::now(); usize::from(depth)];
    let mut answers = vec![0_u64; usize::from(depth)];
    let mut in_flight = 0_usize;
    let mut output = Vec::with_capacity(INPUT_BYTES);
    let mut input = Vec::with_capacity(INPUT_BYTES);
    let now = runtime::now();
    for slot in 0..depth {
        if run.take_operation(now)
            && let Some(key) = keys.next(slot)
        {
            protocol.append_request(&mut output, slot, key);
            sent_at[usize::from(slot)] = now;
            in_flight += 1;
        }
    }
    while in_flight > 0 {
        if !output.is_empty() {
            let (result, buffer) = stream.write_all(output).await;
            result.map_err(|error| disconnected("writing", error))?;
            output = buffer;
            output.clear();
        }
        let (result, buffer) = stream.read(input).await;
        input = buffer;
        if result.map_err(|error| disconnected("reading", error))? == 0 {
            return Err(ended(in_flight));
        }
        let now = runtime::now();
        let mut consumed = 0;
        let mut results = run.results.borrow_mut();
        while let Some(answer) = protocol.next_answer(&input[consumed..])? {
            consumed += answer.bytes;
            let slot = usize::from(answer.slot);
            let due = *sent_at.get(slot).ok_or_else(|| unknown_slot(answer.slot))?;
            answers[slot] += u64::from(run.count(&mut results, due, now, answer.outcome));
            in_flight -= 1;
            if run.take_operation(now)
                && let Some(key) = keys.next(answer.slot)
            {
                protocol.append_request(&mut output, answer.slot, key);
                sent_at[slot] = now;
                in_flight += 1;
            }
        }
        drop(results);
        keep_rest(&mut input, consumed);
    }
    let slowest = &mut run.results.borrow_mut().answers_of_slowest_client;
    *slowest = answers.into_iter().chain(*slowest).min();
    Ok(stream)
}

fn unknown_slot(slot: u16) -> LoadError {
    LoadError::Protocol(format!("an answer to request {slot}, which was not sent"))
}

/// Drops what was consumed, and makes room when an answer is longer than the buffer.
fn keep_rest(input: &mut Vec<u8>, consumed: usize) {
    if consumed == input.len() {
        input.clear();
    } else {
        input.drain(..consumed);
    }
    if input.len() == input.capacity() {
        input.reserve(INPUT_BYTES);
    }
}

/// What the two tasks of an open loop share.
struct Pending<P> {
    protocol: RefCell<P>,
    /// When the request in each slot was due.
    due: RefCell<Vec<Instant>>,
    free: RefCell<Vec<u16>>,
    slot_freed: Notify,
    all_sent: Cell<bool>,
    /// No further answers will be read.
    reader_ended: Cell<bool>,
}

/// Requests leave when they are due, or as soon as a slot is free after that.
pub(super) async fn open_loop<P: Protocol>(
    client: Client<P>,
    run: &Rc<Run>,
    first_due: Instant,
    interval: f64,
) -> Result<(), LoadError> {
    let Client {
        stream,
        protocol,
        mut keys,
    } = client;
    let depth = run.plan.depth;
    let pending = Rc::new(Pending {
        protocol: RefCell::new(protocol),
        due: RefCell::new(vec![first_due; usize::from(depth)]),
        free: RefCell::new((0..depth).rev().collect()),
        slot_freed: Notify::new(),
        all_sent: Cell::new(false),
        reader_ended: Cell::new(false),
    });
    let (read, mut write) = stream.into_split();
    let reader = {
        let (pending, run) = (Rc::clone(&pending), Rc::clone(run));
        runtime::spawn(async move {
            let result = read_answers(read, &pending, &run).await;
            pending.reader_ended.set(true);
            // The writer may be waiting for a slot that will not become free.
            pending.slot_freed.notify_all();
            result
        })
    };
    let mut output = Vec::with_capacity(INPUT_BYTES);
    let mut sent = 0_u64;
    let due_at = |number: u64| Instant::from_nanos(first_due.as_nanos() + (number as f64 * interval * 1e9) as u64);
    loop {
        let now = runtime::now();
        let mut exhausted = false;
        while due_at(sent) <= now {
            let Some(slot) = pending.free.borrow_mut().pop() else {
                break;
            };
            let key = if run.take_operation(now) { keys.next(slot) } else { None };
            let Some(key) = key else {
                pending.free.borrow_mut().push(slot);
                exhausted = true;
                break;
            };
            pending.due.borrow_mut()[usize::from(slot)] = due_at(sent);
            pending.protocol.borrow_mut().append_request(&mut output, slot, key);
            sent += 1;
        }
        if !output.is_empty() {
            output = write_out(&mut write, output).await?;
            continue;
        }
        let next = due_at(sent);
        if exhausted || now >= run.end.get() || pending.reader_ended.get() {
            break;
        }
        if next > now {
            runtime::sleep_until(next.min(run.end.get())).await;
        } else {
            let freed = pending.slot_freed.notified();
            if pending.free.borrow().is_empty() {
                // A server that stops answering must not keep us beyond the end.
                let left = run.end.get().saturating_duration_since(now);
                let _ = runtime::timeout(left, freed).await;
            }
        }
    }
    if run.plan.duration.is_some() {
        let behind_nanos = run.end.get().as_nanos().saturating_sub(due_at(sent).as_nanos());
        run.unsent
            .set(run.unsent.get() + (behind_nanos as f64 / 1e9 / interval) as u64);
    }
    pending.all_sent.set(true);
    if pending.free.borrow().len() == usize::from(depth) {
        // Nothing is in flight: the reader waits for an answer that will not come.
        write
            .shutdown(Shutdown::Both)
            .map_err(|error| disconnected("closing", error))?;
    }
    reader.await
}

async fn write_out(write: &mut WriteHalf, output: Vec<u8>) -> Result<Vec<u8>, LoadError> {
    let (result, mut buffer) = write.write_all(output).await;
    result.map_err(|error| disconnected("writing", error))?;
    buffer.clear();
    Ok(buffer)
}

async fn read_answers<P: Protocol>(mut read: ReadHalf, pending: &Pending<P>, run: &Run) -> Result<(), LoadError> {
    let depth = usize::from(run.plan.depth);
    let mut input = Vec::with_capacity(INPUT_BYTES);
    loop {
        let (result, buffer) = read.read(input).await;
        input = buffer;
        let in_flight = depth - pending.free.borrow().len();
        match result {
            Ok(0) | Err(_) if pending.all_sent.get() && in_flight == 0 => return Ok(()),
            Ok(0) => return Err(ended(in_flight)),
            Ok(_) => {}
            Err(error) => return Err(disconnected("reading", error)),
        }
        let now = runtime::now();
        let mut consumed = 0;
        {
            let mut results = run.results.borrow_mut();
            let mut protocol = pending.protocol.borrow_mut();
            let mut free = pending.free.borrow_mut();
            while let Some(answer) = protocol.next_answer(&input[consumed..])? {
                consumed += answer.bytes;
                let due = pending.due.borrow().get(usize::from(answer.slot)).copied();
                let due = due.ok_or_else(|| unknown_slot(answer.slot))?;
                run.count(&mut results, due, now, answer.outcome);
                free.push(answer.slot);
            }
        }
        if consumed > 0 {
            pending.slot_freed.notify_one();
        }
        keep_rest(&mut input, consumed);
        if pending.all_sent.get() && pending.free.borrow().len() == depth {
            return Ok(());
        }
    }
}
