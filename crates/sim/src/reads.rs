//! How clients read: what is there after a start, partitions, tables, pages; and whether it is what the model says.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::client::{Answer, Client, query_page};
use crate::decode::Rows;
use crate::model::{MayBe, Seconds, Shown, Value};
use crate::statements::{Paging, SchemaChange, Worker, below, number};
use crate::workload::{Clients, Stop};

/// By timestamp, what may have become of the parts of logged batches: table and partition key of each.
type Batches = BTreeMap<i64, Vec<((usize, i32), MayBe)>>;

/// What was read.
enum Reading<'b> {
    Partition(i32),
    Table,
    /// The table, by pages, each at its own time.
    Pages,
    /// The table after a start: the client continues from what was read.
    Settling(&'b mut Batches),
}

/// The second of the wall clock.
fn second() -> i64 {
    runtime::wall_clock_us() / 1_000_000
}

impl Clients {
    pub(crate) async fn settle(&self, worker: &RefCell<Worker>, client: &mut Client) -> Result<(), Stop> {
        let keyspace = worker.borrow().keyspace.clone();
        if !worker.borrow().has_keyspace {
            let text = format!(
                "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
            );
            match self.ask(worker, client, &text).await? {
                Answer::Error { code, message } => {
                    self.tolerate(code, &message, false, &text)?;
                    return Err(Stop::Lost);
                }
                _ => worker.borrow_mut().has_keyspace = true,
            }
        }
        let tables = worker.borrow().tables.len();
        let mut batches = BTreeMap::new();
        for table in 0..tables {
            self.settle_table(worker, client, table, &mut batches).await?;
        }
        self.check_batches(&batches)
    }

    /// A logged batch that is partly there and partly missing is none.
    fn check_batches(&self, batches: &Batches) -> Result<(), Stop> {
        for (timestamp, parts) in batches.iter().filter(|(_, parts)| parts.len() > 1) {
            self.count(|c| c.batches_checked += 1);
            let has_part = parts.iter().any(|(_, p)| !p.missing);
            let lacks_part = parts.iter().any(|(_, p)| !p.there);
            if has_part && lacks_part && self.expects_whole_batches {
                return Err(Stop::Broken(format!(
                    "half of the logged batch of timestamp {timestamp} is there: {parts:?}"
                )));
            }
        }
        Ok(())
    }

    async fn settle_table(
        &self,
        worker: &RefCell<Worker>,
        client: &mut Client,
        index: usize,
        batches: &mut Batches,
    ) -> Result<(), Stop> {
        if worker.borrow().tables[index].pending.is_some() {
            worker.borrow_mut().forget_paging(index);
        }
        let was_truncating = worker.borrow().tables[index].pending == Some(SchemaChange::Truncate);
        self.take_schema(worker, client, index).await?;
        if !worker.borrow().tables[index].exists {
            return Ok(());
        }
        if was_truncating && !self.expects_whole_truncations {
            return self.change_schema(worker, client, index, SchemaChange::Truncate).await;
        }
        let text = worker.borrow().select_all(index);
        let (rows, at) = self.read(worker, client, &text).await?;
        self.check(worker, index, &rows, Reading::Settling(batches), at)?;
        self.resume_pages(worker, client, index, &rows).await
    }

    /// Reads which columns the table has, and learns what became of a change that was not acknowledged.
    pub(crate) async fn take_schema(
        &self,
        worker: &RefCell<Worker>,
        client: &mut Client,
        index: usize,
    ) -> Result<(), Stop> {
        let (keyspace, name) = worker.borrow().names(index);
        let text = format!(
            "SELECT column_name FROM system_schema.columns WHERE keyspace_name = '{keyspace}' AND table_name = '{name}'"
        );
        let (rows, _) = self.read(worker, client, &text).await?;
        let found: BTreeSet<String> = rows
            .iter()
            .filter_map(|row| match row.get("column_name") {
                Some(Value::Text(name)) => Some(name.clone()),
                _ => None,
            })
            .collect();
        worker.borrow_mut().tables[index]
            .take_schema(&found)
            .map_err(|e| Stop::Broken(format!("{keyspace}.{name}: {e}")))
    }

