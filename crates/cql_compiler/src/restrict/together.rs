//! Which relations on one column go together: bounds from two sides, or any number of CONTAINS and map entries. All others stand
//! alone, because a second one could only repeat or contradict the first.

use cql::ast::{ComparisonOperator, InValues, Predicate, Relation, Subject};

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

/// Refuses relations on single columns that do not go together.
pub(super) fn check(relations: &[Relation]) -> Result<(), CompileError> {
    let mut columns: Vec<(&str, Restricted)> = Vec::new();
    for relation in relations {
        let (Subject::Column(name) | Subject::Element { column: name, .. }) = &relation.subject else {
            continue;
        };
        let Some(new) = restricted(relation) else { continue };
        match columns.iter_mut().find(|(known, _)| known == name) {
            None => columns.push((name, new)),
            Some((_, known)) => *known = joined(name, *known, new)?,
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
