"""A page for operators whose commands, options and statements a test tries: all of them, as they stand there, with values for their placeholders.

    with Page("repair") as page:
        page.nodetool(node, "repair KEYSPACE [TABLE…]", {"KEYSPACE": "ks", "[TABLE…]": "t"})

The end fails with what the page names and the test has not tried; a command that the page does not name fails at once.
"""

import re
from pathlib import Path

OPERATING = Path(__file__).resolve().parents[2] / "docs" / "operating"
NODETOOL = "ceto nodetool "
STATEMENTS = ("SELECT ", "ALTER ")
# What a line of the page leaves to the reader.
AND_SO_ON = "…"


class Page:
    def __init__(self, name):
        self.name = f"docs/operating/{name}.md"
        self.text = (OPERATING / f"{name}.md").read_text()
        self.named = set(named(self.text))
        self.tried = set()
        assert self.named, f"{self.name} names no command"

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            left = sorted(self.named - self.tried)
            assert not left, f"{self.name} names commands that nobody has tried: {left}"

    def _filled(self, command, values):
        assert command in self.named, f"{self.name} does not name {command!r}, but {sorted(self.named)}"
        self.tried.add(command)
        for place, value in (values or {}).items():
            assert place in command, f"{command!r} has no {place}"
            command = command.replace(place, value)
        return command

    def nodetool(self, node, command, values=None, more=()):
        """Run a command of nodetool, with `more` words that the page leaves out; what it prints."""
        words = self._filled(f"{NODETOOL}{command}", values).removeprefix(NODETOOL).split()
        return node.nodetool(*words, *more)

    def tried_in(self, test, commands):
        """Other tests try these: the words that stand in them, by command."""
        text = (Path(__file__).resolve().parents[1] / test).read_text()
        for command, words in commands.items():
            self._filled(command, None)
            assert words in text, f"{test} does not try {command}: it has no {words!r}"

    def option(self, option, values=None):
        """The words of an option."""
        return self._filled(option, values).split()

    def statement(self, session, statement, values=None):
        """Rows of a statement."""
        return [tuple(row) for row in session.execute(self._filled(statement, values))]

    def start(self, cluster, number, command, values=None, options=()):
        """Start a node by the page's line, with what the harness adds to tell nodes of one machine apart; the node."""
        words = self._filled(command, {"DIR": "DIR"} | (values or {})).split()
        assert words[:3] == ["ceto", "--workdir", "DIR"] and words[-1] == AND_SO_ON, words
        node = cluster._node(number)
        node.options = [*words[3:-1], *options]
        try:
            return node.start()
        except BaseException:
            node.remove()
            raise

    def row(self, words):
        """A pattern of what a refusal says, by the row of a table of the page that has these words."""
        cells = [line.split("|")[1].strip() for line in self.text.splitlines() if line.startswith("| ")]
        says = [part.strip() for cell in cells for part in cell.split(";")]
        [found] = [part for part in says if words in part]
        return ".*".join(re.escape(part) for part in found.split(AND_SO_ON))


def named(text):
    """Commands, options and statements: lines of blocks, without the explanation behind some blanks, and those in the middle of a sentence."""
    for line in re.findall(r"^ {4,}(\S.*)$", text, re.MULTILINE):
        yield from one(re.split(r" {2,}", line)[0])
    for span in re.findall(r"`([^`\n]+)`", text):
        yield from one(span)


def one(words):
    if words.startswith("nodetool "):
        words = f"ceto {words}"
    words = words.removesuffix(";")
    if words.startswith(("ceto ", "-")) or (words.startswith(STATEMENTS) and words.count(" ") > 1):
        yield words
