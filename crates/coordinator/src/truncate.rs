//! TRUNCATE on every node that may hold any of a table. All must do it: one that is down would bring its part back.
//!
//! It has two steps, each on all nodes before the next begins: first nothing may wait to be written later (logged batches, hints),
//! then the data goes.
//!
//! A truncation is the one request that takes what was written after its coordinator has given up, if it comes late. So the first
//! step is answered with a *permission*, which serves once and ends at a moment of the node's own clock; a truncation that has none,
//! or comes to the moment at which a shard's data would go when it has ended, is refused. Whoever coordinates does not answer before
//! all nodes have, or the permissions have ended of those that did not. So what is written behind the answer stays.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use runtime::Instant;
use schema::TableId;
use stdx::bytes::Reader;
use topology::{NodeNumber, Replica};
use uuid::Uuid;

use crate::gather::Gather;
use crate::message::Malformed;
use crate::{ClusterView, Coordinator, TargetError, Verb, spawn};

/// What a node answered to a step: its permission, of the first.
type Outcome = (NodeNumber, Result<u64, TargetError>);

/// A truncation that this node has agreed to.
struct Permission {
    table: TableId,
    id: u64,
    until: Instant,
}

/// Those that were given out and not used.
#[derive(Default)]
pub(crate) struct Permissions(RefCell<Vec<Permission>>);

impl Permissions {
    fn give(&self, table: TableId, lifetime: Duration) -> u64 {
        let now = runtime::now();
        let mut given = self.0.borrow_mut();
        given.retain(|permission| permission.until > now);
        let (id, until) = (runtime::random_u64(), now + lifetime);
        given.push(Permission { table, id, until });
        id
    }

    /// Until when a truncation may take data; a permission serves once.
    fn redeem(&self, table: TableId, id: u64) -> Result<Instant, String> {
        let mut given = self.0.borrow_mut();
        let at = given.iter().position(|p| p.id == id && p.table == table);
        let until = at.map(|at| given.swap_remove(at).until);
        let until = until.filter(|until| *until > runtime::now());
        until.ok_or_else(|| "the request to truncate came too late; nothing was removed here".to_owned())
    }
}

/// The second step as it goes over the wire, or the first with the milliseconds that its permission serves.
pub(crate) struct Step {
    table: TableId,
    /// The permission, or its lifetime.
    number: u64,
}

impl Step {
    fn encode(&self) -> Vec<u8> {
        [&self.table.0.as_bytes()[..], &self.number.to_le_bytes()].concat()
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut bytes = Reader::new(body);
        let malformed = |_| Malformed("a table id and a number of eight bytes");
        let table = bytes.get_array().map_err(malformed)?;
        let number = bytes.get_array().map_err(malformed)?;
        Ok(Self {
            table: TableId(Uuid::from_bytes(table)),
            number: u64::from_le_bytes(number),
        })
    }
}

impl Coordinator {
    /// Forgets a table's data on all nodes. When it fails nothing goes afterwards that was not gone before.
    ///
    /// # Errors
    /// The sentence names who did not, and whether it may have.
    pub async fn truncate(self: &Rc<Self>, table: TableId) -> Result<(), String> {
        let view = self.view();
        let members = view
            .topology
            .members()
            .filter_map(|node| view.topology.number(node.host_id));
        let members: Vec<NodeNumber> = members.collect();
        if let Some(dead) = members.iter().find(|node| !self.is_live(**node)) {
            return Err(format!(
                "node {} is down, and TRUNCATE needs all. Nothing was removed",
                Self::address(&view, *dead)
            ));
        }
        let lifetime = self.timeouts().truncate;
        let number = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        let steps = members.iter().map(|node| (*node, Step { table, number })).collect();
        let permissions = self
            .on_all(&view, Verb::Settle, steps, runtime::now() + lifetime)
            .await?;
        // All of them were given before this.
        let end = runtime::now() + lifetime;
        let steps = permissions
            .into_iter()
            .map(|(node, number)| (node, Step { table, number }));
        let truncated = self.on_all(&view, Verb::Truncate, steps.collect(), end).await;
        truncated.map(drop)
    }

    /// Has all nodes do a step, and waits until each has answered, or its permission has ended.
    async fn on_all(
        self: &Rc<Self>,
        view: &Arc<ClusterView>,
        verb: Verb,
        steps: Vec<(NodeNumber, Step)>,
        deadline: Instant,
    ) -> Result<Vec<(NodeNumber, u64)>, String> {
        let is_last = verb == Verb::Truncate;
        let may_have = if is_last {
            "it may be truncated there"
        } else {
            "nothing was removed"
        };
        let gather: Rc<Gather<Outcome>> = Gather::new();
        let mut waiting: Vec<NodeNumber> = steps.iter().map(|(node, _)| *node).collect();
        for (node, step) in steps {
            let (coordinator, view, gather) = (Rc::clone(self), view.clone(), Rc::clone(&gather));
            spawn(async move {
                let done = if node == view.me {
                    let done = coordinator.truncation_step(step, is_last).await;
                    done.map_err(TargetError::Failed)
                } else {
                    let (replica, left) = (Replica { node, shard: 0 }, deadline - runtime::now());
                    let answer = coordinator.call(&view, replica, verb, step.encode(), left).await;
                    answer.and_then(|body| permission_of(&body, is_last))
                };
                gather.put((node, done));
            });
        }
        let (mut answers, mut failure, mut is_lost) = (Vec::new(), None, false);
        while !waiting.is_empty() {
            let Some((node, done)) = gather.next(deadline).await else {
                let silent: Vec<String> = waiting.iter().map(|n| Self::address(view, *n).to_string()).collect();
                return Err(failure.unwrap_or_else(|| format!("no answer from {}; {may_have}", silent.join(", "))));
            };
            waiting.retain(|other| *other != node);
            let error = match done {
                Ok(answer) => {
                    answers.push((node, answer));
                    continue;
                }
                Err(error) => error,
            };
            let name = Self::address(view, node);
            let sentence = match error {
                TargetError::Silent => {
                    is_lost = true;
                    format!("no answer from {name}; {may_have}")
                }
                other => other.about(&name.to_string()),
            };
            failure.get_or_insert(sentence);
            if !is_last {
                break;
            }
        }
        if is_last && is_lost {
            runtime::sleep(deadline.saturating_duration_since(runtime::now())).await;
        }
        failure.map_or(Ok(answers), Err)
    }

    /// Does a step on this node; the answer of the first is a permission.
    pub(crate) async fn truncation_step(&self, step: Step, is_last: bool) -> Result<u64, String> {
        let Step { table, number } = step;
        if !is_last {
            Self::settle_here(table).await?;
            return Ok(self.truncations.give(table, Duration::from_millis(number)));
        }
        let until = self.truncations.redeem(table, number)?;
        let truncation = match &*self.truncate.borrow() {
            Some(truncate) => truncate(table, until),
            None => return Err("this node cannot truncate yet".to_owned()),
        };
        truncation.await.map(|()| 0)
    }
}

fn permission_of(body: &[u8], is_last: bool) -> Result<u64, TargetError> {
    match body.try_into() {
        Ok(number) => Ok(u64::from_le_bytes(number)),
        Err(_) if is_last => Ok(0),
        Err(_) => Err(TargetError::Failed("a malformed permission to truncate".to_owned())),
    }
}