    /// Asks for rows; an error that is tolerated ends the session, which begins again.
    async fn read(&self, worker: &RefCell<Worker>, client: &mut Client, text: &str) -> Result<(Rows, Seconds), Stop> {
        let first = second();
        let answer = self.ask(worker, client, text).await?;
        let (rows, _) = self.rows(answer, text)?;
        Ok((rows, Seconds { first, last: second() }))
    }

    fn rows(&self, answer: Answer, text: &str) -> Result<(Rows, Option<Vec<u8>>), Stop> {
        match answer {
            Answer::Rows(rows, next) => Ok((rows, next)),
            Answer::Error { code, message } => {
                self.tolerate(code, &message, true, text)?;
                Err(Stop::Lost)
            }
            Answer::Done | Answer::Prepared(_) => Err(Stop::Broken(format!("a SELECT returned no rows: {text}"))),
        }
    }

    /// Reads a partition, now and then by a prepared statement, and compares it with the model.
    pub(crate) async fn read_partition(
        &self,
        worker: &RefCell<Worker>,
        client: &mut Client,
        index: usize,
        key: i32,
    ) -> Result<(), Stop> {
        let (keyspace, name) = worker.borrow().names(index);
        let text = format!("SELECT * FROM {keyspace}.{name} WHERE k = ");
        if below(2) == 0 {
            let (rows, at) = self.read(worker, client, &format!("{text}{key}")).await?;
            return self.check(worker, index, &rows, Reading::Partition(key), at);
        }
        let first = second();
        let values = [key.to_be_bytes().to_vec()];
        let answer = self.execute(worker, client, &format!("{text}?"), &values, None).await?;
        let (rows, _) = self.rows(answer, &text)?;
        let at = Seconds { first, last: second() };
        self.check(worker, index, &rows, Reading::Partition(key), at)
    }

    pub(crate) async fn read_table(
        &self,
        worker: &RefCell<Worker>,
        client: &mut Client,
        index: usize,
    ) -> Result<(), Stop> {
        let text = worker.borrow().select_all(index);
        let (rows, at) = self.read(worker, client, &text).await?;
        self.check(worker, index, &rows, Reading::Table, at)
    }

    /// Reads a table in small pages and compares it with the model. What is left when the node stops is read after the
    /// restart.
    pub(crate) async fn read_pages(
        &self,
        worker: &RefCell<Worker>,
        client: &mut Client,
        index: usize,
    ) -> Result<(), Stop> {
        let first = second();
        worker.borrow_mut().paging = None;
        let rows = self.pages(worker, client, index).await?;
        let at = Seconds { first, last: second() };
        self.check(worker, index, &rows, Reading::Pages, at)
    }

    /// The pages from where the client is to the end.
    async fn pages(&self, worker: &RefCell<Worker>, client: &mut Client, index: usize) -> Result<Rows, Stop> {
        let text = worker.borrow().select_all(index);
        let mut all = Rows::new();
        loop {
            let state = worker.borrow().paging.as_ref().map(|p| p.state.clone());
            let page_rows = 1 + number(5);
            let frame = query_page(0, &text, page_rows, state.as_deref());
            let request = format!("{text} (page of {page_rows})");
            let answer = self.ask_frame(worker, client, &request, frame).await?;
            let (rows, next) = self.rows(answer, &text)?;
            if rows.len() > usize::try_from(page_rows).expect("a small number") {
                return Err(Stop::Broken(format!(
                    "a page of {page_rows} rows has {}: {text}",
                    rows.len()
                )));
            }
            if rows.is_empty() && next.is_some() {
                return Err(Stop::Broken(format!("a page without rows is not the last one: {text}")));
            }
            all.extend(rows);
            let Some(state) = next else {
                worker.borrow_mut().paging = None;
                return Ok(all);
            };
            let cell = |name: &str| all.last().and_then(|row| row.get(name).cloned());
            let last = (cell("k"), cell("c"));
            let mut worker = worker.borrow_mut();
            let former = worker.paging.take();
            worker.paging = Some(Paging {
                table: index,
                state,
                last: if all.is_empty() {
                    former.map_or((None, None), |f| f.last)
                } else {
                    last
                },
            });
        }
    }

