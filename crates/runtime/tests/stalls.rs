//! What is logged of a poll that keeps its shard. In a process of its own, because there is one logger.

use std::sync::Mutex;
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};

static LINES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let mut lines = LINES.lock().expect("no thread panics while holding the lines");
        lines.push((record.level(), record.args().to_string()));
    }

    fn flush(&self) {}
}

/// Keeps the shard until that counts as a stall: time in which the thread had no processor does not. What was logged of
/// it.
async fn stall() -> (Level, String) {
    let before = runtime::metrics().stalls;
    while runtime::metrics().stalls == before {
        let kept = runtime::spawn(async {
            let start = runtime::now();
            while start.elapsed() < Duration::from_millis(15) {
                std::hint::spin_loop();
            }
        });
        kept.await;
    }
    let mut lines = LINES.lock().expect("no thread panics while holding the lines");
    let told = lines.iter().position(|(_, line)| line.starts_with("stall"));
    lines.remove(told.expect("a first stall is logged"))
}

#[test]
fn a_stall_is_a_warning_only_from_when_the_node_serves() {
    log::set_logger(&Logger).expect("no other test sets one in this process");
    log::set_max_level(LevelFilter::Debug);
    let result = runtime::run(runtime::Options::default(), |_| {
        Box::pin(async {
            runtime::set_start_phase(Some("replaying the commitlog"));
            let (level, line) = stall().await;
            assert_eq!(level, Level::Debug, "{line}");
            assert!(line.contains("(replaying the commitlog): shard 0 was kept"), "{line}");

            // At once, within the second that a line keeps back others of its phase.
            runtime::set_start_phase(None);
            let (level, line) = stall().await;
            assert_eq!(level, Level::Warn, "{line}");
            assert!(
                line.starts_with("stall: shard 0 was kept by one poll of a task in group statement"),
                "{line}"
            );
        })
    });
    result.expect("one of the backends works");
}
