//! Scripts: where one statement ends and the next begins.

use crate::TEXT_BYTES_MAX;
use crate::keyword::Keyword;
use crate::lexer::{TokenKind, tokenize};

/// The statements of a script, each without its semicolon and the blanks and comments around it. Semicolons in strings,
/// comments and batches separate nothing. The statements need not be valid; a text longer than [`TEXT_BYTES_MAX`] is
/// returned whole, for the parser to refuse.
pub fn split_statements(text: &str) -> Vec<&str> {
    if text.len() > TEXT_BYTES_MAX {
        return vec![text];
    }
    let tokens = tokenize(text);
    let mut statements = Vec::new();
    let mut first = 0;
    for (index, token) in tokens.iter().enumerate() {
        let ends = match token.kind {
            TokenKind::End => true,
            TokenKind::Semicolon => {
                let in_batch = tokens[first].keyword == Keyword::Begin
                    && !(index >= first + 3
                        && tokens[index - 2].keyword == Keyword::Apply
                        && tokens[index - 1].keyword == Keyword::Batch);
                !in_batch
            }
            _ => false,
        };
        if !ends {
            continue;
        }
        // A batch that never ends may leave its last semicolon before the end of the text.
        let mut last = index;
        while last > first && tokens[last - 1].kind == TokenKind::Semicolon {
            last -= 1;
        }
        if last > first {
            statements.push(&text[tokens[first].start as usize..tokens[last - 1].end as usize]);
        }
        first = index + 1;
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_split_at_semicolons_between_statements() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            (" ; ;; ", &[]),
            ("USE a; USE b", &["USE a", "USE b"]),
            ("USE a;", &["USE a"]),
            ("-- first; comment\nUSE a /* ; */ ; // last;", &["USE a"]),
            (
                "INSERT INTO t (a) VALUES ('x;y'); USE b",
                &["INSERT INTO t (a) VALUES ('x;y')", "USE b"],
            ),
            (
                "CREATE FUNCTION f AS $$a;b$$; USE b",
                &["CREATE FUNCTION f AS $$a;b$$", "USE b"],
            ),
            (
                "BEGIN BATCH a; b; APPLY BATCH; USE b",
                &["BEGIN BATCH a; b; APPLY BATCH", "USE b"],
            ),
            ("BEGIN BATCH a; b;", &["BEGIN BATCH a; b"]),
            ("USE a; SELECT 'open; USE b;", &["USE a", "SELECT 'open; USE b;"]),
        ];
        for (script, expected) in cases {
            assert_eq!(split_statements(script), *expected, "{script}");
        }
    }
}
