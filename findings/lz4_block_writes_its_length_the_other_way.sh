#!/usr/bin/env bash
# lz4 4.4.5 for Python: lz4.block.compress stores the length of its input before the block by default, as the native protocol of CQL does
# (native_protocol_v4.spec, section 5). Expected: that the two are the same bytes. Seen: little endian here, big endian there, so the block of
# one is a length of gigabytes to the other.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf -- "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install --quiet --disable-pip-version-check lz4==4.4.5
"$home/venv/bin/python" - <<'PYTHON'
import lz4.block

stored = lz4.block.compress(b"x" * 100)[:4]
print("length of 100 bytes:", stored.hex(), "- as the protocol reads it:", int.from_bytes(stored, "big"))
assert stored == (100).to_bytes(4, "little") != (100).to_bytes(4, "big"), "the behaviour has changed"
PYTHON
