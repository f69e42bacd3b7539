//! The Rust driver on several nodes. It says what comes next and goes on when it reads a line.

use std::error::Error;

use futures::TryStreamExt;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;

const KEYS: i32 = 300;
/// Rounds in which the driver learns where tablets are.
const WARMING_ROUNDS: usize = 3;

pub async fn drive(session: &Session, keyspace: &str) -> Result<(), Box<dyn Error>> {
    let one = table(session, &format!("{keyspace}_one"), 1).await?;
    let three = table(session, &format!("{keyspace}_three"), 3).await?;

    let (insert, select) = statements(session, &one).await?;
    for k in (0..WARMING_ROUNDS).flat_map(|_| 0..KEYS) {
        session.execute_unpaged(&insert, (k, 0, "warming")).await?;
    }
    say("routing")?;
    for k in 0..KEYS {
        session.execute_unpaged(&insert, (k, 0, "v")).await?;
        assert_eq!(read(session, &select, k).await?, "v", "a row of one copy");
    }
    say("routed")?;

    let (insert, select) = statements(session, &three).await?;
    for k in 0..KEYS {
        session.execute_unpaged(&insert, (k, 0, "before")).await?;
    }
    let mut condition = session.prepare(format!("UPDATE {three} SET v = ? WHERE k = ? AND c = ? IF v = ?")).await?;
    condition.set_consistency(Consistency::Quorum);
    let taken = session.execute_unpaged(&condition, ("taken", 1, 0, "before")).await?.into_rows_result()?;
    assert_eq!(taken.single_row::<(bool, Option<String>)>()?.0, true, "the condition held");
    let refused = session.execute_unpaged(&condition, ("again", 1, 0, "before")).await?.into_rows_result()?;
    let refused = refused.single_row::<(bool, Option<String>)>()?;
    assert_eq!(refused, (false, Some("taken".to_owned())), "the condition does not hold any more");

    say("kill")?;
    for k in 0..KEYS {
        session.execute_unpaged(&insert, (k, 0, "after")).await?;
        assert_eq!(read(session, &select, k).await?, "after", "a row of three copies");
    }
    let mut all = Statement::new(format!("SELECT k FROM {three}")).with_page_size(7);
    all.set_consistency(Consistency::Quorum);
    all.set_is_idempotent(true);
    let rows: Vec<(i32,)> = session.query_iter(all, &[]).await?.rows_stream::<(i32,)>()?.try_collect().await?;
    assert_eq!(rows.len(), KEYS as usize, "rows over pages of seven");
    Ok(())
}

async fn table(session: &Session, keyspace: &str, copies: u8) -> Result<String, Box<dyn Error>> {
    let replication = format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}");
    session.query_unpaged(format!("CREATE KEYSPACE {keyspace} WITH replication = {replication}"), &[]).await?;
    session.query_unpaged(format!("CREATE TABLE {keyspace}.t (k int, c int, v text, PRIMARY KEY (k, c))"), &[]).await?;
    session.await_schema_agreement().await?;
    Ok(format!("{keyspace}.t"))
}

async fn statements(session: &Session, table: &str) -> Result<(PreparedStatement, PreparedStatement), Box<dyn Error>> {
    let mut insert = session.prepare(format!("INSERT INTO {table} (k, c, v) VALUES (?, ?, ?)")).await?;
    let mut select = session.prepare(format!("SELECT v FROM {table} WHERE k = ?")).await?;
    for statement in [&mut insert, &mut select] {
        statement.set_consistency(Consistency::Quorum);
        statement.set_is_idempotent(true);
    }
    Ok((insert, select))
}

async fn read(session: &Session, select: &PreparedStatement, k: i32) -> Result<String, Box<dyn Error>> {
    let rows = session.execute_unpaged(select, (k,)).await?.into_rows_result()?;
    Ok(rows.single_row::<(String,)>()?.0)
}

/// Tells the test where this program is, and waits until it may go on.
fn say(place: &str) -> Result<(), Box<dyn Error>> {
    println!("{place}");
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
