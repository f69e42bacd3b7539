//! Files and directories.

use crate::{Scratch, on_every_backend, on_every_kernel_backend};
use runtime::fs::{self, File, OpenOptions};
use runtime::{offload, offload_background, spawn, spawn_job, timeout};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Duration;

#[test]
fn what_was_written_is_read_back_blocking_and_not() {
    on_every_backend(1, async |_| {
        let scratch = Scratch::new("read-back");
        let file = File::open(scratch.path("data"), OpenOptions::CREATE_NEW).expect("a new file in an empty directory");
        file.write_all_at_blocking(b"hello world", 0)
            .expect("the disk has room");
        let (written, _) = file.write_at(b"WORLD".to_vec(), 6).await;
        written.expect("the disk has room");
        file.sync_data().await.expect("the disk syncs");
        file.sync_all_blocking().expect("the disk syncs");
        let (read, bytes) = file.read_at(b"> ".to_vec(), 0, 5).await;
        assert_eq!((read.expect("it is there"), &bytes[..]), (5, &b"> hello"[..]));
        let (read, bytes) = file.read_at(Vec::new(), 6, 100).await;
        assert_eq!(
            (read.expect("it is there"), &bytes[..]),
            (5, &b"WORLD"[..]),
            "a read past the end gives what is there"
        );
        let (read, _) = file.read_at(Vec::new(), 100, 10).await;
        assert_eq!(read.expect("reading past the end is no error"), 0);
        let mut exact = [0; 11];
        file.read_exact_at_blocking(&mut exact, 0).expect("it is there");
        assert_eq!(&exact, b"hello WORLD");
        let short = file
            .read_exact_at_blocking(&mut [0; 12], 0)
            .expect_err("there are 11 bytes");
        assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
        file.set_len(5).expect("a file can be cut");
        assert_eq!(file.len().expect("it is open"), 5);
        file.allocate(4096).expect("the disk has room");
        assert_eq!(file.len().expect("it is open"), 4096);
    });
}

/// Whether this process has a file of this name open.
fn is_open(path: &Path) -> bool {
    let open = std::fs::read_dir("/proc/self/fd").expect("this is Linux");
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.into_iter().any(|target| target.starts_with(path))
}

#[test]
fn a_file_is_closed_by_the_background_pool_and_not_by_its_shard() {
    on_every_kernel_backend(1, async |_| {
        let scratch = Scratch::new("close");
        let path = scratch.path("data");
        let path = path.as_path();
        drop(File::open(path, OpenOptions::CREATE_NEW).expect("a new file in an empty directory"));
        let file = File::open(path, OpenOptions::READ).expect("it is there");
        // All threads of the pool are busy, so only the shard can close the file.
        let (release, wait) = (Arc::new(Barrier::new(5)), Arc::new(Barrier::new(5)));
        let kept: Vec<_> = (0..4)
            .map(|_| {
                let (release, wait) = (Arc::clone(&release), Arc::clone(&wait));
                spawn(offload_background(move || {
                    wait.wait();
                    release.wait();
                }))
            })
            .collect();
        let all_kept = Arc::clone(&wait);
        offload(move || all_kept.wait()).await;
        drop(file);
        assert!(is_open(path), "the shard has closed it itself");
        offload(move || release.wait()).await;
        for task in kept {
            task.await;
        }
        let closed = async {
            while is_open(path) {
                offload_background(|| ()).await;
            }
        };
        timeout(Duration::from_secs(30), closed).await.expect("it is closed");
    });
}

#[test]
fn direct_files_read_any_range_and_refuse_crooked_writes() {
    on_every_backend(1, async |_| {
        let scratch = Scratch::new("direct");
        let options = OpenOptions {
            direct: true,
            ..OpenOptions::CREATE_NEW
        };
        let file = File::open(scratch.path("data"), options).expect("a new file in an empty directory");
        let bytes: Vec<u8> = (0..16_384_u32).map(|position| (position % 251) as u8).collect();
        let (written, bytes) = file.write_at(bytes, 0).await;
        written.expect("the disk has room");
        file.set_len(10_000).expect("a file can be cut");
        for (offset, length) in [(0, 10), (1, 4096), (4095, 2), (5000, 5000), (9999, 100), (0, 16_384)] {
            let expected = &bytes[offset..(offset + length).min(10_000)];
            let (read, got) = file.read_at(Vec::new(), offset as u64, length).await;
            assert_eq!(
                read.expect("it is there"),
                expected.len(),
                "at {offset}, {length} bytes"
            );
            assert!(got == expected, "wrong bytes at {offset}, {length} bytes");
            let mut got = vec![0; length];
            let count = file.read_at_blocking(&mut got, offset as u64).expect("it is there");
            assert!(
                &got[..count] == expected,
                "wrong bytes at {offset}, {length} bytes, blocking"
            );
        }
    });
}

