//! What the fuzzer needs of a node: files of options and of the workdir to begin with, and everything that reads them.

use crate::{config, directories};

/// A file of options: the rest of the input is YAML, and after [`BESIDE`] the text of cassandra-rackdc.properties.
const OPTIONS: u8 = 0;
/// A file that the workdir or the machine has.
const SMALL_FILE: u8 = 1;
/// Separates the two texts of [`OPTIONS`].
const BESIDE: char = '\u{1}';

/// Options files of other releases and short ones, and the small files.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let options = config::fuzz::seeds().into_iter().map(|text| (OPTIONS, text));
    let small = directories::samples()
        .into_iter()
        .chain(config::fuzz::machine_samples());
    let small = small.map(|text| (SMALL_FILE, text));
    options
        .chain(small)
        .map(|(kind, text)| [&[kind], text.as_bytes()].concat())
        .collect()
}

/// Reads the bytes as options, or as each of the small files.
pub fn read(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(bytes);
    if kind == OPTIONS {
        let (yaml, properties) = text.split_once(BESIDE).unwrap_or((&text, ""));
        config::fuzz::read(yaml, properties);
    } else {
        config::fuzz::read_machine(&text);
        directories::read_sample(&text);
    }
}
