//! The Rust driver, `scylla`, against a node: `driver-test HOST PORT KEYSPACE`; against several: `driver-test HOST PORT KEYSPACE cluster`.

mod cluster;

use std::collections::HashMap;
use std::error::Error;

use bigdecimal::BigDecimal;
use futures::TryStreamExt;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::response::PagingState;
use scylla::statement::batch::Batch;
use scylla::statement::unprepared::Statement;
use scylla::value::CqlTimestamp;

const ROWS: i32 = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, host, port, keyspace, on @ ..] = arguments.as_slice() else {
        return Err("driver-test HOST PORT KEYSPACE [cluster]".into());
    };
    let session = SessionBuilder::new().known_node(format!("{host}:{port}")).build().await?;
    if !on.is_empty() {
        cluster::drive(&session, keyspace).await?;
        println!("scylla: all as it should be");
        return Ok(());
    }
    let replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}";
    session.query_unpaged(format!("CREATE KEYSPACE {keyspace} WITH replication = {replication}"), &[]).await?;
    let outcome = drive(&session, keyspace).await;
    session.query_unpaged(format!("DROP KEYSPACE {keyspace}"), &[]).await?;
    outcome?;
    println!("scylla: all as it should be");
    Ok(())
}

type Row = (i32, i32, Option<String>, Option<BigDecimal>, Option<Vec<i32>>, Option<HashMap<String, i64>>, Option<CqlTimestamp>);

async fn drive(session: &Session, keyspace: &str) -> Result<(), Box<dyn Error>> {
    session.use_keyspace(keyspace, false).await?;
    session
        .query_unpaged(
            "CREATE TABLE t (k int, c int, name text, price decimal, history list<int>, labels map<text, bigint>,
             at timestamp, PRIMARY KEY (k, c))",
            &[],
        )
        .await?;
    session.await_schema_agreement().await?;
    session.refresh_metadata().await?;
    let state = session.get_cluster_state();
    let table = &state.get_keyspace(keyspace).ok_or("the keyspace is not in the schema")?.tables["t"];
    assert_eq!(table.partition_key, ["k"]);
    assert_eq!(table.clustering_key, ["c"]);
    assert_eq!(table.columns.len(), 7);

    let insert = session
        .prepare("INSERT INTO t (k, c, name, price, history, labels, at) VALUES (?, ?, ?, ?, ?, ?, ?)")
        .await?;
    for i in 0..ROWS {
        let row: Row = (
            i % 10,
            i,
            Some(format!("row {i}")),
            Some(BigDecimal::new(i.into(), 2)),
            Some(vec![i, i + 1]),
            Some(HashMap::from([("x".to_owned(), i64::from(i))])),
            Some(CqlTimestamp(1_709_208_000_123)),
        );
        session.execute_unpaged(&insert, row).await?;
    }
    session.query_unpaged("INSERT INTO t (k, c, name) VALUES (77, 0, 'simple')", &[]).await?;

    let select = session.prepare("SELECT k, c, name, price, history, labels, at FROM t WHERE k = ? AND c = ?").await?;
    let (_, _, name, price, history, labels, at) =
        session.execute_unpaged(&select, (3, 33)).await?.into_rows_result()?.single_row::<Row>()?;
    assert_eq!(name.as_deref(), Some("row 33"));
    assert_eq!(price, Some(BigDecimal::new(33.into(), 2)));
    assert_eq!(history, Some(vec![33, 34]));
    assert_eq!(labels, Some(HashMap::from([("x".to_owned(), 33)])));
    assert_eq!(at, Some(CqlTimestamp(1_709_208_000_123)));
    let simple = session.execute_unpaged(&select, (77, 0)).await?.into_rows_result()?.single_row::<Row>()?;
    assert_eq!((simple.2.as_deref(), simple.3, simple.4), (Some("simple"), None, None));

    let all = Statement::new("SELECT k, c FROM t").with_page_size(7);
    let rows: Vec<(i32, i32)> = session.query_iter(all.clone(), &[]).await?.rows_stream::<(i32, i32)>()?.try_collect().await?;
    assert_eq!(rows.len(), ROWS as usize + 1, "rows over pages of seven");
    let (page, next) = session.query_single_page(all, &[], PagingState::start()).await?;
    assert_eq!(page.into_rows_result()?.rows_num(), 7);
    assert!(!next.finished());

    let mut batch = Batch::default();
    batch.append_statement("DELETE FROM t WHERE k = 77");
    batch.append_statement("DELETE FROM t WHERE k = 3");
    session.batch(&batch, ((), ())).await?;
    let (count,) = session.query_unpaged("SELECT COUNT(*) FROM t", &[]).await?.into_rows_result()?.single_row::<(i64,)>()?;
    assert_eq!(count, i64::from(ROWS) - 10, "rows after the batch");

    let refused = session.query_unpaged("SELECT * FROM nothing", &[]).await.expect_err("there is no such table");
    assert!(refused.to_string().contains("nothing"), "{refused}");
    Ok(())
}
