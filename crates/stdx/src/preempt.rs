//! Preemption points: steps of a long computation at which it can be suspended, so that other tasks of its thread run.
//!
//! A loop whose length a client chooses calls [`point`] at each step. A point suspends the computation only if its
//! caller can do so ([`offer`], which `runtime::preemptible` calls) and preemption is allowed there ([`allowed`]).
//! Other tasks run while a computation is suspended: allow preemption only where no `RefCell` that they use is
//! borrowed. Elsewhere a point costs one read of a thread-local variable.

use std::cell::Cell;
use std::cmp::Ordering;

type Hook = Option<fn()>;

thread_local! {
    /// What a point does now.
    static HOOK: Cell<Hook> = const { Cell::new(None) };
    /// What a point does where preemption is allowed.
    static OFFERED: Cell<Hook> = const { Cell::new(None) };
    /// Points since the hook was called or offered.
    static POINTS: Cell<u32> = const { Cell::new(0) };
}

/// The hook is called at each of so many points: it asks a clock, which costs more than most steps.
const POINTS_PER_CALL: u32 = 8;

/// A preemption point. Cheap enough for every element of a collection.
#[inline]
pub fn point() {
    if let Some(hook) = HOOK.get() {
        reach(hook);
    }
}

#[inline(never)]
fn reach(hook: fn()) {
    let points = POINTS.get() + 1;
    POINTS.set(points);
    if points >= POINTS_PER_CALL {
        POINTS.set(0);
        hook();
    }
}

/// A preemption point after a step that takes as long as many others, such as a copy of some kilobytes: it asks the
/// clock each time.
#[inline]
pub fn long_step() {
    if let Some(hook) = HOOK.get() {
        hook();
    }
}

/// Bytes that are copied, hashed or checksummed between two preemption points.
pub const STEP_BYTES: usize = 64 << 10;

/// Appends bytes with preemption points in between: new memory costs more by the page than the copy does.
#[inline]
pub fn append(out: &mut Vec<u8>, bytes: &[u8]) {
    reserve(out, bytes.len());
    if bytes.len() <= STEP_BYTES {
        return out.extend_from_slice(bytes);
    }
    append_long(out, bytes);
}

/// Makes room for so many elements more. A large vector moves to at least twice the memory with preemption points in
/// between.
#[inline]
pub fn reserve<T>(items: &mut Vec<T>, more: usize) {
    if items.capacity() - items.len() < more {
        grow(items, more);
    }
}

#[cold]
fn append_long(out: &mut Vec<u8>, bytes: &[u8]) {
    for piece in bytes.chunks(STEP_BYTES) {
        out.extend_from_slice(piece);
        long_step();
    }
}

/// Appends an element; memory as by [`reserve`].
#[inline]
pub fn push<T>(items: &mut Vec<T>, item: T) {
    reserve(items, 1);
    items.push(item);
}

#[cold]
fn grow<T>(items: &mut Vec<T>, more: usize) {
    let piece = STEP_BYTES / size_of::<T>().max(1);
    if items.len() <= piece {
        return items.reserve(more);
    }
    let mut all = Vec::with_capacity(items.len() + more.max(items.len()));
    let mut rest = std::mem::take(items).into_iter();
    while rest.len() > 0 {
        all.extend(rest.by_ref().take(piece));
        long_step();
    }
    *items = all;
}

/// Collects elements into a vector, with a preemption point after each.
pub fn collect<T>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::with_capacity(items.size_hint().0);
    for item in items {
        push(&mut all, item);
        point();
    }
    all
}

/// As [`collect`], of results, up to the first error.
///
/// # Errors
/// The first error.
pub fn try_collect<T, E>(mut items: impl Iterator<Item = Result<T, E>>) -> Result<Vec<T>, E> {
    let mut all = Vec::with_capacity(items.size_hint().1.unwrap_or(0));
    items.try_for_each(|item| {
        push(&mut all, item?);
        point();
        Ok(())
    })?;
    Ok(all)
}

/// Restores the previous hooks when dropped.
struct Former {
    hook: Hook,
    offered: Hook,
}

impl Former {
    fn replace(hook: Hook, offered: Hook) -> Self {
        Self {
            hook: HOOK.replace(hook),
            offered: OFFERED.replace(offered),
        }
    }
}

impl Drop for Former {
    fn drop(&mut self) {
        HOOK.set(self.hook);
        OFFERED.set(self.offered);
    }
}

/// Calls `run`. Where preemption is allowed in it, points call `hook`; with None, points do nothing.
pub fn offer<R>(hook: Option<fn()>, run: impl FnOnce() -> R) -> R {
    POINTS.set(0);
    let _former = Former::replace(None, hook);
    run()
}

/// Calls `compute`, which can be suspended at its points. No `RefCell` that other tasks of this thread use may be
/// borrowed.
#[inline]
pub fn allowed<R>(compute: impl FnOnce() -> R) -> R {
    let offered = OFFERED.get();
    if offered.is_none() {
        return compute();
    }
    let _former = Former::replace(offered, offered);
    compute()
}

/// Calls `suspend`, with which a hook suspends its computation until it is resumed: the hooks are those of other tasks
/// until then.
pub fn suspended(suspend: impl FnOnce()) {
    let _former = Former::replace(None, None);
    suspend();
}

/// Sorts stably, with a preemption point at each comparison.
pub fn sort_by<T>(items: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    items.sort_by(|one, other| {
        point();
        compare(one, other)
    });
}

/// Drops elements one by one, with a preemption point after each.
pub fn drop_each<T>(items: Vec<T>) {
    for item in items {
        drop(item);
        point();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static REACHED: Cell<u32> = const { Cell::new(0) };
    }

    #[test]
    fn a_point_calls_the_hook_only_where_preemption_is_offered_and_allowed() {
        let reach = || (0..POINTS_PER_CALL).for_each(|_| point());
        let reached = || REACHED.get();
        let hook: Hook = Some(|| REACHED.set(REACHED.get() + 1));
        reach();
        allowed(reach);
        offer(hook, || {
            reach();
            assert_eq!(reached(), 0, "not allowed");
            allowed(|| {
                reach();
                reach();
                assert_eq!(reached(), 2);
                offer(None, || allowed(reach));
                suspended(|| allowed(reach));
                assert_eq!(reached(), 2, "other tasks have no hook");
                allowed(reach);
                reach();
                assert_eq!(reached(), 4);
            });
            reach();
            assert_eq!(reached(), 4, "no more allowed");
            allowed(|| {
                let mut numbers: Vec<u32> = (0..100).rev().collect();
                sort_by(&mut numbers, u32::cmp);
                assert_eq!(numbers, (0..100).collect::<Vec<_>>());
                let sorted = reached();
                assert!(sorted > 10, "a sort has points: {sorted}");
                drop_each(numbers);
                let dropped = reached();
                assert!(dropped > sorted + 10, "so have drops");
                let mut grown = Vec::new();
                (0..1_000_000_u32).for_each(|n| push(&mut grown, n));
                assert!(grown.into_iter().eq(0..1_000_000));
                let moved = reached();
                assert!(moved > dropped + 10, "so has the growth of a long vector: {moved}");
                let dropped = moved;
                let (bytes, mut copy) = (vec![7; 3 * STEP_BYTES], vec![1]);
                append(&mut copy, &bytes);
                assert_eq!((copy[0], &copy[1..]), (1, &bytes[..]));
                assert_eq!(reached(), dropped + 3, "so have copies of many bytes");
            });
        });
    }
}
