//! LIKE: `%` matches any characters, `_` matches one, and `\` takes the meaning from the character after it.
//!
//! A pattern is a sequence of *pieces* between its `%`. The text begins with the first piece and ends with the last.
//! The pieces between them are searched one after the other, each at its first place after the one before: a later
//! place of one would leave less text for the others. So no part of the text is searched twice. A piece of plain
//! characters is searched by `memchr::memmem`, in time that grows with the text alone. One with `_` is searched by the
//! Shift-And method (Baeza-Yates and Gonnet, "A New Approach to Text Searching", 1992): a set of bits says which of its
//! beginnings match before a byte of the text, so that 64 of them cost one step.

use std::borrow::Cow;

use memchr::memmem;
use stdx::preempt;

/// The longest pattern of a statement, in bytes: a search costs a step for each byte of the text and 64 of the pattern.
pub const PATTERN_BYTES_MAX: usize = 8 << 10;

/// Bytes of a text that are searched between two preemption points.
const SEARCH_BYTES: usize = 64 << 10;
/// Words of bits that are computed between two preemption points.
const SEARCH_WORDS: usize = 1 << 10;

/// Whether a text, in UTF-8, is like the pattern.
#[must_use]
pub fn is_like(text: &[u8], pattern: &[u8]) -> bool {
    let mut pieces = Pieces(Some(pattern));
    let Some(end) = pieces.next().and_then(|first| first.begins(text)) else {
        return false;
    };
    let mut rest = &text[end..];
    let Some(mut piece) = pieces.next() else {
        return rest.is_empty();
    };
    for next in pieces {
        preempt::point();
        let Some(end) = piece.find(rest) else { return false };
        rest = &rest[end..];
        piece = next;
    }
    piece.ends(rest)
}

/// What every text begins with that is like the pattern, and whether only that text is.
#[must_use]
pub fn literal_prefix(pattern: &[u8]) -> (Vec<u8>, bool) {
    let mut prefix = Vec::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, behind.split_first()) {
            (b'%' | b'_', _) => return (prefix, false),
            (b'\\', Some((escaped, behind))) => {
                prefix.push(*escaped);
                rest = behind;
            }
            _ => prefix.push(*byte),
        }
    }
    (prefix, true)
}

/// The pieces of a pattern, at least one; None after the last.
struct Pieces<'p>(Option<&'p [u8]>);

/// What is between two `%`.
enum Piece<'p> {
    /// Plain characters.
    Literal(Cow<'p, [u8]>),
    /// Bytes, and None for each `_`.
    Wild(Vec<Option<u8>>),
}

impl<'p> Iterator for Pieces<'p> {
    type Item = Piece<'p>;

    fn next(&mut self) -> Option<Piece<'p>> {
        let pattern = self.0.take()?;
        let is_special = |byte: &u8| matches!(byte, b'%' | b'_' | b'\\');
        let plain = pattern.iter().position(is_special).unwrap_or(pattern.len());
        match pattern.get(plain) {
            None => return Some(Piece::Literal(pattern.into())),
            Some(b'%') => {
                self.0 = Some(&pattern[plain + 1..]);
                return Some(Piece::Literal(pattern[..plain].into()));
            }
            Some(_) => {}
        }
        let mut wild: Vec<Option<u8>> = pattern[..plain].iter().copied().map(Some).collect();
        let mut rest = &pattern[plain..];
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            match (byte, after.split_first()) {
                (b'%', _) => {
                    self.0 = Some(rest);
                    break;
                }
                (b'_', _) => wild.push(None),
                (b'\\', Some((escaped, after))) => {
                    wild.push(Some(*escaped));
                    rest = after;
                }
                _ => wild.push(Some(*byte)),
            }
        }
        let literal: Option<Vec<u8>> = wild.iter().copied().collect();
        Some(literal.map_or(Piece::Wild(wild), |literal| Piece::Literal(literal.into())))
    }
}

