//! The tests of this crate in one program: a program for each file would compile what they share again.

mod aggregates;
mod clocks;
mod cluster;
mod connections;
mod cost;
mod damage;
mod directed;
mod directories;
mod elastic;
mod few_slots;
mod events;
mod full_disks;
mod kinds;
mod moves;
mod node;
mod outages;
mod pages;
mod planted;
mod planted_elastic;
mod planted_faults;
mod refused_hints;
mod resizes;
mod row_expiry;
mod steps;
mod support;
mod system_tables;
