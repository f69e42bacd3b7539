"""A statement that reads much has a time for the whole of it: its own (`USING TIMEOUT`), or scan_request_timeout."""

import pytest
from cassandra.util import Duration

from harness import cql

READ_TIMEOUT = 0x1200
ROWS, OF_PARTITION = 60_000, 200

pytestmark = pytest.mark.ceto_only("USING TIMEOUT is ScyllaDB's; Cassandra has no time for a statement but range_request_timeout")


@pytest.fixture(scope="module")
def large(session):
    name = cql.unique("large")
    session.execute(f"CREATE TABLE {name} (k int, c int, v int, PRIMARY KEY (k, c))")
    for k in range(ROWS // OF_PARTITION):
        inserts = "".join(f"INSERT INTO {name} (k, c, v) VALUES ({k}, {c}, {k}); " for c in range(OF_PARTITION))
        session.execute(f"BEGIN UNLOGGED BATCH {inserts} APPLY BATCH")
    yield name
    session.execute(f"DROP TABLE {name}")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*), sum(v) FROM {t}",
        "SELECT k, count(*) FROM {t} GROUP BY k",
        "SELECT count(*), avg(v) FROM {t} WHERE v >= 0 ALLOW FILTERING",
        "SELECT k FROM {t} WHERE v = -1 ALLOW FILTERING",
        "SELECT sum(v) FROM {t} WHERE k IN ({keys})",
    ],
)
def test_a_statement_ends_with_its_time_and_not_before(session, large, query):
    query = query.format(t=large, keys=", ".join(map(str, range(ROWS // OF_PARTITION))))
    expected = cql.rows(session, query)
    assert cql.rows(session, f"{query} USING TIMEOUT 10m") == expected
    cql.refused(session, f"{query} USING TIMEOUT 1ms", READ_TIMEOUT, "after 1ms, the time of the whole statement")
    prepared = session.prepare(f"{query} USING TIMEOUT ?")
    assert cql.rows(session, prepared, (Duration(0, 0, 600 * 10**9),)) == expected


@pytest.mark.parametrize("timeout", ["0s", "1us", "-1s", "1d", "1mo"])
def test_a_time_that_is_none(session, large, timeout):
    cql.refused(session, f"SELECT count(*) FROM {large} USING TIMEOUT {timeout}", cql.INVALID, "USING TIMEOUT")
