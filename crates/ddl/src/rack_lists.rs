//! Replication factors written out as lists of racks: what `enforce_rack_list` does to keyspaces with tablets.

use std::collections::{BTreeMap, BTreeSet};

use topology::Copies;

use crate::error::DdlError;

const NETWORK_TOPOLOGY: &str = "org.apache.cassandra.locator.NetworkTopologyStrategy";
const OPTION: &str = "enforce_rack_list";

/// Turns the factors of a replication into lists of racks. One that is as it was `before` the statement stays: other
/// racks would move data. `racks` are those of each datacenter that have nodes which hold data.
///
/// # Errors
/// When there are fewer racks than requested copies, or a list of racks would be a number again.
pub(crate) fn expand(
    keyspace: &str,
    replication: &mut BTreeMap<String, String>,
    before: &BTreeMap<String, String>,
    racks: &BTreeMap<String, BTreeSet<String>>,
) -> Result<(), DdlError> {
    if replication.get("class").is_none_or(|class| class != NETWORK_TOPOLOGY) {
        return Err(DdlError::Config(format!(
            "Keyspace {keyspace} has tablets, and {OPTION} wants racks to be listed: NetworkTopologyStrategy is expected"
        )));
    }
    let datacenters = replication.iter_mut().filter(|(name, _)| *name != "class");
    for (datacenter, copies) in datacenters.filter(|(_, copies)| !Copies::is_list(copies)) {
        let former = before.get(datacenter);
        if former == Some(copies) {
            continue;
        }
        let wanted: usize = copies.parse().unwrap_or(0);
        if let Some(list) = former.filter(|former| Copies::is_list(former)) {
            let listed = Copies::parse(datacenter, list).map_err(|e| DdlError::Config(e.to_string()))?;
            if usize::from(listed.number()) != wanted {
                return Err(DdlError::Config(format!(
                    "Copies of keyspace {keyspace} in datacenter {datacenter} are on racks {list}, and {OPTION} wants them listed (got {copies})"
                )));
            }
            list.clone_into(copies);
            continue;
        }
        let there: Vec<&String> = racks.get(datacenter).into_iter().flatten().collect();
        if wanted > there.len() {
            return Err(DdlError::Config(format!(
                "Keyspace {keyspace} wants {wanted} copies in datacenter {datacenter}, which has {} racks with nodes that hold data, and {OPTION} wants each on a rack of its own",
                there.len()
            )));
        }
        // Keyspaces begin with different racks, lest all be on the first.
        let first: usize = keyspace.bytes().map(usize::from).sum();
        let chosen: BTreeSet<&str> = (first..first + wanted)
            .map(|at| there[at % there.len()].as_str())
            .collect();
        let listed = chosen.into_iter().map(str::to_owned).collect();
        *copies = Copies::Racks(listed).to_string();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let class = ("class".to_owned(), NETWORK_TOPOLOGY.to_owned());
        pairs.iter().map(text).chain([class]).collect()
    }

    fn expanded(keyspace: &str, now: &[(&str, &str)], before: &[(&str, &str)]) -> Result<String, String> {
        let racks = BTreeMap::from([
            ("a".to_owned(), ["r1", "r2", "r3"].map(str::to_owned).into()),
            ("b".to_owned(), ["r1"].map(str::to_owned).into()),
        ]);
        let mut replication = map(now);
        expand(keyspace, &mut replication, &map(before), &racks).map_err(|e| format!("{e:?}"))?;
        replication.remove("class");
        let parts: Vec<String> = replication
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        Ok(parts.join(", "))
    }

    #[test]
    fn a_factor_becomes_a_list_of_so_many_racks() {
        let all = Ok("a: ['r1', 'r2', 'r3'], b: ['r1']".to_owned());
        assert_eq!(expanded("ks", &[("a", "3"), ("b", "1")], &[]), all);
        let one = |keyspace| expanded(keyspace, &[("a", "1")], &[]);
        let chosen: BTreeSet<String> = ["x", "y", "z"].into_iter().filter_map(|name| one(name).ok()).collect();
        assert_eq!(chosen.len(), 3, "{chosen:?}");
        assert_eq!(expanded("ks", &[("a", "['r3']")], &[]), Ok("a: ['r3']".to_owned()));
    }

    #[test]
    fn what_was_a_number_stays_one_until_it_is_altered_and_a_list_stays_a_list() {
        assert_eq!(expanded("ks", &[("a", "2")], &[("a", "2")]), Ok("a: 2".to_owned()));
        assert_eq!(
            expanded("ks", &[("a", "3")], &[("a", "2")]),
            Ok("a: ['r1', 'r2', 'r3']".to_owned())
        );
        let kept = expanded("ks", &[("a", "2")], &[("a", "['r1', 'r3']")]);
        assert_eq!(kept, Ok("a: ['r1', 'r3']".to_owned()));
        let refused = expanded("ks", &[("a", "1")], &[("a", "['r1', 'r3']")]).expect_err("other racks");
        assert!(refused.contains(OPTION) && refused.contains("got 1"), "{refused}");
    }

    #[test]
    fn more_copies_than_racks_are_refused() {
        for (now, words) in [
            ([("a", "4")], "4 copies"),
            ([("b", "2")], "1 racks"),
            ([("c", "1")], "0 racks"),
        ] {
            let refused = expanded("ks", &now, &[]).expect_err("too many");
            assert!(refused.contains(words), "{refused}");
        }
        let mut simple = BTreeMap::from([("class".to_owned(), "SimpleStrategy".to_owned())]);
        assert!(expand("ks", &mut simple, &BTreeMap::new(), &BTreeMap::new()).is_err());
    }
}
