//! Which ranges of tables this node repairs: continuously, and at an operator's request.

mod continuous;
mod everywhere;
pub mod history;
mod own_ranges;
mod part;
mod requested;
mod selected;

pub use continuous::{Ages, ages, run, want};
pub use everywhere::{repair_everywhere, repair_selected};
pub use part::has_tablets;
pub use requested::{Outcome, RepairFilters, check_datacenters, mode_of, repair_requested};
