//! Load generators and the benches behind the figures.
