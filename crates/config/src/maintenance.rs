//! Maintenance mode and the maintenance socket: `maintenance_mode`, `maintenance_socket` and
//! `maintenance_socket_group`.

use std::path::Path;

use front::MaintenanceSocket;
use runtime::net::UNIX_PATH_BYTES_MAX;

use super::cluster;
use super::options::Options;

/// The socket's file in the workdir.
const FILE: &str = "cql.m";

/// Whether the node starts in maintenance mode, and its maintenance socket.
pub(super) fn resolve(options: &mut Options<'_>, workdir: &Path) -> (bool, Option<MaintenanceSocket>) {
    let is_on = cluster::switch(options, "maintenance_mode", false);
    let option = "maintenance_socket";
    let expected = "a path, workdir for cql.m in the workdir, or ignore for no socket";
    let wanted = options.get(option, expected, |text| (!text.is_empty()).then(|| text.to_owned()));
    // In maintenance mode there is no other way in.
    let wanted = wanted.unwrap_or_else(|| if is_on { "workdir" } else { "ignore" }.to_owned());
    let path = match &*wanted {
        "ignore" => None,
        "workdir" => Some(workdir.join(FILE)),
        path => Some(path.into()),
    };
    if is_on && path.is_none() {
        options.refuse(
            option,
            "workdir or a path: in maintenance mode the node listens nowhere else",
        );
    }
    let bytes = |path: &std::path::PathBuf| path.as_os_str().len();
    if path.as_ref().map_or(0, bytes) > UNIX_PATH_BYTES_MAX {
        let expected = format!(
            "a path of at most {UNIX_PATH_BYTES_MAX} bytes, which is the most that the system takes for a socket"
        );
        options.refuse(option, &expected);
    }
    options.note(option, wanted);
    let option = "maintenance_socket_group";
    let group = options.get(option, "the name of a group of this machine, or none", |text| {
        Some((!matches!(text, "" | "none")).then(|| text.to_owned()))
    });
    let group = group.flatten();
    options.note_or_none(option, group.clone());
    (is_on, path.map(|path| MaintenanceSocket { path, group }))
}
