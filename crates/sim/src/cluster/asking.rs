//! How clients ask: a text or a prepared statement, and for how long they wait.

use std::future::Future;
use std::io;
use std::time::Duration;

use super::clients::{ANSWER_WAIT_MAX, Clients, OVERLOADED, Outcome};
use super::history::Level;
use super::writes::Bound;
use crate::client::{Answer, Client};

/// What a replica says that ran a request and has no room for the answer.
const NO_ROOM_FOR_ANSWER: &str = "too many bytes of answers wait to be read";
/// What a coordinator says that has no slot for a request to a replica.
const NO_SLOT: &str = "too many requests wait for the node";
const UNPREPARED: i32 = 0x2500;

impl Clients {
    pub(crate) async fn ask(&self, client: &mut Client, text: &str, level: Level, wait: Duration) -> Outcome {
        self.within(wait, client.ask_at(text, level.code())).await
    }

    /// One request of a connection of its own.
    pub(super) async fn ask_at_second(&self, node: usize, text: &str, level: Level, second: i32) -> Outcome {
        let asking = async {
            let mut client = Client::connect_with_version_5(self.addresses[node]).await?;
            client.ask_at_second(text, level.code(), second).await
        };
        self.count(|c| c.own_seconds += 1);
        self.within(ANSWER_WAIT_MAX, asking).await
    }

    /// Executes a prepared statement. All nodes give it the same id. The statement is prepared again at a node that
    /// does not know the id.
    pub(super) async fn execute(&self, client: &mut Client, bound: &Bound, level: Level, wait: Duration) -> Outcome {
        let asking = async {
            let known = self.prepared.borrow().get(bound.text).cloned();
            if let Some(id) = known {
                let answer = client.execute_at(&id, &bound.values, level.code()).await?;
                if !matches!(answer, Answer::Error { code: UNPREPARED, .. }) {
                    return Ok(answer);
                }
            }
            let id = match client.prepare(bound.text).await? {
                Answer::Prepared(id) => id,
                other => return Ok(other),
            };
            let before = self.prepared.borrow_mut().insert(bound.text, id.clone());
            if before.is_some_and(|before| before != id) {
                self.fail(format!("{} has another id than before", bound.text));
            }
            client.execute_at(&id, &bound.values, level.code()).await
        };
        self.within(wait, asking).await
    }

    pub(crate) async fn within(&self, wait: Duration, asking: impl Future<Output = io::Result<Answer>>) -> Outcome {
        let lost = |why: io::Error| Outcome::Lost(why.to_string());
        match runtime::timeout(wait, asking).await {
            Ok(answer) => {
                if let Ok(Answer::Error { code, message }) = &answer {
                    let finds_no_room = *code == OVERLOADED || message.contains(NO_SLOT);
                    self.count(|c| c.overloaded += u64::from(finds_no_room));
                    self.count(|c| c.lost_answers += u64::from(message.contains(NO_ROOM_FOR_ANSWER)));
                }
                answer.map_or_else(lost, Outcome::Answer)
            }
            Err(_) => Outcome::Lost(format!("no answer within {wait:?}")),
        }
    }
}