impl Piece<'_> {
    /// If the text begins with it, where it ends there.
    fn begins(&self, text: &[u8]) -> Option<usize> {
        match self {
            Self::Literal(literal) => text.starts_with(literal).then_some(literal.len()),
            Self::Wild(wild) => wild.iter().try_fold(0, |at, wanted| match wanted {
                Some(byte) => (text.get(at) == Some(byte)).then_some(at + 1),
                None => (at < text.len()).then(|| after_character(text, at + 1)),
            }),
        }
    }

    /// Whether the text ends with it.
    fn ends(&self, text: &[u8]) -> bool {
        match self {
            Self::Literal(literal) => text.ends_with(literal),
            Self::Wild(wild) => {
                let begin = wild.iter().rev().try_fold(text.len(), |end, wanted| match wanted {
                    Some(byte) => (text[..end].last() == Some(byte)).then(|| end - 1),
                    None => text[..end].iter().rposition(|byte| !continues(*byte)),
                });
                begin.is_some()
            }
        }
    }

    /// Where it ends at its first place in the text.
    fn find(&self, text: &[u8]) -> Option<usize> {
        match self {
            Self::Literal(literal) => find_literal(text, literal),
            Self::Wild(wild) => Search::of(wild).find(text),
        }
    }
}

fn find_literal(text: &[u8], literal: &[u8]) -> Option<usize> {
    if text.len() <= SEARCH_BYTES {
        return memmem::find(text, literal).map(|at| at + literal.len());
    }
    let finder = memmem::Finder::new(literal);
    // Windows overlap: a place may begin in one and end after it.
    let behind = literal.len().saturating_sub(1);
    (0..text.len()).step_by(SEARCH_BYTES).find_map(|from| {
        preempt::long_step();
        let window = &text[from..text.len().min(from + SEARCH_BYTES + behind)];
        finder.find(window).map(|at| from + at + literal.len())
    })
}

/// The bits of a piece with `_`. Bit n is about its first n + 1 elements.
struct Search {
    words: usize,
    /// For each byte that is in the piece, the number of its set of bits; 0 for others.
    set_of: [u16; 256],
    /// Sets of `words` words: the elements that are that byte. The first is empty.
    sets: Vec<u64>,
    /// The elements that are `_`.
    any: Vec<u64>,
    last: usize,
}

impl Search {
    fn of(wild: &[Option<u8>]) -> Self {
        let words = wild.len().div_ceil(64);
        let mut search = Self {
            words,
            set_of: [0; 256],
            sets: vec![0; words],
            any: vec![0; words],
            last: wild.len() - 1,
        };
        for (element, wanted) in wild.iter().enumerate() {
            let set = match wanted {
                None => &mut search.any[..],
                Some(byte) => {
                    let number = &mut search.set_of[usize::from(*byte)];
                    if *number == 0 {
                        *number = u16::try_from(search.sets.len() / words).expect("one for each byte");
                        search.sets.resize(search.sets.len() + words, 0);
                    }
                    &mut search.sets[usize::from(*number) * words..][..words]
                }
            };
            set[element / 64] |= 1 << (element % 64);
        }
        search
    }

    /// Where the piece ends at its first place in the text.
    fn find(&self, text: &[u8]) -> Option<usize> {
        let mut matched = vec![0_u64; self.words];
        let mut at = 0;
        for piece in text.chunks((SEARCH_WORDS / self.words).max(1)) {
            preempt::point();
            for byte in piece {
                at += 1;
                self.advance(&mut matched, *byte);
                if (matched[self.last / 64] >> (self.last % 64)) & 1 == 1 {
                    return Some(after_character(text, at));
                }
            }
        }
        None
    }

