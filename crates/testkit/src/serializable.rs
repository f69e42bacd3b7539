//! Whether transactions over lists, to which they only append, fit one order that keeps real time: strict
//! serializability.
//!
//! A list says in which order its elements came, so what was read says which transactions came before and after which
//! (Kingsbury and Alvaro, Elle: Inferring Isolation Anomalies from Experimental Observations, VLDB 2020). Each element
//! is appended by one transaction at most. What is known in the end of every list gives the order of its writers; a
//! read comes after the writer of the last element that it saw, and before that of the next one; and a transaction that
//! was answered comes before those that were sent later. If these orders together have a cycle, no order is right.

use std::collections::{BTreeMap, BTreeSet};

/// Names a list.
pub type Key = u32;
/// What is appended; no two transactions append the same one.
pub type Element = u64;

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It takes place once after it was sent, or never.
    Unknown,
    /// It took place before this moment.
    Done(u64),
    /// It did not take place.
    Refused,
}

/// What a transaction saw of a list, before its own appends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// These elements.
    Elements(Vec<Element>),
    /// So many elements.
    Length(usize),
}

#[derive(Debug)]
struct Transaction {
    name: String,
    sent: u64,
    fate: Fate,
    appends: Vec<(Key, Element)>,
    reads: Vec<(Key, Seen)>,
}

/// Transactions in the order in which they were sent.
#[derive(Default, Debug)]
pub struct ListHistory {
    transactions: Vec<Transaction>,
    /// Reads that may be old: of each list, what they saw.
    stale: Vec<(String, Key, Vec<Element>)>,
}

/// A transaction of a [`ListHistory`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionId(usize);

impl ListHistory {
    /// A transaction is about to be sent. `name` is what a failure calls it.
    pub fn begin(&mut self, name: String, sent: u64, appends: Vec<(Key, Element)>) -> TransactionId {
        self.transactions.push(Transaction {
            name,
            sent,
            fate: Fate::Unknown,
            appends,
            reads: Vec::new(),
        });
        TransactionId(self.transactions.len() - 1)
    }

    /// It was acknowledged, and saw this.
    pub fn done(&mut self, id: TransactionId, now: u64, reads: Vec<(Key, Seen)>) {
        let transaction = &mut self.transactions[id.0];
        transaction.fate = Fate::Done(now);
        transaction.reads = reads;
    }

    /// It was refused, and has no effect.
    pub fn refused(&mut self, id: TransactionId) {
        self.transactions[id.0].fate = Fate::Refused;
    }

    /// When a transaction was sent.
    #[must_use]
    pub fn sent(&self, id: TransactionId) -> u64 {
        self.transactions[id.0].sent
    }

    /// A read that may return what was there at any time before it.
    pub fn read_stale(&mut self, name: String, key: Key, elements: Vec<Element>) {
        self.stale.push((name, key, elements));
    }

    /// How many transactions were acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> usize {
        let is_done = |transaction: &&Transaction| matches!(transaction.fate, Fate::Done(_));
        self.transactions.iter().filter(is_done).count()
    }

    /// Checks the history against what the lists hold in the end.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self, lists: &BTreeMap<Key, Vec<Element>>) -> Result<(), String> {
        let writers = self.writers(lists)?;
        for (name, key, elements) in &self.stale {
            place(name, *key, elements, lists)?;
        }
        let mut orders = Orders::new(self.transactions.len());
        for (key, list) in lists {
            for pair in list.windows(2) {
                orders.add(writers[&(*key, pair[0])], writers[&(*key, pair[1])]);
            }
        }
        for (number, transaction) in self.transactions.iter().enumerate() {
            for (key, seen) in &transaction.reads {
                let list = lists.get(key).map_or(&[][..], Vec::as_slice);
                let length = match seen {
                    Seen::Elements(elements) => place(&transaction.name, *key, elements, lists)?,
                    Seen::Length(length) if *length <= list.len() => *length,
                    Seen::Length(length) => {
                        let name = &transaction.name;
                        return Err(format!(
                            "{name} saw {length} elements in list {key}, which has {} in the end",
                            list.len()
                        ));
                    }
                };
                if let Some(last) = length.checked_sub(1) {
                    orders.add(writers[&(*key, list[last])], number);
                }
                if let Some(next) = list.get(length) {
                    orders.add(number, writers[&(*key, *next)]);
                }
            }
        }
        self.add_real_time(&mut orders);
        orders.cycle().map_or(Ok(()), |cycle| {
            let known = cycle.into_iter().filter_map(|node| self.transactions.get(node));
            let names: Vec<String> = known.map(Transaction::story).collect();
            Err(format!("no order is right for: {}", names.join(" before ")))
        })
    }

    /// The transaction of each element, after checks that each list holds what it must and nothing else.
    fn writers(&self, lists: &BTreeMap<Key, Vec<Element>>) -> Result<BTreeMap<(Key, Element), usize>, String> {
        let mut there = BTreeSet::new();
        for (key, list) in lists {
            for element in list {
                if !there.insert((*key, *element)) {
                    return Err(format!("list {key} has {element} twice"));
                }
            }
        }
        let mut writers = BTreeMap::new();
        for (number, transaction) in self.transactions.iter().enumerate() {
            let is_there: Vec<bool> = transaction
                .appends
                .iter()
                .map(|append| there.contains(append))
                .collect();
            let (all, any) = (is_there.iter().all(|is| *is), is_there.iter().any(|is| *is));
            match transaction.fate {
                Fate::Done(_) if !all => return Err(format!("lost: {}", transaction.story())),
                Fate::Refused if any => return Err(format!("refused and done: {}", transaction.story())),
                Fate::Unknown if any && !all => return Err(format!("half done: {}", transaction.story())),
                _ => {}
            }
            writers.extend(transaction.appends.iter().map(|append| (*append, number)));
        }
        match there.iter().find(|append| !writers.contains_key(append)) {
            Some((key, element)) => Err(format!("list {key} has {element}, which no transaction appended")),
            None => Ok(writers),
        }
    }

    /// What was answered before another was sent comes before it: by a node for each moment at which something was
    /// answered, in a chain, so that the orders are as many as the transactions.
    fn add_real_time(&self, orders: &mut Orders) {
        let mut answered: BTreeMap<u64, usize> = BTreeMap::new();
        for transaction in &self.transactions {
            if let Fate::Done(time) = transaction.fate {
                answered.entry(time).or_insert_with(|| orders.add_node());
            }
        }
        let moments: Vec<usize> = answered.values().copied().collect();
        for pair in moments.windows(2) {
            orders.add(pair[0], pair[1]);
        }
        for (number, transaction) in self.transactions.iter().enumerate() {
            if let Fate::Done(time) = transaction.fate {
                orders.add(number, answered[&time]);
            }
            if let Some((_, moment)) = answered.range(..transaction.sent).next_back() {
                orders.add(*moment, number);
            }
        }
    }
}

