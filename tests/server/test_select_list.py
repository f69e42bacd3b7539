"""What a select list may have beside columns: literals, no table, masked values, lengths, times of parts."""

import hashlib
import uuid

import pytest

from harness import cql

CETO_ONLY = pytest.mark.ceto_only("Cassandra 5.0 refuses literals without a type hint and SELECT without FROM, as ScyllaDB does not")
NEWER = pytest.mark.ceto_only("functions of Cassandra 6 and of ScyllaDB")
UUID = uuid.UUID("123e4567-e89b-42d3-a456-426614174000")


@pytest.fixture(scope="module")
def people(session):
    name = cql.unique("people")
    session.execute(
        f"CREATE TABLE {name} (k int PRIMARY KEY, name text, phone ascii, size bigint, tags set<int>, m map<text, int>)"
    )
    session.execute(
        f"INSERT INTO {name} (k, name, phone, size, tags, m) VALUES (1, 'Zoë', '555-0123', 60000, {{1, 2, 3}}, {{'a': 1}})"
    )
    session.execute(f"INSERT INTO {name} (k) VALUES (2)")
    yield name
    session.execute(f"DROP TABLE {name}")


# each: what is selected and its value; the driver decodes it by the type that the server tells
LITERALS = [
    ("5", 5),
    ("-5", -5),
    ("2147483648", 2147483648),
    ("9223372036854775808", 2**63),
    ("1.5", 1.5),
    ("'Zoë'", "Zoë"),
    ("true", True),
    (str(UUID), UUID),
    ("0xcafe", b"\xca\xfe"),
    ("[1, 2147483648]", [1, 2147483648]),
    ("{'a': 1.5}", {"a": 1.5}),
    ("{2, 1}", {1, 2}),
    ("(1, 'a', [true])", (1, "a", [True])),
    ("5 + 3", 8),
    ("cast(5 as text)", "5"),
]


@CETO_ONLY
@pytest.mark.parametrize("selected, value", LITERALS, ids=[s for s, _ in LITERALS])
def test_a_literal_is_selected_with_and_without_a_table(session, people, selected, value):
    for rows in (
        cql.rows(session, f"SELECT {selected}"),
        cql.rows(session, f"SELECT {selected} AS value FROM {people} WHERE k = 1"),
        cql.rows(session, session.prepare(f"SELECT {selected} FROM {people} WHERE k = ?"), [1]),
    ):
        ((found,),) = rows
        assert found == value


@CETO_ONLY
def test_a_literal_beside_columns_stands_in_each_row(session, people):
    assert sorted(cql.rows(session, f"SELECT k, 'x', 7 FROM {people}")) == [(1, "x", 7), (2, "x", 7)]


@CETO_ONLY
def test_a_select_without_a_table_returns_one_row(cluster):
    session = cluster.connect()  # without a keyspace
    ((now, later),) = cql.rows(session, "SELECT now(), now()")
    assert now != later
    assert cql.rows(session, "SELECT count(*), count(1) AS n, min(5), sum(7)") == [(1, 1, 5, 7)]
    assert cql.rows(session, "SELECT JSON 1 AS one, 'hello' AS word") == [('{"one": 1, "word": "hello"}',)]
    assert cql.rows(session, session.prepare("SELECT (int)? + 1"), [4]) == [(5,)]
    assert session.execute("SELECT 5 AS five").column_names == ["five"]
    limited = session.prepare("SELECT intAsBlob(?) AS b LIMIT ? USING TIMEOUT 5s")
    assert [column.type.typename for column in limited.column_metadata] == ["int", "int"]
    assert cql.rows(session, limited, [42, 1]) == [((42).to_bytes(4, "big"),)]
    cql.refused(session, limited.bind([42, 0]), cql.INVALID, "LIMIT must be strictly positive")


@pytest.mark.parametrize("selected", ["k", "*", "k + 1", "abs(k)", "writetime(k)", "DISTINCT 5", "5 PER PARTITION LIMIT 1", "5 WHERE k = 1"])
def test_what_needs_a_table_is_a_syntax_error_without_one(session, selected):
    assert cql.refusal(session, f"SELECT {selected}")[0] == cql.SYNTAX


@pytest.mark.parametrize("selected", ["?", "null", "[]", "{}", "[1, 'a']"])
def test_what_has_no_type_is_refused(session, people, selected):
    code, words = cql.refusal(session, f"SELECT {selected} FROM {people}")
    assert code == cql.INVALID
    assert "Cannot infer type" in words


MASKED = [
    ("mask_default(name), mask_default(size), mask_default(tags), mask_null(name)", ("****", 0, set(), None)),
    ("mask_replace(name, 'x'), mask_replace(size, null)", ("x", None)),
    ("mask_inner(name, 1, 1), mask_inner(phone, null, 4), mask_inner(phone, 1, 1, '#')", ("Z*ë", "****0123", "5######3")),
    ("mask_outer(name, 1, 1), mask_outer(phone, 3, null, '#')", ("*o*", "###-0123")),
    ("mask_hash(name), mask_hash(name, 'MD5')", (hashlib.sha256("Zoë".encode()).digest(), hashlib.md5("Zoë".encode()).digest())),
]


@pytest.mark.parametrize("selected, values", MASKED, ids=[s for s, _ in MASKED])
def test_values_are_masked(session, people, selected, values):
    ((*found,),) = cql.rows(session, f"SELECT {selected} FROM {people} WHERE k = 1")
    assert [set(v) if isinstance(expected, set) else v for v, expected in zip(found, values, strict=True)] == list(values)


