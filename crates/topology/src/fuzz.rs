//! What the fuzzer needs of topology: real bytes to begin with, and the decoders.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;
use types::Token;

use crate::codec;
use crate::{
    Boundaries, MoveStep, NodeNumber, Replica, ReplicaList, Replication, Snitch, Stage, TabletChange, TabletEdit,
    TabletId, TabletMap, Transition,
};

fn replicas(nodes: [u16; 2]) -> ReplicaList {
    let replica = |node| Replica {
        node: NodeNumber(node),
        shard: 3,
    };
    nodes.into_iter().map(replica).collect()
}

fn map(boundaries: Boundaries) -> TabletMap {
    let all = vec![replicas([1, 300]); boundaries.tablet_count() as usize];
    let mut map = TabletMap::new(7, boundaries, &all).expect("few tablets");
    map.apply(&change()).expect("a change of the second tablet");
    map
}

fn change() -> TabletChange {
    TabletChange {
        from_version: 7,
        version: 8,
        edits: vec![TabletEdit {
            tablet: TabletId(1),
            replicas: replicas([1, 300]),
            transition: Some(Transition {
                stage: Stage::AllowWriteBothReadOld,
                next: replicas([4, 300]),
                version: 8,
                copied: SmallVec::from_slice(&[NodeNumber(300)]),
            }),
        }],
    }
}

fn steps() -> Vec<MoveStep> {
    let tablet = TabletId(2);
    vec![
        MoveStep::Begin {
            tablet,
            replicas: replicas([1, 300]),
            next: replicas([1, 4]),
        },
        MoveStep::Advance {
            tablet: TabletId(1),
            version: 8,
            stage: Stage::WriteBothReadOld,
        },
        MoveStep::End { tablet, version: 300 },
    ]
}

/// Tablet maps, a change and steps without their checksums, a properties file, replication options.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let tokens = [Token(-5), Token(9), Token(i64::MAX)];
    let sealed = [
        map(Boundaries::PowerOfTwo(2)).encode(),
        map(Boundaries::LastTokens(tokens.into())).encode(),
        change().encode(),
        MoveStep::encode(&steps()),
    ];
    let mut seeds: Vec<Vec<u8>> = sealed.iter().map(|bytes| bytes[..bytes.len() - 4].to_vec()).collect();
    seeds.push(b"# Where it is\ndc=DC1\nrack = RAC1\ndc_suffix=_x\nprefer_local=true\n".to_vec());
    seeds.push(b"class=NetworkTopologyStrategy\nDC1=3\nDC2=1/0\nreplication_factor=2".to_vec());
    seeds.push(b"class=NetworkTopologyStrategy\nDC1=['r1', 'it''s']\nDC2=[]".to_vec());
    seeds.push(b"class=SimpleStrategy\nreplication_factor=3".to_vec());
    seeds
}

/// Reads the bytes as each of these, with the checksum that they should have.
pub fn read(bytes: &[u8]) {
    let sealed = codec::seal(bytes.to_vec());
    if let Ok(mut map) = TabletMap::decode(&sealed) {
        let again = TabletMap::decode(&map.encode());
        assert_eq!(again.as_ref(), Ok(&map), "a map changes when it is written");
        for token in [Token::MIN, Token(-5), Token(0), Token::MAX] {
            assert!(map.tablet(map.tablet_id(token)).is_some(), "a token is in no tablet");
        }
        let _ = map.apply(&change());
    }
    if let Ok(change) = TabletChange::decode(&sealed) {
        let again = TabletChange::decode(&change.encode());
        assert_eq!(again.as_ref(), Ok(&change), "a change changes when it is written");
        let mut map = map(Boundaries::PowerOfTwo(2));
        if map.apply(&change).is_ok() {
            assert_eq!(TabletMap::decode(&map.encode()), Ok(map), "a changed map is refused");
        }
    }
    if let Ok(steps) = MoveStep::decode(&sealed) {
        let again = MoveStep::decode(&MoveStep::encode(&steps));
        assert_eq!(again.as_ref(), Ok(&steps), "steps change when they are written");
        let mut map = map(Boundaries::PowerOfTwo(2));
        if map.step(9, &steps).is_ok() {
            assert_eq!(
                TabletMap::decode(&map.encode()),
                Ok(map),
                "a map after steps is refused"
            );
        }
    }
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = Snitch::parse("GossipingPropertyFileSnitch", Some(&text)) {
        drop(error.to_string());
    }
    let options: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let datacenters = BTreeSet::from(["DC1", "DC2"]);
    match Replication::parse(&options, &datacenters) {
        Ok(Replication::NetworkTopology(factors)) => {
            let written = factors.iter().map(|(name, copies)| (name.clone(), copies.to_string()));
            let class = ("class".to_owned(), "NetworkTopologyStrategy".to_owned());
            let again = Replication::parse(&written.chain([class]).collect(), &datacenters);
            let same = Ok(Replication::NetworkTopology(factors));
            assert_eq!(again, same, "a replication changes when it is written");
        }
        Ok(_) => {}
        Err(error) => drop(error.to_string()),
    }
}
