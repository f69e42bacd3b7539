//! The manifests of an export: what it is of, and its data files.
//!
//! ```text
//! AWSDynamoDB/ID/manifest-summary.json      one JSON object
//! AWSDynamoDB/ID/manifest-files.json        a JSON object in each line, one for each data file
//! AWSDynamoDB/ID/data/NAME.json.gz          data files of a full export
//! AWSDynamoDB/data/NAME.json.gz             data files of incremental exports, which share the directory
//! ```

use std::path::{Component, Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The name of the directory that the service makes in a bucket.
const ROOT: &str = "AWSDynamoDB";
const SUMMARY: &str = "manifest-summary.json";
const FILES: &str = "manifest-files.json";
/// Data files of an export; the manifest of so many has 200 MB.
const FILES_MAX: usize = 1_000_000;

/// What the lines of data files are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Each has an item.
    Full,
    /// Each has a change: the key, and the new image unless the item was deleted.
    Incremental,
}

/// A data file as the manifest describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DataFile {
    /// Its key in the bucket, which names it in messages and in the state file.
    pub key: String,
    /// Where it is on disk.
    pub path: PathBuf,
    /// Lines that it has.
    pub item_count: u64,
    /// MD5 of the compressed file.
    pub md5: [u8; 16],
}

/// An export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Export {
    /// Its ARN, or the name of its directory where the summary has none.
    pub id: String,
    pub kind: Kind,
    /// Lines of all data files.
    pub item_count: u64,
    pub files: Vec<DataFile>,
}

impl Export {
    /// Reads the manifests of a directory. Blocks.
    ///
    /// # Errors
    /// When one is missing or malformed, the manifests disagree with each other, or the format is not supported.
    pub(crate) fn read(directory: &Path) -> Result<Self, String> {
        let summary = read_manifest(directory, SUMMARY)?;
        let files = read_manifest(directory, FILES)?;
        Self::of(directory, &summary, &files)
    }

    fn of(directory: &Path, summary: &str, files: &str) -> Result<Self, String> {
        let wrong = |reason: String| format!("{SUMMARY}: {reason}");
        let summary: Value = serde_json::from_str(summary).map_err(|e| wrong(e.to_string()))?;
        match summary["outputFormat"].as_str() {
            Some("DYNAMODB_JSON") => {}
            Some("ION") => {
                let advice = "format ION is not supported; export the table with DYNAMODB_JSON";
                return Err(wrong(advice.to_owned()));
            }
            other => {
                let got = other.unwrap_or("nothing");
                return Err(wrong(format!("outputFormat: expected DYNAMODB_JSON, got {got}")));
            }
        }
        // Manifests of full exports that were made before there were incremental ones have no type.
        let kind = match summary["exportType"].as_str() {
            None | Some("FULL_EXPORT") => Kind::Full,
            Some("INCREMENTAL_EXPORT") => Kind::Incremental,
            Some(other) => {
                return Err(wrong(format!(
                    "exportType: expected FULL_EXPORT or INCREMENTAL_EXPORT, got {other}"
                )));
            }
        };
        let item_count = summary["itemCount"].as_u64();
        let item_count = item_count.ok_or_else(|| wrong("itemCount is not a number".to_owned()))?;
        let files = read_files(directory, files)?;
        let listed: u64 = files.iter().fold(0, |sum, file| sum.saturating_add(file.item_count));
        if listed != item_count {
            return Err(format!(
                "{SUMMARY} says {item_count} items, and the files of {FILES} have {listed}"
            ));
        }
        let name = directory.file_name().map(|name| name.to_string_lossy().into_owned());
        let id = summary["exportArn"].as_str().map(str::to_owned).or(name);
        Ok(Self {
            id: id.unwrap_or_default(),
            kind,
            item_count,
            files,
        })
    }
}

fn read_manifest(directory: &Path, name: &str) -> Result<String, String> {
    let path = directory.join(name);
    let bytes = runtime::fs::read(&path).map_err(|e| {
        let path = path.display();
        format!("{path}: {e}; expected the directory of an export, {ROOT}/EXPORT-ID")
    })?;
    String::from_utf8(bytes).map_err(|_| format!("{}: not UTF-8", path.display()))
}

fn read_files(directory: &Path, manifest: &str) -> Result<Vec<DataFile>, String> {
    let mut files: Vec<DataFile> = Vec::new();
    for (number, line) in manifest.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let wrong = |reason: String| format!("{FILES}: line {}: {reason}", number + 1);
        let entry: Value = serde_json::from_str(line).map_err(|e| wrong(e.to_string()))?;
        files.push(data_file(directory, &entry).map_err(wrong)?);
        if files.len() > FILES_MAX {
            return Err(format!("{FILES}: more than {FILES_MAX} files"));
        }
    }
    Ok(files)
}

