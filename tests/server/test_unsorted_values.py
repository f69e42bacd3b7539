"""Sets and maps that a client sends unsorted or with repeats are stored in order, each element once, wherever they stand in a value."""

import struct

from harness import cql


def element(value):
    return struct.pack(">i", len(value)) + value


def collection(*elements):
    return struct.pack(">i", len(elements)) + b"".join(map(element, elements))


def numbers(*values):
    return collection(*(struct.pack(">i", value) for value in values))


def test_a_value_is_stored_in_order_however_it_is_sent(session):
    name = cql.unique("unsorted")
    session.execute(
        f"CREATE TABLE {name} (k frozen<set<int>>, c frozen<list<frozen<set<int>>>>, t tuple<int, frozen<set<int>>>, s set<frozen<set<int>>>, PRIMARY KEY (k, c))"
    )
    insert = session.prepare(f"INSERT INTO {name} (k, c, t, s) VALUES (?, ?, ?, ?)")
    bound = insert.bind(({1}, [{1}], (1, {1}), {frozenset({1})}))
    unsorted = numbers(3, 1, 3, 2)
    bound.values = [unsorted, collection(unsorted), element(struct.pack(">i", 7)) + element(unsorted), collection(numbers(9), unsorted, numbers(1, 2, 3))]
    session.execute(bound)
    where = "k = {1, 2, 3} AND c = [{1, 2, 3}]"
    (((number, inner), sets),) = cql.rows(session, f"SELECT t, s FROM {name} WHERE {where}")
    assert (number, list(inner)) == (7, [1, 2, 3])
    assert sorted(map(list, sets)) == [[1, 2, 3], [9]], "one element that was sent twice in other orders is one"
    # And named so too, alone and among several.
    for text, values in (("= ?", [unsorted]), ("IN ?", [collection(unsorted)])):
        select = session.prepare(f"SELECT t FROM {name} WHERE k = ? AND c = ?") if text == "= ?" else session.prepare(f"SELECT t FROM {name} WHERE k IN ?")
        asked = select.bind(({1}, [{1}])) if text == "= ?" else select.bind(([{1}],))
        asked.values = [*values, collection(unsorted)] if text == "= ?" else values
        (((number, inner),),) = cql.rows(session, asked)
        assert (number, list(inner)) == (7, [1, 2, 3])
    session.execute(f"DROP TABLE {name}")
