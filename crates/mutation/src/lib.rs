//! The packed row, tombstones, mutations, and the only rules of which write wins.
