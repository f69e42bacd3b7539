//! Scheduling groups: how the shards of a node divide their processor between kinds of work.
//!
//! Every task belongs to a group. Each shard keeps a queue and a *virtual run time* per group: real run time divided by
//! the group's shares. The active group with the least virtual run time runs next, for one slice. A group that slept
//! does not bank its idle time: when it becomes active again, its virtual time is raised to one slice less than the
//! least virtual time of the active groups, unless it is higher already. When no group is active, the virtual time at
//! which the group that ran last began counts instead.
//!
//! A group is *active* from the moment a task of it becomes runnable until a slice ends with its queue empty. That is a
//! flag of its own: "queue empty" is also true while the last task of the group is being polled, and a wake-up then
//! must not count it twice.

use std::collections::VecDeque;
use std::sync::Mutex;

/// The most groups a process may create; more is an error of the program.
pub(crate) const GROUPS_MAX: usize = 16;

/// Shares of [`Group::STATEMENT`]; groups with fewer are background work, which gives way when a completion waits.
const STATEMENT_SHARES: u32 = 1000;

/// A scheduling group. A small number; the names and shares are kept by the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Group(u8);

impl Group {
    /// The work that clients wait for: 1000 shares, and the group of a task whose spawner says nothing else.
    pub const STATEMENT: Self = Self(0);
    /// Work that no client waits for: 100 shares.
    pub const BACKGROUND: Self = Self(1);

    /// The group of that name, created with these shares, or given these shares if it exists. Shards see new shares at
    /// the group's next slice.
    ///
    /// # Panics
    /// When the process already has 16 groups, or the shares are zero.
    #[must_use]
    pub fn new(name: &str, shares: u32) -> Self {
        assert!(shares > 0, "scheduling group {name} needs at least one share");
        let mut known = KNOWN.lock().expect("no code panics while it holds the group list");
        if known.is_empty() {
            known.extend([
                ("statement".to_owned(), STATEMENT_SHARES),
                ("background".to_owned(), 100),
            ]);
        }
        let position = known
            .iter()
            .position(|(known_name, _)| known_name == name)
            .unwrap_or_else(|| {
                assert!(
                    known.len() < GROUPS_MAX,
                    "at most {GROUPS_MAX} scheduling groups; {name} is one too many"
                );
                known.push((name.to_owned(), shares));
                known.len() - 1
            });
        known[position].1 = shares;
        SHARES[position].store(shares, std::sync::atomic::Ordering::Relaxed);
        Self(u8::try_from(position).expect("there are at most 16 groups"))
    }

    /// The name given at creation.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::STATEMENT => "statement".to_owned(),
            Self::BACKGROUND => "background".to_owned(),
            _ => KNOWN.lock().expect("no code panics while it holds the group list")[self.index()]
                .0
                .clone(),
        }
    }

    /// The shares it has now.
    #[must_use]
    pub fn shares(self) -> u32 {
        SHARES[self.index()].load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Whether its tasks give way as soon as a completion or a message waits.
    pub(crate) fn gives_way(self) -> bool {
        self.shares() < STATEMENT_SHARES
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    pub(crate) fn from_index(index: usize) -> Self {
        Self(u8::try_from(index).expect("there are at most 16 groups"))
    }
}

static KNOWN: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());
static SHARES: [std::sync::atomic::AtomicU32; GROUPS_MAX] = {
    let mut shares = [const { std::sync::atomic::AtomicU32::new(100) }; GROUPS_MAX];
    shares[0] = std::sync::atomic::AtomicU32::new(STATEMENT_SHARES);
    shares
};

/// The run queues of one shard.
pub(crate) struct RunQueues {
    groups: [RunQueue; GROUPS_MAX],
    active: u32,
    /// The virtual time at which the group that ran last began; it never decreases.
    present: u64,
    /// One slice, in ticks: how much less virtual time an awakening group may have than the others.
    slice: u64,
}

#[derive(Default)]
struct RunQueue {
    tasks: VecDeque<u32>,
    virtual_time: u64,
    active: bool,
    run_ticks: u64,
}

impl RunQueues {
    pub(crate) fn new(slice: u64) -> Self {
        Self {
            groups: std::array::from_fn(|_| RunQueue::default()),
            active: 0,
            present: 0,
            slice,
        }
    }

    /// Puts a runnable task at the end of its group's queue.
    #[inline]
    pub(crate) fn push(&mut self, group: Group, task: u32) {
        if !self.groups[group.index()].active {
            self.activate(group);
        }
        self.groups[group.index()].tasks.push_back(task);
    }