impl Transaction {
    fn story(&self) -> String {
        format!(
            "{} (sent at {}, {:?}, appends {:?}, saw {:?})",
            self.name, self.sent, self.fate, self.appends, self.reads
        )
    }
}

/// How many elements of a list a read has seen, which must be its first ones.
fn place(name: &str, key: Key, elements: &[Element], lists: &BTreeMap<Key, Vec<Element>>) -> Result<usize, String> {
    let list = lists.get(&key).map_or(&[][..], Vec::as_slice);
    if list.starts_with(elements) {
        return Ok(elements.len());
    }
    Err(format!(
        "{name} saw {elements:?} in list {key}, which is {list:?} in the end"
    ))
}

/// Which nodes come before which.
struct Orders {
    after: Vec<Vec<usize>>,
}

impl Orders {
    fn new(nodes: usize) -> Self {
        Self {
            after: vec![Vec::new(); nodes],
        }
    }

    fn add_node(&mut self) -> usize {
        self.after.push(Vec::new());
        self.after.len() - 1
    }

    fn add(&mut self, before: usize, after: usize) {
        if before != after {
            self.after[before].push(after);
        }
    }

    /// The nodes of a cycle, if there is one: what is left when all that have nothing before them are taken away, again
    /// and again, has one.
    fn cycle(&self) -> Option<Vec<usize>> {
        let mut before = vec![0_usize; self.after.len()];
        for after in self.after.iter().flatten() {
            before[*after] += 1;
        }
        let mut free: Vec<usize> = (0..before.len()).filter(|node| before[*node] == 0).collect();
        while let Some(node) = free.pop() {
            for after in &self.after[node] {
                before[*after] -= 1;
                if before[*after] == 0 {
                    free.push(*after);
                }
            }
        }
        // Every node that is left has one before it that is left; going back, one comes again.
        let mut earlier: BTreeMap<usize, usize> = BTreeMap::new();
        let is_left = |node: &usize| before[*node] > 0;
        for node in (0..before.len()).filter(is_left) {
            earlier.extend(
                self.after[node]
                    .iter()
                    .filter(|after| is_left(after))
                    .map(|after| (*after, node)),
            );
        }
        let mut node = (0..before.len()).find(is_left)?;
        let mut walk = Vec::new();
        loop {
            if let Some(at) = walk.iter().position(|known| *known == node) {
                let mut cycle = walk.split_off(at);
                cycle.reverse();
                return Some(cycle);
            }
            walk.push(node);
            node = earlier[&node];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Transactions as sent and answered times, appends and reads.
    struct Told(ListHistory, BTreeMap<Key, Vec<Element>>);

    impl Told {
        fn of(lists: &[(Key, &[Element])]) -> Self {
            let lists = lists.iter().map(|(key, list)| (*key, list.to_vec())).collect();
            Self(ListHistory::default(), lists)
        }

        fn and(mut self, (sent, done): (u64, u64), appends: &[(Key, Element)], reads: &[(Key, &[Element])]) -> Self {
            let id = self.0.begin(format!("t{sent}"), sent, appends.to_vec());
            let seen = |elements: &[Element]| Seen::Elements(elements.to_vec());
            let reads = reads.iter().map(|(key, elements)| (*key, seen(elements)));
            self.0.done(id, done, reads.collect());
            self
        }

        fn says(&self) -> String {
            self.0.check(&self.1).err().unwrap_or_default()
        }
    }

    #[test]
    fn one_after_the_other_is_right() {
        let told = Told::of(&[(1, &[10, 11]), (2, &[20])])
            .and((1, 2), &[(1, 10), (2, 20)], &[])
            .and((3, 4), &[], &[(1, &[10]), (2, &[20])])
            .and((5, 6), &[(1, 11)], &[(1, &[10])]);
        assert_eq!(told.says(), "");
    }

    #[test]
    fn a_read_between_the_halves_of_a_transaction_is_found() {
        let told = Told::of(&[(1, &[10]), (2, &[20])])
            .and((1, 9), &[(1, 10), (2, 20)], &[])
            .and((2, 3), &[], &[(1, &[10]), (2, &[])]);
        assert!(told.says().contains("no order is right"), "{}", told.says());
    }

    #[test]
    fn two_reads_that_each_miss_what_the_other_one_appends_are_found() {
        let told = Told::of(&[(1, &[10]), (2, &[20])])
            .and((1, 9), &[(1, 10)], &[(2, &[])])
            .and((1, 9), &[(2, 20)], &[(1, &[])]);
        assert!(told.says().contains("no order is right"), "{}", told.says());
    }

    #[test]
    fn a_read_of_what_was_there_before_an_answer_is_found() {
        let told = |sent| {
            Told::of(&[(1, &[10])])
                .and((1, 2), &[(1, 10)], &[])
                .and((sent, 9), &[], &[(1, &[])])
        };
        assert_eq!(told(2).says(), "");
        assert!(told(3).says().contains("no order is right"), "{}", told(3).says());
    }

    #[test]
    fn two_reads_one_after_the_other_that_go_back_are_found() {
        // The second one sees less of another list, though both appends are one transaction under way.
        let told = Told::of(&[(1, &[10]), (2, &[20])])
            .and((1, 9), &[(1, 10), (2, 20)], &[])
            .and((2, 3), &[], &[(1, &[10])])
            .and((4, 5), &[], &[(2, &[])]);
        assert!(told.says().contains("no order is right"), "{}", told.says());
    }

    #[test]
    fn a_length_is_a_read() {
        let told = |length| {
            let mut told = Told::of(&[(1, &[10, 11])]).and((1, 2), &[(1, 10)], &[]);
            let id = told.0.begin("counts".to_owned(), 3, vec![(1, 11)]);
            told.0.done(id, 4, vec![(1, Seen::Length(length))]);
            told.says()
        };
        assert_eq!(told(1), "");
        assert!(told(0).contains("no order is right"), "{}", told(0));
        assert!(told(3).contains("saw 3 elements"), "{}", told(3));
    }

    #[test]
    fn what_is_lost_doubled_half_done_or_invented_is_found() {
        let told = Told::of(&[(1, &[])]).and((1, 2), &[(1, 10)], &[]);
        assert!(told.says().starts_with("lost"), "{}", told.says());
        let told = Told::of(&[(1, &[10, 10])]).and((1, 2), &[(1, 10)], &[]);
        assert!(told.says().contains("twice"), "{}", told.says());
        assert!(Told::of(&[(1, &[10])]).says().contains("no transaction appended"));
        let mut told = Told::of(&[(1, &[10]), (2, &[])]);
        let id = told.0.begin("half".to_owned(), 1, vec![(1, 10), (2, 20)]);
        assert!(told.says().starts_with("half done"), "{}", told.says());
        told.0.refused(id);
        assert!(told.says().starts_with("refused and done"), "{}", told.says());
        let told = Told::of(&[(1, &[10])])
            .and((1, 2), &[(1, 10)], &[])
            .and((1, 2), &[], &[(1, &[11])]);
        assert!(told.says().contains("saw [11]"), "{}", told.says());
    }

    #[test]
    fn what_may_be_old_must_have_been_there_once() {
        let mut told = Told::of(&[(1, &[10, 11])])
            .and((1, 2), &[(1, 10)], &[])
            .and((3, 4), &[(1, 11)], &[]);
        told.0.read_stale("old".to_owned(), 1, vec![10]);
        assert_eq!(told.says(), "");
        told.0.read_stale("never".to_owned(), 1, vec![11]);
        assert!(told.says().contains("never saw"), "{}", told.says());
    }

    #[test]
    fn what_has_no_answer_took_place_or_not() {
        for lists in [&[(1, &[10][..])][..], &[]] {
            let mut told = Told::of(lists);
            told.0.begin("unknown".to_owned(), 1, vec![(1, 10)]);
            assert_eq!(told.says(), "");
        }
    }
}
