//! The pages for users and operators, inside the binary: an installed one has no source tree beside it, and its
//! messages name pages.

/// The pages by name, with their text. The name is that of the file, without its directory.
macro_rules! pages {
    ($($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../../docs/", $path, ".md")))),*]
    };
}

/// By the name of the file.
const PAGES: &[(&str, &str)] = pages! {
    "operating/add-node"
    "operating/back-up"
    "operating/change-replication"
    "operating/client-routes"
    "operating/clocks"
    "operating/configuration"
    "operating/connections"
    "cql"
    "operating/damaged-sstables"
    "operating/datacenters"
    "drivers"
    "dynamodb"
    "operating/dynamodb-port"
    "faq"
    "operating/full-disk"
    "glossary"
    "operating/guardrails"
    "operating/hinted-handoff"
    "install"
    "operating/large-data"
    "limits"
    "logs"
    "operating/lose-a-node"
    "operating/maintenance"
    "operating/metadata-differs"
    "metrics"
    "operating/monitoring"
    "operating/move-tablets"
    "moving"
    "operating/nodetool"
    "operating/other-nodes"
    "operating/racks"
    "operating/rate-limits"
    "operating/recover-metadata"
    "operating/rejoin"
    "operating/remove-node"
    "operating/repair"
    "operating/replace-node"
    "operating/start-and-stop"
    "operating/tasks"
    "operating/tombstones"
    "operating/upgrade"
};

/// The part of a path by which a page is named.
fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The text of a page; without a name the list of all.
///
/// # Errors
/// When there is no page of the name.
pub fn page(name: Option<&str>) -> Result<String, String> {
    let Some(name) = name else {
        let title = |text: &'static str| text.lines().next().unwrap_or_default().trim_start_matches("# ");
        let lines = PAGES
            .iter()
            .map(|(path, text)| format!("    {:<20} {}\n", name_of(path), title(text)));
        return Ok(format!("usage: ceto page NAME\n\n{}", lines.collect::<String>()));
    };
    let known = || PAGES.iter().map(|(path, _)| name_of(path));
    match PAGES.iter().find(|(path, _)| name_of(path) == name) {
        Some((_, text)) => Ok((*text).to_owned()),
        None => {
            let nearest = stdx::nearest(name, known());
            let nearest = nearest.map_or_else(String::new, |known| format!(" Did you mean '{known}'?"));
            Err(format!("there is no page '{name}'.{nearest} `ceto page` lists all"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn root() -> PathBuf {
        PathBuf::from(testkit::path!("../.."))
    }

    fn names(dir: &Path) -> Vec<(String, bool)> {
        let entries = runtime::fs::read_dir(dir).expect("the tree is there");
        entries.into_iter().map(|entry| (entry.name, entry.is_dir)).collect()
    }

    #[test]
    fn every_page_for_users_and_operators_is_there() {
        let mut expected = BTreeSet::new();
        for dir in ["", "operating/"] {
            let files = names(&root().join("docs").join(dir)).into_iter().map(|(name, _)| name);
            let pages = files.filter_map(|name| name.strip_suffix(".md").map(|name| format!("{dir}{name}")));
            expected.extend(pages.filter(|page| page != "README"));
        }
        let found: BTreeSet<String> = PAGES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(found, expected);
        let short: BTreeSet<&str> = PAGES.iter().map(|(path, _)| name_of(path)).collect();
        assert_eq!(short.len(), PAGES.len(), "two pages have one name");
    }

    #[test]
    fn a_page_is_printed_and_a_misspelt_name_is_told() {
        assert!(page(Some("clocks")).is_ok_and(|text| text.starts_with("# ")));
        assert!(page(None).is_ok_and(|list| list.contains("    remove-node ")));
        assert_eq!(
            page(Some("remove-nod")),
            Err("there is no page 'remove-nod'. Did you mean 'remove-node'? `ceto page` lists all".to_owned())
        );
    }

    /// The lines of all sources that run, with the file of each.
    fn lines(dir: &Path, out: &mut Vec<(String, String)>) {
        for (name, is_dir) in names(dir) {
            let path = dir.join(&name);
            if is_dir && name != "tests" && name != "target" {
                lines(&path, out);
            } else if name.ends_with(".rs") {
                let text = runtime::fs::read(&path).expect("a source");
                let text = String::from_utf8(text).expect("text");
                let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                out.extend(code.map(|line| (path.display().to_string(), line.to_owned())));
            }
        }
    }

    #[test]
    fn messages_name_pages_that_an_installed_binary_has() {
        let mut sources = Vec::new();
        lines(&root().join("crates"), &mut sources);
        let (mut named, own) = (0, ["pages.rs", "reference.rs"]);
        for (file, line) in sources
            .iter()
            .filter(|(file, _)| !own.iter().any(|own| file.ends_with(own)))
        {
            let names_a_file = ["docs/operating/", "docs/moving.md", "docs/cql.md", "docs/limits.md"];
            assert!(!names_a_file.iter().any(|path| line.contains(path)), "{file}: {line}");
            for after in line.split("ceto page ").skip(1) {
                let name: String = after
                    .chars()
                    .take_while(|c| c.is_ascii_lowercase() || *c == '-')
                    .collect();
                assert!(page(Some(&name)).is_ok(), "{file} names the page '{name}': {line}");
                named += 1;
            }
        }
        assert!(named > 20, "only {named} messages name a page");
    }
}