    /// Which beginnings of the piece end with this byte, of those that ended before it.
    fn advance(&self, matched: &mut [u64], byte: u8) {
        let set = &self.sets[usize::from(self.set_of[usize::from(byte)]) * self.words..][..self.words];
        // `_` takes the first byte of a character, and keeps its place for the others.
        let (takes, keeps) = if continues(byte) { (0, u64::MAX) } else { (u64::MAX, 0) };
        let mut carry = 1;
        for ((word, set), any) in matched.iter_mut().zip(set).zip(&self.any) {
            let next = (*word << 1) | carry;
            carry = *word >> 63;
            *word = (next & (set | (any & takes))) | (*word & any & keeps);
        }
    }
}

/// Whether the byte is one of a character and not its first.
const fn continues(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

/// Where the character ends that has a byte before this place.
fn after_character(text: &[u8], at: usize) -> usize {
    at + text[at..].iter().take_while(|byte| continues(**byte)).count()
}

#[cfg(test)]
mod tests {
    use stdx::random::SplitMix64;

    use super::*;

    #[test]
    fn what_a_pattern_begins_with_is_known() {
        for (pattern, prefix, is_whole) in [
            ("", "", true),
            ("abc", "abc", true),
            ("abc%", "abc", false),
            ("%abc", "", false),
            ("a_c", "a", false),
            (r"a\%c%", "a%c", false),
            (r"a\\b", r"a\b", true),
            (r"a\", r"a\", true),
        ] {
            let expected = (prefix.as_bytes().to_vec(), is_whole);
            assert_eq!(literal_prefix(pattern.as_bytes()), expected, "{pattern}");
        }
    }

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
            ("éa", "%__a", false),
            ("aéb", "%é_%", true),
            ("aé", "%é_%", false),
            ("aba", "ab%ba", false),
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

    /// The meaning of a pattern, character by character.
    fn is_like_by_definition(text: &[char], pattern: &[char]) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            (['%', after @ ..], _) => (0..=text.len()).any(|from| is_like_by_definition(&text[from..], after)),
            (['\\', escaped, after @ ..], [first, rest @ ..]) => escaped == first && is_like_by_definition(rest, after),
            (['_', after @ ..], [_, rest @ ..]) => is_like_by_definition(rest, after),
            ([wanted, after @ ..], [first, rest @ ..]) => wanted == first && is_like_by_definition(rest, after),
            (_, []) => false,
        }
    }

    #[test]
    fn the_search_agrees_with_the_definition() {
        let mut random = SplitMix64::new(1);
        let mut draw = |letters: &[char], most: u64| -> Vec<char> {
            let count = random.draw() % (most + 1);
            let letter = |_| letters[usize::try_from(random.draw()).unwrap_or(0) % letters.len()];
            (0..count).map(letter).collect()
        };
        for _ in 0..20_000 {
            let text = draw(&['a', 'b', 'é', '€'], 12);
            let pattern = draw(&['a', 'b', 'é', '€', '%', '%', '_', '_', '\\'], 8);
            let (as_text, as_pattern) = (text.iter().collect::<String>(), pattern.iter().collect::<String>());
            assert_eq!(
                is_like(as_text.as_bytes(), as_pattern.as_bytes()),
                is_like_by_definition(&text, &pattern),
                "{as_text} LIKE {as_pattern}"
            );
        }
    }

    #[test]
    fn long_texts_are_searched_in_windows_and_long_pieces_in_words() {
        let text = [&vec![b'a'; SEARCH_BYTES - 3][..], b"bcdefg", &vec![b'a'; SEARCH_BYTES]].concat();
        for (pattern, expected) in [
            ("%bcdefg%", true),
            ("%b_d_fg%a", true),
            ("%bcdfg%", false),
            ("%g%b%", false),
        ] {
            assert_eq!(is_like(&text, pattern.as_bytes()), expected, "{pattern}");
        }
        // A piece whose bits take several words.
        let piece = "a_".repeat(100);
        for (end, expected) in [("bc", true), ("cc", false)] {
            let pattern = format!("%{piece}{end}%");
            assert_eq!(is_like(&text, pattern.as_bytes()), expected, "{end}");
        }
    }
}
