//! Maps: where tokens are, what changes do, how much memory there is, and that bytes come back.

use std::sync::Arc;

use crate::common::cluster;
use proptest::prelude::*;
use smallvec::smallvec;
use topology::{
    Boundaries, MapError, MoveStep, NodeNumber, Replica, ReplicaList, Replication, ResizeError, Stage, TabletChange,
    TabletEdit, TabletId, TabletMap, Transition, WriteTargets, place_tablets,
};
use types::Token;

fn replica(node: u16, shard: u16) -> Replica {
    Replica {
        node: NodeNumber(node),
        shard,
    }
}

fn map(boundaries: Boundaries) -> TabletMap {
    let count = u16::try_from(boundaries.tablet_count()).expect("a small map");
    let replicas: Vec<ReplicaList> = (0..count)
        .map(|n| smallvec![replica(n, 0), replica(n + 1, 1)])
        .collect();
    TabletMap::new(1, boundaries, &replicas).expect("a map")
}

fn last_tokens(tokens: &[i64]) -> Boundaries {
    Boundaries::LastTokens(tokens.iter().map(|t| Token(*t)).collect::<Arc<[_]>>())
}

#[test]
fn a_shard_behind_the_last_of_its_node_is_no_shard_of_it() {
    // Shards 0 and 1.
    let map = map(Boundaries::PowerOfTwo(1));
    assert_eq!(map.on_shards(|_| 2), None, "both are there");
    let fewer = map.on_shards(|_| 1).expect("shard 1 is the first that is not there");
    assert!(
        fewer
            .tablets()
            .all(|tablet| tablet.replicas.iter().all(|r| r.shard == 0))
    );
}

#[test]
fn every_token_is_in_the_tablet_whose_range_holds_it() {
    let maps = [
        map(Boundaries::PowerOfTwo(0)),
        map(Boundaries::PowerOfTwo(1)),
        map(Boundaries::PowerOfTwo(12)),
        map(last_tokens(&[i64::MAX])),
        map(last_tokens(&[-5, 0, 9, i64::MAX])),
    ];
    for map in maps {
        let mut expected_after = Token::MIN;
        for tablet in map.tablets() {
            let (after, last) = map.token_range(tablet.id).expect("a tablet of the map");
            assert_eq!(after, expected_after, "a gap before {:?}", tablet.id);
            assert_eq!(map.tablet_id(last), tablet.id, "last token of {:?}", tablet.id);
            let first = if after == Token::MIN { after } else { Token(after.0 + 1) };
            assert_eq!(map.tablet_id(first), tablet.id, "first token of {:?}", tablet.id);
            assert_eq!(
                u32::from(tablet.replicas[0].node.0),
                tablet.id.0,
                "replicas of {:?}",
                tablet.id
            );
            expected_after = last;
        }
        assert_eq!(expected_after, Token::MAX, "the map ends before the ring does");
        assert_eq!(map.token_range(TabletId(map.tablet_count())), None);
        assert_eq!(map.tablet(TabletId(map.tablet_count())), None);
    }
}

#[test]
fn a_split_gives_both_halves_the_replicas_and_a_merge_takes_it_back() {
    for log2 in [0, 1, 9, 10, 11] {
        let before = map(Boundaries::PowerOfTwo(log2));
        let count = before.tablet_count();
        let split = before.resized(40, count * 2).expect("it can be split");
        assert_eq!((split.tablet_count(), split.version()), (count * 2, 40));
        for tablet in split.tablets() {
            let parent = before.tablet(TabletId(tablet.id.0 / 2)).expect("it is there");
            assert_eq!((tablet.replicas, tablet.transition), (parent.replicas, None));
            let (after, last) = split.token_range(tablet.id).expect("it is there");
            let first = if after == Token::MIN { after } else { Token(after.0 + 1) };
            assert_eq!(
                (before.tablet_id(first), before.tablet_id(last)),
                (parent.id, parent.id)
            );
        }
        let merged = split.resized(41, count).expect("it can be merged");
        assert!(merged.tablets().eq(before.tablets()), "{count} tablets");
        assert_eq!(merged.version(), 41);
        assert_eq!(TabletMap::decode(&split.encode()), Ok(split));
    }
    let old = map(Boundaries::PowerOfTwo(0));
    assert_eq!(old.resized(0, 2).map(|map| map.version()), Ok(2), "a version grows");
}

