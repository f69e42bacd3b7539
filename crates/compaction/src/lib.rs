//! Which sstables to merge, and the job that merges them.
