//! Files of others: what Cassandra's own tool prints of them is what we print, and damage is an error that names a
//! place.

use std::path::{Path, PathBuf};

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

fn data_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in runtime::fs::read_dir(dir).expect("a directory of test data") {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            data_files(&path, found);
        } else if entry.name.ends_with("-Data.db") {
            found.push(path);
        }
    }
}

/// Removes what depends on the program that prints or on the time.
fn normalize(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Array(items) => items.iter_mut().for_each(normalize),
        serde_json::Value::Object(fields) => {
            fields.remove("expired");
            fields.remove("position");
            fields.remove("table kind");
            fields.values_mut().for_each(normalize);
        }
        _ => {}
    }
}

#[test]
fn sound_files_dump_as_cassandra_dumps_them() {
    let mut files = Vec::new();
    data_files(&testdata().join("sound"), &mut files);
    assert!(files.len() >= 10, "{} files", files.len());
    for file in files {
        let mut out = Vec::new();
        sstable::tool::dump(&file, u32::MAX, &mut out).unwrap_or_else(|e| panic!("{e}"));
        let mut found: serde_json::Value =
            serde_json::from_slice(&out).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let recorded = runtime::fs::read(file.with_extension("json")).expect("a recorded dump");
        let mut wanted: serde_json::Value = serde_json::from_slice(&recorded).expect("JSON");
        normalize(&mut found);
        normalize(&mut wanted);
        assert_eq!(found, wanted, "{}", file.display());
        sstable::tool::verify(&file).unwrap_or_else(|e| panic!("{e}"));
        assert!(
            sstable::tool::metadata(&file)
                .expect("a sound file")
                .contains("Murmur3Partitioner")
        );
    }
}

#[test]
fn damaged_files_are_errors_that_name_file_and_place() {
    for (file, component, words) in [
        (
            "broken_open_tombstone/mc-122-big-Data.db",
            "mc-122-big-Data.db",
            "checksum",
        ),
        (
            "invalid_digest_lz4/me-1-big-Data.db",
            "me-1-big-Digest.crc32",
            "checksum",
        ),
        ("invalid_checksums_lz4/me-1-big-Data.db", "me-1-big-Data.db", "checksum"),
    ] {
        let error = sstable::tool::verify(&testdata().join("damaged").join(file)).expect_err(file);
        let text = error.to_string();
        assert!(
            text.contains(component) && text.contains("offset") && text.contains(words),
            "{file}: {text}"
        );
    }
}

#[test]
fn counters_of_three_versions_have_the_same_totals_and_a_file_named_by_a_uuid_is_read() {
    let dump = |file: PathBuf| {
        sstable::tool::verify(&file).unwrap_or_else(|e| panic!("{e}"));
        let mut out = Vec::new();
        sstable::tool::dump(&file, 0, &mut out).unwrap_or_else(|e| panic!("{e}"));
        let mut value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        normalize(&mut value);
        value
    };
    let counters = |version: &str| dump(testdata().join(format!("counters/{version}-5-big-Data.db")));
    let cells = |value: &serde_json::Value| value[0]["rows"][0]["cells"].clone();
    for version in ["mc", "md", "me"] {
        let cells = cells(&counters(version));
        assert_eq!(cells[0]["value"], 13, "{version}: {cells}");
        assert_eq!(cells[1]["value"], -92, "{version}: {cells}");
    }
    let by_uuid = dump(testdata().join("uuid/me-3gsm_0lob_1zdg02we44my8dy25w-big-Data.db"));
    assert_eq!(by_uuid.as_array().map(Vec::len), Some(1));
}