fn data_file(directory: &Path, entry: &Value) -> Result<DataFile, String> {
    let text = |member: &str| {
        let value = entry[member].as_str();
        value.ok_or_else(|| format!("{member} is not a string"))
    };
    let key = text("dataFileS3Key")?;
    let md5 = STANDARD.decode(text("md5Checksum")?).ok();
    let md5 = md5.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    Ok(DataFile {
        key: key.to_owned(),
        path: data_path(directory, key)?,
        item_count: entry["itemCount"].as_u64().ok_or("itemCount is not a number")?,
        md5: md5.ok_or("md5Checksum is not the base64 of 16 bytes")?,
    })
}

/// Where a data file is: below the directory that has the export, as its key says, else in `data` of the export.
fn data_path(directory: &Path, key: &str) -> Result<PathBuf, String> {
    let relative = key
        .rsplit_once(&format!("{ROOT}/"))
        .map_or(key, |(_, relative)| relative);
    let relative = Path::new(relative);
    let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    let name = relative.file_name().filter(|_| is_plain);
    let name = name.ok_or_else(|| format!("dataFileS3Key '{key}' does not name a file of an export"))?;
    let beside = directory.parent().map(|root| root.join(relative));
    let inside = directory.join("data").join(name);
    Ok(beside.filter(|path| runtime::fs::exists(path)).unwrap_or(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY_OF_FULL: &str = r#"{"version":"2020-06-30","exportArn":"arn:of:export","tableArn":"arn:of:table",
        "itemCount":3,"outputFormat":"DYNAMODB_JSON"}"#;

    fn line(key: &str, items: u64, md5: &str) -> String {
        format!(r#"{{"itemCount":{items},"md5Checksum":"{md5}","etag":"e-1","dataFileS3Key":"{key}"}}"#)
    }

    fn read(summary: &str, files: &str) -> Result<Export, String> {
        Export::of(Path::new("/exports/AWSDynamoDB/01-a"), summary, files)
    }

    const MD5: &str = "1B2M2Y8AsgTpgAmY7PhCfg==";

    #[test]
    fn a_full_export_lists_its_files() {
        let files = [
            line("prefix/AWSDynamoDB/01-a/data/x.json.gz", 1, MD5),
            line("AWSDynamoDB/01-a/data/y.json.gz", 2, MD5),
        ];
        let export = read(SUMMARY_OF_FULL, &files.join("\n")).expect("the manifests are those of an export");
        assert_eq!(export.id, "arn:of:export");
        assert_eq!(export.kind, Kind::Full);
        let paths: Vec<_> = export.files.iter().map(|file| file.path.to_string_lossy()).collect();
        assert_eq!(
            paths,
            [
                "/exports/AWSDynamoDB/01-a/data/x.json.gz",
                "/exports/AWSDynamoDB/01-a/data/y.json.gz"
            ]
        );
        assert_eq!(export.files[0].md5, *md5::compute(b""));
    }

    #[test]
    fn manifests_that_cannot_be_used_are_refused_by_name() {
        let good = line("AWSDynamoDB/01-a/data/x.json.gz", 3, MD5);
        let refused = [
            (SUMMARY_OF_FULL, line("AWSDynamoDB/01-a/data/x", 2, MD5), "says 3 items"),
            (
                SUMMARY_OF_FULL,
                line("AWSDynamoDB/../../x", 3, MD5),
                "manifest-files.json: line 1: dataFileS3Key",
            ),
            (SUMMARY_OF_FULL, line("AWSDynamoDB/x", 3, "zz"), "line 1: md5Checksum"),
            (
                SUMMARY_OF_FULL,
                "\n{\"itemCount\":".to_owned(),
                "manifest-files.json: line 2",
            ),
            (
                r#"{"itemCount":3,"outputFormat":"ION"}"#,
                good.clone(),
                "format ION is not supported",
            ),
            (
                r#"{"itemCount":3,"outputFormat":"DYNAMODB_JSON","exportType":"HALF"}"#,
                good.clone(),
                "got HALF",
            ),
            ("{", good, "manifest-summary.json: "),
        ];
        for (summary, files, expected) in refused {
            let error = read(summary, &files).expect_err("the manifests cannot be used");
            assert!(error.contains(expected), "{error} has not: {expected}");
        }
    }
}
