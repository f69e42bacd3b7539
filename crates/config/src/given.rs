//! What a configuration follows from, as it was when it was read. So a client may give one option another value while
//! the node runs: the rest stays as it is, whatever has become of the files, the names and the machine since.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use runtime::fs;

use super::{Config, ConfigError, Machine, OPTIONS_FILE, ServerArgs, WORKDIR, World, resolve};

/// The options that clients have set: by name, the spelling used and the value.
pub type SetOptions = BTreeMap<&'static str, (String, String)>;

/// The command line, the machine, the options file, and the files and names that were looked up for them.
#[derive(Debug)]
pub struct Given {
    args: ServerArgs,
    machine: Machine,
    file: Option<(PathBuf, String)>,
    files: Mutex<BTreeMap<PathBuf, Option<String>>>,
    names: Mutex<BTreeMap<String, Result<Vec<IpAddr>, String>>>,
}

impl Given {
    /// Reads the options file, if there is one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn read(args: &ServerArgs, machine: &Machine) -> Result<Self, ConfigError> {
        let default_file = Path::new(args.get("workdir").unwrap_or(WORKDIR)).join(OPTIONS_FILE);
        let path = match &args.mode.options_file {
            Some(path) => Some(path.clone()),
            None => (fs::exists(&default_file) && !args.mode.print_config).then_some(default_file),
        };
        let file = match path {
            Some(path) => {
                let unreadable = |reason: String| ConfigError::Unreadable {
                    path: path.clone(),
                    reason,
                };
                let bytes = fs::read(&path).map_err(|error| unreadable(error.to_string()))?;
                let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8".to_owned()))?;
                Some((path, text))
            }
            None => None,
        };
        Ok(Self::new(args, machine, file))
    }

    /// Takes the path and text of the options file, if there is one; does not read it.
    pub(super) fn new(args: &ServerArgs, machine: &Machine, file: Option<(PathBuf, String)>) -> Self {
        Self {
            args: args.clone(),
            machine: machine.clone(),
            file,
            files: Mutex::default(),
            names: Mutex::default(),
        }
    }

    /// The configuration, with what clients have set. The first call looks up names and files, which blocks; further
    /// ones take what it found.
    ///
    /// # Errors
    /// With every option that is unknown or wrong.
    pub fn config(&self, set: &SetOptions) -> Result<Config, ConfigError> {
        let world = World {
            machine: &self.machine,
            read: &|path| {
                let mut files = self.files.lock().expect("no thread panics while holding the files");
                let text = files.entry(path.to_owned()).or_insert_with(|| {
                    let bytes = fs::read(path).ok()?;
                    Some(String::from_utf8_lossy(&bytes).into_owned())
                });
                text.clone()
            },
            lookup: &|name| {
                let mut names = self.names.lock().expect("no thread panics while holding the names");
                let found = names
                    .entry(name.to_owned())
                    .or_insert_with(|| runtime::net::lookup(name).map_err(|error| error.to_string()));
                found.clone()
            },
        };
        let file = self.file.as_ref().map(|(path, text)| (path.as_path(), text.as_str()));
        resolve(&self.args, file, set, &world)
    }
}
