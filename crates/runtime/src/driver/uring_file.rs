//! File operations on io_uring. They are never cancelled: a write whose future was dropped ends in the kernel as if it
//! had been awaited.

use super::uring::{Held, ring_of};
use crate::executor;
use crate::fs::File;
use io_uring::{opcode, squeue, types};
use std::io;
use std::os::fd::RawFd;

async fn run(entry: squeue::Entry, held: Held) -> (io::Result<usize>, Held) {
    // SAFETY: each caller in this module points the entry into the buffer it puts into `held`, whose heap memory does
    // not move, and puts the file that owns the descriptor there too.
    let operation = executor::with(|executor| unsafe { ring_of(executor).start(entry, held) });
    operation.finish().await
}

/// What must live until the kernel is done.
fn hold(file: File, buffer: Vec<u8>) -> Held {
    Held {
        buffer,
        file: Some(file),
        ..Held::default()
    }
}

/// Appends up to `length` bytes to the buffer, which has that much spare capacity.
pub(crate) async fn read(
    file: File,
    fd: RawFd,
    mut buffer: Vec<u8>,
    offset: u64,
    length: usize,
) -> (io::Result<usize>, Vec<u8>) {
    let length_before = buffer.len();
    let spare = buffer.spare_capacity_mut();
    assert!(
        spare.len() >= length,
        "a read of {length} bytes into {} of spare capacity",
        spare.len()
    );
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let entry = opcode::Read::new(types::Fd(fd), spare.as_mut_ptr().cast(), length)
        .offset(offset)
        .build();
    let (result, held) = run(entry, hold(file, buffer)).await;
    let mut buffer = held.buffer;
    if let Ok(count) = result {
        // SAFETY: the kernel wrote `count` bytes after `length_before`, within the spare capacity checked above.
        unsafe { buffer.set_len(length_before + count) };
    }
    (result, buffer)
}

/// Writes from `start` of the buffer to its end, or less.
pub(crate) async fn write(
    file: File,
    fd: RawFd,
    buffer: Vec<u8>,
    start: usize,
    offset: u64,
) -> (io::Result<usize>, Vec<u8>) {
    let rest = &buffer[start..];
    let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
    let entry = opcode::Write::new(types::Fd(fd), rest.as_ptr(), length)
        .offset(offset)
        .build();
    let (result, held) = run(entry, hold(file, buffer)).await;
    (result, held.buffer)
}

/// `fdatasync`.
pub(crate) async fn sync_data(file: File, fd: RawFd) -> io::Result<()> {
    let entry = opcode::Fsync::new(types::Fd(fd))
        .flags(types::FsyncFlags::DATASYNC)
        .build();
    let (result, _) = run(entry, hold(file, Vec::new())).await;
    result.map(drop)
}
