//! The tests of this crate in one program: a program for each file would compile what they share again.

mod balance;
mod conversion;
mod drain;
mod health;
mod lineage;
mod lost_nodes;
mod metadata_file;
mod movement;
mod operations;
mod peers;
mod planted;
mod presence;
mod rack_rules;
mod records;
mod resize;
mod ring;
mod simulated;
mod support;
mod upgrade;
mod values;
mod votes;