    fn activate(&mut self, group: Group) {
        let active = self.groups.iter().filter(|other| other.active);
        let least = active.map(|other| other.virtual_time).min();
        let earliest = least.unwrap_or(self.present).saturating_sub(self.slice);
        let queue = &mut self.groups[group.index()];
        queue.active = true;
        queue.virtual_time = queue.virtual_time.max(earliest);
        self.active += 1;
    }

    /// The next task of a group.
    #[inline]
    pub(crate) fn pop(&mut self, group: Group) -> Option<u32> {
        self.groups[group.index()].tasks.pop_front()
    }

    /// The group to run next: the active one with the least virtual time.
    #[inline]
    pub(crate) fn next_group(&mut self) -> Option<Group> {
        if self.active == 0 {
            return None;
        }
        let active = self.groups.iter().enumerate().filter(|(_, queue)| queue.active);
        let (index, queue) = active.min_by_key(|(_, queue)| queue.virtual_time)?;
        self.present = self.present.max(queue.virtual_time);
        Some(Group::from_index(index))
    }

    /// Ends a slice: charges the ticks, and puts the group to rest if it has nothing runnable.
    #[inline]
    pub(crate) fn charge(&mut self, group: Group, ticks: u64) {
        let queue = &mut self.groups[group.index()];
        queue.virtual_time += ticks.saturating_mul(1000) / u64::from(group.shares());
        queue.run_ticks += ticks;
        if queue.tasks.is_empty() && queue.active {
            queue.active = false;
            self.active -= 1;
        }
    }

    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.active == 0
    }

    /// Ticks each group ran on this shard.
    pub(crate) fn run_ticks(&self) -> [u64; GROUPS_MAX] {
        std::array::from_fn(|index| self.groups[index].run_ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_woken_while_its_last_task_is_polled_counts_once() {
        let mut queues = RunQueues::new(1000);
        queues.push(Group::STATEMENT, 7);
        assert_eq!(queues.pop(Group::STATEMENT), Some(7));
        // The task is being polled, the queue is empty, and it wakes itself.
        queues.push(Group::STATEMENT, 7);
        assert_eq!(queues.pop(Group::STATEMENT), Some(7));
        queues.charge(Group::STATEMENT, 10);
        assert!(queues.is_idle(), "one active group was counted twice");
        assert_eq!(queues.next_group(), None);
    }

    #[test]
    fn shares_divide_the_processor() {
        let mut queues = RunQueues::new(1000);
        queues.push(Group::STATEMENT, 0);
        queues.push(Group::BACKGROUND, 1);
        for _ in 0..11_000 {
            let group = queues.next_group().expect("both groups always have a task");
            let task = queues.pop(group).expect("an active group has a task");
            queues.push(group, task);
            queues.charge(group, 1000);
        }
        let run = queues.run_ticks();
        let share = run[1] as f64 / (run[0] + run[1]) as f64;
        assert!(
            (0.08..0.10).contains(&share),
            "100 shares against 1000 should get 9 %, got {share}"
        );
    }

    #[test]
    fn a_group_that_wakes_while_nothing_runs_has_not_banked_its_idle_time_either() {
        let mut queues = RunQueues::new(1000);
        // Requests come one by one, and each finds the shard idle.
        for _ in 0..100 {
            queues.push(Group::STATEMENT, 0);
            assert_eq!(queues.next_group(), Some(Group::STATEMENT));
            queues.pop(Group::STATEMENT);
            queues.charge(Group::STATEMENT, 1000);
        }
        queues.push(Group::BACKGROUND, 1);
        assert_eq!(queues.next_group(), Some(Group::BACKGROUND));
        queues.pop(Group::BACKGROUND);
        queues.push(Group::BACKGROUND, 1);
        queues.charge(Group::BACKGROUND, 1000);
        queues.push(Group::STATEMENT, 0);
        assert_eq!(
            queues.next_group(),
            Some(Group::STATEMENT),
            "a request waits until background work has had all the time in which it slept"
        );
    }

    #[test]
    fn a_group_that_slept_does_not_bank_its_idle_time() {
        let mut queues = RunQueues::new(1000);
        queues.push(Group::BACKGROUND, 1);
        for _ in 0..100 {
            assert_eq!(queues.next_group(), Some(Group::BACKGROUND));
            queues.pop(Group::BACKGROUND);
            queues.push(Group::BACKGROUND, 1);
            queues.charge(Group::BACKGROUND, 1000);
        }
        queues.push(Group::STATEMENT, 0);
        let mut turns_before_background = 0;
        while queues.next_group() == Some(Group::STATEMENT) {
            queues.pop(Group::STATEMENT);
            queues.push(Group::STATEMENT, 0);
            queues.charge(Group::STATEMENT, 1000);
            turns_before_background += 1;
            assert!(
                turns_before_background < 10,
                "the sleeper took back all the time it had slept"
            );
        }
    }
}
