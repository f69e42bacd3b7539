//! What tests of several crates share: the runner of the text-driven suites (input text, expected answer), [`seeds`],
//! and [`linearizable`] and [`serializable`], the checkers of histories.
//!
//! A suite is a text file. It consists of cases; each is an input, a line `----` and the expected answer:
//!
//! ```text
//! # Lines that begin with # before a case are its comment.
//! merge
//! insert @10; a = 1 @10
//! delete row @20 at 100
//! ----
//! delete row @20 at 100
//! ```
//!
//! A blank line ends the case. An answer that has blank lines itself is enclosed by two lines `----` before it and two
//! after it. Suites that name what is to be done put a command and its arguments into the first line of the input, as
//! above; others take the whole input as one text.
//!
//! [`run`] asks a function for the answer of each case, from first to last, and fails with every case whose answer
//! differs, by file and line. With `CETO_REWRITE` in the environment it writes the answers into the file instead:
//! `CETO_REWRITE=1 cargo test -p CRATE`, or `./dev rewrite`. Read the difference before you commit it.

pub mod linearizable;
mod seeds;
pub mod serializable;

pub use seeds::seeds;

use std::fmt::Write;

/// The environment variable that makes [`run`] rewrite the files.
pub const REWRITE: &str = "CETO_REWRITE";
const SEPARATOR: &str = "----";

/// The absolute path of a file of the crate that is compiled.
#[macro_export]
macro_rules! path {
    ($file:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/", $file)
    };
}

/// An input and its expected answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// The number of the input's first line in the file.
    pub line: usize,
    /// All of the input.
    pub text: String,
    /// The answer that the file has.
    pub expected: String,
    /// The lines before the input, each with its #.
    pub comment: String,
}

impl Case {
    /// The first word of the input.
    pub fn command(&self) -> &str {
        self.text.split_whitespace().next().unwrap_or_default()
    }

    /// What follows the command in the first line.
    pub fn arguments(&self) -> &str {
        let line = self.text.lines().next().unwrap_or_default();
        line.split_once(' ').map_or("", |(_, arguments)| arguments.trim())
    }

    /// The value of the argument `name=value`.
    pub fn argument(&self, name: &str) -> Option<&str> {
        let mut values = self.arguments().split_whitespace();
        values.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// The number that the argument `name=number` has, or `default` without one.
    ///
    /// # Panics
    /// When the value is not such a number.
    pub fn number<N: std::str::FromStr>(&self, name: &str, default: N) -> N {
        self.argument(name).map_or(default, |value| {
            value
                .parse()
                .unwrap_or_else(|_| panic!("line {}: {name}={value} is no number that fits", self.line))
        })
    }

    /// Whether that word is one of the arguments.
    pub fn has(&self, word: &str) -> bool {
        self.arguments().split_whitespace().any(|argument| argument == word)
    }

    /// The input after its first line.
    pub fn input(&self) -> &str {
        self.text.split_once('\n').map_or("", |(_, input)| input)
    }
}

/// The cases of a suite and the comment after the last one.
#[derive(Debug)]
pub struct Suite {
    /// From first to last.
    pub cases: Vec<Case>,
    trailer: String,
}

impl Suite {
    /// Reads a suite.
    ///
    /// # Errors
    /// When an input has no answer.
    pub fn parse(content: &str) -> Result<Self, String> {
        let mut lines = content.lines().enumerate().peekable();
        let mut suite = Self {
            cases: Vec::new(),
            trailer: String::new(),
        };
        loop {
            let mut comment = String::new();
            while let Some((_, line)) = lines.next_if(|(_, line)| line.starts_with('#') || line.trim().is_empty()) {
                comment.push_str(line);
                comment.push('\n');
            }
            let Some(&(first, _)) = lines.peek() else {
                suite.trailer = comment.trim_matches('\n').to_owned();
                return Ok(suite);
            };
            let input = lines.by_ref().map(|(_, line)| line);
            let mut text: Vec<&str> = Vec::new();
            let mut has_answer = false;
            for line in input {
                if line == SEPARATOR {
                    has_answer = true;
                    break;
                }
                text.push(line);
            }
            if !has_answer {
                return Err(format!("line {}: no line {SEPARATOR} after this input", first + 1));
            }
            let is_fenced = lines.next_if(|(_, line)| *line == SEPARATOR).is_some();
            let mut expected: Vec<&str> = Vec::new();
            for (_, line) in lines.by_ref() {
                if is_fenced && line == SEPARATOR && expected.last() == Some(&SEPARATOR) {
                    expected.pop();
                    break;
                }
                if !is_fenced && line.is_empty() {
                    break;
                }
                expected.push(line);
            }
            suite.cases.push(Case {
                line: first + 1,
                text: text.join("\n"),
                expected: expected.join("\n"),
                comment: comment.trim_start_matches('\n').to_owned(),
            });
        }
    }
}

/// The text of a suite with these answers.
fn print(suite: &Suite, answers: &[String]) -> String {
    let mut out = String::new();
    for (case, answer) in suite.cases.iter().zip(answers) {
        let (comment, text) = (&case.comment, &case.text);
        let _ = write!(out, "{comment}{text}\n{SEPARATOR}\n");
        // An empty first line would read as the end of the case.
        let has_blank_lines = answer.split('\n').any(str::is_empty) && !answer.is_empty();
        if has_blank_lines {
            let _ = write!(out, "{SEPARATOR}\n{answer}\n{SEPARATOR}\n{SEPARATOR}\n\n");
        } else if answer.is_empty() {
            out.push('\n');
        } else {
            let _ = write!(out, "{answer}\n\n");
        }
    }
    if suite.trailer.is_empty() {
        return out.trim_end_matches('\n').to_owned() + "\n";
    }
    out + &suite.trailer + "\n"
}

/// The cases whose answers are not those of the file, one by one.
fn differences(path: &str, suite: &Suite, answers: &[String]) -> Vec<String> {
    let cases = suite.cases.iter().zip(answers);
    let wrong = cases.filter(|(case, answer)| case.expected != **answer);
    wrong
        .map(|(case, answer)| {
            let Case {
                line, text, expected, ..
            } = case;
            format!("{path}:{line}\n{text}\n{SEPARATOR} expected\n{expected}\n{SEPARATOR} came\n{answer}\n")
        })
        .collect()
}

/// Compares the answer to each case of a suite with what its file expects, or writes the answers into the file when
/// [`REWRITE`] is set. `answer` sees the cases in order, so a case may depend on what an earlier one did.
///
/// # Panics
/// When the file cannot be read, and when an answer differs.
#[expect(
    clippy::disallowed_methods,
    reason = "reads and rewrites its own expectations, outside any simulation"
)]
pub fn run(path: &str, mut answer: impl FnMut(&Case) -> String) {
    let content = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let suite = Suite::parse(&content).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert!(!suite.cases.is_empty(), "{path} has no cases");
    let answers: Vec<String> = suite
        .cases
        .iter()
        .map(|case| answer(case).trim_end_matches('\n').to_owned())
        .collect();
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(path, print(&suite, &answers)).unwrap_or_else(|e| panic!("{path}: {e}"));
        return;
    }
    let differences = differences(path, &suite, &answers);
    assert!(
        differences.is_empty(),
        "{} of {} answers differ; {REWRITE}=1 writes the new ones into the file\n\n{}",
        differences.len(),
        answers.len(),
        differences.join("\n")
    );
}

