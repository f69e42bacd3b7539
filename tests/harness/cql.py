"""Sessions of the Python driver (cassandra-driver or scylla-driver, whichever is installed), and short forms of asking."""

import itertools
import os
import re

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import ConstantReconnectionPolicy, RoundRobinPolicy

from harness.failures import said_by_hosts

SYNTAX, UNAUTHORIZED, INVALID, CONFIG, ALREADY_EXISTS = 0x2000, 0x2100, 0x2200, 0x2300, 0x2400
SERVER, PROTOCOL, BAD_CREDENTIALS, UNAVAILABLE, UNPREPARED = 0x0000, 0x000A, 0x0100, 0x1000, 0x2500

REQUEST_SECONDS = 30
RECONNECT_SECONDS = 0.2

_ERROR = re.compile(r'code=(\w+) \[.*?\] message="(.*?)"(?: info=.*?)?>?\Z', re.S)
_numbers = itertools.count(1)


def cluster(server, **options):
    """A driver that knows one node, with defaults that keep its own noise out of a test."""
    profile = ExecutionProfile(
        load_balancing_policy=RoundRobinPolicy(),
        consistency_level=ConsistencyLevel.LOCAL_QUORUM,
        request_timeout=REQUEST_SECONDS,
    )
    options.setdefault("protocol_version", 4)
    options.setdefault("reconnection_policy", ConstantReconnectionPolicy(RECONNECT_SECONDS, max_attempts=None))
    options.setdefault("connect_timeout", REQUEST_SECONDS)
    options.setdefault("control_connection_timeout", REQUEST_SECONDS)
    return Cluster([server.host], port=server.port, execution_profiles={EXEC_PROFILE_DEFAULT: profile}, **options)


def unique(prefix):
    """A name that no other test of this run, nor an earlier run on the same server, has used."""
    return f"{prefix}_{os.getpid():x}_{next(_numbers)}"


def rows(session, statement, parameters=None, **options):
    """The whole answer as plain tuples."""
    return [tuple(row) for row in session.execute(statement, parameters, **options)]


def error_of(failure):
    """The protocol error code and message that a driver's exception carries."""
    if isinstance(failure, NoHostAvailable):  # the driver tried all its hosts, the one it knows
        (failure,) = said_by_hosts(failure)
    if match := _ERROR.search(str(failure)):
        return int(match[1], 16), match[2]
    if type(failure).__name__ == "AlreadyExists":
        return ALREADY_EXISTS, str(failure)
    raise AssertionError(f"not an answer of the server: {failure!r}") from failure


def refusal(session, statement, parameters=None):
    """The (code, message) with which the server refuses a statement; it must not be accepted, nor left unanswered."""
    try:
        answer = session.execute(statement, parameters)
    except Exception as failure:  # the driver has one class per code; error_of tells answers from other failures
        return error_of(failure)
    raise AssertionError(f"accepted, with the answer {list(answer)}: {statement}")


def refused(session, statement, code, words, parameters=None):
    """Check that a statement is refused with this error code, in words that users of Cassandra know."""
    got, message = refusal(session, statement, parameters)
    assert got == code, f"error {got:#06x} instead of {code:#06x}, saying {message!r}, for: {statement}"
    assert words.lower() in message.lower(), f"{message!r} does not say {words!r}, for: {statement}"
