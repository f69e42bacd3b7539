//! What must hold in the end, when nothing is broken and nothing is under way.

use std::collections::BTreeMap;
use std::time::Duration;

use super::cells;
use super::clients::{A, ANSWER_WAIT_MAX, B, Clients, E, I, Outcome, PARTITIONS, R, ROWS, T, partition_of_b};
use super::history::{Key, Level};
use super::scenario::CLOCK_JUMP_MAX;
use crate::client::Answer;

/// Of the tables that are read whole.
const ROWS_PER_PAGE: i32 = 100;
/// Tables whose content is compared.
const TABLES: [&str; 9] = ["k.r", "k.a", "k.b", "k.t", "k.e", "k.n", "k.l", "k.w", "k.u"];
/// How often replicas may agree to hold the same.
const LOOKS: usize = 3;
const LOOK_PAUSE: Duration = Duration::from_secs(10);

impl Clients {
    /// Reads everything by every coordinator, at QUORUM, then at ALL, then at ONE, when all replicas must be equal; and
    /// what became of the schema.
    pub(crate) async fn look_at_everything(&self) -> Result<(), String> {
        while self.is_truncating.get() {
            runtime::sleep(Duration::from_millis(20)).await;
        }
        if self.promises.whole_hints {
            self.history.borrow_mut().all_have_everything();
            for node in self.members() {
                let found = self.read_all(node, Level::One).await;
                found.map_err(|text| format!("before anything was repaired by reads: {text}"))?;
            }
        }
        // Nodes whose clocks have jumped do not agree on what has expired.
        let is_compared = |key: &Key| key.0 != E || self.promises.clock_error < CLOCK_JUMP_MAX;
        let mut registers = BTreeMap::new();
        for level in [Level::Quorum, Level::All, Level::One] {
            for node in self.members() {
                let mut found = self.read_all(node, level).await?;
                found.retain(|key, _| is_compared(key));
                if level == Level::All {
                    registers = found;
                } else if level == Level::One && found != registers {
                    let differ = registers.iter().find(|(key, value)| found.get(key) != Some(value));
                    let differ = differ.or_else(|| found.iter().find(|(key, _)| !registers.contains_key(key)));
                    return Err(format!(
                        "the replicas that node {node} reads at ONE are not what ALL has made them: {differ:?}, {:?}",
                        differ.map(|(key, _)| found.get(key))
                    ));
                }
            }
        }
        let batches = self.history.borrow().keys(A);
        for (_, p, _) in batches {
            let (a, b) = (registers.get(&(A, p, 0)), registers.get(&(B, partition_of_b(p), 0)));
            if self.promises.whole_batches && a != b && !self.history.borrow().may_be_truncated((A, p, 0), a, b) {
                return Err(format!(
                    "a logged batch is half there: partition {p} has {a:?} in a and {b:?} in b"
                ));
            }
        }
        if self.workload.indexes {
            self.look_by_value(&registers).await?;
        }
        if self.workload.items {
            self.look_at_items().await?;
        }
        self.look_at_counters().await?;
        self.look_at_clocks().await?;
        self.look_at_conditional_statements().await?;
        self.look_at_the_schema().await?;
        self.look_at_contents().await
    }

    /// Reads all tables at ALL, which repairs what differs, and compares what the replicas hold then. A hint or a part
    /// of a batch that comes between the two is no failure if they agree the next time.
    async fn look_at_contents(&self) -> Result<(), String> {
        let mut compared = Ok(0);
        for _ in 0..LOOKS {
            let immediate = self.workload.grace.map(|_| "k.i");
            for table in TABLES.into_iter().chain(immediate) {
                self.read_table_at_all(table).await?;
            }
            self.inventory
                .take(self.members().len(), self.promises.clock_error)
                .await?;
            compared = self.inventory.compare();
            if compared.is_ok() {
                break;
            }
            runtime::sleep(LOOK_PAUSE).await;
        }
        let compared = compared?;
        self.count(|c| c.partitions_compared += compared);
        Ok(())
    }

    async fn read_table_at_all(&self, table: &str) -> Result<(), String> {
        let mut client = self.connect_patiently(self.first_member()).await?;
        let (text, mut state) = (format!("SELECT * FROM {table}"), None);
        loop {
            let asking = client.ask_page(&text, Level::All.code(), ROWS_PER_PAGE, state.as_deref());
            match self.within(ANSWER_WAIT_MAX, asking).await {
                Outcome::Answer(Answer::Rows(_, Some(next))) => state = Some(next),
                Outcome::Answer(Answer::Rows(_, None)) => return Ok(()),
                Outcome::Answer(other) => return Err(format!("{text} at ALL when all is quiet: {other:?}")),
                Outcome::Lost(why) => return Err(format!("{text} at ALL when all is quiet: {why}")),
            }
        }
    }

    /// Reads everything at ALL, which brings each replica what it lacks.
    pub(crate) async fn repair(&self) -> Result<(), String> {
        self.read_all(self.first_member(), Level::All).await?;
        let mut client = self.connect_patiently(self.first_member()).await?;
        for table in ["n", "l"] {
            let text = format!("SELECT * FROM k.{table}");
            match client.ask_at(&text, Level::All.code()).await {
                Ok(Answer::Rows(..)) => {}
                other => return Err(format!("{text} when all was quiet: {other:?}")),
            }
        }
        Ok(())
    }

    async fn read_all(&self, node: usize, level: Level) -> Result<BTreeMap<Key, i32>, String> {
        let mut client = self.connect_patiently(node).await?;
        let mut all = BTreeMap::new();
        for p in 0..PARTITIONS {
            let rows: Vec<Key> = (0..ROWS).map(|c| (R, p, c)).collect();
            let mut reads = vec![(format!("SELECT p, c, v FROM k.r WHERE p = {p}"), rows)];
            for (table, name) in [(T, "t"), (E, "e")] {
                let text = format!("SELECT p, v FROM k.{name} WHERE p = {p}");
                reads.push((text, vec![(table, p, 0)]));
            }
            if self.workload.grace.is_some() {
                let text = format!("SELECT p, c, v FROM k.i WHERE p = {p}");
                reads.push((text, (0..ROWS).map(|c| (I, p, c)).collect()));
            }
            for (text, keys) in reads {
                let read = self.read_and_check(&mut client, node, &text, &keys, level, None).await;
                all.extend(read.ok_or("a connection was lost when all was quiet")?);
            }
        }
        for p in 0..cells::PARTITIONS {
            let keys = self.registers_of_cells(p);
            let text = cells::select(p);
            let read = self.read_and_check(&mut client, node, &text, &keys, level, None).await;
            all.extend(read.ok_or("a connection was lost when all was quiet")?);
        }
        for (table, name) in [(A, "a"), (B, "b")] {
            let keys = self.history.borrow().keys(table);
            if !keys.is_empty() {
                let text = format!("SELECT p, v FROM k.{name}");
                let read = self.read_and_check(&mut client, node, &text, &keys, level, Some(ROWS_PER_PAGE));
                all.extend(read.await.ok_or("a connection was lost when all was quiet")?);
            }
        }
        Ok(all)
    }
}