#[test]
fn tablets_of_a_pair_are_merged_only_where_their_replicas_are_the_same() {
    let merged = |sets: [&[(u16, u16)]; 2]| {
        let set = |set: &[(u16, u16)]| set.iter().map(|(node, shard)| replica(*node, *shard)).collect();
        let map = TabletMap::new(1, Boundaries::PowerOfTwo(1), &sets.map(set)).expect("a map");
        map.resized(2, 1).map(|map| map.tablet_of(Token(0)).replicas.to_vec())
    };
    let apart = || Err(ResizeError::Apart(TabletId(0)));
    let first = vec![replica(1, 0), replica(2, 1)];
    assert_eq!(
        merged([&[(1, 0), (2, 1)], &[(2, 1), (1, 0)]]),
        Ok(first),
        "in the order of the first"
    );
    assert_eq!(merged([&[(1, 0), (2, 1)], &[(1, 0), (2, 0)]]), apart(), "another shard");
    assert_eq!(merged([&[(1, 0), (2, 1)], &[(1, 0)]]), apart(), "fewer");
    assert_eq!(merged([&[(1, 0)], &[(1, 0), (2, 1)]]), apart(), "more");
}

#[test]
fn a_map_is_not_resized_to_any_count_nor_while_a_tablet_moves() {
    let mut map = map(Boundaries::PowerOfTwo(1));
    for wanted in [0, 2, 3, 5, 8, u32::MAX] {
        assert_eq!(map.resized(9, wanted), Err(ResizeError::Count { now: 2, wanted }));
    }
    let ring = self::map(last_tokens(&[0, i64::MAX]));
    assert_eq!(ring.resized(9, 4), Err(ResizeError::Count { now: 2, wanted: 4 }));
    let set: ReplicaList = smallvec![replica(0, 0)];
    let largest = TabletMap::new(1, Boundaries::PowerOfTwo(22), &vec![set; 1 << 22]).expect("a map");
    assert_eq!(largest.resized(9, 1 << 23), Err(ResizeError::Map(MapError::Boundaries)));
    let begin = MoveStep::Begin {
        tablet: TabletId(1),
        replicas: smallvec![replica(1, 0), replica(2, 1)],
        next: smallvec![replica(1, 0), replica(3, 1)],
    };
    assert_eq!(map.step(5, &[begin]), Ok(1));
    assert_eq!(map.resized(9, 4), Err(ResizeError::Moving(TabletId(1))));
    assert_eq!(map.resized(9, 1), Err(ResizeError::Moving(TabletId(1))));
}

#[test]
fn maps_that_cannot_be_are_refused() {
    let set: ReplicaList = smallvec![replica(0, 0)];
    let twice: ReplicaList = smallvec![replica(0, 0), replica(0, 1)];
    let cases = [
        (Boundaries::PowerOfTwo(23), vec![], MapError::Boundaries),
        (Boundaries::PowerOfTwo(255), vec![], MapError::Boundaries),
        (last_tokens(&[]), vec![], MapError::Boundaries),
        (last_tokens(&[5]), vec![set.clone()], MapError::Boundaries),
        (
            last_tokens(&[5, 5, i64::MAX]),
            vec![set.clone(); 3],
            MapError::Boundaries,
        ),
        (
            last_tokens(&[i64::MIN, i64::MAX]),
            vec![set.clone(); 2],
            MapError::Boundaries,
        ),
        (
            Boundaries::PowerOfTwo(1),
            vec![set.clone()],
            MapError::Count { tablets: 2, found: 1 },
        ),
        (
            Boundaries::PowerOfTwo(0),
            vec![set; 2],
            MapError::Count { tablets: 1, found: 2 },
        ),
        (Boundaries::PowerOfTwo(0), vec![twice], MapError::Replicas(TabletId(0))),
    ];
    for (boundaries, replicas, expected) in cases {
        assert_eq!(TabletMap::new(0, boundaries, &replicas), Err(expected));
    }
}

fn edit(tablet: u32, node: u16) -> TabletEdit {
    TabletEdit {
        tablet: TabletId(tablet),
        replicas: smallvec![replica(node, 9)],
        transition: Some(Transition {
            stage: Stage::Streaming,
            next: smallvec![replica(node + 1, 8)],
            version: 2,
            copied: smallvec![],
        }),
    }
}

