//! One shard's tablets: write, read, flush, replay.
