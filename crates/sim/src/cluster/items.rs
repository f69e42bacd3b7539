//! Clients of the DynamoDB API: items of two tables, each with a list to which they append.
//!
//! Appends are single updates, some of them on a condition, and transactions over two or three items. Reads are of one
//! item, consistent or not, and of several at one moment. All of it must fit one order that keeps real time
//! ([`testkit::serializable`]). A list that has become long is not used any more, and all lists are read in the end.
//! Items that expire are in `leases.rs`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::serializable::{Element, Key, ListHistory, Seen, TransactionId};

use super::clients::{ANSWER_WAIT_MAX, Clients, Phase};
use super::counters::now;
use super::leases::Leases;
use crate::http::{Answered, ApiClient};

/// Where nodes serve the API.
pub(super) const API_PORT: u16 = 8000;
/// Lists that are in use at a time.
const LISTS: u64 = 5;
/// Elements of a list after which another one takes its place.
const ELEMENTS_MAX: usize = 24;
/// How often a transaction whose outcome is unknown is asked for again with its token.
const REPEATS_MAX: u32 = 3;
/// The table of items with a partition key, and that of items with a sort key too, of which some share a partition.
const TABLES: [&str; 2] = ["plain", "sorted"];

/// What the clients know of the lists.
#[derive(Default)]
pub(crate) struct Lists {
    history: RefCell<ListHistory>,
    /// Of each of the lists in use, how many there were before it in its place.
    generations: RefCell<BTreeMap<u64, u64>>,
    /// What was seen last of lists in use: the guess of conditions.
    lengths: RefCell<BTreeMap<Key, usize>>,
    /// The last element that was appended anywhere.
    last_element: Cell<Element>,
    pub(super) leases: Leases,
}

/// The outcome of a request.
pub(super) enum Outcome {
    /// 200.
    Done(Value),
    /// It has no effect, as its answer says.
    Refused(Value),
    /// A request without an answer, or one that says that it does not know.
    Unknown(String),
}

impl Lists {
    fn element(&self) -> Element {
        self.last_element.set(self.last_element.get() + 1);
        self.last_element.get()
    }

    /// A list in use; each generation has another number.
    fn pick(&self, dice: u64) -> Key {
        let place = dice % LISTS;
        let generation = *self.generations.borrow_mut().entry(place).or_default();
        Key::try_from(generation * LISTS + place).expect("few lists")
    }

    /// So many lists in use, each another one.
    fn pick_some(&self, count: u64, dice: u64) -> Vec<Key> {
        (0..count).map(|n| self.pick(dice + n)).collect()
    }

    fn note_length(&self, key: Key, length: usize) {
        self.lengths.borrow_mut().insert(key, length);
        let (place, generation) = (u64::from(key) % LISTS, u64::from(key) / LISTS);
        let mut generations = self.generations.borrow_mut();
        if length >= ELEMENTS_MAX && generations.get(&place) == Some(&generation) {
            generations.insert(place, generation + 1);
        }
    }

    /// All lists that were ever used.
    fn keys(&self) -> Vec<Key> {
        let generations = self.generations.borrow();
        let of_place = |(place, last): (&u64, &u64)| {
            let numbers: Vec<Key> = (0..=*last)
                .map(|generation| Key::try_from(generation * LISTS + place).expect("few lists"))
                .collect();
            numbers
        };
        generations.iter().flat_map(of_place).collect()
    }
}

/// The table of a list, and the key of its item.
fn place(key: Key) -> (&'static str, Value) {
    if key.is_multiple_of(2) {
        return (TABLES[0], json!({"p": {"S": format!("list{key}")}}));
    }
    let partition = format!("list{}", key / 4);
    (TABLES[1], json!({"p": {"S": partition}, "s": {"N": key.to_string()}}))
}

/// The elements of an item; those of one that is not there are none.
fn elements(item: Option<&Value>) -> Vec<Element> {
    let list = item.and_then(|item| item.get("l")?.get("L")?.as_array());
    let number = |element: &Value| element.get("N")?.as_str()?.parse().ok();
    list.into_iter().flatten().filter_map(number).collect()
}

fn append(key: Key, element: Element) -> Value {
    let (table, key) = place(key);
    json!({
        "TableName": table,
        "Key": key,
        "UpdateExpression": "SET l = list_append(if_not_exists(l, :none), :new)",
        "ExpressionAttributeValues": {":none": {"L": []}, ":new": {"L": [{"N": element.to_string()}]}},
    })
}

/// Makes an update or a check depend on how many elements there are.
fn require_length(request: &mut Value, length: usize) {
    let condition = if length == 0 {
        "attribute_not_exists(l)"
    } else {
        request["ExpressionAttributeValues"][":length"] = json!({"N": length.to_string()});
        "size(l) = :length"
    };
    request["ConditionExpression"] = condition.into();
    request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD".into();
}

