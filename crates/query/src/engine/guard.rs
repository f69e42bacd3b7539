//! The door at which requests of clients meet the guardrails.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use coordinator::Touched;
use plan::{Execution, Plan, WritePlan};
use schema::TableId;

use super::{Engine, Prepared, Request};
use crate::QueryError;
use crate::guardrails::Guardrails;

impl Engine {
    /// Sets the guardrails of this shard's clients; at first there are none. Statements are compiled again, for what
    /// their text says.
    pub fn set_guardrails(&self, guardrails: &Guardrails) {
        if **self.guardrails.borrow() == *guardrails {
            return;
        }
        self.usual_timestamps.set(guardrails.usual_timestamps());
        *self.guardrails.borrow_mut() = Rc::new(guardrails.clone());
        self.prepared.clear();
    }

    pub(super) fn guardrails(&self) -> Rc<Guardrails> {
        self.guardrails.borrow().clone()
    }

    /// Whether no guardrail looks at a timestamp that a statement gives itself.
    pub(super) fn is_usual(&self, timestamp: i64) -> bool {
        let (behind, ahead) = self.usual_timestamps.get();
        let now = runtime::wall_clock_us();
        let beyond = |difference: i64| u64::try_from(difference).unwrap_or(0);
        beyond(timestamp.saturating_sub(now)) <= ahead && beyond(now.saturating_sub(timestamp)) <= behind
    }

    /// Checks an execution of a client's statement before anything is done. The answer is what its client is to be
    /// warned of.
    ///
    /// # Errors
    /// When a guardrail refuses it, or a value of the statement cannot be evaluated.
    pub async fn guard(
        &self,
        prepared: &Prepared,
        run: &Execution,
        request: &Request,
    ) -> Result<Vec<String>, QueryError> {
        let Some(plan) = prepared.plan() else {
            return Ok(Vec::new());
        };
        let mut warnings = self.guardrails().check(plan, run, request, runtime::wall_clock_us())?;
        self.log_guardrails(&warnings);
        let writes: &[Arc<WritePlan>] = match plan {
            Plan::Write(write) => std::slice::from_ref(write),
            Plan::Batch(batch) => &batch.writes,
            Plan::Select(_) | Plan::VirtualWrite(_) => &[],
        };
        if writes.iter().any(|write| write.guards_large_data()) {
            let writes = writes.iter().map(|write| (&**write, run)).collect();
            warnings.extend(Box::pin(self.guard_large_data(writes)).await?);
        }
        Ok(warnings)
    }

    /// Checks what writes to tables that guard themselves add to, and what they add. The answer is what their client is
    /// to be warned of.
    async fn guard_large_data(&self, writes: Vec<(&WritePlan, &Execution)>) -> Result<Vec<String>, QueryError> {
        let limits = self.guardrails().large_data;
        let mut warnings = Vec::new();
        // Statements of a batch may be about one partition, which is measured once.
        let mut partitions: BTreeMap<TableId, BTreeMap<Vec<u8>, Touched>> = BTreeMap::new();
        let mut named = Vec::new();
        for (write, run) in writes.into_iter().filter(|(write, _)| write.guards_large_data()) {
            let run = &*write.read_json(run)?;
            limits.check_written(write, run, &mut warnings)?;
            let (keys, rows) = run.with(|ctx| Ok::<_, QueryError>((write.keys(ctx)?, write.touched_rows(ctx)?)))?;
            let of_table = partitions.entry(write.table.id).or_default();
            for (token, key) in keys {
                let touched = of_table.entry(key.clone()).or_insert_with(|| Touched {
                    token,
                    key: key.clone(),
                    rows: BTreeSet::new(),
                });
                touched.rows.extend(rows.iter().cloned());
                named.push((write, key, rows.clone()));
            }
        }
        let mut measured = BTreeMap::new();
        for (table, of_table) in partitions {
            let touched: Vec<Touched> = of_table.into_values().collect();
            let found = self.coordinator.limits.measure(table, &touched).await;
            let keys = touched.into_iter().map(|touched| (table, touched.key));
            measured.extend(keys.zip(found));
        }
        for (write, key, rows) in named {
            let place = (write.table.id, key);
            if let Some(measured) = measured.get(&place) {
                limits.check_present(write, (&place.1, &rows), measured, &mut warnings)?;
            }
        }
        let mut seen = BTreeSet::new();
        warnings.retain(|warning| seen.insert(warning.clone()));
        warnings.truncate(WARNINGS_MAX);
        self.log_guardrails(&warnings);
        if !limits.warns_clients {
            warnings.clear();
        }
        Ok(warnings)
    }

    /// Checks the statements of a BATCH message. A warning that several of them cause is given once.
    ///
    /// # Errors
    /// As [`Engine::guard`].
    pub async fn guard_batch<'s>(
        &self,
        statements: impl Iterator<Item = (&'s Prepared, &'s Execution)>,
        request: &Request,
    ) -> Result<Vec<String>, QueryError> {
        let guardrails = self.guardrails();
        let clock_us = runtime::wall_clock_us();
        let mut warnings: Vec<String> = Vec::new();
        let mut guarded = Vec::new();
        for (prepared, run) in statements {
            let Some(Plan::Write(write)) = prepared.plan() else {
                continue;
            };
            if write.guards_large_data() {
                guarded.push((&**write, run));
            }
            let mut of_write = Vec::new();
            guardrails.check_levels(write, request, &mut of_write)?;
            guardrails.check_write(write, run, clock_us, &mut of_write)?;
            of_write.retain(|warning| !warnings.contains(warning));
            warnings.append(&mut of_write);
            warnings.truncate(WARNINGS_MAX);
        }
        self.log_guardrails(&warnings);
        if !guarded.is_empty() {
            warnings.extend(Box::pin(self.guard_large_data(guarded)).await?);
            warnings.truncate(WARNINGS_MAX);
        }
        Ok(warnings)
    }

    pub(super) fn log_guardrails(&self, warnings: &[String]) {
        for warning in warnings {
            if self.guardrail_log.admits() {
                log::warn!("{warning}");
            }
        }
    }
}

/// The most warnings that the client of a batch gets.
const WARNINGS_MAX: usize = 20;
