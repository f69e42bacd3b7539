//! Tablets of the cluster: how many each table has, where they are, and how they are split, merged and moved.

pub(crate) mod balance_report;
pub(crate) mod balancer;
pub(crate) mod convert;
pub(crate) mod copies;
pub(crate) mod counts;
pub(crate) mod goals;
pub(crate) mod mover;
pub(crate) mod moves;
pub(crate) mod planning;
pub(crate) mod rack_rules;
pub(crate) mod resizes;
pub(crate) mod survey;
