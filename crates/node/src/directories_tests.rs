//! First starts that a crash or a power loss strikes at any file operation, and directories that are not the node's.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use config::Machine;
use runtime::sim::{CrashKind, NodeId, Simulation};

use super::*;

const HOUR: Duration = Duration::from_hours(1);
const WORKDIR: &str = "/ceto";
/// More file operations than a first start or an accepted loss has.
const OPERATIONS: u64 = 60;
const KINDS: [CrashKind; 2] = [CrashKind::Kill, CrashKind::PowerLoss];
const WRITES: AcceptedLoss = AcceptedLoss {
    writes: true,
    hints: false,
};

/// Sstables and the commitlog on volumes of their own.
fn config() -> Config {
    Config {
        workdir: WORKDIR.into(),
        data_dir: "/volumes/data".into(),
        commitlog_dir: "/volumes/log".into(),
        ..Config::defaults(&Machine {
            cpus: vec![0],
            cpu_quota: None,
            memory_bytes: 1 << 30,
        })
    }
}

/// The steps of a start up to the check, in their order.
fn start(config: &Config) -> Result<AcceptedLoss, String> {
    let _lock = identity::lock(&config.workdir)?;
    check(config, identity::host_id(&config.workdir)?)
}

fn machine() -> (Simulation, NodeId) {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    (simulation, node)
}

/// A machine whose node has started once and has files in each directory.
fn started() -> (Simulation, NodeId) {
    let (mut simulation, node) = machine();
    simulation.on_node(node, || {
        assert_eq!(start(&config()), Ok(AcceptedLoss::default()));
        for directory in Directory::ALL {
            let path = directory.path(&config());
            fs::replace_durably(path.join("file"), b"rows").expect("the disk works");
        }
    });
    (simulation, node)
}

/// Runs a step that a crash ends at the n-th file operation from now: its result, or None when it was ended.
fn struck<T: 'static>(
    simulation: &mut Simulation,
    node: NodeId,
    (operations, kind): (u64, CrashKind),
    step: impl Fn() -> T + 'static,
) -> Option<T> {
    let result = Rc::new(RefCell::new(None));
    let (seen, step) = (result.clone(), Rc::new(step));
    simulation.start(node, move |_| {
        let (seen, step) = (seen.clone(), step.clone());
        Box::pin(async move {
            let done = step();
            *seen.borrow_mut() = Some(done);
        })
    });
    simulation.crash_after_file_ops(node, operations, kind);
    simulation.run_until_ended(node, HOUR);
    simulation.crash(node, kind);
    simulation.clear_file_faults(node);
    result.take()
}

fn every_crash() -> impl Iterator<Item = (u64, CrashKind)> {
    (0..OPERATIONS).flat_map(|operations| KINDS.map(|kind| (operations, kind)))
}

#[test]
fn a_first_start_that_a_crash_ends_at_any_step_is_followed_by_one_that_starts_and_by_checks() {
    let mut ended = 0;
    for at in every_crash() {
        let (mut simulation, node) = machine();
        let result = struck(&mut simulation, node, at, || start(&config()));
        ended += usize::from(result.is_none());
        for _ in 0..2 {
            let again = simulation.on_node(node, || start(&config()));
            assert_eq!(again, Ok(AcceptedLoss::default()), "{at:?}");
        }
        // Whatever the crash left, the check is in force, also after one more power loss.
        simulation.start(node, |_| Box::pin(async {}));
        simulation.crash(node, CrashKind::PowerLoss);
        assert_eq!(
            simulation.on_node(node, || start(&config())),
            Ok(AcceptedLoss::default()),
            "{at:?}"
        );
        for directory in Directory::ALL {
            let (mut simulation, node) = (machine().0, node);
            struck(&mut simulation, node, at, || start(&config()));
            simulation.on_node(node, || start(&config())).expect("it starts");
            simulation.empty_directory(node, directory.path(&config()));
            let refused = simulation.on_node(node, || start(&config()));
            let reason = refused.expect_err("a directory is empty");
            assert!(
                reason.contains(&format!("the {} directory", directory.name())),
                "{reason}"
            );
        }
    }
    assert!(
        (20..2 * OPERATIONS as usize).contains(&ended),
        "{ended} starts were ended"
    );
}

