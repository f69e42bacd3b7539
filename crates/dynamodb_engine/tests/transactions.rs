//! Transactions that meet: what they read and leave must be what some order of them leaves.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use dynamodb_engine::Service;
use dynamodb_engine::transaction::Action;
use types::Token;

use crate::support::{ask, create_table, set_numbers, with_service};

const ALL_TOKENS: (Token, Token) = (Token(i64::MIN), Token(i64::MAX));
const ACCOUNTS: u64 = 4;
const EACH: i64 = 100;

async fn create(service: &Rc<Service>) {
    create_table(service, "bank").await;
    for account in 0..ACCOUNTS {
        let put = format!(r#"{{"TableName":"bank","Item":{{"p":{{"S":"{account}"}},"n":{{"N":"{EACH}"}}}}}}"#);
        assert_eq!(ask(service, "PutItem", &put).await, "{}");
    }
}

fn transfer(from: u64, to: u64, amount: u64) -> String {
    let part = |account: u64, sign: &str, condition: &str| {
        format!(
            r#"{{"Update":{{"TableName":"bank","Key":{{"p":{{"S":"{account}"}}}},"UpdateExpression":"SET n = n {sign} :d","ExpressionAttributeValues":{{":d":{{"N":"{amount}"}}}}{condition}}}}}"#
        )
    };
    let has_enough = r#","ConditionExpression":"n >= :d""#;
    format!(
        r#"{{"TransactItems":[{},{}]}}"#,
        part(from, "-", has_enough),
        part(to, "+", "")
    )
}

/// The numbers in an answer.
fn numbers(answer: &str) -> Vec<i64> {
    let found = answer.split("\"N\":\"").skip(1);
    found
        .map(|rest| {
            rest.split('"')
                .next()
                .and_then(|n| n.parse().ok())
                .expect("it is a number")
        })
        .collect()
}

fn snapshot() -> String {
    let get = |account| format!(r#"{{"Get":{{"TableName":"bank","Key":{{"p":{{"S":"{account}"}}}}}}}}"#);
    format!(
        r#"{{"TransactItems":[{}]}}"#,
        (0..ACCOUNTS).map(get).collect::<Vec<_>>().join(",")
    )
}

/// Clients move money between accounts, and others read all accounts at one moment; what is read always has the same
/// sum. How many transfers were done, and how many were cancelled because they met others.
fn bank(seed: u64) -> (u32, u32) {
    let counts: Rc<(Cell<u32>, Cell<u32>)> = Rc::default();
    let counted = counts.clone();
    with_service(seed, move |service| async move {
        create(&service).await;
        let client = |number: u64| {
            let (service, counts) = (service.clone(), counted.clone());
            async move {
                for round in 0..8 {
                    let (from, to) = ((number + round) % ACCOUNTS, (number * 3 + round * 2 + 1) % ACCOUNTS);
                    if from == to {
                        continue;
                    }
                    let answer = ask(&service, "TransactWriteItems", &transfer(from, to, number + 1)).await;
                    match answer.as_str() {
                        "{}" => counts.0.set(counts.0.get() + 1),
                        canceled if canceled.contains("TransactionConflict") => counts.1.set(counts.1.get() + 1),
                        other => panic!("{other}"),
                    }
                }
            }
        };
        let reader = || {
            let service = service.clone();
            async move {
                for _ in 0..10 {
                    let answer = ask(&service, "TransactGetItems", &snapshot()).await;
                    if !answer.contains("TransactionConflict") {
                        let found = numbers(&answer);
                        assert_eq!(found.iter().sum::<i64>(), EACH * ACCOUNTS as i64, "{answer}");
                    }
                    runtime::sleep(Duration::from_millis(1)).await;
                }
            }
        };
        let clients: Vec<_> = (0..4).map(|number| runtime::spawn(client(number))).collect();
        let readers: Vec<_> = (0..2).map(|_| runtime::spawn(reader())).collect();
        for task in clients.into_iter().chain(readers) {
            task.await;
        }
        let last = numbers(&ask(&service, "TransactGetItems", &snapshot()).await);
        assert_eq!(last.iter().sum::<i64>(), EACH * ACCOUNTS as i64);
    });
    (counts.0.get(), counts.1.get())
}

#[test]
fn money_is_moved_and_never_made_or_lost() {
    let (mut done, mut canceled) = (0, 0);
    for seed in 0..8 {
        let (d, c) = bank(seed);
        done += d;
        canceled += c;
    }
    assert!(done > 100, "{done} of {} transfers were done", done + canceled);
}

/// Sets all accounts to 7.
fn set_all(service: &Rc<Service>) -> Vec<Action> {
    let accounts: Vec<String> = (0..ACCOUNTS).map(|account| account.to_string()).collect();
    let accounts: Vec<&str> = accounts.iter().map(String::as_str).collect();
    set_numbers(service, "bank", &accounts, 7)
}

/// A transaction that sets all accounts to 7, whose coordinator ends in the middle.
async fn abandon(service: &Rc<Service>, is_committed: bool) {
    let abandoned = service.abandon_transaction(&set_all(service), is_committed).await;
    abandoned.expect("nothing is in its way");
}

const ADD_ONE: &str = r#"{"TableName":"bank","Key":{"p":{"S":"0"}},"UpdateExpression":"ADD n :n","ExpressionAttributeValues":{":n":{"N":"1"}},"ReturnValues":"UPDATED_NEW"}"#;

#[test]
fn a_transaction_that_was_decided_is_carried_out_by_those_that_meet_it() {
    with_service(3, |service| async move {
        create(&service).await;
        abandon(&service, true).await;
        // A write sees it, a read of all accounts too, and the sweeper does the rest.
        let added = ask(&service, "UpdateItem", ADD_ONE).await;
        assert_eq!(numbers(&added), [8]);
        assert_eq!(
            numbers(&ask(&service, "TransactGetItems", &snapshot()).await),
            [8, 7, 7, 7]
        );
        abandon(&service, true).await;
        runtime::sleep(Duration::from_secs(1_300)).await;
        let gone = service
            .sweep_transactions(ALL_TOKENS)
            .await
            .expect("the records are read");
        assert_eq!(gone, 2);
        let scanned = ask(&service, "Scan", r#"{"TableName":"bank","ProjectionExpression":"n"}"#).await;
        assert_eq!(numbers(&scanned), [7, 7, 7, 7], "without anything that met its locks");
    });
}

#[test]
fn a_transaction_that_was_not_decided_is_aborted_when_its_time_is_over() {
    with_service(4, |service| async move {
        create(&service).await;
        abandon(&service, false).await;
        let refused = ask(&service, "UpdateItem", ADD_ONE).await;
        assert!(refused.contains("TransactionConflictException"), "{refused}");
        let get = r#"{"TableName":"bank","Key":{"p":{"S":"0"}},"ConsistentRead":true}"#;
        assert_eq!(
            numbers(&ask(&service, "GetItem", get).await),
            [EACH],
            "the item before is there"
        );
        runtime::sleep(Duration::from_secs(6)).await;
        let added = ask(&service, "UpdateItem", ADD_ONE).await;
        assert_eq!(numbers(&added), [EACH + 1]);
        let rest = vec![EACH + 1, EACH, EACH, EACH];
        assert_eq!(numbers(&ask(&service, "TransactGetItems", &snapshot()).await), rest);
    });
}

/// What a transaction leaves whose record is made after a write has met one of its locks; and whether it says that it
/// is committed.
fn begun_late() -> (bool, Vec<i64>) {
    let seen = Rc::new(RefCell::default());
    let note = seen.clone();
    with_service(5, move |service| {
        let note = note.clone();
        async move {
            create(&service).await;
            let add = async {
                let added = ask(&service, "UpdateItem", ADD_ONE).await;
                assert_eq!(numbers(&added), [EACH + 1], "it gives up on the transaction");
            };
            let late = service.transact_late(&set_all(&service), add).await;
            let left = numbers(&ask(&service, "TransactGetItems", &snapshot()).await);
            *note.borrow_mut() = (late.expect("every node answers"), left);
        }
    });
    seen.take()
}

#[test]
fn a_transaction_does_not_begin_after_others_gave_up_on_it() {
    assert_eq!(begun_late(), (false, vec![EACH + 1, EACH, EACH, EACH]));
}

#[cfg(debug_assertions)]
#[test]
fn a_transaction_that_begins_after_others_gave_up_on_it_is_found() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::BegunAfterAbort));
    assert_eq!(begun_late(), (true, vec![EACH + 1, 7, 7, 7]), "half of it is done");
}

/// What an account has after a transaction with a token, which adds one to it, was asked for twice.
fn asked_twice() -> Vec<i64> {
    let seen = Rc::new(RefCell::default());
    let note = seen.clone();
    with_service(6, move |service| {
        let note = note.clone();
        async move {
            create(&service).await;
            let update = ADD_ONE.replace(r#","ReturnValues":"UPDATED_NEW""#, "");
            let request = format!(r#"{{"TransactItems":[{{"Update":{update}}}],"ClientRequestToken":"once"}}"#);
            for _ in 0..2 {
                assert_eq!(ask(&service, "TransactWriteItems", &request).await, "{}");
            }
            let get = r#"{"TableName":"bank","Key":{"p":{"S":"0"}},"ConsistentRead":true}"#;
            *note.borrow_mut() = numbers(&ask(&service, "GetItem", get).await);
        }
    });
    seen.take()
}

#[test]
fn a_request_with_a_token_is_done_once() {
    assert_eq!(asked_twice(), [EACH + 1]);
}

#[cfg(debug_assertions)]
#[test]
fn a_request_that_is_done_twice_though_it_has_a_token_is_found() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::UnheededToken));
    assert_eq!(asked_twice(), [EACH + 2]);
}
