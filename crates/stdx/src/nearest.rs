//! The name that a misspelt one probably means.

/// The known name that takes the fewest edits, the first of several; None where even that takes so many that naming it
/// would mislead.
pub fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let edits_max = (name.len() / 3).max(1);
    known
        .into_iter()
        .map(|known| (edits(name, known), known))
        .filter(|(edits, _)| *edits <= edits_max)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, known)| known)
}

/// Edit distance of two texts, bytes inserted, removed or replaced (Levenshtein), one row of the table at a time.
fn edits(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(l != r);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_few_edits_is_found() {
        let known = ["status", "statusbinary", "tablestats"];
        for (name, expected) in [
            ("staus", Some("status")),
            ("tablestat", Some("tablestats")),
            ("statusbinry", Some("statusbinary")),
            ("scrub", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
        assert_eq!(nearest("ab", ["abc", "abd"]), Some("abc"), "the first of several");
    }
}
