//! `system_views.system_logs` of Cassandra 5.0: the last messages of the node's log, where Cassandra's is empty unless
//! its log is set up for it.

use std::sync::Arc;

use system_tables::Builder;

use super::measured::{Cell, Row, add};

const SYSTEM_LOGS: &str = "system_logs (timestamp timestamp, order_in_millisecond int, level text, logger text, message text, \
     PRIMARY KEY (timestamp, order_in_millisecond))";

pub(super) fn register(tables: &mut Builder) {
    add(tables, "system_views", 1, SYSTEM_LOGS, |_| {
        Box::pin(std::future::ready(rows(logging::recent())))
    });
}

/// Messages of one millisecond are numbered in their order, as far as the clock did not go back between them.
fn rows(mut messages: Vec<Arc<logging::Logged>>) -> Vec<Row> {
    messages.sort_by_key(|message| message.wall_us);
    let (mut last, mut order) = (None, 0);
    let rows = messages.into_iter().map(|message| {
        let ms = message.wall_us.div_euclid(1000);
        order = if last == Some(ms) { order + 1 } else { 0 };
        last = Some(ms);
        vec![
            ("timestamp", Cell::Timestamp(ms)),
            ("order_in_millisecond", Cell::Int(order)),
            ("level", Cell::text(message.level.as_str())),
            ("logger", Cell::text(&message.module)),
            ("message", Cell::text(&message.message)),
        ]
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_millisecond_are_told_apart() {
        let at = |wall_us, message: &str| {
            Arc::new(logging::Logged {
                wall_us,
                level: log::Level::Warn,
                module: "node".to_owned(),
                message: message.to_owned(),
            })
        };
        let rows = rows(vec![at(5_999, "b"), at(5_001, "a"), at(6_000, "c")]);
        let told: Vec<_> = rows.iter().map(|row| (&row[0].1, &row[1].1, &row[4].1)).collect();
        assert_eq!(
            told,
            [
                (&Cell::Timestamp(5), &Cell::Int(0), &Cell::text("a")),
                (&Cell::Timestamp(5), &Cell::Int(1), &Cell::text("b")),
                (&Cell::Timestamp(6), &Cell::Int(0), &Cell::text("c")),
            ]
        );
    }
}