#[test]
fn directories_list_rename_link_and_remove() {
    on_every_backend(1, async |_| {
        let scratch = Scratch::new("directories");
        fs::create_dir_all(scratch.path("a/b")).expect("the scratch directory is writable");
        fs::write(scratch.path("a/two"), b"22").expect("the scratch directory is writable");
        fs::write(scratch.path("a/one"), b"1").expect("the scratch directory is writable");
        fs::sync_dir(scratch.path("a")).expect("a directory syncs");
        let names = || {
            let entries = fs::read_dir(scratch.path("a")).expect("it is there");
            entries
                .into_iter()
                .map(|entry| format!("{} {} {}", entry.name, entry.is_dir, entry.len))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(), ["b true 0", "one false 1", "two false 2"]);
        fs::rename(scratch.path("a/one"), scratch.path("a/two")).expect("renaming replaces");
        fs::hard_link(scratch.path("a/two"), scratch.path("a/three")).expect("a file can have two names");
        assert_eq!(names(), ["b true 0", "three false 1", "two false 1"]);
        fs::remove_file(scratch.path("a/two")).expect("it is there");
        assert_eq!(
            fs::read(scratch.path("a/three")).expect("the other name is still there"),
            b"1"
        );
        assert_eq!(
            fs::read(scratch.path("a/two")).expect_err("it was removed").kind(),
            ErrorKind::NotFound
        );
        assert!(fs::exists(scratch.path("a/b")) && !fs::exists(scratch.path("a/two")));
        fs::remove_dir_all(scratch.path("a")).expect("it is there");
        assert!(!fs::exists(scratch.path("a")));
        let space = fs::disk_space(&scratch.0).expect("the disk is there");
        assert!(
            space.available > 0 && space.used + space.available <= space.total,
            "{space:?}"
        );
    });
}

#[test]
fn opening_tells_what_is_wrong() {
    on_every_backend(1, async |_| {
        let scratch = Scratch::new("open");
        let kind = |path: &str, options| File::open(scratch.path(path), options).err().map(|error| error.kind());
        assert_eq!(kind("none", OpenOptions::READ), Some(ErrorKind::NotFound));
        assert_eq!(kind("none/none", OpenOptions::CREATE_NEW), Some(ErrorKind::NotFound));
        assert_eq!(kind("new", OpenOptions::CREATE_NEW), None);
        assert_eq!(kind("new", OpenOptions::CREATE_NEW), Some(ErrorKind::AlreadyExists));
    });
}

#[test]
fn a_second_lock_on_a_file_is_refused_until_the_first_is_closed() {
    on_every_backend(1, async |_| {
        let scratch = Scratch::new("lock");
        let options = OpenOptions {
            write: true,
            create: true,
            ..OpenOptions::default()
        };
        let open = || File::open(scratch.path("lock"), options).expect("the scratch directory is writable");
        let first = open();
        assert!(first.try_lock_exclusive().expect("locks work here"));
        assert!(
            !open().try_lock_exclusive().expect("locks work here"),
            "two nodes on one directory"
        );
        drop(first);
        assert!(open().try_lock_exclusive().expect("locks work here"));
    });
}

#[test]
fn files_work_in_jobs_and_offloaded_work() {
    on_every_backend(1, async |_| {
        let scratch = Scratch::new("jobs");
        let (one, two) = (scratch.path("one"), scratch.path("two"));
        offload(move || fs::write(one, b"1"))
            .await
            .expect("the scratch directory is writable");
        spawn_job("writer", move || fs::write(two, b"2"))
            .await
            .expect("the scratch directory is writable");
        assert_eq!(fs::read_dir(&scratch.0).expect("it is there").len(), 2);
    });
}

#[test]
fn a_dropped_read_or_write_harms_nobody_and_the_write_is_still_done() {
    on_every_backend(1, async |_| {
        let scratch = Scratch::new("dropped");
        let file = File::open(scratch.path("data"), OpenOptions::CREATE_NEW).expect("a new file in an empty directory");
        for round in 0..50_u64 {
            // Polled once, so that the operation is in flight, then dropped.
            drop(timeout(Duration::ZERO, file.write_at(vec![1; 8192], round * 8192)).await);
            drop(timeout(Duration::ZERO, file.read_at(Vec::new(), 0, 8192)).await);
        }
        let others: Vec<_> = (0..20_u64)
            .map(|number| {
                let file = file.clone();
                spawn(async move { file.write_at(vec![2; 100], 1_000_000 + number * 100).await.0 })
            })
            .collect();
        for other in others {
            other.await.expect("the disk has room");
        }
        let (read, bytes) = file.read_at(Vec::new(), 1_000_000, 2000).await;
        assert_eq!(read.expect("it is there"), 2000);
        assert!(bytes.iter().all(|&byte| byte == 2));
        while file.len().expect("it is open") < 50 * 8192 {
            runtime::sleep(Duration::from_millis(1)).await;
        }
    });
}
