//! When a read asks one more replica: as the table's `speculative_retry` says, under simulated time.

use std::sync::Arc;
use std::time::Duration;

use crate::support;
use crate::support::{Cluster, Local, Shape, partition};
use coordinator::{ReplicatedRead, Stretch};
use schema::{Table, TableOptions};
use topology::Consistency;

const SLOW: Duration = Duration::from_millis(400);

fn table(speculative_retry: &str) -> Arc<Table> {
    let table = support::table();
    let options = TableOptions {
        speculative_retry: speculative_retry.to_owned(),
        ..table.options.clone()
    };
    Arc::new(Table::new("sea", "t", table.id, table.columns.clone(), options))
}

/// The longest of reads at QUORUM of partitions that different replicas are best for.
async fn longest_read(node: Local, table: Arc<Table>, count: u32) -> Duration {
    let mut longest = Duration::ZERO;
    for key in 0..count {
        let began = runtime::now();
        let view = node.coordinator.context.view();
        let (extent, level) = (partition(&key.to_be_bytes()), Consistency::Quorum);
        let stretch = Stretch {
            rows: 10,
            bytes: 1 << 10,
        };
        let read = ReplicatedRead::new(&node.coordinator.reads, &view, &table, level, extent, 1, stretch);
        let mut read = read.expect("all replicas live");
        while read.next_block().await.expect("two replicas answer").is_some() {}
        longest = longest.max(runtime::now().saturating_duration_since(began));
    }
    longest
}

/// Reads many times while all is well, then a few times while one of two other replicas is slow: the longest of the
/// latter, and how many replicas were asked besides.
fn with_a_slow_replica(speculative_retry: &str) -> (Duration, u64) {
    let mut cluster = Cluster::new(7, Shape::default());
    let table = table(speculative_retry);
    let warm = table.clone();
    cluster.on(0, |node| longest_read(node, warm, 300));
    let (here, slow) = (cluster.id(0), cluster.id(2));
    for (from, to) in [(here, slow), (slow, here)] {
        cluster.simulation.set_delay(from, to, SLOW);
    }
    cluster.on(0, |node| async move {
        let before = node.coordinator.context.metrics().speculations;
        let longest = longest_read(node.clone(), table, 20).await;
        (longest, node.coordinator.context.metrics().speculations - before)
    })
}

#[test]
fn another_replica_is_asked_when_the_table_says() {
    let ms = Duration::from_millis;
    for (option, at_least, at_most) in [
        ("NEVER", SLOW, SLOW * 3),
        ("100ms", ms(100), ms(150)),
        ("ALWAYS", Duration::ZERO, ms(40)),
        // Reads took about a millisecond so far.
        ("99p", Duration::ZERO, ms(40)),
        ("MIN(99p,200ms)", Duration::ZERO, ms(40)),
        ("MAX(99p,200ms)", ms(200), ms(250)),
    ] {
        let (longest, speculations) = with_a_slow_replica(option);
        assert!(
            longest >= at_least && longest <= at_most,
            "{option}: a read took {longest:?}"
        );
        match option {
            "NEVER" => assert_eq!(speculations, 0, "nobody else is asked"),
            "ALWAYS" => assert_eq!(speculations, 20, "somebody else is always asked"),
            _ => assert!(
                (1..20).contains(&speculations),
                "{option}: {speculations} others were asked"
            ),
        }
    }
}
