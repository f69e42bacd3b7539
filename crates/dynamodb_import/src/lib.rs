//! `ceto dynamodb import`: moves an export of Amazon DynamoDB, read from disk, into a table of a running node.
//!
//! The client of the node is its DynamoDB API over HTTP, so the command works on any machine and needs no file of the
//! node. [`export`] reads the manifests, [`lines`] checks and decompresses data files, [`change`] reads their lines,
//! [`writer`] sends them with BatchWriteItem over connections of [`client`], [`table`] describes or creates the table,
//! and [`state`] remembers which files are done.
//!
//! **Invariants**
//! - No line of a data file is sent before the whole file has the checksum and the count of lines of the manifest.
//! - Changes of one item are sent over one connection in the order of the export, so the last one wins.
//! - A repeated import is harmless: an import only puts whole items and deletes keys.
//! - Memory is bounded: one buffer of the file, one line, and two batches for each connection.
//!
//! Source of the format: "DynamoDB table export output format" of the developer guide.

mod change;
mod client;
mod export;
mod import;
mod lines;
mod newest;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod writer;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

pub use import::Summary;
pub use table::KeyOption;

/// Options of `ceto dynamodb import`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Directory of the export: AWSDynamoDB/EXPORT-ID, with manifest-summary.json
    #[arg(value_name = "DIRECTORY")]
    pub export: PathBuf,
    /// The table to write
    #[arg(long, value_name = "NAME")]
    pub table: String,
    /// DynamoDB API of a node, without TLS
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub endpoint: String,
    /// Connections, each with one BatchWriteItem at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
    /// Create the table if it is not there, with the key of --partition-key and --sort-key
    #[arg(long, requires = "partition_key")]
    pub create_table: bool,
    /// Name and type (S, N or B) of the partition key, with --create-table
    #[arg(long, value_name = "NAME:TYPE", requires = "create_table")]
    pub partition_key: Option<KeyOption>,
    /// Name and type of the sort key, with --create-table
    #[arg(long, value_name = "NAME:TYPE", requires = "create_table")]
    pub sort_key: Option<KeyOption>,
    /// File that remembers which data files are done: an import that was interrupted continues with the next one
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Sign requests with this access key and the secret of --secret-key-file or AWS_SECRET_ACCESS_KEY
    #[arg(long, value_name = "KEY")]
    pub access_key: Option<String>,
    /// File with the secret of --access-key [default: the environment variable AWS_SECRET_ACCESS_KEY]
    #[arg(long, value_name = "FILE", requires = "access_key")]
    pub secret_key_file: Option<PathBuf>,
    /// Region of signatures
    #[arg(long, value_name = "NAME", default_value = "us-east-1")]
    pub region: String,
}

/// Imports an export and returns what was written. `progress` gets a line now and then. Blocks.
///
/// # Errors
/// In words for the user, with the file and the line where there is one. What was sent before stays written; the
/// import can be repeated.
pub fn run(options: &Options, progress: fn(&str)) -> Result<Summary, String> {
    let result = Arc::new(Mutex::new(Err("the import did not run".to_owned())));
    let (options, written) = (options.clone(), result.clone());
    runtime::run(runtime::Options::default(), move |_| {
        let (options, written) = (options.clone(), written.clone());
        Box::pin(async move {
            let imported = import::import(&options, progress).await;
            *written.lock().expect("no thread panics while holding the result") = imported;
        })
    })
    .map_err(|e| e.to_string())?;
    result
        .lock()
        .expect("no thread panics while holding the result")
        .clone()
}
