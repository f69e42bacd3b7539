//! Backups on one node: what they have of items that transactions have marked, and what becomes of their files.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use coordinator::{Atomicity, Deadline, WriteKind};
use dynamodb::{AttributeValue, Item};
use dynamodb_engine::Service;
use dynamodb_engine::lock::{Intent, Lock};
use dynamodb_engine::row::{LockChange, pack_lock};
use mutation::Addressed;
use topology::Consistency;
use uuid::Uuid;

use crate::support::{ask, create_table, set_numbers, with_service};

async fn put(service: &Rc<Service>, table: &str, key: &str, number: u32) {
    let body = format!(r#"{{"TableName":"{table}","Item":{{"p":{{"S":"{key}"}},"n":{{"N":"{number}"}}}}}}"#);
    assert_eq!(ask(service, "PutItem", &body).await, "{}");
}

async fn get(service: &Rc<Service>, table: &str, key: &str) -> String {
    let body = format!(r#"{{"TableName":"{table}","Key":{{"p":{{"S":"{key}"}}}},"ConsistentRead":true}}"#);
    ask(service, "GetItem", &body).await
}

/// The member of that name in an answer.
fn member(answer: &str, name: &str) -> String {
    let found = answer.split(&format!(r#""{name}":""#)).nth(1);
    let value = found.and_then(|rest| rest.split('"').next());
    value.unwrap_or_else(|| panic!("no {name}: {answer}")).to_owned()
}

/// Creates a backup; its ARN.
async fn back_up(service: &Rc<Service>, table: &str) -> String {
    let body = format!(r#"{{"TableName":"{table}","BackupName":"first"}}"#);
    let created = ask(service, "CreateBackup", &body).await;
    assert!(created.contains("AVAILABLE"), "{created}");
    member(&created, "BackupArn")
}

fn restore_body(arn: &str, target: &str) -> String {
    format!(r#"{{"TargetTableName":"{target}","BackupArn":"{arn}"}}"#)
}

/// Restores a table to its end.
async fn restore(service: &Rc<Service>, arn: &str, target: &str) {
    let made = ask(service, "RestoreTableFromBackup", &restore_body(arn, target)).await;
    assert!(made.contains(r#""TableStatus":"CREATING""#), "{made}");
    let table = service
        .find_table(target)
        .expect("it can be read")
        .expect("it was made");
    service.restore_part(&table).await.expect("the files are there");
    let described = ask(service, "DescribeTable", &format!(r#"{{"TableName":"{target}"}}"#)).await;
    assert!(described.contains(r#""TableStatus":"ACTIVE""#), "{described}");
    assert!(described.contains(r#""RestoreInProgress":false"#), "{described}");
}

/// Marks a row as a transaction does that goes no further.
async fn lock(service: &Rc<Service>, key: &str, has_item: bool) {
    let table = service.table("marked").expect("it was created");
    let item = |number: i64| {
        let members = [
            ("p", AttributeValue::S(key.to_owned())),
            ("n", AttributeValue::N(number.into())),
        ];
        let item: Item = members
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect();
        item
    };
    let lock = Lock {
        transaction: Uuid::from_u128(9),
        has_item,
        intent: Intent::Put(item(99)),
    };
    let item_key = table.key_of(&item(0)).expect("it has its key");
    let (now, encoded) = (runtime::wall_clock_us(), lock.encode());
    let packed = pack_lock(&table, &item_key, LockChange::Set(&encoded), now, 0);
    let writes = &service.engine().coordinator.writes;
    let dated = writes.date(Consistency::LocalQuorum, Deadline::USUAL);
    let mutations = vec![Addressed::new(packed).expect("it was packed just now")];
    let written = writes.write(mutations, &dated, WriteKind::Simple, Atomicity::Mutation);
    written.await.expect("the node is alone");
}

#[test]
fn an_item_that_a_transaction_has_marked_is_restored_as_it_was_before() {
    with_service(3, |service| async move {
        create_table(&service, "marked").await;
        put(&service, "marked", "old", 1).await;
        lock(&service, "old", true).await;
        lock(&service, "new", false).await;
        let arn = back_up(&service, "marked").await;
        restore(&service, &arn, "again").await;
        let scanned = ask(&service, "Scan", r#"{"TableName":"again","ConsistentRead":true}"#).await;
        assert_eq!(
            scanned,
            r#"{"Items":[{"p":{"S":"old"},"n":{"N":"1"}}],"Count":1,"ScannedCount":1}"#
        );
        // Nothing waits for a transaction.
        let before = runtime::now();
        put(&service, "again", "old", 2).await;
        put(&service, "again", "new", 3).await;
        assert!(runtime::now() - before < Duration::from_millis(500));
    });
}

#[test]
fn a_transaction_that_is_committed_and_not_carried_out_is_in_the_backup() {
    with_service(2, |service| async move {
        create_table(&service, "pair").await;
        put(&service, "pair", "a", 0).await;
        // Its client is answered; its coordinator ends before it settles the items.
        let actions = set_numbers(&service, "pair", &["a", "b"], 5);
        let abandoned = service.abandon_transaction(&actions, true).await;
        abandoned.expect("nothing is in its way");
        let arn = back_up(&service, "pair").await;
        restore(&service, &arn, "again").await;
        for key in ["a", "b"] {
            let item = get(&service, "again", key).await;
            assert!(item.contains(r#""N":"5""#), "{key}: {item}");
        }
    });
}

#[test]
fn a_table_that_is_being_restored_cannot_be_used_or_changed() {
    with_service(4, |service| async move {
        create_table(&service, "source").await;
        put(&service, "source", "k", 1).await;
        let arn = back_up(&service, "source").await;
        ask(&service, "RestoreTableFromBackup", &restore_body(&arn, "target")).await;
        let error = |answer: String| {
            member(&answer, "__type")
                .split('#')
                .nth(1)
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(error(get(&service, "target", "k").await), "ResourceNotFoundException");
        for (operation, more, wanted) in [
            ("DeleteTable", "", "ResourceInUseException"),
            (
                "UpdateTable",
                r#","DeletionProtectionEnabled":true"#,
                "ResourceInUseException",
            ),
            ("CreateBackup", r#","BackupName":"two""#, "TableInUseException"),
        ] {
            let body = format!(r#"{{"TableName":"target"{more}}}"#);
            assert_eq!(error(ask(&service, operation, &body).await), wanted, "{operation}");
        }
        let again = ask(&service, "RestoreTableFromBackup", &restore_body(&arn, "target")).await;
        assert_eq!(error(again), "TableAlreadyExistsException");
        let named = format!(r#"{{"BackupArn":"{arn}"}}"#);
        let deleted = ask(&service, "DeleteBackup", &named).await;
        assert_eq!(error(deleted), "BackupInUseException");
        let table = service
            .find_table("target")
            .expect("it can be read")
            .expect("it was made");
        service.restore_part(&table).await.expect("the files are there");
        assert!(get(&service, "target", "k").await.contains(r#""N":"1""#));
        let deleted = ask(&service, "DeleteBackup", &named).await;
        assert!(deleted.contains(r#""BackupStatus":"DELETED""#), "{deleted}");
    });
}

#[test]
fn a_restore_without_files_deletes_its_table() {
    with_service(5, |service| async move {
        create_table(&service, "source").await;
        let arn = back_up(&service, "source").await;
        ask(&service, "RestoreTableFromBackup", &restore_body(&arn, "target")).await;
        let table = service
            .find_table("target")
            .expect("it can be read")
            .expect("it was made");
        // As an operator may: the snapshot is gone.
        let id = arn.rsplit('/').next().expect("an ARN has parts");
        let shard = &service.engine().coordinator.context.shard;
        let source = service.table("source").expect("it was created");
        let directory = shard
            .table_dir(&source.table)
            .join(replica::SNAPSHOTS)
            .join(format!("backup-{id}"));
        runtime::fs::remove_dir_all(directory).expect("the snapshot was taken");
        service.restore_part(&table).await.expect("it ends");
        assert!(service.find_table("target").expect("it can be read").is_none());
        let refused = ask(&service, "RestoreTableFromBackup", &restore_body(&arn, "other")).await;
        assert!(
            refused.contains("ServiceUnavailable") && refused.contains("has no files of it"),
            "{refused}"
        );
    });
}

#[test]
fn the_files_of_a_deleted_backup_are_removed_by_a_node_that_was_not_asked() {
    let is_done = Rc::new(Cell::new(false));
    let done = is_done.clone();
    with_service(6, move |service| async move {
        create_table(&service, "source").await;
        let (kept, deleted) = (back_up(&service, "source").await, back_up(&service, "source").await);
        let shard = &service.engine().coordinator.context.shard;
        let source = service.table("source").expect("it was created");
        let above = shard.table_dir(&source.table).join(replica::SNAPSHOTS);
        let name = |arn: &str| format!("backup-{}", arn.rsplit('/').next().unwrap_or_default());
        let names = || {
            let entries = runtime::fs::read_dir(&above)
                .expect("the directory is there")
                .into_iter();
            entries.map(|entry| entry.name).collect::<Vec<_>>()
        };
        // Copies that the deletion does not find, as those of a node that is down.
        let hidden = above.join("hidden");
        runtime::fs::rename(above.join(name(&deleted)), &hidden).expect("the snapshot was taken");
        ask(&service, "DeleteBackup", &format!(r#"{{"BackupArn":"{deleted}"}}"#)).await;
        runtime::sleep(Duration::from_secs(1)).await;
        runtime::fs::rename(&hidden, above.join(name(&deleted))).expect("it is there");
        assert_eq!(
            service.sweep_backups_once().await,
            Ok(0),
            "they may be of a backup that is being created"
        );
        runtime::sleep(Duration::from_mins(16)).await;
        assert_eq!(service.sweep_backups_once().await, Ok(1));
        assert_eq!(names(), [name(&kept)]);
        done.set(true);
    });
    assert!(is_done.get());
}
