"""What a server answers, as text, so that two servers can be compared and the answers of one be written down."""

import contextlib

from cassandra.query import SimpleStatement

from differential.generate import KEYSPACE
from harness import cql

INDENT = "    "
# How many answers were compared with Cassandra's: in all, and of statements that stand in recorded/ apart from each other.
compared = {"answers": 0, "statements": 0}


def fresh_session(cluster):
    session = cluster.connect()
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    session.execute(
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    )
    session.set_keyspace(KEYSPACE)
    return session


@contextlib.contextmanager
def with_flushes(node, every):
    """A new session, and what flushes the node before every so many statements: `disturb(number, session)` returns the session to use."""

    def disturb(number, session):
        if number % every == every - 1:
            node.nodetool("flush")
        return session

    with cql.cluster(node.server) as cluster:
        yield fresh_session(cluster), disturb


@contextlib.contextmanager
def with_kills(node, every):
    """The same, but the node is killed with -9 and started again."""
    with contextlib.ExitStack() as clusters:

        def disturb(number, session):
            if number % every != every - 1:
                return session
            node.kill9()
            node.start()
            return clusters.enter_context(cql.cluster(node.server)).connect(KEYSPACE)

        yield fresh_session(clusters.enter_context(cql.cluster(node.server))), disturb


def refusal(failure):
    return [f"error {cql.error_of(failure)[0]:04x}"]


def answer(session, statement, refused=refusal):
    """The lines of the answer: rows, `ok`, or what `refused` makes of the failure."""
    try:
        found = session.execute(SimpleStatement(statement, fetch_size=None))
    except Exception as failure:
        return refused(failure)
    if not found.column_names:
        return ["ok"]
    return [" | ".join(found.column_names)] + [" | ".join(text(value) for value in row) for row in found]


def text(value):
    """One spelling for each value, whatever class the driver chose for it."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("\n", "\\n").replace("'", "''") + "'"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if hasattr(value, "items"):
        return "{" + ", ".join(f"{text(k)}: {text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(text, value)) + "]"
    if type(value).__name__ in ("SortedSet", "set"):
        return "{" + ", ".join(map(text, value)) + "}"
    return str(value)


def count(statements, is_first_time):
    """Adds to what the summary of the tests says."""
    compared["answers"] += statements
    compared["statements"] += statements if is_first_time else 0


def write(path, answered):
    with path.open("w") as file:
        for statement, lines in answered:
            file.write(statement + "\n" + "".join(f"{INDENT}{line}\n" for line in lines))


def read(path):
    answered = []
    for line in path.read_text().splitlines():
        if line.startswith(INDENT):
            answered[-1][1].append(line.removeprefix(INDENT))
        else:
            answered.append((line, []))
    return answered
