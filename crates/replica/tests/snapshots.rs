//! Snapshots, and copies for other nodes, beside compactions: they do not wait, and have what the table had at one
//! moment.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::support::two_shards::*;
use replica::{Baseline, ExportRequest, Shard, TokenRange};
use runtime::sim::Simulation;
use tasks::{Origin, Spec};

/// How many sstables there are before the compaction.
const INPUTS: usize = 6;

/// What links a shard's sstables into a directory of the table's.
type Linking = fn(Rc<Shard>) -> LocalBoxFuture<usize>;

type LocalBoxFuture<T> = Pin<Box<dyn Future<Output = T>>>;

const DIRECTORY: &str = "snapshots/s";

/// Links beside a compaction, at many moments of it. Returns how often the inputs were linked and the compaction
/// continued, and how often the output was linked.
fn link_beside_a_compaction(linking: Linking) -> (usize, usize) {
    let (mut with_inputs, mut with_output) = (0, 0);
    for after_us in (0..9_000).step_by(150) {
        let mut simulation = Simulation::new(after_us);
        let node = simulation.add_node(1);
        let found = Rc::new(Cell::new((0, false)));
        let seen = found.clone();
        run(&mut simulation, node, move || {
            let seen = seen.clone();
            async move {
                let local = Local::start(&ONE()).await;
                for k in 0..KEYS {
                    assert!(local.write(k, 10, false).await);
                    if k % (KEYS / INPUTS as u32) == 0 {
                        local.flush().await;
                    }
                }
                local.flush().await;
                let shard = local.shards[0].clone();
                let before = store(&shard).tablets()[0].version().sstables.len();
                let (compacting, ended) = (shard.clone(), Rc::new(Cell::new(false)));
                let end = ended.clone();
                let compaction = runtime::spawn(async move {
                    let done = compacting.compact_all().await;
                    end.set(true);
                    done
                });
                runtime::sleep(Duration::from_micros(after_us)).await;
                let was_ended = ended.get();
                let linked = linking(shard.clone()).await;
                assert!(linked == before || linked == 1, "{linked} of {before} sstables");
                let files = runtime::fs::read_dir(dir().join(DIRECTORY)).expect("it is there");
                let data = files.into_iter().filter(|file| file.name.ends_with("-Data.db"));
                assert_eq!(data.count(), linked, "links of another moment are left");
                seen.set((linked, !was_ended && !ended.get()));
                compaction.await.expect("the disk works");
            }
        });
        let (linked, is_beside) = found.get();
        with_inputs += usize::from(is_beside && linked > 1);
        with_output += usize::from(linked == 1);
    }
    (with_inputs, with_output)
}

#[test]
fn a_snapshot_does_not_wait_for_a_compaction_and_has_its_inputs_or_its_output() {
    let (with_inputs, with_output) = link_beside_a_compaction(|shard| {
        Box::pin(async move {
            let names = shard.link_snapshot(&store(&shard), "s").await;
            names.expect("the disk works").len()
        })
    });
    assert!(
        with_inputs > 0,
        "no snapshot ended before the compaction beside which it began"
    );
    assert!(with_output > 0, "no snapshot was taken behind a compaction");
}

/// Else a node that is to get a tablet, and with it each move in the cluster, would wait for a major compaction.
#[test]
fn a_copy_for_another_node_does_not_wait_for_a_compaction_and_has_its_inputs_or_its_output() {
    let (with_inputs, with_output) = link_beside_a_compaction(|shard| {
        Box::pin(async move {
            let store = store(&shard);
            let wanted = ExportRequest {
                ranges: &[TokenRange::ALL],
                bytes: u64::MAX,
                sstables: usize::MAX,
                with_record: true,
            };
            let spec = Spec::of(&replica::kinds::CUT_SSTABLE);
            let (task, baseline) = (shard.tasks().start(spec, &Origin::Node), Baseline::of(&shard, &store));
            let exported = shard
                .export(&store, wanted, &dir().join(DIRECTORY), (&task, &baseline))
                .await;
            task.end(&exported);
            exported.expect("the disk works").sstables.len()
        })
    });
    assert!(
        with_inputs > 0,
        "no copy ended before the compaction beside which it began"
    );
    assert!(with_output > 0, "no copy was made behind a compaction");
}
