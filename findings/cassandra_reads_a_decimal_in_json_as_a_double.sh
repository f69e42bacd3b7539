#!/usr/bin/env bash
# Apache Cassandra 5.0.8: a decimal in INSERT JSON or fromJson(), written as a JSON number.
#
# Guess: CQL's decimal has any number of digits, and so has a JSON number: all digits are kept, as toJson() writes them.
# Seen: a number with a point or an exponent is read as a 64-bit float first. 20 digits become 17 and zeros at the end
# are lost, without a warning; 1E+400 is refused as 'Infinity'. So INSERT JSON of what SELECT JSON returned stores
# another value. A number without a point or an exponent is exact, and so are the digits in a JSON string.
set -euo pipefail
. "$(dirname "$0")/cassandra_5_0_8.bash"
venv/bin/python - "$port" <<'PYTHON'
import sys

from cassandra import InvalidRequest
from cassandra.cluster import Cluster

with Cluster(["127.0.0.1"], port=int(sys.argv[1])) as cluster:
    session = cluster.connect()
    session.execute("CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("CREATE TABLE k.t (p text PRIMARY KEY, v decimal)")

    def stored(row):
        try:
            session.execute(f"INSERT INTO k.t JSON '{row}'")
        except InvalidRequest as error:
            return str(error).partition("message=")[2]
        return str(session.execute("SELECT v FROM k.t WHERE p = 'json'").one().v)

    for digits, expected in [
        ("1.2345678901234567890", "1.2345678901234567"),
        ("123456789012345678.5", "1.2345678901234568E+17"),
        ("1.10", "1.1"),
        ("100000000000000000000000000000000000001", "100000000000000000000000000000000000001"),
        ("1E+400", None),
    ]:
        number, text = (stored(f'{{"p": "json", "v": {v}}}') for v in (digits, f'"{digits}"'))
        print(f"{digits}: a JSON number becomes {number}; a JSON string becomes {text}")
        assert text == digits
        assert number == expected or (expected is None and "'Infinity'" in number), "the behaviour has changed"

    session.execute("INSERT INTO k.t (p, v) VALUES ('json', 1.2345678901234567890)")
    row = session.execute("SELECT JSON p, v FROM k.t WHERE p = 'json'").one()[0]
    back = stored(row)
    print(f"SELECT JSON returns {row}; INSERT JSON of it stores {back}")
    assert back == "1.2345678901234567" and "1.2345678901234567890" in row, "the behaviour has changed"
PYTHON
