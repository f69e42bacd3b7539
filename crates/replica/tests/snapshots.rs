//! Snapshots beside compactions: they do not wait, and have what the table had at one moment.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::support::two_shards::*;
use runtime::sim::Simulation;

/// How many sstables there are before the compaction.
const INPUTS: usize = 6;

#[test]
fn a_snapshot_does_not_wait_for_a_compaction_and_has_its_inputs_or_its_output() {
    let (mut with_inputs, mut with_output) = (0, 0);
    for after_us in (0..6_000).step_by(150) {
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
                let names = shard.link_snapshot(&store(&shard), "s").await.expect("the disk works");
                assert!(
                    names.len() == before || names.len() == 1,
                    "{} of {before} sstables",
                    names.len()
                );
                let files = runtime::fs::read_dir(dir().join("snapshots/s")).expect("it is there");
                let data: Vec<_> = files
                    .into_iter()
                    .filter(|file| file.name.ends_with("-Data.db"))
                    .collect();
                assert_eq!(data.len(), names.len(), "links of another moment are left");
                seen.set((names.len(), !was_ended && !ended.get()));
                compaction.await.expect("the disk works");
            }
        });
        let (names, is_beside) = found.get();
        with_inputs += usize::from(is_beside && names > 1);
        with_output += usize::from(names == 1);
    }
    assert!(
        with_inputs > 0,
        "no snapshot ended before the compaction beside which it began"
    );
    assert!(with_output > 0, "no snapshot was taken behind a compaction");
}
