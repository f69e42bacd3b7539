//! Pieces of a token range whose replicas are the same throughout.

use std::collections::VecDeque;

use schema::TableId;
use types::Token;

use crate::ClusterView;
use crate::message::Extent;

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
    let pieces = view.pieces(table, before, to).into_iter();
    let piece = |(after, to): (Token, Token)| {
        let is_first = from.0 > after || after.0 == i64::MIN;
        let (from, inside) = if is_first {
            (from.clone(), inside.clone())
        } else {
            ((Token(after.0 + 1), Vec::new()), None)
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
