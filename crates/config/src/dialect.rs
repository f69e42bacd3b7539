//! What statements mean where servers differ.

use query::{Dialect, NullRule, Variables};

use super::cluster::switch;
use super::options::Options;

pub(super) fn resolve(options: &mut Options<'_>) -> Dialect {
    let is_by_name = switch(
        options,
        "cql_duplicate_bind_variable_names_refer_to_same_variable",
        true,
    );
    let option = "comparisons_with_null";
    let nulls = options.get(option, "error or unknown", |text| match text {
        "error" => Some(NullRule::Error),
        "unknown" => Some(NullRule::Unknown),
        _ => None,
    });
    let nulls = nulls.unwrap_or_default();
    options.note(
        option,
        match nulls {
            NullRule::Error => "error",
            NullRule::Unknown => "unknown",
        },
    );
    Dialect {
        variables: if is_by_name {
            Variables::ByName
        } else {
            Variables::ByPlace
        },
        nulls,
    }
}