#[test]
fn the_first_start_of_files_of_an_earlier_release_that_a_crash_ends_keeps_them() {
    for at in every_crash() {
        let (mut simulation, node) = machine();
        simulation.on_node(node, || {
            let config = config();
            drop(identity::lock(&config.workdir).expect("the disk works"));
            identity::host_id(&config.workdir).expect("the disk works");
            for directory in [Directory::Data, Directory::Commitlog] {
                let path = directory.path(&config);
                identity::create_durably(&path).expect("the disk works");
                fs::replace_durably(path.join("file"), b"rows").expect("the disk works");
            }
        });
        struck(&mut simulation, node, at, || start(&config()));
        simulation.on_node(node, || {
            assert_eq!(start(&config()), Ok(AcceptedLoss::default()), "{at:?}");
            for directory in [Directory::Data, Directory::Commitlog] {
                let file = directory.path(&config()).join("file");
                assert_eq!(fs::read(&file).expect("it is there"), b"rows");
            }
        });
    }
}

/// Why the node does not start once this has happened to its directories.
fn refused(happens: impl FnOnce()) -> String {
    let (mut simulation, node) = started();
    simulation.on_node(node, || {
        happens();
        let before = files("/".as_ref());
        let reason = start(&config()).expect_err("a directory is not the node's");
        assert_eq!(files("/".as_ref()), before, "a start that is refused changes nothing");
        reason
    })
}

/// All files and directories below one, with their bytes.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("it is there") {
        let path = directory.join(&entry.name);
        if entry.is_dir {
            found.extend(files(&path));
            found.push((path, Vec::new()));
        } else {
            let bytes = fs::read(&path).expect("it is there");
            found.push((path, bytes));
        }
    }
    found
}

fn remove_marker(directory: Directory) {
    let marker = directory.path(&config()).join(directory.marker());
    fs::remove_file(marker).expect("it is there");
}

#[test]
fn one_damaged_read_keeps_no_node_from_starting_and_changes_no_identity() {
    let (mut simulation, node) = started();
    let host_id = || identity::host_id(Path::new(WORKDIR)).expect("it is whole");
    let before = simulation.on_node(node, host_id);
    // A start reads fewer than 20 times.
    for reads in 0..20 {
        simulation.damage_read_after(node, reads);
        let started = simulation.on_node(node, || start(&config()));
        assert_eq!(started, Ok(AcceptedLoss::default()), "the read behind {reads} others");
        simulation.clear_file_faults(node);
        assert_eq!(
            simulation.on_node(node, host_id),
            before,
            "the read behind {reads} others"
        );
    }
}

#[test]
fn a_directory_that_is_not_the_nodes_is_refused_with_what_was_found_and_what_to_do() {
    for directory in Directory::ALL {
        let path = directory.path(&config());
        let place = format!("the {} directory {}", directory.name(), path.display());
        let marker = path.join(directory.marker());
        let write = |text: String| fs::write(&marker, text.as_bytes()).expect("the disk works");
        let other = Marker {
            node: Uuid::from_u128(7),
            id: Uuid::from_u128(8),
        };
        let cases: [(&str, &dyn Fn()); 6] = [
            ("does not exist", &|| fs::remove_dir_all(&path).expect("it is there")),
            ("is empty", &|| {
                fs::remove_dir_all(&path).expect("it is there");
                fs::create_dir_all(path.join(LOST_AND_FOUND)).expect("the disk works");
            }),
            ("has files, but no marker", &|| remove_marker(directory)),
            ("has a marker that cannot be read", &|| write("format 2\n".to_owned())),
            ("is a directory of node 00000000-0000-0000-0000-000000000007", &|| {
                write(other.encode());
            }),
            ("is a directory that this node used at another time", &|| {
                let text = read(&marker).expect("the disk works").expect("it is there");
                let own = Marker::decode(&text).expect("it is whole");
                write(
                    Marker {
                        node: own.node,
                        ..other
                    }
                    .encode(),
                );
            }),
        ];
        for (found, happens) in cases {
            let reason = refused(happens);
            for part in [&place, found, directory.option(), "`ceto page rejoin`"] {
                assert!(reason.contains(part), "expected '{part}' in: {reason}");
            }
            let command = format!("ceto recover-directory --workdir /ceto --accept {}", directory.name());
            assert!(reason.contains(&command), "{reason}");
        }
    }
}

