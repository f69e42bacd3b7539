//! The seam to the world: shards, tasks, clock, randomness, files and sockets, in production and simulated.
