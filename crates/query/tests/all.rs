//! The tests of this crate in one program: a program for each file would compile what they share again.

mod conditional;
mod ddl;
mod in_products;
mod own_moment;
mod page_limits;
mod schema_versions;
mod second_front_end;
mod support;
mod virtual_tables;
