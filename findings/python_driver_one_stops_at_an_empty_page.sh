#!/usr/bin/env bash
# cassandra-driver 3.30.1 for Python: a result whose first page is empty and that has more pages.
# Expected: one() fetches on and gives the first row, as iteration does. Seen: iteration gives the row; one() gives None, and bool() is False.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf -- "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install --quiet --disable-pip-version-check cassandra-driver==3.30.1
"$home/venv/bin/python" - <<'PYTHON'
from cassandra.cluster import ResultSet


class Pages:
    """Two pages: an empty one, and one with a row. What ResultSet asks of a ResponseFuture."""

    _col_names, _col_types, _continuous_paging_session, row_factory = ["v"], None, None, None

    def __init__(self):
        self.has_more_pages = True

    def start_fetching_next_page(self):
        self.has_more_pages = False

    def result(self):
        return ResultSet(self, [(7,)])


seen = (list(ResultSet(Pages(), [])), ResultSet(Pages(), []).one(), bool(ResultSet(Pages(), [])))
print("iteration, one(), bool():", seen)
assert seen == ([(7,)], None, False), "the behaviour has changed"
PYTHON
