//! What an index makes of a text before it is compared: one case, one Unicode form, letters of ASCII, or its parts.

use std::borrow::Cow;

use stdx::preempt;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{decompose_compatible, is_combining_mark};

/// Parts of a pattern of LIKE. Each is compared with each part of a text.
pub const PATTERNS_MAX: usize = 64;

/// Which letters are one to an index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Case {
    /// As they are.
    Kept,
    /// In lower case.
    Lower,
    /// In upper case.
    Upper,
}

/// What is made of a text. Applied in the order of the fields.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Analyzer {
    /// The case of its letters, each by itself: so what begins a text begins the analyzed text.
    pub case: Case,
    /// Its canonical composition (NFC of Unicode Standard Annex 15).
    pub normalizes: bool,
    /// Letters of other alphabets in the place of which ASCII has some: without their marks, ligatures in two letters.
    pub folds_to_ascii: bool,
    /// The character between the parts of a text, each of which is a term; None: the whole text is one.
    pub delimiter: Option<char>,
}

impl Analyzer {
    /// The text as it is.
    pub const PLAIN: Self = Self {
        case: Case::Kept,
        normalizes: false,
        folds_to_ascii: false,
        delimiter: None,
    };

    /// Whether it leaves texts as they are.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self::PLAIN
    }

    /// The parts of a text that are terms, without empty ones; the whole text where it has no parts.
    pub fn parts<'t>(&self, text: &'t [u8]) -> impl Iterator<Item = &'t [u8]> {
        let split = self
            .delimiter
            .and_then(|delimiter| Some((std::str::from_utf8(text).ok()?, delimiter)));
        let whole = split.is_none().then_some(text);
        let parts = split.into_iter().flat_map(|(text, delimiter)| text.split(delimiter));
        let parts = parts.inspect(|_| preempt::point()).filter(|part| !part.is_empty());
        whole.into_iter().chain(parts.map(str::as_bytes))
    }

    /// The patterns of which each must be like a part of a text, for a pattern of LIKE: it has parts too, and a `%` at
    /// its beginning or end counts for each of them. None: there are more than [`PATTERNS_MAX`].
    #[must_use]
    pub fn patterns(&self, pattern: &[u8]) -> Option<Vec<Vec<u8>>> {
        let body = pattern.strip_prefix(b"%").unwrap_or(pattern);
        let starts_anywhere = body.len() < pattern.len();
        let inner = body.strip_suffix(b"%").unwrap_or(body);
        let ends_anywhere = inner.len() < body.len();
        let mut patterns: Vec<Vec<u8>> = Vec::new();
        for part in self.parts(inner) {
            if patterns.len() == PATTERNS_MAX {
                return None;
            }
            let mut one = Vec::with_capacity(part.len() + 2);
            one.extend_from_slice(if starts_anywhere { b"%" } else { b"" });
            one.extend_from_slice(part);
            one.extend_from_slice(if ends_anywhere { b"%" } else { b"" });
            patterns.push(one);
        }
        Some(patterns)
    }

    /// What is made of a text; of bytes that are no text, the same bytes.
    #[must_use]
    pub fn apply<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        let is_kept = Self {
            delimiter: None,
            ..*self
        }
        .is_plain();
        let Some(text) = std::str::from_utf8(text).ok().filter(|_| !is_kept) else {
            return Cow::Borrowed(text);
        };
        let mut made: String = match self.case {
            Case::Kept => text.to_owned(),
            Case::Lower => text.chars().flat_map(char::to_lowercase).collect(),
            Case::Upper => text.chars().flat_map(char::to_uppercase).collect(),
        };
        if self.normalizes {
            made = made.nfc().collect();
        }
        if self.folds_to_ascii {
            let mut folded = String::with_capacity(made.len());
            made.chars().for_each(|letter| fold(letter, &mut folded));
            made = folded;
        }
        Cow::Owned(made.into_bytes())
    }
}

