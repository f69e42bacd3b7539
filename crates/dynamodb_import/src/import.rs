//! The import: file by file, each checked and then written.

use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use dynamodb_server::sigv4::Signer;
use runtime::Instant;

use crate::Options;
use crate::change::Change;
use crate::client::{Client, Endpoint};
use crate::export::{DataFile, Export, Kind};
use crate::lines::{self, Lines};
use crate::newest::Newest;
use crate::state::{self, State};
use crate::table::{self, Key};
use crate::writer::{Source, Writer, Written};

/// How often a line of progress is printed.
const PROGRESS_PERIOD: Duration = Duration::from_secs(5);
const SECRET_VARIABLE: &str = "AWS_SECRET_ACCESS_KEY";
const SECRET_BYTES_MAX: usize = 1024;

/// What an import has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The table that was written.
    pub table: String,
    /// Items that were put.
    pub puts: u64,
    /// Items that were deleted: incremental exports alone have deletions.
    pub deletions: u64,
    /// Changes that were left out, because the export has a newer one of the same item before them.
    pub superseded: u64,
    /// Data files that were imported.
    pub files: usize,
    /// Data files that were done already, as the state file says.
    pub files_skipped: usize,
    /// How long it took.
    pub time: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (puts, deletions, files) = (self.puts, self.deletions, self.files);
        let seconds = self.time.as_secs_f64();
        write!(f, "table {}: {puts} items put, {deletions} deleted", self.table)?;
        if self.superseded > 0 {
            write!(f, ", {} older changes left out", self.superseded)?;
        }
        write!(f, "; {files} files")?;
        if self.files_skipped > 0 {
            write!(f, ", and {} that were done before", self.files_skipped)?;
        }
        writeln!(f, "; {seconds:.1} s")
    }
}

/// An import under way.
struct Import<'a> {
    export: &'a Export,
    key: Key,
    writer: Writer,
    newest: Newest,
    superseded: u64,
    progress: fn(&str),
    began: Instant,
    printed: Instant,
    /// Number of the file under way, from 1.
    file: usize,
}

/// See [`crate::run`].
pub(crate) async fn import(options: &Options, progress: fn(&str)) -> Result<Summary, String> {
    let export = Export::read(&options.export)?;
    let signer = signer(options)?;
    let endpoint = Endpoint::of(&options.endpoint).await?;
    let mut client = Client::new(endpoint.clone(), signer.clone());
    let created = options.partition_key.clone().map(|partition| {
        let attributes: Vec<_> = std::iter::once(partition).chain(options.sort_key.clone()).collect();
        Key::of_options(&attributes)
    });
    let key = table::prepare(&mut client, &options.table, created.as_ref()).await?;
    let of = state::Import {
        export: &export.id,
        table: &options.table,
        endpoint: &options.endpoint,
    };
    let path = options.state.as_deref();
    let mut state = path.map(|path| State::open(path, &of)).transpose()?;
    let lanes = (0..options.concurrency).map(|_| Client::new(endpoint.clone(), signer.clone()));
    let mut import = Import {
        export: &export,
        writer: Writer::start(&options.table, key.clone(), lanes.collect()),
        key,
        newest: Newest::new(),
        superseded: 0,
        progress,
        began: runtime::now(),
        printed: runtime::now(),
        file: 0,
    };
    let mut skipped = 0;
    for file in &export.files {
        import.file += 1;
        if state.as_ref().is_some_and(|state| state.is_done(&file.key)) {
            skipped += 1;
            continue;
        }
        import.file(file).await?;
        if let Some(state) = &mut state {
            state.note_done(&file.key)?;
        }
    }
    let Written { puts, deletions } = import.writer.written();
    Ok(Summary {
        table: options.table.clone(),
        puts,
        deletions,
        superseded: import.superseded,
        files: export.files.len() - skipped,
        files_skipped: skipped,
        time: import.began.elapsed(),
    })
}

impl Import<'_> {
    /// Imports a file and waits until all of it is written.
    async fn file(&mut self, file: &DataFile) -> Result<(), String> {
        lines::check(file)?;
        let (mut lines, name) = (Lines::open(&file.path)?, file.path.display().to_string());
        let name: Rc<str> = name.into();
        loop {
            let next = lines.next().map_err(|e| format!("{name}: {e}"))?;
            let Some((line, text)) = next else {
                break;
            };
            let change = Change::read(text, self.export.kind, &self.key);
            let change = change.map_err(|reason| format!("{name}: line {line}: {reason}"))?;
            if let Some(time_us) = change.time_us
                && !self.newest.is_newest(&change.key, time_us)
            {
                self.superseded += 1;
                continue;
            }
            let source = Source {
                file: name.clone(),
                line,
            };
            self.writer.write(change, source).await?;
            runtime::give_way().await;
            self.print_progress();
        }
        self.writer.finish().await
    }

    fn print_progress(&mut self) {
        if self.printed.elapsed() < PROGRESS_PERIOD {
            return;
        }
        self.printed = runtime::now();
        let Written { puts, deletions } = self.writer.written();
        let done = puts + deletions;
        let seconds = self.began.elapsed().as_secs().max(1);
        let (all, what) = match self.export.kind {
            Kind::Full => (self.export.item_count, "items"),
            Kind::Incremental => (self.export.item_count, "changes"),
        };
        let (file, files, rate) = (self.file, self.export.files.len(), done / seconds);
        (self.progress)(&format!(
            "{done} of {all} {what}, file {file} of {files}, {rate} {what} per second"
        ));
    }
}

/// What signs requests, if options name an access key.
fn signer(options: &Options) -> Result<Option<Signer>, String> {
    let Some(access_key) = &options.access_key else {
        return Ok(None);
    };
    let secret = match &options.secret_key_file {
        Some(path) => secret_of_file(path)?,
        None => std::env::var(SECRET_VARIABLE)
            .map_err(|_| format!("--access-key: no secret; give --secret-key-file, or set {SECRET_VARIABLE}"))?,
    };
    Ok(Some(Signer {
        access_key: access_key.clone(),
        secret,
        region: options.region.clone(),
    }))
}

fn secret_of_file(path: &Path) -> Result<String, String> {
    let wrong = |reason: &dyn fmt::Display| format!("--secret-key-file: {}: {reason}", path.display());
    let bytes = runtime::fs::read(path).map_err(|e| wrong(&e))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong(&"not UTF-8"))?;
    let secret = text.trim();
    if secret.is_empty() || secret.len() > SECRET_BYTES_MAX {
        return Err(wrong(&"expected a secret in one line"));
    }
    Ok(secret.to_owned())
}
