//! What tests of planted bugs share, and those of moves.

#[cfg(debug_assertions)]
mod planted;
pub mod rounds;

#[cfg(debug_assertions)]
pub use planted::is_found;
