//! What an index makes of a text before it is compared: one case, one Unicode form, letters of ASCII.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{decompose_compatible, is_combining_mark};

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
}

impl Analyzer {
    /// The text as it is.
    pub const PLAIN: Self = Self {
        case: Case::Kept,
        normalizes: false,
        folds_to_ascii: false,
    };

    /// Whether it leaves texts as they are.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self::PLAIN
    }

    /// What is made of a text; of bytes that are no text, the same bytes.
    #[must_use]
    pub fn apply<'t>(&self, text: &'t [u8]) -> Cow<'t, [u8]> {
        let Some(text) = std::str::from_utf8(text).ok().filter(|_| !self.is_plain()) else {
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
}
