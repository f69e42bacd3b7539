//! Tables that are emptied: one while no client uses it, by TRUNCATE or by making it again, or any of them by TRUNCATE
//! while clients write and read it.

use std::rc::Rc;
use std::time::Duration;

use super::clients::{
    A, CHANGE_WAIT_MAX, Clients, Outcome, Phase, R, T, TABLE_T, TRUNCATE_ERROR, UNAVAILABLE, W, X, millis,
};
use super::counters;
use super::history::Level;
use crate::client::{Answer, Client};

/// Longer than a coordinator's write to a replica lives.
const LATE_WRITE_WAIT: Duration = Duration::from_secs(3);
/// Between two truncations under traffic, at most.
const PAUSE_MAX_MILLIS: u64 = 2000;

/// A table that is truncated while clients use it, and the model that knows what may be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Emptied {
    /// The history of registers, by their numbers of tables.
    Registers(&'static [u8], &'static str),
    /// One order of conditional statements.
    Conditional,
    /// The sums of counters.
    Counters,
}

impl Emptied {
    /// Of eight, three are the table that clients write most, and the others the tables of batches, rows, collections,
    /// conditional statements and counters.
    const ALL: [Self; 8] = [
        Self::Registers(&[T], "t"),
        Self::Registers(&[T], "t"),
        Self::Registers(&[T], "t"),
        Self::Registers(&[A], "a"),
        Self::Registers(&[R], "r"),
        Self::Registers(&[W, X], "w"),
        Self::Conditional,
        Self::Counters,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Registers(_, name) => name,
            Self::Conditional => "l",
            Self::Counters => "n",
        }
    }
}

impl Clients {
    /// Empties table `t` while no client writes to it: by TRUNCATE, or by making it again.
    pub(crate) async fn truncate(&self) -> Result<(), String> {
        while self.at_truncated_table.get() > 0 {
            runtime::sleep(Duration::from_millis(5)).await;
        }
        // What was acknowledged may still be on its way to the last replica.
        runtime::sleep(LATE_WRITE_WAIT).await;
        let node = self.any_member();
        let mut client = self.connect_patiently(node).await?;
        if !runtime::random_u64().is_multiple_of(3) {
            if self.change_table(&mut client, "TRUNCATE k.t").await? {
                self.history.borrow_mut().truncated(T);
                self.count(|c| c.truncations += 1);
            }
            return Ok(());
        }
        let again = format!("CREATE TABLE {TABLE_T}");
        if self.change_table(&mut client, "DROP TABLE k.t").await? && self.change_table(&mut client, &again).await? {
            self.history.borrow_mut().truncated(T);
            self.count(|c| c.remade += 1);
        } else {
            return Err("DROP and CREATE failed in a cluster that is well".to_owned());
        }
        Ok(())
    }

    /// Truncates one table after the other while others write to them and read them, whatever strikes the nodes. Ends
    /// never.
    pub(crate) async fn truncate_with_traffic(self: Rc<Self>) {
        loop {
            runtime::sleep(Duration::from_millis(300 + runtime::random_u64() % PAUSE_MAX_MILLIS)).await;
            if self.phase.get() != Phase::Work {
                continue;
            }
            let which = usize::try_from(runtime::random_u64() % Emptied::ALL.len() as u64).expect("few tables");
            self.is_truncating.set(true);
            self.truncate_until_acknowledged(Emptied::ALL[which]).await;
            self.is_truncating.set(false);
        }
    }

    /// As an operator would: again when it has failed.
    async fn truncate_until_acknowledged(&self, emptied: Emptied) {
        let text = format!("TRUNCATE k.{}", emptied.name());
        loop {
            let Some(mut client) = self.connect(self.any_member()).await else {
                continue;
            };
            self.begin_truncation(emptied);
            match self.change_table(&mut client, &text).await {
                Ok(true) => break,
                Ok(false) => runtime::sleep(Duration::from_millis(500)).await,
                Err(text) => return self.fail(text),
            }
        }
        match emptied {
            Emptied::Registers(tables, _) => {
                let mut history = self.history.borrow_mut();
                tables.iter().for_each(|table| history.end_truncation(*table, millis()));
            }
            Emptied::Conditional => self.conditional.end_truncation(),
            Emptied::Counters => self
                .counters
                .iter()
                .for_each(|c| c.borrow_mut().end_truncation(counters::now())),
        }
        self.count(|c| c.truncations += 1);
    }

    fn begin_truncation(&self, emptied: Emptied) {
        match emptied {
            Emptied::Registers(tables, _) => {
                let mut history = self.history.borrow_mut();
                tables
                    .iter()
                    .for_each(|table| history.begin_truncation(*table, millis()));
            }
            Emptied::Conditional => self.conditional.begin_truncation(),
            Emptied::Counters => self
                .counters
                .iter()
                .for_each(|c| c.borrow_mut().begin_truncation(counters::now())),
        }
    }

    /// Whether a statement that changes a table was acknowledged.
    async fn change_table(&self, client: &mut Client, text: &str) -> Result<bool, String> {
        let was_faulty = self.faulty.get();
        match self.ask(client, text, Level::All, CHANGE_WAIT_MAX).await {
            Outcome::Answer(Answer::Done) => return Ok(true),
            Outcome::Answer(Answer::Error { code, message }) => {
                if !matches!(code, UNAVAILABLE | TRUNCATE_ERROR) {
                    return Err(format!(
                        "{text}: an error that the test does not expect, {code:#x}: {message}"
                    ));
                }
                self.explain(was_faulty, || format!("{text}: {message}"));
            }
            Outcome::Answer(other) => return Err(format!("{text}: {other:?}")),
            Outcome::Lost(why) => self.explain(was_faulty, || format!("{text}: {why}")),
        }
        Ok(false)
    }
}