/// The bytes that these hexadecimal digits are.
///
/// # Panics
/// When it is no even number of such digits.
pub fn from_hex(digits: &str) -> Vec<u8> {
    assert!(
        digits.is_ascii() && digits.len().is_multiple_of(2),
        "an even number of digits: {digits}"
    );
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16);
    let bytes = (0..digits.len()).step_by(2).map(byte);
    bytes
        .collect::<Result<_, _>>()
        .unwrap_or_else(|e| panic!("{digits}: {e}"))
}

/// Two hexadecimal digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
# what the first case is about
#
merge now=7 fast
a
b
----
ab

one line
----

fenced
----
----
first

last
----
----

# nothing behind this
";

    fn sample() -> Suite {
        Suite::parse(SAMPLE).expect("a suite")
    }

    #[test]
    fn a_suite_is_read_case_by_case_with_its_command_and_arguments() {
        let cases = sample().cases;
        let told: Vec<_> = cases
            .iter()
            .map(|case| (case.line, case.command(), case.input(), case.expected.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                (3, "merge", "a\nb", "ab"),
                (9, "one", "", ""),
                (12, "fenced", "", "first\n\nlast"),
            ]
        );
        assert_eq!(cases[0].argument("now"), Some("7"));
        assert_eq!(cases[0].number("now", 0), 7);
        assert_eq!(cases[0].number("then", 3), 3);
        assert!(cases[0].has("fast") && !cases[0].has("slow"));
    }

    #[test]
    fn a_suite_whose_answers_are_right_is_rewritten_as_it_was() {
        let suite = sample();
        let answers: Vec<_> = suite.cases.iter().map(|case| case.expected.clone()).collect();
        assert_eq!(print(&suite, &answers), SAMPLE);
        assert_eq!(differences("f", &suite, &answers), Vec::<String>::new());
    }

    #[test]
    fn a_wrong_answer_is_told_with_its_place_and_rewriting_puts_it_right() {
        let suite = sample();
        let answers = ["ab".to_owned(), "two".to_owned(), "no\n\nlonger".to_owned()];
        let told = differences("suite.txt", &suite, &answers);
        assert_eq!(told[0], "suite.txt:9\none line\n---- expected\n\n---- came\ntwo\n");
        assert_eq!(told.len(), 2, "the case whose answer was right is not told: {told:?}");
        let again = Suite::parse(&print(&suite, &answers)).expect("a suite");
        assert_eq!(differences("suite.txt", &again, &answers), Vec::<String>::new());
    }

    #[test]
    fn an_input_without_an_answer_is_refused_with_its_line() {
        let refused = Suite::parse("a\n----\nb\n\nc\nd\n").expect_err("it has no answer");
        assert_eq!(refused, "line 5: no line ---- after this input");
    }
}