#[test]
fn all_directories_that_are_missing_are_told_at_once_and_two_that_are_exchanged_are_refused() {
    let reason = refused(|| fs::remove_dir_all("/volumes").expect("it is there"));
    assert!(reason.contains("the data directory") && reason.contains("the commitlog directory"));
    assert!(!reason.contains("the hints directory"), "{reason}");
    let (mut simulation, node) = started();
    let exchanged = Config {
        data_dir: config().commitlog_dir,
        commitlog_dir: config().data_dir,
        ..config()
    };
    let reason = simulation.on_node(node, || start(&exchanged));
    assert!(reason.is_err_and(|reason| reason.contains("no marker")));
}

#[test]
fn a_directory_is_found_where_it_was_moved_to() {
    let (mut simulation, node) = started();
    let moved = Config {
        data_dir: "/elsewhere".into(),
        ..config()
    };
    simulation.on_node(node, || {
        fs::create_dir_all("/elsewhere").expect("the disk works");
        assert!(start(&moved).is_err(), "its content is not there yet");
        for entry in fs::read_dir("/volumes/data").expect("it is there") {
            let from = Path::new("/volumes/data").join(&entry.name);
            fs::rename(from, Path::new("/elsewhere").join(&entry.name)).expect("the disk works");
        }
        assert_eq!(start(&moved), Ok(AcceptedLoss::default()));
        assert!(start(&config()).is_err(), "nothing is left at the old place");
    });
}

#[test]
fn a_new_node_does_not_take_the_directory_of_another_one() {
    let (mut simulation, node) = started();
    simulation.empty_directory(node, WORKDIR);
    simulation.on_node(node, || {
        let reason = start(&config()).expect_err("another node has data there");
        assert!(
            reason.contains("of node") && reason.contains("data_file_directories"),
            "{reason}"
        );
        fs::remove_dir_all("/volumes").expect("it is there");
        assert_eq!(start(&config()), Ok(AcceptedLoss::default()));
    });
}

#[test]
fn a_note_that_cannot_be_read_is_an_error_that_names_it() {
    let ids = "data 00000000-0000-0000-0000-000000000001\ncommitlog 00000000-0000-0000-0000-000000000002\n";
    let texts = [
        String::new(),
        "format 2\n".to_owned(),
        format!("format 1\n{ids}"),
        format!("format 1\n{ids}hints 3\n"),
        format!("format 1\n{ids}hints 00000000-0000-0000-0000-000000000003 lost\n"),
    ];
    for text in texts {
        let (mut simulation, node) = started();
        simulation.on_node(node, || {
            fs::write(Path::new(WORKDIR).join(NOTE), text.as_bytes()).expect("the disk works");
            let reason = start(&config()).expect_err("it is damaged");
            assert!(reason.contains("/ceto/directory_ids: expected"), "{text:?}: {reason}");
        });
    }
}

/// Accepts the loss of a directory with the sentence that the command asks for.
fn accept(directory: Directory) -> Result<String, String> {
    let explanation = recover_directory(&config(), directory, None)?;
    let sentence = explanation.split("--confirm \"").nth(1);
    let sentence = sentence.and_then(|rest| rest.split('"').next());
    recover_directory(&config(), directory, Some(sentence.expect("it is printed")))
}

