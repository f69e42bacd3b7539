//! Which relations on one column, or on several clustering columns at once, may be combined: bounds from two sides that
//! begin at one column, or any number of CONTAINS and map entries. No others are combined, because a second one could
//! only repeat or contradict the first.

use cql::ast::{ComparisonOperator, InValues, Predicate, Relation, Subject};
use smallvec::SmallVec;

use super::flip;
use crate::CompileError;

/// What the relations so far say of a column.
#[derive(Clone, Copy)]
enum Restricted {
    /// `=`, or IN of one alternative.
    Equal,
    /// IN.
    In,
    /// Bounds.
    Slice { lower: bool, upper: bool },
    /// CONTAINS, CONTAINS KEY, or an entry of a map.
    Contains,
}

/// Refuses relations that do not go together.
pub(super) fn check(relations: &[Relation]) -> Result<(), CompileError> {
    let mut known: SmallVec<[(&[String], Restricted); 4]> = SmallVec::new();
    for relation in relations {
        let columns = match &relation.subject {
            Subject::Column(name) | Subject::Element { column: name, .. } => std::slice::from_ref(name),
            Subject::Columns(names) => names,
            _ => continue,
        };
        let Some(mut new) = restricted(relation) else { continue };
        for (of, old) in &known {
            let common: SmallVec<[&str; 4]> = of.iter().filter(|c| columns.contains(c)).map(String::as_str).collect();
            if common.is_empty() {
                continue;
            }
            let is_slice = |r: Restricted| matches!(r, Restricted::Slice { .. });
            if of[0] != columns[0] && is_slice(*old) && is_slice(new) {
                return Err(CompileError::Invalid(format!(
                    "Column \"{}\" cannot be restricted by two inequalities not starting with the same column",
                    common[0]
                )));
            }
            new = joined(&common.join(" ,"), *old, new)?;
        }
        // What both say together is all that a third one has to go with: many CONTAINS of one column cost no more than
        // one.
        match known.iter_mut().find(|(of, _)| *of == columns) {
            Some((_, old)) => *old = new,
            None => known.push((columns, new)),
        }
    }
    Ok(())
}

fn restricted(relation: &Relation) -> Option<Restricted> {
    if matches!(relation.subject, Subject::Element { .. }) {
        return Some(Restricted::Contains);
    }
    match &relation.predicate {
        Predicate::Compare(ComparisonOperator::Equal, _) => Some(Restricted::Equal),
        Predicate::Compare(ComparisonOperator::Contains | ComparisonOperator::ContainsKey, _) => {
            Some(Restricted::Contains)
        }
        Predicate::Compare(operator, _) => flip(*operator).map(|(lower, _)| Restricted::Slice { lower, upper: !lower }),
        Predicate::In {
            negated: false,
            values: InValues::Terms(terms),
        } if terms.len() == 1 => Some(Restricted::Equal),
        Predicate::In { negated: false, .. } => Some(Restricted::In),
        _ => None,
    }
}

fn joined(name: &str, known: Restricted, new: Restricted) -> Result<Restricted, CompileError> {
    let refuse = |text: String| Err(CompileError::Invalid(text));
    match (known, new) {
        (Restricted::Equal, _) => refuse(format!(
            "{name} cannot be restricted by more than one relation if it includes an Equal"
        )),
        (Restricted::In, _) => refuse(format!(
            "{name} cannot be restricted by more than one relation if it includes a IN"
        )),
        (Restricted::Contains, Restricted::Contains) => Ok(known),
        (Restricted::Contains, _) => refuse(format!(
            "Collection column {name} can only be restricted by CONTAINS, CONTAINS KEY, or map-entry equality"
        )),
        (
            Restricted::Slice { lower, upper },
            Restricted::Slice {
                lower: new_lower,
                upper: new_upper,
            },
        ) => {
            if (lower && new_lower) || (upper && new_upper) {
                return refuse(format!(
                    "More than one restriction was found for the {} bound on {name}",
                    if new_lower { "start" } else { "end" }
                ));
            }
            Ok(Restricted::Slice {
                lower: true,
                upper: true,
            })
        }
        (Restricted::Slice { .. }, _) => refuse(format!(
            "Column \"{name}\" cannot be restricted by both an equality and an inequality relation"
        )),
    }
}
