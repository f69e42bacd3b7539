//! Pieces of a token range whose replicas are the same throughout.

use std::collections::VecDeque;

use schema::TableId;
use topology::{ReplicaList, TabletId};
use types::Token;

use crate::message::Extent;
use crate::{ClusterView, Coordinator};

/// Cuts an extent into pieces of which each has the same replicas throughout.
pub(super) fn cut(view: &ClusterView, table: TableId, extent: Extent) -> VecDeque<Extent> {
    let Extent::Tokens {
        after,
        to,
        from,
        inside,
    } = extent
    else {
        return VecDeque::from([extent]);
    };
    // What is before `from` was read.
    let before = Token(from.0.0.saturating_sub(1)).max(after);
    let pieces = Coordinator::pieces(view, table, before, to).into_iter();
    let piece = |(after, to): (Token, Token)| {
        let is_first = from.0 > after || after.0 == i64::MIN;
        let (from, inside) = match is_first {
            true => (from.clone(), inside.clone()),
            false => ((Token(after.0 + 1), Vec::new()), None),
        };
        Extent::Tokens {
            after,
            to,
            from,
            inside,
        }
    };
    pieces.map(piece).collect()
}

impl Coordinator {
    /// Cuts `(after, to]` into pieces of which each has the same replicas throughout: pairs of exclusive start and
    /// inclusive end.
    #[must_use]
    pub fn pieces(view: &ClusterView, table: TableId, after: Token, to: Token) -> Vec<(Token, Token)> {
        let Some(route) = view.route(table) else {
            return Vec::new();
        };
        let map = &route.map;
        let mut pieces: Vec<(Token, Token)> = Vec::new();
        let mut last: Option<ReplicaList> = None;
        let first = if after.0 == i64::MIN { after } else { Token(after.0 + 1) };
        let mut id = map.tablet_id(first).0;
        let mut start = after;
        while let Some(tablet) = map.tablet(TabletId(id)) {
            let (_, end) = map.token_range(tablet.id).expect("the map has the tablet");
            let end = end.min(to);
            let mut replicas: ReplicaList = tablet.read_replicas().into();
            replicas.sort_unstable();
            match (pieces.last_mut(), &last) {
                (Some(piece), Some(before)) if *before == replicas => piece.1 = end,
                _ => {
                    pieces.push((start, end));
                    last = Some(replicas);
                }
            }
            if end >= to {
                break;
            }
            start = end;
            id += 1;
        }
        pieces
    }
}