#[test]
fn an_accepted_loss_is_told_to_each_start_until_it_is_in_the_ledger() {
    let hints = AcceptedLoss {
        writes: false,
        hints: true,
    };
    for (directory, expected) in [
        (Directory::Data, WRITES),
        (Directory::Commitlog, WRITES),
        (Directory::Hints, hints),
    ] {
        let (mut simulation, node) = started();
        simulation.on_node(node, || {
            let counters = Path::new(WORKDIR).join("counter_source_0");
            fs::write(&counters, b"name\n").expect("the disk works");
            fs::remove_dir_all(directory.path(&config())).expect("it is there");
            let before = files("/".as_ref());
            let explanation = recover_directory(&config(), directory, None).expect("it explains");
            assert!(explanation.contains("does not exist") && explanation.contains("Nothing was changed"));
            let other = recover_directory(&config(), directory, Some("yes")).expect_err("the wrong sentence");
            assert!(other.contains("nothing was changed"), "{other}");
            assert_eq!(files("/".as_ref()), before);
            accept(directory).expect("the sentence is right");
            assert_eq!(fs::exists(&counters), directory == Directory::Hints);
            assert_eq!(start(&config()), Ok(expected));
            assert_eq!(start(&config()), Ok(expected), "a crash before it was in the ledger");
            forget_accepted(Path::new(WORKDIR)).expect("the disk works");
            assert_eq!(start(&config()), Ok(AcceptedLoss::default()));
        });
    }
}

#[test]
fn what_is_not_lost_cannot_be_accepted() {
    let (mut simulation, node) = machine();
    simulation.on_node(node, || {
        let reason = accept(Directory::Data).expect_err("nobody ran there");
        assert!(reason.contains("no node has this workdir"), "{reason}");
        assert!(!fs::exists(WORKDIR), "the command made it");
    });
    let (mut simulation, node) = started();
    simulation.on_node(node, || {
        let reason = accept(Directory::Data).expect_err("it is the one that ran");
        assert!(reason.contains("nothing is lost"), "{reason}");
        let other = Marker {
            node: Uuid::from_u128(7),
            id: Uuid::from_u128(8),
        };
        other
            .write(Directory::Data, &config().data_dir)
            .expect("the disk works");
        let reason = accept(Directory::Data).expect_err("it is another node's");
        assert!(reason.contains("is a directory of node"), "{reason}");
        let _lock = identity::lock(Path::new(WORKDIR)).expect("nobody runs");
        let reason = accept(Directory::Commitlog).expect_err("a node runs");
        assert!(reason.contains("another node is running"), "{reason}");
    });
}

#[test]
fn the_lost_directory_is_refused_when_it_comes_back_after_its_loss_was_accepted() {
    let (mut simulation, node) = started();
    let lost = simulation.copy_directory(node, "/volumes/data");
    simulation.empty_directory(node, "/volumes/data");
    simulation
        .on_node(node, || accept(Directory::Data))
        .expect("it is lost");
    assert_eq!(simulation.on_node(node, || start(&config())), Ok(WRITES));
    simulation.put_directory(node, &lost);
    let reason = simulation.on_node(node, || start(&config()));
    let reason = reason.expect_err("it lacks what came since");
    assert!(reason.contains("used at another time"), "{reason}");
}

#[test]
fn a_crash_while_a_loss_is_accepted_leaves_a_node_that_is_refused_or_knows_the_loss() {
    let mut known = 0;
    for at in every_crash() {
        let (mut simulation, node) = started();
        let counters = Path::new(WORKDIR).join("counter_source_0");
        simulation.empty_directory(node, "/volumes/log");
        simulation.on_node(node, || {
            fs::replace_durably(&counters, b"name\n").expect("the disk works");
        });
        struck(&mut simulation, node, at, || accept(Directory::Commitlog));
        match simulation.on_node(node, || start(&config())) {
            Ok(lost) => {
                assert_eq!(lost, WRITES, "{at:?}");
                let is_kept = simulation.on_node(node, || fs::exists(&counters));
                assert!(!is_kept, "{at:?}: shards go on with names whose counts are lost");
                known += 1;
            }
            Err(reason) => {
                assert!(reason.contains("the commitlog directory"), "{at:?}: {reason}");
                simulation
                    .on_node(node, || accept(Directory::Commitlog))
                    .expect("the command can be repeated");
                assert_eq!(simulation.on_node(node, || start(&config())), Ok(WRITES), "{at:?}");
            }
        }
    }
    assert!((1..2 * OPERATIONS).contains(&known), "{known} were accepted");
}
