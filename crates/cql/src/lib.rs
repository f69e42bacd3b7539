//! The CQL language: text to syntax tree.
