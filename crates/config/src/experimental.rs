//! Experimental features: what may still change its form, and is off unless `experimental_features` names it.

use super::options::Options;
use super::value;

/// Drivers may agree on `TABLETS_ROUTING_V2_EXPERIMENTAL`.
const TABLETS_ROUTING_V2: &str = "tablets-routing-v2";

/// Which of them are on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Experimental {
    /// Whether drivers may agree on `TABLETS_ROUTING_V2_EXPERIMENTAL`.
    pub tablets_routing_v2: bool,
}

pub(super) fn resolve(options: &mut Options<'_>) -> Experimental {
    let option = "experimental_features";
    let words = |text: &str| -> Option<Vec<String>> {
        let words = value::list(text).into_iter().filter(|word| *word != "none");
        Some(words.map(str::to_owned).collect())
    };
    let named = options.get(option, "names of features, separated by commas", words);
    let mut experimental = Experimental::default();
    for name in named.unwrap_or_default() {
        match name.as_str() {
            TABLETS_ROUTING_V2 => experimental.tablets_routing_v2 = true,
            // Files of ScyllaDB name features that ceto has always on, or does not have.
            other => options.warnings.push(format!(
                "{option} names '{other}', which has no effect here; the experimental feature of ceto is {TABLETS_ROUTING_V2}"
            )),
        }
    }
    let on = if experimental.tablets_routing_v2 {
        TABLETS_ROUTING_V2
    } else {
        "none"
    };
    options.note(option, on);
    experimental
}
