//! LIKE: `%` matches any characters, `_` matches one, and `\` takes the meaning from the character after it.

/// Whether a text, in UTF-8, is like the pattern.
#[must_use]
pub fn is_like(text: &[u8], pattern: &[u8]) -> bool {
    let (mut at, mut next) = (0, 0);
    // The pattern after the last `%`, and where in the text the next attempt to match it begins.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let is_escaped = pattern.get(next) == Some(&b'\\') && next + 1 < pattern.len();
        let taken = 1 + usize::from(is_escaped);
        match pattern.get(next + taken - 1) {
            None if at == text.len() => return true,
            Some(b'%') if !is_escaped => {
                next += 1;
                retry = Some((next, at));
                continue;
            }
            Some(b'_') if !is_escaped && at < text.len() => {
                at += character(text, at);
                next += 1;
                continue;
            }
            Some(byte) if (is_escaped || *byte != b'_') && text.get(at) == Some(byte) => {
                at += 1;
                next += taken;
                continue;
            }
            _ => {}
        }
        // What was tried does not match: the last `%` takes a character more.
        match retry {
            Some((behind, from)) if from < text.len() => {
                at = from + character(text, from);
                next = behind;
                retry = Some((behind, at));
            }
            _ => return false,
        }
    }
}

/// How many bytes the character at this place has.
fn character(text: &[u8], at: usize) -> usize {
    let continues = |byte: &&u8| **byte & 0xC0 == 0x80;
    1 + text[at + 1..].iter().take_while(continues).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_texts() {
        for (text, pattern, expected) in [
            ("", "", true),
            ("", "%", true),
            ("", "_", false),
            ("a", "", false),
            ("abc", "abc", true),
            ("abc", "ab", false),
            ("abc", "ab%", true),
            ("abc", "%c", true),
            ("abc", "%b%", true),
            ("abc", "a_c", true),
            ("abc", "__", false),
            ("abc", "a%%c", true),
            ("abcbc", "%bc", true),
            ("abcbd", "%bc", false),
            ("aé", "a_", true),
            ("éa", "%_a", true),
            ("a%c", r"a\%c", true),
            ("abc", r"a\%c", false),
            ("a_c", r"a\_c", true),
            ("abc", r"a\_c", false),
            (r"a\", r"a\", true),
            (r"a\b", r"a\\b", true),
            ("xa_b", r"%a\_b", true),
        ] {
            assert_eq!(
                is_like(text.as_bytes(), pattern.as_bytes()),
                expected,
                "{text} LIKE {pattern}"
            );
        }
    }
}
