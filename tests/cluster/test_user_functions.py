"""User-defined functions in a cluster: what one node creates, the others call, also after restarts and while a feature is not enabled."""

import pytest
from cassandra import FunctionFailure, InvalidRequest

from harness import Cluster, cql

ENABLED = ["--user-defined-functions-enabled", "1"]
ROWS = 200
PLUS = (
    "CREATE FUNCTION f.plus(s bigint, v int) RETURNS NULL ON NULL INPUT RETURNS bigint LANGUAGE lua AS 'return s + v'",
    "CREATE FUNCTION f.joined(a bigint, b bigint) RETURNS NULL ON NULL INPUT RETURNS bigint LANGUAGE lua AS 'return a + b'",
    "CREATE FUNCTION f.bad(v int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua"
    " AS 'if v == 150 then error(''no 150 here'') end return v'",
    "CREATE AGGREGATE f.total(int) SFUNC plus STYPE bigint REDUCEFUNC joined INITCOND 0",
    "CREATE AGGREGATE f.whole(int) SFUNC plus STYPE bigint INITCOND 0",
)


def with_rows(session):
    session.execute("CREATE KEYSPACE f WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE f.t (k int PRIMARY KEY, v int)")
    insert = session.prepare("INSERT INTO f.t (k, v) VALUES (?, ?)")
    for k in range(ROWS):
        session.execute(insert, (k, k))


def check_calls(session):
    """Rows are on all nodes, so parts of the first aggregate are computed by each and joined; the second is computed by one."""
    expected = sum(range(ROWS))
    assert cql.rows(session, "SELECT f.total(v), f.whole(v) FROM f.t") == [(expected, expected)]
    assert cql.rows(session, "SELECT f.plus(10, v) FROM f.t WHERE k = 7") == [(17,)]
    for text in ("SELECT f.total(f.bad(v)) FROM f.t", "SELECT f.whole(f.bad(v)) FROM f.t"):
        with pytest.raises(FunctionFailure, match="no 150 here") as failure:
            session.execute(text)
        assert (failure.value.keyspace, failure.value.function, failure.value.arg_types) == ("f", "bad", ["int"])


def test_what_one_node_creates_all_call(request):
    runtime = request.config.getoption("--runtime")
    with Cluster(3, smp=1, runtime=runtime, options=ENABLED, repairs=False) as cluster:
        with cluster.driver(only=1) as driver:
            session = driver.connect()
            with_rows(session)
            for text in PLUS:
                session.execute(text)
        for number in (1, 2, 3):
            with cluster.driver(only=number) as driver:
                check_calls(driver.connect())
        for number in (1, 2, 3):
            cluster.restart(number)
        for number in (3, 1):
            with cluster.driver(only=number) as driver:
                check_calls(driver.connect())
        with cluster.driver(only=2) as driver:
            session = driver.connect()
            session.execute("DROP AGGREGATE f.total")
            session.execute(PLUS[1].replace("CREATE", "CREATE OR REPLACE").replace("a + b", "a + b + 1"))
        with cluster.driver(only=3) as driver:
            session = driver.connect()
            with pytest.raises(InvalidRequest, match="Unknown function 'f.total'"):
                session.execute("SELECT f.total(v) FROM f.t")
            assert cql.rows(session, "SELECT f.joined(1, 2) FROM f.t WHERE k = 1") == [(4,)]
