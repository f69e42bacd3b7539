//! What is asked before a request begins: how often a partition may be read and written (`rate.rs`), and how large what
//! it writes to is already (`large.rs`).

pub(crate) mod large;
mod rate;

use std::rc::Rc;

use crate::Context;

pub use rate::{Admission, Operation};

/// One shard's limits of requests.
pub struct Limits {
    context: Rc<Context>,
    rates: rate::Rates,
}

impl Limits {
    pub(crate) fn new(context: Rc<Context>) -> Self {
        Self {
            context,
            rates: rate::Rates::default(),
        }
    }
}