#[test]
fn a_change_changes_its_tablets_and_no_others_and_not_the_map_that_a_reader_holds() {
    let mut map = map(Boundaries::PowerOfTwo(12));
    let before = map.clone();
    let change = TabletChange {
        from_version: 1,
        version: 2,
        edits: [0, 1, 1023, 1024, 3000, 4095].map(|t| edit(t, 7)).into(),
    };
    map.apply(&change).expect("a change of this version");
    assert_eq!(map.version(), 2);
    let mut edits = change.edits.iter().peekable();
    for (now, then) in map.tablets().zip(before.tablets()) {
        match edits.next_if(|e| e.tablet == now.id) {
            Some(edit) => {
                assert_eq!(now.replicas, &edit.replicas[..], "{:?}", now.id);
                assert_eq!(now.transition, edit.transition.as_ref(), "{:?}", now.id);
            }
            None => assert_eq!(now, then, "a tablet that was not edited"),
        }
        assert_eq!(then.transition, None, "the reader's map changed");
    }
    let end = TabletChange {
        from_version: 2,
        version: 3,
        edits: vec![TabletEdit {
            transition: None,
            ..edit(1, 7)
        }],
    };
    map.apply(&end).expect("a change of this version");
    assert_eq!(
        map.tablet(TabletId(1)).expect("a tablet").transition,
        None,
        "a move does not end"
    );
    assert!(
        map.tablet(TabletId(0)).expect("a tablet").transition.is_some(),
        "another's move ended"
    );
    assert_eq!(TabletMap::decode(&map.encode()), Ok(map));
}

#[test]
fn a_change_that_does_not_fit_leaves_the_map_as_it_is() {
    let mut map = map(Boundaries::PowerOfTwo(2));
    let before = map.clone();
    let crowded = TabletEdit {
        replicas: smallvec![replica(1, 0), replica(1, 1)],
        ..edit(3, 1)
    };
    let version = |from, to| MapError::Version { map: 1, from, to };
    let cases = [
        (0, 2, vec![edit(0, 1)], version(0, 2)),
        (2, 3, vec![edit(0, 1)], version(2, 3)),
        (1, 1, vec![edit(0, 1)], version(1, 1)),
        (1, 2, vec![edit(0, 1), edit(4, 1)], MapError::NoSuchTablet(TabletId(4))),
        (1, 2, vec![edit(2, 1), edit(1, 1)], MapError::EditOrder(TabletId(1))),
        (1, 2, vec![edit(2, 1), edit(2, 1)], MapError::EditOrder(TabletId(2))),
        (1, 2, vec![edit(0, 1), crowded], MapError::Replicas(TabletId(3))),
    ];
    for (from_version, version, edits, expected) in cases {
        let change = TabletChange {
            from_version,
            version,
            edits,
        };
        assert_eq!(map.apply(&change), Err(expected));
        assert_eq!(map, before);
    }
}

/// Neighbouring stages: a write by a coordinator at one is seen by a read of a coordinator at the other.
#[test]
fn coordinators_one_stage_apart_meet_in_a_quorum() {
    let old: ReplicaList = smallvec![replica(1, 0), replica(2, 0), replica(3, 0)];
    let next: ReplicaList = smallvec![replica(1, 0), replica(2, 0), replica(4, 0)];
    let at = |stage: Option<Stage>, is_over: bool| {
        let transition = stage.map(|stage| Transition {
            stage,
            next: next.clone(),
            version: 1,
            copied: smallvec![],
        });
        let mut map = TabletMap::new(
            0,
            Boundaries::PowerOfTwo(0),
            &[if is_over { next.clone() } else { old.clone() }],
        )
        .expect("a map");
        let change = TabletChange {
            from_version: 0,
            version: 1,
            edits: vec![TabletEdit {
                tablet: TabletId(0),
                replicas: map.tablet_of(Token(0)).replicas.into(),
                transition,
            }],
        };
        map.apply(&change).expect("a change");
        map
    };
    let mut story = vec![at(None, false)];
    let mut stage = Some(Stage::AllowWriteBothReadOld);
    while let Some(now) = stage {
        story.push(at(stage, false));
        stage = now.next();
    }
    story.push(at(None, true));
    for pair in story.windows(2) {
        for (writer, reader) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            let targets = WriteTargets::new(&writer.tablet_of(Token(0)));
            let read = reader.tablet_of(Token(0)).read_replicas();
            let needed = targets.natural.len() / 2 + 1 + targets.pending.len();
            // The worst case: the missing answers are all of replicas that are read.
            let missing = targets.all().count() - needed;
            let shared = targets.all().filter(|r| read.contains(r)).count();
            let quorum = read.len() / 2 + 1;
            assert!(
                shared.saturating_sub(missing) + quorum > read.len(),
                "a quorum of {read:?} may miss a write to {targets:?}"
            );
        }
    }
    let failed = at(Some(Stage::CleanupTarget), false);
    let targets = WriteTargets::new(&failed.tablet_of(Token(0)));
    assert_eq!(
        (&targets.natural, targets.pending.len()),
        (&old, 0),
        "a failed move is undone"
    );
}

