//! The state file: which data files are done.
//!
//! ```text
//! {"format":1,"export":"arn:…","table":"music","endpoint":"http://…"}     of which import
//! {"done":"AWSDynamoDB/01-a/data/x.json.gz"}                                one line for each file, written durably
//! ```
//!
//! A last line without an end is what was being written when the import was interrupted; it is overwritten.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use runtime::fs::{File, OpenOptions};
use serde_json::{Value, json};

const FORMAT: u64 = 1;

/// See the module.
pub(crate) struct State {
    path: PathBuf,
    file: File,
    /// Where the next line is written.
    end: u64,
    done: HashSet<String>,
}

/// What a state file is of.
#[derive(Clone, Debug)]
pub(crate) struct Import<'a> {
    pub export: &'a str,
    pub table: &'a str,
    pub endpoint: &'a str,
}

impl State {
    /// Opens the file, or makes it. Blocks.
    ///
    /// # Errors
    /// When it is of another import, no state file, or cannot be written.
    pub(crate) fn open(path: &Path, import: &Import<'_>) -> Result<Self, String> {
        let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let text = match runtime::fs::read(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(failed(&e)),
        };
        let (done, whole) = read(&text, import).map_err(|e| failed(&e))?;
        let options = OpenOptions {
            write: true,
            create: true,
            ..OpenOptions::READ
        };
        let file = File::open(path, options).map_err(|e| failed(&e))?;
        if !file.try_lock_exclusive().map_err(|e| failed(&e))? {
            return Err(failed(&"another import uses this state file"));
        }
        file.set_len(whole).map_err(|e| failed(&e))?;
        let mut state = Self {
            path: path.to_owned(),
            file,
            end: whole,
            done,
        };
        if whole == 0 {
            let (export, table, endpoint) = (import.export, import.table, import.endpoint);
            state.append(&json!({ "format": FORMAT, "export": export, "table": table, "endpoint": endpoint }))?;
        }
        Ok(state)
    }

    pub(crate) fn is_done(&self, key: &str) -> bool {
        self.done.contains(key)
    }

    /// Notes durably that everything of a data file is written. Blocks.
    ///
    /// # Errors
    /// When the state file cannot be written.
    pub(crate) fn note_done(&mut self, key: &str) -> Result<(), String> {
        self.append(&json!({ "done": key }))
    }

    fn append(&mut self, line: &Value) -> Result<(), String> {
        let line = format!("{line}\n");
        let written = self.file.write_all_at_blocking(line.as_bytes(), self.end);
        let durable = written.and_then(|()| self.file.sync_data_blocking());
        durable.map_err(|e| format!("{}: {e}", self.path.display()))?;
        self.end += line.len() as u64;
        Ok(())
    }
}

/// The files that are done, and the bytes of whole lines.
fn read(text: &[u8], import: &Import<'_>) -> Result<(HashSet<String>, u64), String> {
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut done = HashSet::new();
    let lines = text[..whole]
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    for (number, line) in lines.enumerate() {
        let line: Option<Value> = serde_json::from_slice(line).ok();
        let line = line.ok_or_else(|| format!("line {} is not JSON; it is no state file", number + 1))?;
        if number > 0 {
            let key = line["done"].as_str();
            done.insert(
                key.ok_or_else(|| format!("line {}: expected a file that is done", number + 1))?
                    .to_owned(),
            );
            continue;
        }
        if line["format"].as_u64() != Some(FORMAT) {
            return Err("it is no state file of this version".to_owned());
        }
        let members = [
            ("export", import.export),
            ("table", import.table),
            ("endpoint", import.endpoint),
        ];
        for (member, expected) in members {
            let found = line[member].as_str().unwrap_or_default();
            if found != expected {
                return Err(format!(
                    "it is of {member} {found}, and this import of {expected}; name another file"
                ));
            }
        }
    }
    Ok((done, whole as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMPORT: Import<'static> = Import {
        export: "arn:1",
        table: "music",
        endpoint: "http://h:1",
    };

    #[test]
    fn files_that_are_done_stay_done() {
        crate::tests::simulate(async |_| {
            let path = Path::new("state");
            let mut state = State::open(path, &IMPORT).expect("a new state file");
            state.note_done("a").expect("the disk has space");
            assert!(!state.is_done("a.b"));
            drop(state);
            let text = runtime::fs::read(path).expect("the state file is there");
            let torn = [&text[..], b"{\"done\":\"b"].concat();
            runtime::fs::write(path, &torn).expect("the disk has space");
            let mut state = State::open(path, &IMPORT).expect("a state file whose last line is not whole");
            assert!(state.is_done("a") && !state.is_done("b"));
            state.note_done("c").expect("the disk has space");
            drop(state);
            let state = State::open(path, &IMPORT).expect("a state file");
            assert!(state.is_done("a") && state.is_done("c"));
        });
    }

    #[test]
    fn a_state_file_of_another_import_is_refused() {
        crate::tests::simulate(async |_| {
            let path = Path::new("state");
            drop(State::open(path, &IMPORT).expect("a new state file"));
            let other = Import {
                export: "arn:2",
                ..IMPORT
            };
            let refused = State::open(path, &other).err().unwrap_or_default();
            assert!(
                refused.ends_with("it is of export arn:1, and this import of arn:2; name another file"),
                "{refused}"
            );
            runtime::fs::write(path, b"shopping list\n").expect("the disk has space");
            let refused = State::open(path, &IMPORT).err().unwrap_or_default();
            assert!(refused.ends_with("it is no state file"), "{refused}");
        });
    }
}
