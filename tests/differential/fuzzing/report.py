"""Differences by their shape, and those that are intended."""

import re
from collections import Counter
from pathlib import Path

from differential.fuzzing.scripts import script_line
from differential.fuzzing.statements import TOKEN

KEYWORDS = {
    "select", "insert", "update", "delete", "begin", "batch", "distinct", "json", "group", "order", "limit", "per", "contains",
    "key", "in", "token", "filtering", "if", "exists", "not", "count", "min", "max", "sum", "avg", "writetime", "ttl", "maxwritetime",
    "cast", "tojson", "to_json", "alter", "add", "drop", "rename", "truncate", "create", "like", "null",
}  # fmt: skip
FUNCTION = re.compile(r"(\w+)\s*\(")


def shape(statement):
    """The statement without names and values: its verb, keywords and functions."""
    words = [t.lower() for t in TOKEN.findall(statement.text)]
    used = sorted(set(words) & KEYWORDS)
    functions = sorted(
        {f.lower() for f in FUNCTION.findall(statement.text)} - KEYWORDS - {"and", "where", "values", "as"}
    )
    functions = [f for f in functions if not re.fullmatch(r"f\d+|\d+", f)]
    return " ".join(
        words[:1]
        + used[:]
        + functions
        + (["bound"] if statement.values else [])
        + (["paged"] if statement.page else [])
    )


def squash(message):
    """The words of an error without names and values."""
    message = re.sub(r"'[^']*'|\"[^\"]*\"|\([^()]*\)|0x[0-9a-f]*", "_", message)
    message = re.sub(r"\b[pcsvm]\d+r?\b|\bf\d+\b|-?\d[\d.\-a-f]*\w*", "_", message)
    message = re.sub(r"(frozen|list|set|map|tuple|vector)<[^ ]*(, [^ ]*>)*", "<>", message)
    return message[:120]


def key_of(found, statement, answers):
    """What makes two differences the same one: the words of the refusal, else the shape of the statement."""
    refusals = [squash(a.error[1]) for a in answers if a.error]
    if found == "names of columns" or found == "types of columns":
        at = 1 + (found == "types of columns")
        columns = zip(*(a.columns for a in answers), strict=False)
        return found, *next((squash(str(a[at])), squash(str(b[at]))) for a, b in columns if a[at] != b[at])
    if refusals and not found.startswith("error 2000"):
        return found, *refusals
    return found, shape(statement)


class Intended:
    """Lines of DIFFERENCE | PATTERN | REASON: patterns of the difference, and of the statement with both answers behind it."""

    def __init__(self, path):
        self.lines = []
        for line in Path(path).read_text().splitlines() if Path(path).exists() else []:
            if line.strip() and not line.startswith("#"):
                found, pattern, reason = (part.strip() for part in line.split(" | "))
                self.lines.append((re.compile(found), re.compile(pattern, re.I | re.S), reason))

    def reason(self, found, statement, answers):
        whole = "\n".join([statement.text, *(line for a in answers for line in a.lines()[:3])])
        for expected, pattern, reason in self.lines:
            if expected.search(found) and pattern.search(whole):
                return reason
        return None


class Report:
    def __init__(self, path=None):
        self.path = path
        self.compared = self.differences = self.errors = 0
        self.kinds = Counter()
        self.intended = Counter()
        self.seen = set()
        self.groups = {}
        self.unstable = 0

    def is_new(self, key):
        if key in self.seen:
            return False
        self.seen.add(key)
        return True

    def add(self, seed, found, script, answers):
        """`script` is None when the difference did not come again."""
        if script is None:
            self.unstable += 1
            return
        key = key_of(found, script[-1], answers)
        if key in self.groups:
            return
        self.groups[key] = (seed, found, script, answers)
        if self.path:
            self.write()

    def lines(self):
        for at, (seed, found, script, answers) in enumerate(self.groups.values(), 1):
            yield f"## {at}. {found} (seed {seed})"
            yield from (f"    {script_line(s)}" for s in script)
            for name, answer in zip(("Cassandra", "ceto"), answers, strict=True):
                yield f"  {name}:"
                yield from (f"    {line}" for line in answer.lines()[:12])
                if "table" in found:
                    yield f"    {answer.columns}"
            yield ""

    def write(self):
        text = "\n".join(self.lines())
        if self.path:
            self.path.write_text(text)
        else:
            print(text)

    def progress(self, seed):
        print(
            f"before seed {seed}: {self.compared} statements, {self.differences} differences in {len(self.groups)} groups",
            flush=True,
        )

    def summary(self, first, last):
        lines = [
            f"{self.compared} statements of seeds {first} to {last - 1} compared, {self.errors} of them refused by Cassandra",
            f"{self.differences} differences in {len(self.groups)} groups, {self.unstable} did not come again; "
            f"{sum(self.intended.values())} intended",
        ]
        lines.append("  " + ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common()))
        lines += [f"  {count} intended: {reason}" for reason, count in self.intended.most_common()]
        return "\n".join(lines)
