//! TRUNCATE on every node that may hold any of a table. All must do it: one that is down would bring its part back.
//!
//! It has two steps, each on all nodes before the next begins: first nothing may wait to be written later (logged batches, hints),
//! then the data goes.

use std::rc::Rc;
use std::sync::Arc;

use schema::TableId;
use topology::{NodeNumber, Replica};

use crate::gather::Gather;
use crate::{ClusterView, Coordinator, TargetError, Verb, spawn};

type Outcome = (NodeNumber, Result<(), TargetError>);

impl Coordinator {
    /// Forgets a table's data on all nodes.
    ///
    /// # Errors
    /// The sentence names who did not, and whether it may have.
    pub async fn truncate(self: &Rc<Self>, table: TableId) -> Result<(), String> {
        let view = self.view();
        let members = view
            .topology
            .members()
            .filter_map(|node| view.topology.number(node.host_id));
        let waiting: Vec<NodeNumber> = members.collect();
        if let Some(dead) = waiting.iter().find(|node| !self.is_live(**node)) {
            return Err(format!(
                "node {} is down, and TRUNCATE needs all. Nothing was removed",
                Self::address(&view, *dead)
            ));
        }
        for step in [Verb::Settle, Verb::Truncate] {
            self.on_all(&view, waiting.clone(), step, table).await?;
        }
        Ok(())
    }

    async fn on_all(
        self: &Rc<Self>,
        view: &Arc<ClusterView>,
        mut waiting: Vec<NodeNumber>,
        step: Verb,
        table: TableId,
    ) -> Result<(), String> {
        let timeout = self.timeouts().truncate;
        let may_have = match step {
            Verb::Truncate => "it may be truncated there",
            _ => "nothing was removed",
        };
        let gather: Rc<Gather<Outcome>> = Gather::new();
        for node in waiting.iter().copied() {
            let (coordinator, view, gather) = (Rc::clone(self), view.clone(), Rc::clone(&gather));
            spawn(async move {
                let done = if node != view.me {
                    let replica = Replica { node, shard: 0 };
                    let body = table.0.as_bytes().to_vec();
                    let answer = coordinator.call(&view, replica, step, body, timeout).await;
                    answer.map(|_| ())
                } else if step == Verb::Truncate {
                    coordinator.truncate_here(table).await.map_err(TargetError::Failed)
                } else {
                    Self::settle_here(table).await.map_err(TargetError::Failed)
                };
                gather.put((node, done));
            });
        }
        let deadline = runtime::now() + timeout;
        while !waiting.is_empty() {
            let Some((node, done)) = gather.next(deadline).await else {
                let silent: Vec<String> = waiting.iter().map(|n| Self::address(view, *n).to_string()).collect();
                return Err(format!("no answer from {}; {may_have}", silent.join(", ")));
            };
            waiting.retain(|other| *other != node);
            done.map_err(|e| {
                let name = Self::address(view, node);
                match e {
                    TargetError::Silent => format!("no answer from {name}; {may_have}"),
                    TargetError::Stale(reason) | TargetError::Refused(reason) | TargetError::Failed(reason) => {
                        format!("{name}: {reason}")
                    }
                }
            })?;
        }
        Ok(())
    }

    /// Forgets a table's data on this node.
    pub(crate) async fn truncate_here(&self, table: TableId) -> Result<(), String> {
        let truncation = match &*self.truncate.borrow() {
            Some(truncate) => truncate(table),
            None => return Err("this node cannot truncate yet".to_owned()),
        };
        truncation.await
    }
}
