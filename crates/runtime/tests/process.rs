//! What concerns a whole process: signals, and a kernel that forbids io_uring. Each test is the only one of its kind in
//! this binary, and the filter below holds for the thread of its test and the threads that one starts.

use runtime::{Backend, Options, ShardId, now, on_signal_terminate, sleep, spawn, submit_to};
use std::io::ErrorKind;
use std::time::Duration;

fn options(shards: u32, backend: Backend) -> Options {
    Options {
        shards,
        pin_cpus: None,
        backend,
        spin: Duration::ZERO,
    }
}

#[test]
fn a_termination_signal_reaches_every_shard_that_waits() {
    let result = runtime::run(options(3, Backend::Auto), |shard| {
        Box::pin(async move {
            // The handler is installed by the call, before the signal is awaited.
            let signal = on_signal_terminate();
            if shard == ShardId(0) {
                let waiting = spawn(signal);
                for other in [ShardId(1), ShardId(2)] {
                    submit_to(other, || ()).await;
                }
                // SAFETY: a plain system call; the handler is installed by now.
                unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
                waiting.await;
            } else {
                signal.await;
            }
        })
    });
    result.expect("one of the backends works");
    // The signal is remembered: a later wait resolves at once.
    let late = runtime::run(options(1, Backend::Epoll), |_| Box::pin(on_signal_terminate()));
    late.expect("epoll works everywhere");
}

/// Forbids io_uring to this thread and those it starts, as the default profile of container hosts does.
fn forbid_io_uring() {
    // From <linux/filter.h> and <linux/seccomp.h>: load the number of the system call; 425 to 427 are io_uring's;
    // allow, or say EPERM.
    let filter = [
        libc::sock_filter {
            code: 0x20,
            jt: 0,
            jf: 0,
            k: 0,
        },
        libc::sock_filter {
            code: 0x35,
            jt: 0,
            jf: 2,
            k: 425,
        },
        libc::sock_filter {
            code: 0x25,
            jt: 1,
            jf: 0,
            k: 427,
        },
        libc::sock_filter {
            code: 0x06,
            jt: 0,
            jf: 0,
            k: 0x0005_0000 | libc::EPERM.cast_unsigned(),
        },
        libc::sock_filter {
            code: 0x06,
            jt: 0,
            jf: 0,
            k: 0x7fff_0000,
        },
    ];
    let program = libc::sock_fprog {
        len: 5,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the program points to five instructions that live through the call, which copies them.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(result, 0, "the filter was refused: {}", std::io::Error::last_os_error());
}

#[test]
fn where_io_uring_is_forbidden_epoll_serves_and_who_insists_is_told() {
    forbid_io_uring();
    let refused = runtime::run(options(1, Backend::IoUring), |_| Box::pin(async {}));
    let refused = refused.expect_err("the filter forbids it");
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert!(
        refused.to_string().contains("io_uring cannot be used here"),
        "{refused}"
    );
    if std::env::var_os("CETO_RUNTIME").is_none() {
        runtime::run(options(2, Backend::Auto), |_| Box::pin(sleep(Duration::from_millis(1)))).expect("epoll serves");
    }
}

#[test]
fn an_idle_shard_sleeps_in_the_kernel() {
    for backend in [Backend::Auto, Backend::Epoll] {
        let result = runtime::run(options(1, backend), |_| {
            Box::pin(async {
                let before = runtime::metrics();
                sleep(Duration::from_millis(100)).await;
                let after = runtime::metrics();
                let (turns, sleeps) = (after.kernel_visits - before.kernel_visits, after.sleeps - before.sleeps);
                assert!(
                    sleeps >= 1 && turns <= 10,
                    "{turns} turns and {sleeps} sleeps in 100 ms without work"
                );
            })
        });
        result.expect("epoll works everywhere");
    }
}

#[test]
fn what_a_shard_computes_is_seen_in_its_metrics() {
    let result = runtime::run(options(1, Backend::Auto), |_| {
        Box::pin(async {
            let before = runtime::metrics();
            let sum = (0..3_000_000_u64).fold(0, |sum, i| std::hint::black_box(sum ^ i));
            let after = runtime::metrics();
            let cpu_time = after.cpu_time - before.cpu_time;
            assert!(!cpu_time.is_zero(), "three million steps (to {sum}) took no time");
            if let (Some(before), Some(after)) = (before.user_instructions, after.user_instructions) {
                assert!(after > before + 3_000_000, "the count went from {before} to {after}");
            }
        })
    });
    result.expect("some backend works everywhere");
}

#[test]
fn a_poll_that_keeps_its_shard_is_counted_as_a_stall() {
    let result = runtime::run(options(1, Backend::Auto), |_| {
        Box::pin(async {
            // On a busy machine others have the processor for a part of the time, which is no stall.
            let mut tries = 0;
            while runtime::metrics().stalls == 0 {
                assert!(tries < 100, "no poll of 15 ms was counted as a stall");
                tries += 1;
                let stalled = spawn(async {
                    let start = now();
                    while start.elapsed() < Duration::from_millis(15) {
                        std::hint::spin_loop();
                    }
                });
                stalled.await;
            }
            let background = runtime::metrics().group_run_times;
            assert!(
                background
                    .iter()
                    .any(|(name, time)| name == "statement" && *time >= Duration::from_millis(15))
            );
        })
    });
    result.expect("one of the backends works");
}

#[test]
fn options_that_cannot_be_met_are_errors() {
    let kind = |options: Options| {
        runtime::run(options, |_| Box::pin(async {}))
            .err()
            .map(|error| error.kind())
    };
    assert_eq!(kind(options(0, Backend::Auto)), Some(ErrorKind::InvalidInput));
    assert_eq!(kind(options(257, Backend::Auto)), Some(ErrorKind::InvalidInput));
    let pinned = |cpus| Options {
        pin_cpus: Some(cpus),
        ..options(2, Backend::Auto)
    };
    assert_eq!(
        kind(pinned(vec![0])),
        Some(ErrorKind::InvalidInput),
        "two shards on one named processor"
    );
    assert_eq!(
        kind(pinned(vec![0, 100_000])),
        Some(ErrorKind::InvalidInput),
        "a processor that does not exist"
    );
}