def test_nulls_are_masked_by_default_and_replace_only(session, people):
    selected = "mask_default(name), mask_replace(name, 'x'), mask_inner(name, 1, 1), mask_hash(name)"
    assert cql.rows(session, f"SELECT {selected} FROM {people} WHERE k = 2") == [("****", "x", None, None)]


def test_aggregates_of_masked_values(session, people):
    selected = "count(mask_default(name)), max(mask_replace(size, 5)), mask_default(count(*))"
    assert cql.rows(session, f"SELECT {selected} FROM {people}") == [(2, 5, 0)]


REFUSED_MASKS = [
    ("mask_inner(name, 1, 1, '##')", "should be single-character, but '##' has 2 characters"),
    ("mask_inner(size, 1, 1)", "requires an argument of type [text|varchar|ascii], but found argument size of type bigint"),
    ("mask_inner(name, 1)", "Invalid number of arguments"),
    ("mask_hash(name, 'rot13')", "Hash algorithm not found: rot13"),
    ("mask_replace(size, 'x')", "Type error: 'x' cannot be passed as argument 1"),
    ("mask_default(null)", "Cannot infer type of argument NULL in call to function system.mask_default(any)"),
]


@pytest.mark.parametrize("selected, words", REFUSED_MASKS, ids=[s for s, _ in REFUSED_MASKS])
def test_masks_of_what_they_do_not_take_are_refused(session, people, selected, words):
    code, said = cql.refusal(session, f"SELECT {selected} FROM {people} WHERE k = 1")
    assert code == cql.INVALID
    assert words in said


@pytest.mark.ceto_only("an operator of Cassandra may turn masking on")
def test_masks_of_columns_are_refused_as_cassandra_does_by_default(session, people):
    for statement in (
        f"CREATE TABLE {people}_masked (k int PRIMARY KEY, v text MASKED WITH DEFAULT)",
        f"ALTER TABLE {people} ALTER name MASKED WITH mask_inner(1, null)",
        f"ALTER TABLE {people} ADD other text MASKED WITH DEFAULT",
    ):
        code, words = cql.refusal(session, statement)
        assert code == cql.INVALID
        assert "Cannot mask columns because dynamic data masking is not enabled" in words
    session.execute(f"ALTER TABLE {people} ALTER name DROP MASKED")


@NEWER
def test_lengths_and_numbers_for_people(session, people):
    selected = "length(name), octet_length(name), octet_length(size), format_bytes(size), format_time(size, 's', 'h')"
    assert cql.rows(session, f"SELECT {selected} FROM {people} WHERE k = 1") == [(3, 4, 8, "58.59 KiB", "16.67 h")]
    assert cql.rows(session, f"SELECT {selected} FROM {people} WHERE k = 2") == [(None,) * 5]


@NEWER
def test_the_elements_that_two_sets_share(session, people):
    ((shared, none),) = cql.rows(
        session,
        f"SELECT set_intersection(tags, {{2, 3, 4}}), set_intersection(tags, {{9}}) FROM {people} WHERE k = 1",
    )
    assert (set(shared), set(none)) == ({2, 3}, set())


def test_a_hint_is_of_what_stands_behind_it_without_its_subscript(session, people):
    rows = cql.rows(session, f"SELECT (map<text, int>){{'a': 1}}['a'], (int)5 + 3 FROM {people} WHERE k = 1")
    assert rows == [(1, 8)]
    for selected in ("(int)m['a']", "(list<int>)[1, 2][0]"):
        assert cql.refusal(session, f"SELECT {selected} FROM {people}")[0] == cql.INVALID


def test_a_part_of_an_element_was_written_with_it(session, table):
    name = table("k int PRIMARY KEY, m map<text, frozen<map<text, int>>>")
    session.execute(f"UPDATE {name} USING TIMESTAMP 77 SET m['x'] = {{'y': 1}} WHERE k = 1")
    selected = "writetime(m['x']['y']), writetime(m['x']['z']), maxwritetime(m['x']['y'])"
    assert cql.rows(session, f"SELECT {selected} FROM {name}") == [(77, None, 77)]


def test_a_vector_has_as_many_dimensions_as_cassandra_lets_it_have(session, table):
    name = table("k int PRIMARY KEY, v vector<float, 70000>, w vector<vector<int, 2147483647>, 2147483647>")
    value = [float(number) for number in range(70_000)]
    insert = session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
    session.execute(insert, (1, value))
    written = ",".join(map(str, value))
    session.execute(f"INSERT INTO {name} (k, v) VALUES (2, [{written}])")
    select = session.prepare(f"SELECT v, similarity_euclidean(v, ?) FROM {name}")
    rows = session.execute(select, (value,))
    assert [(list(found), near) for found, near in rows] == [(value, 1.0)] * 2
    for few in ("v", "w"):
        code, message = cql.refusal(session, f"INSERT INTO {name} (k, {few}) VALUES (3, [])")
        assert code == cql.INVALID and "elements, but given 0" in message


@pytest.mark.ceto_only("Cassandra makes the value when a row asks for it")
def test_no_value_of_gigabytes_is_made_of_a_type(session, table):
    name = table("k int PRIMARY KEY, w vector<vector<int, 2147483647>, 2147483647>")
    code, message = cql.refusal(session, f"SELECT mask_default(w) FROM {name}")
    assert code == cql.INVALID and "takes more than 1048576 bytes" in message