impl Clients {
    /// The tables of the API.
    pub(super) async fn make_item_tables(&self) -> Result<(), String> {
        let mut client = self.connect_to_api_patiently(self.first_member()).await?;
        for (table, keys) in TABLES.into_iter().zip([&["p"][..], &["p", "s"]]) {
            let schema = ["HASH", "RANGE"].iter().zip(keys);
            let schema: Vec<Value> = schema
                .map(|(kind, name)| json!({"AttributeName": name, "KeyType": kind}))
                .collect();
            let types = ["S", "N"].iter().zip(keys);
            let types: Vec<Value> = types
                .map(|(kind, name)| json!({"AttributeName": name, "AttributeType": kind}))
                .collect();
            let request = json!({
                "TableName": table,
                "KeySchema": schema,
                "AttributeDefinitions": types,
                "BillingMode": "PAY_PER_REQUEST",
            });
            match client.ask("CreateTable", &request).await {
                Ok(answer) if answer.status == 200 => {}
                other => return Err(format!("CreateTable {table}: {other:?}")),
            }
        }
        self.make_leases(&mut client).await
    }

    fn api(&self, node: usize) -> SocketAddr {
        SocketAddr::new(self.addresses[node].ip(), API_PORT)
    }

    pub(super) async fn connect_to_api_patiently(&self, node: usize) -> Result<ApiClient, String> {
        for _ in 0..300 {
            let connecting = ApiClient::connect(self.api(node));
            if let Ok(Ok(client)) = runtime::timeout(Duration::from_secs(5), connecting).await {
                return Ok(client);
            }
            runtime::sleep(Duration::from_millis(100)).await;
        }
        Err(format!("node {node} did not take a connection of the DynamoDB API"))
    }

    /// Clients of a node's API. Ends never.
    pub(super) async fn work_on_items(self: Rc<Self>, node: usize) {
        let of_leases = self.clone();
        drop(runtime::spawn(async move { of_leases.work_on_leases(node).await }));
        let mut connection = None;
        loop {
            let pause = if self.workload.is_hot { 8 } else { 60 };
            runtime::sleep(Duration::from_millis(runtime::random_u64() % pause)).await;
            if self.phase.get() != Phase::Work || !self.is_member(node) {
                runtime::sleep(Duration::from_millis(50)).await;
                continue;
            }
            let dice = runtime::random_u64();
            match dice % 16 {
                0..=2 => self.append_one(&mut connection, node, dice >> 4).await,
                3..=4 => self.append_on_condition(&mut connection, node, dice >> 4).await,
                5..=9 => self.append_together(&mut connection, node, dice >> 4).await,
                10..=12 => self.read_together(&mut connection, node, dice >> 4).await,
                _ => self.read_one(&mut connection, node, dice >> 4).await,
            }
        }
    }

