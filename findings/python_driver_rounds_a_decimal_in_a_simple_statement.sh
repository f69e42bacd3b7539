#!/usr/bin/env bash
# cassandra-driver 3.30.1 for Python: a Decimal given to a simple statement with %s. The driver writes it into the text as a float: 20 digits become 17, and 1E+400, which CQL's
# decimal holds, becomes the word Infinity. Expected: the digits of the Decimal, as a prepared statement sends them. Seen: another number, without an error where it is finite.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf -- "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install --quiet --disable-pip-version-check cassandra-driver==3.30.1
"$home/venv/bin/python" - <<'PYTHON'
from decimal import Decimal

from cassandra.cqltypes import DecimalType
from cassandra.encoder import Encoder

for given in (Decimal("1.2345678901234567890"), Decimal("1E+400")):
    bound = DecimalType.deserialize(DecimalType.serialize(given, 4), 4)
    written = Encoder().cql_encode_all_types(given)
    print("given", given, "- bound to a prepared statement:", bound, "- written into a simple one:", written)
    assert bound == given
    assert Decimal(written) != given, "the behaviour has changed"
PYTHON
