"""Statements as lines of a script that test_scripts.py replays.

A line is the statement; what CQL cannot say stands behind it as a comment: `-- bound 0x01, null, unset`, `-- pages of 2`,
`-- as frame` for a BATCH that is sent as a BATCH frame, and `-- protocol 3`.
"""

import re

from differential.fuzzing.statements import Statement
from differential.fuzzing.terms import UNSET

BYTE_FOR_BYTE = "-- Answers are compared byte for byte, errors by their code."
WORD_FOR_WORD = "-- Answers are compared byte for byte, errors by their words."
REMARK = re.compile(r"(.*?)(?: -- bound (.*?))?(?: -- pages of (\d+))?(?: (-- as frame))?(?: -- protocol (\d))?", re.S)


def script_line(statement):
    line = statement.text
    if statement.values is not None:
        line += " -- bound " + ", ".join(map(_written, statement.values))
    if statement.page is not None:
        line += f" -- pages of {statement.page}"
    if statement.frame:
        line += " -- as frame"
    if statement.protocol != 4:
        line += f" -- protocol {statement.protocol}"
    return line


def _written(value):
    if value is UNSET:
        return "unset"
    return "null" if value is None else "0x" + value.hex()


def statement_of(line):
    text, values, page, frame, protocol = REMARK.fullmatch(line).groups()
    if values is not None:
        values = [_read(v) for v in values.split(", ") if v]
    return Statement("script", text, values, page and int(page), frame is not None, int(protocol or 4))


def _read(word):
    if word in ("unset", "null"):
        return UNSET if word == "unset" else None
    return bytes.fromhex(word.removeprefix("0x"))
