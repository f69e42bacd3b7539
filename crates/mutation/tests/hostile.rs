//! Bytes from a disk or a peer: whatever they are, they are refused or read, and never panic.

use mutation::row::{Cell, Column, Liveness, RowBuilder, Shared};
use mutation::{Mutation, MutationBuilder, RowView, Tombstone};
use proptest::prelude::*;
use schema::{RowLayout, TableId};
use types::CqlType;
use uuid::Uuid;

fn layout() -> RowLayout {
    let map = CqlType::parse_native("map<int, text>").expect("a map type");
    RowLayout::from_types(&[CqlType::Int, CqlType::Text, map, CqlType::Boolean])
}

/// A row with something of everything.
fn sample() -> Vec<u8> {
    let layout = layout();
    let mut out = Vec::new();
    let shared = Shared {
        timestamp: 1_700_000_000_000_000,
        ttl: 60,
        expiry: 2_000,
    };
    let marker = Liveness {
        timestamp: 1_600_000_000_000_000,
        ttl: 5,
        expiry: 7,
    };
    let tombstone = Tombstone {
        timestamp: 5,
        deletion_time: 6,
    };
    let mut row = RowBuilder::begin(&mut out, &layout, shared, Some(marker), tombstone, true, 4);
    row.value(0, &7i32.to_be_bytes());
    row.cell(
        1,
        &Cell {
            timestamp: 3,
            ttl: 0,
            deletion_time: 9,
            dead: true,
            value: &[],
        },
    );
    let element = Cell {
        timestamp: 4,
        ttl: 1,
        deletion_time: 8,
        dead: false,
        value: b"x",
    };
    let (a, b) = (1i32.to_be_bytes(), 2i32.to_be_bytes());
    row.complex(
        2,
        Tombstone {
            timestamp: 1,
            deletion_time: 2,
        },
        [(&a[..], element), (&b[..], element)].into_iter(),
    );
    row.value(3, &[]);
    out
}

/// Reads everything that a row says.
fn read(bytes: &[u8], layout: &RowLayout) -> usize {
    let Some(view) = RowView::new(bytes) else { return 0 };
    view.columns(layout)
        .map(|(_, c)| match c {
            Column::Simple(c) => c.value.len(),
            Column::Complex(c) => c.elements().map(|(p, c)| p.len() + c.value.len()).sum(),
        })
        .sum()
}

#[test]
fn a_packed_row_says_what_was_packed() {
    let (bytes, layout) = (sample(), layout());
    RowView::validate(&bytes, &layout).expect("a packed row is well formed");
    let view = RowView::new(&bytes).expect("a whole header");
    assert_eq!(
        view.marker,
        Some(Liveness {
            timestamp: 1_600_000_000_000_000,
            ttl: 5,
            expiry: 7
        })
    );
    assert_eq!(
        view.tombstone,
        Tombstone {
            timestamp: 5,
            deletion_time: 6
        }
    );
    let ids: Vec<usize> = view.columns(&layout).map(|(id, _)| id).collect();
    assert_eq!(ids, [0, 1, 2, 3]);
    assert_eq!(read(&bytes, &layout), 4 + 2 * (4 + 1));
}

#[test]
fn a_row_that_is_cut_or_has_bytes_behind_it_is_refused() {
    let (bytes, layout) = (sample(), layout());
    for cut in 0..bytes.len() {
        assert!(RowView::validate(&bytes[..cut], &layout).is_err(), "cut to {cut} bytes");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(RowView::validate(&longer, &layout).is_err(), "one byte more");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let layout = layout();
        let _ = RowView::validate(&bytes, &layout);
        read(&bytes, &layout);
        if let Some(m) = Mutation::new(&bytes) {
            let _ = m.validate(&layout);
            m.items().count();
        }
    }

    #[test]
    fn a_damaged_row_is_refused_or_read(at in 0..200usize, bit in 0..8u8) {
        let (mut bytes, layout) = (sample(), layout());
        let n = bytes.len();
        bytes[at % n] ^= 1 << bit;
        if RowView::validate(&bytes, &layout).is_ok() {
            read(&bytes, &layout);
        }
        let mut packed = Vec::new();
        MutationBuilder::begin(&mut packed, TableId(Uuid::from_u128(1)), b"key").row(b"", |out| out.extend(&bytes));
        let m = Mutation::new(&packed).expect("table and key are whole");
        prop_assert_eq!(m.validate(&layout).is_ok(), RowView::validate(&bytes, &layout).is_ok());
    }
}
