//! What `ceto sstable` does: dump, verify and metadata of files, without a schema.