    /// Continues with pages from before a restart: they end with the rows that a whole read shows after the last page.
    async fn resume_pages(
        &self,
        worker: &RefCell<Worker>,
        client: &mut Client,
        index: usize,
        whole: &Rows,
    ) -> Result<(), Stop> {
        let Some(last) = worker
            .borrow()
            .paging
            .as_ref()
            .filter(|p| p.table == index)
            .map(|p| p.last.clone())
        else {
            return Ok(());
        };
        let rest = self.pages(worker, client, index).await?;
        let text = worker.borrow().select_all(index);
        let (again, _) = self.read(worker, client, &text).await?;
        if again != *whole {
            // A TTL ended in between.
            return Ok(());
        }
        self.count(|c| c.pages_resumed += 1);
        let is_last =
            |row: &BTreeMap<String, Value>| (row.get("k"), row.get("c")) == (last.0.as_ref(), last.1.as_ref());
        let expected = whole.iter().position(is_last).map(|at| &whole[at + 1..]);
        if expected.map_or(whole.ends_with(&rest), |expected| expected == rest) {
            return Ok(());
        }
        Err(Stop::Broken(format!(
            "pages after a restart resume wrongly after {last:?}: {rest:?}\n  the table is {whole:?}"
        )))
    }

    /// Compares what was read with the model.
    fn check(
        &self,
        worker: &RefCell<Worker>,
        index: usize,
        rows: &Rows,
        mut reading: Reading<'_>,
        at: Seconds,
    ) -> Result<(), Stop> {
        let mut read: BTreeMap<i32, Shown> = BTreeMap::new();
        for row in rows {
            let mut cells = row.clone();
            let Some(Value::Int(key)) = cells.remove("k") else {
                return Err(Stop::Broken(format!("a row without its partition key: {row:?}")));
            };
            let has_rows = worker.borrow().tables[index].has_rows;
            let clustering = match cells.remove("c") {
                Some(Value::Int(c)) => Some(c),
                _ if has_rows => None,
                _ => Some(0),
            };
            if read.entry(key).or_default().insert(clustering, cells).is_some() {
                return Err(Stop::Broken(format!("the row {key}, {clustering:?} came twice")));
            }
        }
        let mut worker = worker.borrow_mut();
        let (keyspace, name) = worker.names(index);
        let table = &mut worker.tables[index];
        let keys: BTreeSet<i32> = match reading {
            Reading::Partition(key) => BTreeSet::from([key]),
            Reading::Table | Reading::Pages | Reading::Settling(_) => {
                read.keys().chain(table.partitions.keys()).copied().collect()
            }
        };
        for key in keys {
            let partition = table.partitions.entry(key).or_default();
            let shown = read.remove(&key).unwrap_or_default();
            if matches!(reading, Reading::Pages) && partition.statics_may_end(at) {
                continue;
            }
            let explained = partition
                .explain(&shown, at, matches!(reading, Reading::Settling(_)))
                .map_err(|story| Stop::Broken(format!("{keyspace}.{name}, partition {key} is wrong:\n{story}")))?;
            if explained.is_checked() {
                self.count(|c| c.partitions_checked += 1);
            } else {
                self.count(|c| c.partitions_unchecked += 1);
            }
            if let Reading::Settling(batches) = &mut reading {
                partition.settle(&explained, at);
                for (timestamp, may_be) in explained.batches {
                    batches.entry(timestamp).or_default().push(((index, key), may_be));
                }
            }
        }
        Ok(())
    }
}