/// Letters that are no letter of ASCII with a mark.
const LETTERS: [(char, &str); 22] = [
    ('ß', "ss"),
    ('ẞ', "SS"),
    ('æ', "ae"),
    ('Æ', "AE"),
    ('œ', "oe"),
    ('Œ', "OE"),
    ('ø', "o"),
    ('Ø', "O"),
    ('đ', "d"),
    ('Đ', "D"),
    ('ð', "d"),
    ('Ð', "D"),
    ('þ', "th"),
    ('Þ', "TH"),
    ('ł', "l"),
    ('Ł', "L"),
    ('ħ', "h"),
    ('Ħ', "H"),
    ('ı', "i"),
    ('ŧ', "t"),
    ('Ŧ', "T"),
    ('ŋ', "n"),
];

/// Appends what ASCII has in the place of a letter, or the letter.
fn fold(letter: char, out: &mut String) {
    if letter.is_ascii() {
        return out.push(letter);
    }
    if let Some((_, ascii)) = LETTERS.iter().find(|(other, _)| *other == letter) {
        return out.push_str(ascii);
    }
    let mut parts = String::new();
    decompose_compatible(letter, |part| {
        if !is_combining_mark(part) {
            parts.push(part);
        }
    });
    if parts.is_ascii() {
        out.push_str(&parts);
    } else {
        out.push(letter);
    }
}

#[cfg(test)]
mod tests {
    use super::{Analyzer, Case};

    #[test]
    fn texts_that_an_index_takes_for_one_are_made_equal() {
        let lower = Analyzer {
            case: Case::Lower,
            ..Analyzer::PLAIN
        };
        let upper = Analyzer {
            case: Case::Upper,
            ..Analyzer::PLAIN
        };
        let composed = Analyzer {
            normalizes: true,
            ..Analyzer::PLAIN
        };
        let ascii = Analyzer {
            folds_to_ascii: true,
            ..Analyzer::PLAIN
        };
        for (analyzer, text, made) in [
            (Analyzer::PLAIN, "Zoë", "Zoë"),
            (lower, "ZoË ΣΑΣ", "zoë σασ"),
            (upper, "straße", "STRASSE"),
            (composed, "Zoe\u{308}", "Zoë"),
            (composed, "ﬁ", "ﬁ"),
            (ascii, "Zoë ﬁne Łódź Ærø 北", "Zoe fine Lodz AEro 北"),
            (ascii, "e\u{301}", "e"),
        ] {
            assert_eq!(analyzer.apply(text.as_bytes()).as_ref(), made.as_bytes(), "{text}");
        }
        assert_eq!(lower.apply(b"\xff").as_ref(), b"\xff", "no text");
    }

    #[test]
    fn a_text_and_a_pattern_are_cut_at_the_delimiter() {
        let cut = Analyzer {
            delimiter: Some('░'),
            ..Analyzer::PLAIN
        };
        let shown = |parts: Vec<&[u8]>| {
            parts
                .iter()
                .map(|part| String::from_utf8_lossy(part))
                .collect::<Vec<_>>()
                .join(" ")
        };
        for (text, parts) in [("░a░b b░", "a b b"), ("░░", ""), ("", ""), ("ab", "ab")] {
            assert_eq!(shown(cut.parts(text.as_bytes()).collect()), parts, "{text}");
        }
        assert_eq!(shown(Analyzer::PLAIN.parts("a░b".as_bytes()).collect()), "a░b");
        for (pattern, parts) in [("a░b", "a b"), ("a░b%", "a% b%"), ("%a░", "%a"), ("%", "")] {
            let patterns = cut.patterns(pattern.as_bytes()).expect("few parts");
            assert_eq!(shown(patterns.iter().map(Vec::as_slice).collect()), parts, "{pattern}");
        }
        assert_eq!(cut.patterns("a░".repeat(65).as_bytes()), None);
    }
}
