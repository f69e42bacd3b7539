"""The ways in which the Python driver reads results. tests/drivers/test_whole_results.py has the commands."""

import threading
from collections import namedtuple

from cassandra.query import SimpleStatement

from harness import cql


class Python:
    """The Python driver, in this process."""

    def __init__(self, server, version):
        self._driver = cql.cluster(server, protocol_version=version)
        self._session = self._driver.connect()
        self._prepared = None

    def ask(self, command, *arguments):
        return getattr(self, f"_{command}")(*arguments)

    def end(self):
        self._driver.shutdown()

    def _read(self, page_rows, statement):
        return self._by_each_way(SimpleStatement(statement, fetch_size=page_rows))

    def _prepare(self, statement):
        self._prepared = self._session.prepare(statement)

    def _execute(self, page_rows):
        statement = self._prepared.bind(())
        statement.fetch_size = page_rows
        return self._by_each_way(statement)

    def _insert(self, key, *fields):
        self._session.execute(self._prepared, (key, namedtuple("Value", fields)(*fields)))

    def _by_each_way(self, statement):
        whole = {way.__name__: [shown(row) for row in way(self._session, statement)] for way in WHOLE}
        page = [shown(row) for row in self._session.execute(statement).current_rows]
        one = self._session.execute(statement).one()
        return {"whole": whole, "page": {"current_rows": page}, "first": {"one": one and shown(one)}}


def shown(value):
    """Rows and values of user-defined types are named tuples."""
    return {name: shown(of) for name, of in value._asdict().items()} if hasattr(value, "_asdict") else value


def iteration(session, statement):
    return session.execute(statement)


def all_rows(session, statement):
    return session.execute(statement).all()


def page_by_page(session, statement):
    result = session.execute(statement)
    rows = list(result.current_rows)
    while result.has_more_pages:
        result.fetch_next_page()
        rows += result.current_rows
    return rows


def by_paging_state(session, statement):
    result = session.execute(statement)
    rows = list(result.current_rows)
    while result.paging_state:
        result = session.execute(statement, paging_state=result.paging_state)
        rows += result.current_rows
    return rows


def callbacks(session, statement):
    future, rows, failed, done = session.execute_async(statement), [], [], threading.Event()

    def take(page):
        rows.extend(page)
        if future.has_more_pages:
            future.start_fetching_next_page()
        else:
            done.set()

    def fail(error):
        failed.append(error)
        done.set()

    future.add_callbacks(take, fail)
    done.wait()
    if failed:
        raise failed[0]
    return rows


def future_result(session, statement):
    return session.execute_async(statement).result()


WHOLE = [iteration, all_rows, page_by_page, by_paging_state, callbacks, future_result]
