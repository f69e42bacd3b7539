//! A shard's log: segments, chunks, group commit, replay.
