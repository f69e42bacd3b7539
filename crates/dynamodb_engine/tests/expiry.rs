//! Items that expire, and items that are renewed while expired ones are looked for.

use std::rc::Rc;

use dynamodb_engine::Service;
use serde_json::{Value, json};
use types::Token;

use crate::support::{ask, create_table, with_service};

const ITEMS: usize = 60;

async fn make_table(service: &Rc<Service>) {
    create_table(service, "leases").await;
    let life = json!({"TableName": "leases", "TimeToLiveSpecification": {"AttributeName": "t", "Enabled": true}});
    ask(service, "UpdateTimeToLive", &life.to_string()).await;
}

/// Sets the time of an item, so many seconds from now.
async fn set_time(service: &Rc<Service>, number: usize, seconds: i64) {
    let at = runtime::wall_clock_us() / 1_000_000 + seconds;
    let update = json!({"TableName": "leases", "Key": {"p": {"S": number.to_string()}},
        "UpdateExpression": "SET t = :t", "ExpressionAttributeValues": {":t": {"N": at.to_string()}}});
    assert_eq!(ask(service, "UpdateItem", &update.to_string()).await, "{}");
}

async fn exists(service: &Rc<Service>, number: usize) -> bool {
    let get = json!({"TableName": "leases", "Key": {"p": {"S": number.to_string()}}});
    let answer: Value = serde_json::from_str(&ask(service, "GetItem", &get.to_string()).await).expect("it is JSON");
    answer.get("Item").is_some()
}

/// Renews every second item while expired ones are deleted; which of those that were renewed are gone, and how many of
/// the others are there.
fn renewed_while_they_expire(seed: u64) -> (Vec<usize>, usize) {
    let found = Rc::new(std::cell::RefCell::new((Vec::new(), 0)));
    let seen = found.clone();
    with_service(seed, move |service| async move {
        make_table(&service).await;
        for number in 0..ITEMS {
            set_time(&service, number, -10).await;
        }
        let renewing = runtime::spawn({
            let service = service.clone();
            async move {
                for number in (0..ITEMS).step_by(2) {
                    set_time(&service, number, 100_000).await;
                }
            }
        });
        let table = service.table("leases").expect("it was created");
        service
            .expire_items(&table, (Token(i64::MIN), Token(i64::MAX)))
            .await
            .expect("it reads and writes");
        renewing.await;
        for number in 0..ITEMS {
            match (number % 2, exists(&service, number).await) {
                (0, false) => seen.borrow_mut().0.push(number),
                (1, true) => seen.borrow_mut().1 += 1,
                _ => {}
            }
        }
    });
    let found = found.borrow();
    (found.0.clone(), found.1)
}

#[test]
fn an_item_that_is_renewed_while_others_expire_stays() {
    for seed in 0..4 {
        assert_eq!(renewed_while_they_expire(seed), (Vec::new(), 0), "seed {seed}");
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_deletion_that_does_not_look_again_is_found() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::ExpiredUnseen));
    let is_found = |seed| !renewed_while_they_expire(seed).0.is_empty();
    assert!((0..4).any(is_found), "no renewed item is lost");
}
