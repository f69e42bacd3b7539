"""A page goes on where the page before it has left the files, and BYPASS CACHE leaves the caches as they are."""

import pytest
from cassandra.query import SimpleStatement

ROWS, PAGE = 2_000, 100

pytestmark = pytest.mark.ceto_only("the metrics are ceto's")


@pytest.fixture
def node(new_node):
    return new_node(smp=1).start()


@pytest.fixture
def session(node, connect):
    session = connect(node)
    session.execute("CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))")
    # Rows of a page come from both files.
    for n in range(2):
        inserts = "".join(f"INSERT INTO t (k, c, v) VALUES (1, {c}, {c}); " for c in range(n, ROWS, 2))
        session.execute(f"BEGIN UNLOGGED BATCH {inserts} APPLY BATCH")
        node.nodetool("flush", session.keyspace)
    return session


def total(node, name):
    return sum(value for series, value in node.metrics().items() if series.split("{")[0] == f"ceto_{name}")


@pytest.mark.parametrize("query", ["SELECT c, v FROM t WHERE k = 1", "SELECT c, v FROM t WHERE k = 1 ORDER BY c DESC", "SELECT c, v FROM t"])
def test_each_page_goes_on_where_the_last_one_ended(node, session, query):
    rows = [(row.c, row.v) for row in session.execute(SimpleStatement(query, fetch_size=PAGE))]
    assert sorted(rows) == [(c, c) for c in range(ROWS)]
    pages = ROWS // PAGE
    # A scan reads the rest of the partition in which its first page ended.
    assert total(node, "pages_resumed_total") >= pages - 2
    assert total(node, "paused_readers") <= 1


def test_what_is_written_between_two_pages_is_seen(node, session):
    pages = session.execute(SimpleStatement("SELECT c, v FROM t WHERE k = 1", fetch_size=PAGE))
    assert pages.current_rows[-1].c == PAGE - 1
    session.execute(f"UPDATE t SET v = -1 WHERE k = 1 AND c = {PAGE}")
    session.execute(f"DELETE FROM t WHERE k = 1 AND c = {PAGE + 1}")
    pages.fetch_next_page()
    assert [(row.c, row.v) for row in pages.current_rows[:2]] == [(PAGE, -1), (PAGE + 2, PAGE + 2)]
    assert total(node, "pages_resumed_total") == 1
    node.nodetool("flush", session.keyspace)
    assert total(node, "paused_readers") == 0
    assert total(node, "paused_readers_dropped_total") == 1
    pages.fetch_next_page()
    assert pages.current_rows[0].c == 2 * PAGE + 1


def test_bypass_cache_leaves_the_caches_as_they_are(node, session):
    def cached():
        return [total(node, name) for name in ("row_cache_bytes", "chunk_cache_bytes", "chunk_cache_hits_total", "chunk_cache_misses_total")]

    before = cached()
    for where in ["k = 1 AND c = 7", "k = 1", "k = 1 AND c IN (1, 2)"]:
        rows = list(session.execute(f"SELECT v FROM t WHERE {where} BYPASS CACHE"))
        assert rows and cached() == before, where
    assert session.execute("SELECT v FROM t WHERE k = 1 AND c = 7").one().v == 7
    assert cached() != before
