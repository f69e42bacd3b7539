//! What a SELECT returns of an item.
//!
//! A path returns what it leads to under its last name: `SELECT m.a` returns the attribute `a`, and `SELECT m.a[0]` the
//! attribute `a[0]`. Of two paths with the same last name the later one is returned.

use stdx::preempt;

use super::Select;
use crate::error::Error;
use crate::expression::Bindings;
use crate::path::{Path, Step};
use crate::request::Substitutions;
use crate::value::{Item, copy_value};

/// Statements have no placeholders but their own.
static NO_SUBSTITUTIONS: Substitutions = Substitutions {
    names: None,
    values: None,
};

impl Select {
    /// The attributes that the statement returns of an item.
    ///
    /// # Errors
    /// Those of placeholders that are not defined; statements have none.
    pub fn returned(&self, item: Item) -> Result<Item, Error> {
        let Some(projection) = &self.projection else {
            return Ok(item);
        };
        let bindings = projection.bind(&NO_SUBSTITUTIONS)?;
        let mut returned = Item::new();
        for path in &projection.expression.tree.paths {
            preempt::point();
            if let Some(value) = path.resolve(&item, &bindings) {
                returned.insert(name_of(path, &bindings), copy_value(value));
            }
        }
        Ok(returned)
    }
}

/// The last name of a path, with the positions after it.
fn name_of(path: &Path, bindings: &Bindings<'_>) -> String {
    let mut name = bindings.name(path.attribute).to_owned();
    for step in &path.steps {
        match step {
            Step::Name(id) => bindings.name(*id).clone_into(&mut name),
            Step::Index(at) => name.push_str(&format!("[{at}]")),
        }
    }
    name
}