    /// Sends a request over a node's connection, which is kept while it is good.
    pub(super) async fn ask_api(
        &self,
        connection: &mut Option<ApiClient>,
        node: usize,
        operation: &str,
        request: &Value,
    ) -> Outcome {
        let was_faulty = self.faulty.get();
        let asking = async {
            let mut client = match connection.take() {
                Some(client) => client,
                None => ApiClient::connect(self.api(node)).await?,
            };
            let answer = client.ask(operation, request).await?;
            *connection = Some(client);
            std::io::Result::Ok(answer)
        };
        let answered = match runtime::timeout(ANSWER_WAIT_MAX, asking).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(e)) => Err(e.to_string()),
            Err(_) => Err(format!("no answer within {ANSWER_WAIT_MAX:?}")),
        };
        let outcome = match answered {
            Ok(answer) => self.outcome(operation, answer),
            Err(why) => Outcome::Unknown(why),
        };
        if let Outcome::Unknown(why) = &outcome {
            self.explain(was_faulty, || format!("{operation} {request} by node {node}: {why}"));
        }
        outcome
    }

    fn outcome(&self, operation: &str, answer: Answered) -> Outcome {
        if answer.status == 200 {
            return Outcome::Done(answer.body);
        }
        let kind = answer.error().unwrap_or_default();
        match kind {
            "ConditionalCheckFailedException"
            | "TransactionCanceledException"
            | "TransactionConflictException"
            | "TransactionInProgressException" => Outcome::Refused(answer.body),
            "InternalServerError"
            | "ServiceUnavailable"
            | "ProvisionedThroughputExceededException"
            | "RequestLimitExceeded"
            | "ThrottlingException" => Outcome::Unknown(answer.body.to_string()),
            _ => {
                self.fail(format!(
                    "{operation}: an error that the test does not expect: {answer:?}"
                ));
                Outcome::Unknown(answer.body.to_string())
            }
        }
    }

    fn begin_on_lists(&self, name: String, appends: Vec<(Key, Element)>) -> TransactionId {
        self.lists.history.borrow_mut().begin(name, now(), appends)
    }

    fn done_on_lists(&self, id: TransactionId, reads: Vec<(Key, Seen)>) {
        self.lists.history.borrow_mut().done(id, now(), reads);
        self.count(|c| c.on_items += 1);
    }

    fn refused_on_lists(&self, id: TransactionId) {
        self.lists.history.borrow_mut().refused(id);
    }

    /// What a failed condition returned is a read of its own, sent when the request was.
    fn saw_on_failure(&self, name: String, sent: u64, key: Key, item: &Value) {
        let seen = elements(Some(item));
        self.lists.note_length(key, seen.len());
        let mut history = self.lists.history.borrow_mut();
        let id = history.begin(name, sent, Vec::new());
        history.done(id, now(), vec![(key, Seen::Elements(seen))]);
    }

    async fn append_one(&self, connection: &mut Option<ApiClient>, node: usize, dice: u64) {
        let (key, element) = (self.lists.pick(dice), self.lists.element());
        let mut request = append(key, element);
        let returns = ["NONE", "ALL_OLD", "UPDATED_NEW"][usize::try_from((dice >> 8) % 3).expect("below 3")];
        request["ReturnValues"] = returns.into();
        let id = self.begin_on_lists(format!("update by node {node}"), vec![(key, element)]);
        match self.ask_api(connection, node, "UpdateItem", &request).await {
            Outcome::Done(answer) => {
                let mut seen = elements(answer.get("Attributes"));
                if returns == "UPDATED_NEW" && seen.pop() != Some(element) {
                    self.fail(format!("UpdateItem {request} has returned {answer}"));
                }
                let is_seen = returns != "NONE";
                if is_seen {
                    self.lists.note_length(key, seen.len() + 1);
                }
                self.done_on_lists(id, is_seen.then_some((key, Seen::Elements(seen))).into_iter().collect());
            }
            Outcome::Refused(_) => self.refused_on_lists(id),
            Outcome::Unknown(_) => {}
        }
    }

    async fn append_on_condition(&self, connection: &mut Option<ApiClient>, node: usize, dice: u64) {
        let (key, element) = (self.lists.pick(dice), self.lists.element());
        let length = self.lists.lengths.borrow().get(&key).copied().unwrap_or_default();
        let mut request = append(key, element);
        require_length(&mut request, length);
        let name = format!("update on a condition by node {node}");
        let sent = now();
        let id = self.begin_on_lists(name.clone(), vec![(key, element)]);
        match self.ask_api(connection, node, "UpdateItem", &request).await {
            Outcome::Done(_) => {
                self.lists.note_length(key, length + 1);
                self.done_on_lists(id, vec![(key, Seen::Length(length))]);
            }
            Outcome::Refused(answer) => {
                self.refused_on_lists(id);
                if let Some(item) = answer.get("Item") {
                    self.saw_on_failure(name, sent, key, item);
                }
            }
            Outcome::Unknown(_) => {}
        }
    }

    /// A transaction that appends to some lists and, now and then, checks how long another one is. Its token makes it
    /// happen once, however often it is asked for.
    async fn append_together(&self, connection: &mut Option<ApiClient>, node: usize, dice: u64) {
        let mut keys = self.lists.pick_some(2 + dice % 2, dice >> 1);
        let checked = (dice >> 8).is_multiple_of(4).then(|| keys.pop()).flatten();
        let appends: Vec<_> = keys.iter().map(|key| (*key, self.lists.element())).collect();
        let updates = appends
            .iter()
            .map(|(key, element)| json!({"Update": append(*key, *element)}));
        let mut actions: Vec<Value> = updates.collect();
        let length = |key: Key| self.lists.lengths.borrow().get(&key).copied().unwrap_or_default();
        let checked = checked.map(|key| (key, length(key)));
        if let Some((key, length)) = checked {
            let (table, item) = place(key);
            let mut check = json!({"TableName": table, "Key": item});
            require_length(&mut check, length);
            actions.push(json!({"ConditionCheck": check}));
        }
        let token = format!("{:016x}", runtime::random_u64());
        let request = json!({"TransactItems": actions, "ClientRequestToken": token});
        let name = format!("transaction {token} by node {node}");
        let sent = now();
        let id = self.begin_on_lists(name.clone(), appends.clone());
        let mut asked = node;
        for repeat in 0..=REPEATS_MAX {
            let outcome = self.ask_api(connection, asked, "TransactWriteItems", &request).await;
            match outcome {
                Outcome::Done(_) => {
                    let reads = checked.map(|(key, length)| (key, Seen::Length(length)));
                    self.done_on_lists(id, reads.into_iter().collect());
                    self.count(|c| c.transactions += 1);
                    return;
                }
                // Those before may be under way, but are refused then: this one is not done by the token's attempt.
                Outcome::Refused(answer) if answer.get("CancellationReasons").is_some() => {
                    // An earlier attempt whose outcome is unknown may still be done.
                    if repeat == 0 {
                        self.refused_on_lists(id);
                    }
                    let reasons = answer["CancellationReasons"].as_array().cloned().unwrap_or_default();
                    if let (Some((key, _)), Some(item)) = (checked, reasons.last().and_then(|last| last.get("Item"))) {
                        self.saw_on_failure(name, sent, key, item);
                    }
                    return;
                }
                Outcome::Refused(_) | Outcome::Unknown(_) => {}
            }
            if self.phase.get() != Phase::Work {
                return;
            }
            runtime::sleep(Duration::from_millis(runtime::random_u64() % 2_000)).await;
            *connection = None;
            asked = self.any_member();
        }
    }

    async fn read_together(&self, connection: &mut Option<ApiClient>, node: usize, dice: u64) {
        let keys = self.lists.pick_some(2 + dice % 2, dice >> 1);
        let get = |key: &Key| {
            let (table, key) = place(*key);
            json!({"Get": {"TableName": table, "Key": key}})
        };
        let gets: Vec<Value> = keys.iter().map(get).collect();
        let id = self.begin_on_lists(format!("read of several by node {node}"), Vec::new());
        let request = json!({"TransactItems": gets});
        if let Outcome::Done(answer) = self.ask_api(connection, node, "TransactGetItems", &request).await {
            let items = answer["Responses"].as_array().cloned().unwrap_or_default();
            let seen = keys
                .iter()
                .zip(&items)
                .map(|(key, item)| (*key, elements(item.get("Item"))));
            let seen: Vec<_> = seen.collect();
            for (key, elements) in &seen {
                self.lists.note_length(*key, elements.len());
            }
            let seen = seen.into_iter().map(|(key, elements)| (key, Seen::Elements(elements)));
            self.done_on_lists(id, seen.collect());
            self.count(|c| c.reads += 1);
        }
    }

    async fn read_one(&self, connection: &mut Option<ApiClient>, node: usize, dice: u64) {
        let key = self.lists.pick(dice);
        let is_consistent = !(dice >> 8).is_multiple_of(4);
        if let Some(seen) = self.read_list(connection, node, key, is_consistent).await {
            self.lists.note_length(key, seen);
        }
    }

    /// The length of a list; None without an answer.
    async fn read_list(
        &self,
        connection: &mut Option<ApiClient>,
        node: usize,
        key: Key,
        is_consistent: bool,
    ) -> Option<usize> {
        let (table, item) = place(key);
        let request = json!({"TableName": table, "Key": item, "ConsistentRead": is_consistent});
        let name = format!("read by node {node}");
        let id = is_consistent.then(|| self.begin_on_lists(name.clone(), Vec::new()));
        let Outcome::Done(answer) = self.ask_api(connection, node, "GetItem", &request).await else {
            return None;
        };
        let seen = elements(answer.get("Item"));
        let length = seen.len();
        self.count(|c| c.reads += 1);
        match id {
            Some(id) => self.done_on_lists(id, vec![(key, Seen::Elements(seen))]),
            None => self.lists.history.borrow_mut().read_stale(name, key, seen),
        }
        Some(length)
    }

    /// Reads all lists by each node, and checks the history.
    pub(super) async fn look_at_items(&self) -> Result<(), String> {
        let mut lists: BTreeMap<Key, Vec<Element>> = BTreeMap::new();
        for node in self.members() {
            let mut connection = Some(self.connect_to_api_patiently(node).await?);
            for key in self.lists.keys() {
                let (table, item) = place(key);
                let request = json!({"TableName": table, "Key": item, "ConsistentRead": true});
                let answer = match self.ask_api(&mut connection, node, "GetItem", &request).await {
                    Outcome::Done(answer) => answer,
                    Outcome::Refused(why) => return Err(format!("GetItem {request} when all is quiet: {why}")),
                    Outcome::Unknown(why) => return Err(format!("GetItem {request} when all is quiet: {why}")),
                };
                let seen = elements(answer.get("Item"));
                let before = lists.entry(key).or_insert_with(|| seen.clone());
                if *before != seen {
                    return Err(format!(
                        "list {key} is {before:?}, and {seen:?} by node {node}, when all is quiet"
                    ));
                }
            }
        }
        self.lists.history.borrow().check(&lists)?;
        self.look_at_leases().await
    }
}
