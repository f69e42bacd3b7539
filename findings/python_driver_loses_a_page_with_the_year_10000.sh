#!/usr/bin/env bash
# cassandra-driver 3.30.1 for Python: a timestamp of the year 10000. CQL's timestamp is a signed 64-bit number of milliseconds, so it is valid, and
# Cassandra takes '+10000-01-01'. Expected: a value of a type of the driver's own, as it has for dates (cassandra.util.Date). Seen: OverflowError from the deserializer, by
# which the whole page is lost.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf -- "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install --quiet --disable-pip-version-check cassandra-driver==3.30.1
"$home/venv/bin/python" - <<'PYTHON'
from cassandra.cqltypes import SimpleDateType, TimestampType

milliseconds = 253_402_300_800_000
try:
    seen = TimestampType.deserialize(milliseconds.to_bytes(8, "big"), 4)
except OverflowError as error:
    seen = f"OverflowError: {error}"
day = SimpleDateType.deserialize((2**31 + milliseconds // 86_400_000).to_bytes(4, "big"), 4)
print("timestamp:", seen, "- the date of the same day:", repr(day))
assert str(seen).startswith("OverflowError"), "the behaviour has changed"
PYTHON
