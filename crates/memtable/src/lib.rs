//! Writes in memory, ordered by token and key.
