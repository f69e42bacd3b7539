#!/usr/bin/env bash
# Apache Cassandra 5.0.8: the text of a timestamp before year 1, in toJson(), SELECT JSON and CAST(... AS text). CQL's
# timestamp is a signed 64-bit number of milliseconds, so years before year 1 are valid.
#
# Guess: the text has the sign of the year, as the text of a date of the same day does.
# Seen: it has the year of the era, and no era: the year -5 (6 BC) is written 0006, as the year 6 is. This is valid text
# of another moment: fromJson() of what toJson() wrote stores one that is 11 years later, without an error.
set -euo pipefail
. "$(dirname "$0")/cassandra_5_0_8.bash"
venv/bin/python - "$port" <<'PYTHON'
import sys

from cassandra.cluster import Cluster

DAY_MS = 86_400_000

with Cluster(["127.0.0.1"], port=int(sys.argv[1])) as cluster:
    session = cluster.connect()
    session.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE k.t (p int PRIMARY KEY, v timestamp)")

    def one(columns):
        return session.execute(f"SELECT {columns} FROM k.t").one()

    for day_number, text, expected in [
        (-719_162, "0001-01-01", "0001-01-01"),
        (-719_163, "0000-12-31", "0001-12-31"),
        (-719_529, "-0001-12-31", "0002-12-31"),
        (-721_354, "-0005-01-01", "0006-01-01"),
    ]:
        given = day_number * DAY_MS
        session.execute(f"INSERT INTO k.t (p, v) VALUES (1, {given})")
        written, cast, day = one("toJson(v), CAST(v AS text), CAST(toDate(v) AS text)")
        session.execute(f"INSERT INTO k.t (p, v) VALUES (1, fromJson('{written}'))")
        back = one("toUnixTimestamp(v)")[0]
        later = (back - given) // DAY_MS
        print(f"{text}: date {day}, timestamp {cast}, as JSON {written}, from which it is read {later} days later")
        assert day == text
        assert written == f'"{expected} 00:00:00.000Z"', "the behaviour has changed"
        assert cast == f"{expected}T00:00:00.000Z", "the behaviour has changed"
        assert (back == given) == (text == expected), "the behaviour has changed"
PYTHON
