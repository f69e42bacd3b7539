//! The tests of this crate in one program: a program for each file would compile what they share again.

mod answers;
mod batchlog;
mod births;
mod cas;
mod cluster;
mod counters;
mod fence;
mod forgotten_hints;
mod full_disks;
mod handoff;
mod lasting;
mod long_rows;
mod moves;
mod overload;
mod paxos;
mod paxos_durability;
mod point;
mod refusing;
mod serial_reads;
mod speculation;
mod spread;
mod stretches;
mod support;
mod tombstones;
mod truncation;
mod turns;
