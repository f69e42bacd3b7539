//! Keyspaces, tables, columns and their row layout; DDL text and the rows of system_schema.
