"""Find the fewest statements, and the shortest last one, that still show a difference."""

import time
from dataclasses import replace

from differential.fuzzing.answers import difference
from differential.fuzzing.report import key_of
from differential.fuzzing.statements import TOKEN

SECONDS_MAX = 15


class Shrinker:
    def __init__(self, servers, table, key):
        """`table` is the generator's, and is as the statements so far have altered it."""
        self.servers, self.table, self.key = servers, table.name, key
        self.altered = table.create()
        self.created = None  # the text of CREATE when the tables are as it left them
        self.end = time.monotonic() + SECONDS_MAX

    def shrink(self, asked):
        """The script and both answers to its last statement; (None, None) when the difference does not come again."""
        create, *before, last = asked if len(asked) > 1 else [asked[0], asked[0]]
        if last is create:
            answers = self.replay([], create, create)
            return ([create], answers) if self.shows(create, answers) else (None, None)
        if self.fails(create, [], last):
            before = []
        elif self.fails(create, before, last):
            # Without ALTER TABLE the tables need not be made again for each replay.
            whole, rest = replace(create, text=self.altered), [s for s in before if s.kind not in ("alter", "select")]
            if self.fails(whole, rest, last):
                create, before = whole, rest
            for kinds in (("select",), ("select", "mistake", "damaged", "alter")):
                rest = [s for s in before if s.kind not in kinds]
                before = rest if self.fails(create, rest, last) else before
            before = self.fewer(create, before, last)
        else:
            self.restore(asked)
            return None, None
        create = self.narrower(create, before, last)
        self.replay(before, create, last)
        last = self.shorter(last)
        answers = self.replay(before, create, last)
        self.restore(asked)
        return [create, *before, last], answers

    def fewer(self, create, before, last):
        """Delta debugging: remove halves, quarters, ... as long as the difference stays."""
        size = (len(before) + 1) // 2
        while size and time.monotonic() < self.end:
            at, removed = 0, False
            while at < len(before) and time.monotonic() < self.end:
                rest = before[:at] + before[at + size :]
                if self.fails(create, rest, last):
                    before, removed = rest, True
                else:
                    at += size
            size = size if removed and size == 1 else size // 2
        return before

    def shorter(self, last):
        """Remove tokens of the last statement, when it is one that changes nothing."""
        if last.kind != "select":
            return last
        tokens = TOKEN.findall(last.text)
        values = last.values
        size = len(tokens) // 2
        while size and time.monotonic() < self.end:
            at, removed = 1, False
            while at < len(tokens) and time.monotonic() < self.end:
                shorter, kept = without(tokens, values, at, size)
                statement = replace(last, text=" ".join(shorter), values=kept)
                answers = [server.ask(statement) for server in self.servers]
                if self.shows(statement, answers):
                    tokens, values, removed, last = shorter, kept, True, statement
                else:
                    at += 1
            size = size if removed and size == 1 else size // 2
        if last.page:
            whole = replace(last, page=None)
            if self.shows(whole, [server.ask(whole) for server in self.servers]):
                last = whole
        return last

    def narrower(self, create, before, last):
        """The table without the columns that no statement names."""
        named = {token for s in [*before, last] for token in TOKEN.findall(s.text)}
        start, _, rest = create.text.partition(" (")
        columns, _, key = rest.partition(", PRIMARY KEY ")
        parts = top_level(columns)
        kept = [p for p in parts if TOKEN.match(p)[0] in named or TOKEN.match(p)[0] in TOKEN.findall(key)]
        smaller = replace(create, text=f"{start} ({', '.join(kept)}, PRIMARY KEY {key}")
        return smaller if self.fails(smaller, before, last) else create

    def fails(self, create, before, last):
        return self.shows(last, self.replay(before, create, last))

    def shows(self, statement, answers):
        found = difference(statement, *answers)
        return found == self.key[0] and (
            not any(a.error for a in answers) or key_of(found, statement, answers) == self.key
        )

    def replay(self, before, create, last):
        """Both answers to the last statement, after the others on an empty table."""
        answers = []
        as_created = self.created == create.text
        for server in self.servers:
            if as_created:
                server.run(f"TRUNCATE {self.table}")  # costs Cassandra a fourth of the other
            else:
                server.run(f"DROP TABLE IF EXISTS {self.table}")
                if last is not create:
                    server.ask(create)
            for statement in before:
                server.ask(statement)
            answers.append(server.ask(last))
        altered = any("alter" in s.text.lower() or "create" in s.text.lower() for s in [*before, last])
        self.created = None if altered else create.text
        return answers

    def restore(self, asked):
        """Leave the tables as they were before the shrinking."""
        for server in self.servers:
            server.run(f"DROP TABLE IF EXISTS {self.table}")
            for statement in asked:
                server.ask(statement)


def without(tokens, values, at, size):
    """The tokens without some of them, and the values without those of the markers among them."""
    if values is None:
        return tokens[:at] + tokens[at + size :], None

    def markers(part):
        return sum(token == "?" or token.startswith(":m") for token in part)

    first, gone = markers(tokens[:at]), markers(tokens[at : at + size])
    return tokens[:at] + tokens[at + size :], values[:first] + values[first + gone :]


def top_level(columns):
    """The parts between the commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in columns:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
