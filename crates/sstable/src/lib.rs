//! sstable files: the me format, written and read.