#[test]
fn a_map_of_131072_tablets_fits_its_memory_budget() {
    let text: String = (0..9).map(|n| format!("n{n} dc1 r{} shards=16\n", n % 3)).collect();
    let cluster = cluster(&text);
    let keyspace = Replication::NetworkTopology([("dc1".to_owned(), 3.into())].into());
    let map = place_tablets(&cluster.topology, &keyspace, 1 << 17).expect("a map");
    let bytes = map.memory_bytes();
    assert!(bytes < 131_072 * 17, "a tablet takes {} bytes", bytes / 131_072);
    let encoded = map.encode();
    assert!(encoded.len() < 131_072 * 7 + 100, "{} bytes encoded", encoded.len());
    assert_eq!(TabletMap::decode(&encoded).as_ref(), Ok(&map));
}

fn any_replicas() -> impl Strategy<Value = ReplicaList> {
    prop::collection::btree_map(any::<u16>(), any::<u16>(), 0..5)
        .prop_map(|replicas| replicas.into_iter().map(|(node, shard)| replica(node, shard)).collect())
}

fn any_transition() -> impl Strategy<Value = Option<Transition>> {
    let stages = prop::sample::select(vec![
        Stage::AllowWriteBothReadOld,
        Stage::WriteBothReadOld,
        Stage::Streaming,
        Stage::WriteBothReadNew,
        Stage::UseNew,
        Stage::CleanupTarget,
    ]);
    prop::option::of(
        (stages, any_replicas(), any::<u64>()).prop_map(|(stage, next, version)| {
            let copied = match stage {
                Stage::Streaming => next.iter().skip(1).map(|replica| replica.node).collect(),
                _ => smallvec![],
            };
            Transition {
                stage,
                next,
                version,
                copied,
            }
        }),
    )
}

fn any_change() -> impl Strategy<Value = TabletChange> {
    let edits = prop::collection::btree_map(0_u32..8, (any_replicas(), any_transition()), 0..8);
    (edits, 2..u64::MAX).prop_map(|(edits, version)| TabletChange {
        from_version: 1,
        version,
        edits: edits
            .into_iter()
            .map(|(tablet, (replicas, transition))| TabletEdit {
                tablet: TabletId(tablet),
                replicas,
                transition,
            })
            .collect(),
    })
}

/// Breaks a sealed value at one byte, and seals it again, so that decoding gets past the checksum.
fn damaged(mut bytes: Vec<u8>, at: usize, to: u8, cut: usize) -> Vec<u8> {
    bytes.truncate(bytes.len() - 4);
    let at = at % bytes.len();
    bytes[at] = to;
    bytes.truncate(bytes.len() - cut.min(bytes.len()));
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_be_bytes());
    bytes
}

proptest! {
    #[test]
    fn changes_and_maps_come_back_from_their_bytes(change in any_change()) {
        prop_assert_eq!(TabletChange::decode(&change.encode()), Ok(change.clone()));
        for boundaries in [Boundaries::PowerOfTwo(3), last_tokens(&[-9, -8, 0, 5, 70, 800, i64::MAX - 1, i64::MAX])] {
            let mut map = map(boundaries);
            map.apply(&change).expect("the change fits");
            prop_assert_eq!(TabletMap::decode(&map.encode()), Ok(map));
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_or_a_map_that_holds_its_invariants(
        change in any_change(), at in any::<usize>(), to in any::<u8>(), cut in 0_usize..3,
    ) {
        let mut map = map(last_tokens(&[-9, -8, 0, 5, 70, 800, i64::MAX - 1, i64::MAX]));
        map.apply(&change).expect("the change fits");
        if let Ok(found) = TabletMap::decode(&damaged(map.encode(), at, to, cut)) {
            prop_assert_eq!(found.tablet_id(Token::MAX).0 + 1, found.tablet_count());
            prop_assert_eq!(TabletMap::decode(&found.encode()), Ok(found));
        }
        if let Ok(found) = TabletChange::decode(&damaged(change.encode(), at, to, cut)) {
            // Applied or refused, but no panic.
            let _ = map.clone().apply(&found);
        }
        let mut flipped = map.encode();
        let at = at % flipped.len();
        flipped[at] ^= to | 1;
        prop_assert!(TabletMap::decode(&flipped).is_err(), "damage at byte {} went unnoticed", at);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert!(TabletMap::decode(&bytes).is_err());
        prop_assert!(TabletChange::decode(&bytes).is_err());
    }
}
