//! Statements to plans, plans to results.
