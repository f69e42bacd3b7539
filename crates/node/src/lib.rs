//! One node: shards, services, start and drain.
