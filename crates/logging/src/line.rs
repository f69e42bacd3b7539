//! A message as a line.

use log::Level;
use runtime::ShardId;
use serde_json::Value;
use tz::UtcDateTime;

/// Date, time of day and microseconds of a moment in microseconds since 1970, in UTC: `2024-07-29`, `15:48:55`, 123456.
fn utc(wall_us: i64) -> (String, String, i64) {
    let moment = UtcDateTime::from_timespec(wall_us.div_euclid(1_000_000), 0)
        .expect("64 bits of microseconds are less than 32 bits of years");
    (
        format!("{:04}-{:02}-{:02}", moment.year(), moment.month(), moment.month_day()),
        format!("{:02}:{:02}:{:02}", moment.hour(), moment.minute(), moment.second()),
        wall_us.rem_euclid(1_000_000),
    )
}

pub(crate) fn text(level: Level, wall_us: i64, since_start_ms: u128, target: &str, message: &str) -> String {
    let (date, time, us) = utc(wall_us);
    let ms = us / 1_000;
    let (since, since_ms) = (since_start_ms / 1_000, since_start_ms % 1_000);
    // A message of several lines stays recognisable as one.
    let message = message.trim_end().replace('\n', "\n    ");
    format!("{level:<5} {date} {time}.{ms:03} {since:>5}.{since_ms:03} [{target}] {message}\n")
}

/// `shard` is null on threads that run no shard.
pub(crate) fn json(level: Level, wall_us: i64, shard: Option<ShardId>, target: &str, message: &str) -> String {
    let (date, time, us) = utc(wall_us);
    let level = level.as_str().to_ascii_lowercase();
    let shard = Value::from(shard.map(|shard| shard.0));
    let (target, message) = (Value::from(target), Value::from(message.trim_end()));
    format!(
        "{{\"time\":\"{date}T{time}.{us:06}Z\",\"level\":\"{level}\",\"module\":{target},\
         \"shard\":{shard},\"message\":{message}}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_bad_when_where_and_what() {
        let cases = [
            (Level::Info, 0, 0, "INFO  1970-01-01 00:00:00.000     0.000 [t] x\n"),
            (
                Level::Error,
                951_782_399_999_999,
                12,
                "ERROR 2000-02-28 23:59:59.999     0.012 [t] x\n",
            ),
            (
                Level::Warn,
                951_782_400_000_000,
                1_500,
                "WARN  2000-02-29 00:00:00.000     1.500 [t] x\n",
            ),
            (
                Level::Info,
                1_735_689_599_001_000,
                86_400_000,
                "INFO  2024-12-31 23:59:59.001 86400.000 [t] x\n",
            ),
            (Level::Info, -1, 0, "INFO  1969-12-31 23:59:59.999     0.000 [t] x\n"),
        ];
        for (level, wall_us, since_ms, expected) in cases {
            assert_eq!(
                text(level, wall_us, since_ms, "t", "x"),
                expected,
                "{wall_us} us since 1970"
            );
        }
        let line = text(Level::Info, 0, 0, "t", "a\nb\n");
        assert_eq!(
            line, "INFO  1970-01-01 00:00:00.000     0.000 [t] a\n    b\n",
            "a message of two lines"
        );
    }

    #[test]
    fn a_json_line_is_one_object_whatever_the_message_holds() {
        let message = "a \"quoted\" \\ path\nand a second line\twith \u{1} and é";
        let line = json(Level::Warn, 951_782_400_000_007, Some(ShardId(3)), "rpc::link", message);
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        let parsed: Value = serde_json::from_str(&line).expect("a line is JSON");
        let expected = serde_json::json!({
            "time": "2000-02-29T00:00:00.000007Z",
            "level": "warn",
            "module": "rpc::link",
            "shard": 3,
            "message": message,
        });
        assert_eq!(parsed, expected);
        let outside = json(Level::Error, 0, None, "ceto", "x\n");
        assert_eq!(
            outside,
            "{\"time\":\"1970-01-01T00:00:00.000000Z\",\"level\":\"error\",\"module\":\"ceto\",\"shard\":null,\"message\":\"x\"}\n"
        );
    }
}
