//! Clients of the DynamoDB API whose items expire: each renews leases of its own, which others never write.
//!
//! A lease whose renewal was acknowledged is there until its client lets it go. One that was let go may be there or
//! not, and is renewed on the condition that it is. In the end those that were let go are deleted, and no other one is.
//! After a request whose outcome is unknown its client gives the lease up, because the request may still be executed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::clients::{Clients, Phase};
use super::items::Outcome;
use crate::http::ApiClient;
use crate::machine::ROW_EXPIRY_PERIOD;

const TABLE: &str = "leases";
/// Of each node's client.
const LEASES: u64 = 4;
/// Until when a lease that was renewed lives; seconds.
const LIFE: i64 = 10_000_000;
/// How long leases that were let go may be there when all is quiet. All nodes look for them within this time.
const DELETION_WAIT_MAX: Duration = Duration::from_secs(120);

/// What a client knows of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It was renewed with this number.
    Held(u64),
    /// It was let go with this number.
    Released(u64),
    /// It is gone.
    Gone,
    /// It is not used any more.
    GivenUp,
}

/// All leases there have been, by name.
#[derive(Default)]
pub(crate) struct Leases(RefCell<BTreeMap<String, State>>);

fn key(name: &str) -> Value {
    json!({"p": {"S": name}})
}

/// The number of a lease that was read.
fn number(answer: &Value) -> Option<u64> {
    answer.get("Item")?.get("v")?.get("N")?.as_str()?.parse().ok()
}

impl Clients {
    /// The table of leases.
    pub(super) async fn make_leases(&self, client: &mut ApiClient) -> Result<(), String> {
        let table = json!({
            "TableName": TABLE,
            "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
        });
        let specification = json!({"AttributeName": "t", "Enabled": true});
        let life = json!({"TableName": TABLE, "TimeToLiveSpecification": specification});
        for (operation, request) in [("CreateTable", table), ("UpdateTimeToLive", life)] {
            match client.ask(operation, &request).await {
                Ok(answer) if answer.status == 200 => {}
                other => return Err(format!("{operation} {TABLE}: {other:?}")),
            }
        }
        Ok(())
    }

    /// A client that renews leases by a node's API, and lets them go. Ends never.
    pub(super) async fn work_on_leases(self: Rc<Self>, node: usize) {
        let (mut connection, mut generations) = (None, [0_u64; LEASES as usize]);
        loop {
            runtime::sleep(Duration::from_millis(runtime::random_u64() % 400)).await;
            if self.phase.get() != Phase::Work || !self.is_member(node) {
                runtime::sleep(Duration::from_millis(50)).await;
                continue;
            }
            let slot = usize::try_from(runtime::random_u64() % LEASES).expect("few leases");
            let name = format!("lease {slot} of node {node}, {}", generations[slot]);
            let before = self.lists.leases.0.borrow().get(&name).copied().unwrap_or(State::Gone);
            // From now on it is given up, unless this request is answered.
            self.lists.leases.0.borrow_mut().insert(name.clone(), State::GivenUp);
            let after = self.use_lease(&mut connection, node, &name, before).await;
            if after == State::GivenUp {
                generations[slot] += 1;
            }
            self.lists.leases.0.borrow_mut().insert(name, after);
        }
    }

    async fn use_lease(&self, connection: &mut Option<ApiClient>, node: usize, name: &str, before: State) -> State {
        let dice = runtime::random_u64();
        if dice.is_multiple_of(4) {
            return self.look_at_lease(connection, node, name, before).await;
        }
        let lets_go = matches!(before, State::Held(_)) && dice % 4 == 1;
        let seconds = runtime::wall_clock_us() / 1_000_000;
        let (until, number) = if lets_go {
            (seconds - 1, dice >> 8)
        } else {
            (seconds + LIFE, dice >> 8)
        };
        let mut request = json!({
            "TableName": TABLE,
            "Key": key(name),
            "UpdateExpression": "SET t = :until, v = :number",
            "ExpressionAttributeValues": {":until": {"N": until.to_string()}, ":number": {"N": number.to_string()}},
        });
        if before != State::Gone {
            request["ConditionExpression"] = "attribute_exists(p)".into();
        }
        match (self.ask_api(connection, node, "UpdateItem", &request).await, before) {
            (Outcome::Done(_), _) if lets_go => State::Released(number),
            (Outcome::Done(_), _) => {
                self.count(|c| c.renewals += 1);
                State::Held(number)
            }
            (Outcome::Refused(_), State::Released(_)) => State::Gone,
            (Outcome::Refused(answer), _) => {
                self.fail(format!(
                    "expired early: {name} was {before:?}, and its renewal is refused: {answer}"
                ));
                State::GivenUp
            }
            (Outcome::Unknown(_), _) => State::GivenUp,
        }
    }

    async fn look_at_lease(&self, connection: &mut Option<ApiClient>, node: usize, name: &str, before: State) -> State {
        let request = json!({"TableName": TABLE, "Key": key(name), "ConsistentRead": true});
        let Outcome::Done(answer) = self.ask_api(connection, node, "GetItem", &request).await else {
            // Reads change nothing.
            return before;
        };
        match (before, number(&answer)) {
            (State::Held(held), Some(found)) | (State::Released(held), Some(found)) if held == found => before,
            (State::Released(_) | State::Gone, None) => State::Gone,
            (_, found) => {
                self.fail(format!(
                    "expired early: {name} was {before:?}, and is read as {found:?}"
                ));
                State::GivenUp
            }
        }
    }

    /// Leases that are held are there, and those that were let go are deleted.
    pub(super) async fn look_at_leases(&self) -> Result<(), String> {
        let node = self.first_member();
        let mut connection = Some(self.connect_to_api_patiently(node).await?);
        let known = self.lists.leases.0.borrow().clone();
        let end = runtime::now() + DELETION_WAIT_MAX.max(4 * ROW_EXPIRY_PERIOD);
        for (name, state) in known {
            loop {
                let request = json!({"TableName": TABLE, "Key": key(&name), "ConsistentRead": true});
                let Outcome::Done(answer) = self.ask_api(&mut connection, node, "GetItem", &request).await else {
                    return Err(format!("{name} cannot be read when all is quiet"));
                };
                match (state, number(&answer)) {
                    (State::Held(held), Some(found)) if held == found => {}
                    (State::Released(_) | State::Gone, None) | (State::GivenUp, _) => {}
                    (State::Released(_), Some(_)) if runtime::now() < end => {
                        runtime::sleep(Duration::from_secs(5)).await;
                        continue;
                    }
                    (_, found) => {
                        let what = if found.is_none() {
                            "expired early"
                        } else {
                            "expires never"
                        };
                        return Err(format!(
                            "{what}: {name} is {state:?}, and is read as {found:?} when all is quiet"
                        ));
                    }
                }
                break;
            }
        }
        Ok(())
    }
}
