"""Compare what ceto and Apache Cassandra find by secondary indexes. To be run by hand.

    indexes.py --cassandra HOST:PORT --seed N --minutes M            seeds N, N+1, ... for M minutes
    indexes.py --cassandra HOST:PORT --seed N --seeds 1 --trace      every statement of a seed, with the number of its step

A seed is one schema in four tables: without indexes, with legacy ones, with SAI, and with SASI. Both servers execute the same writes on all of
them, with tombstones and times to live; in every other seed both flush again and again. Indexes are made before the writes, between them, and
are dropped. ceto is flushed and killed as well. Each query is asked of each table, on both servers.

The table without indexes is compared first. The rows that ceto finds by indexes are compared with those of its own table without indexes, and with
Cassandra's. Every kind of difference is printed with its first examples.
"""

import argparse
import re
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from differential.fuzzing.answers import Client, text  # noqa: E402
from differential.fuzzing.indexed import CLASSES, PLAIN, Schema  # noqa: E402
from differential.fuzzing.statements import Statement  # noqa: E402
from harness import Node, Server  # noqa: E402

STEPS = 240
FLUSHES, KILLS, NEW_INDEXES, DROPS = 0.02, 0.002, 0.05, 0.004
FLUSH_PERIOD_MS = 400
EXAMPLES = 3
# Cassandra answers so while it builds an index; it is asked again until it does not.
NOT_AVAILABLE = "INDEX_NOT_AVAILABLE"
BUILD_SECONDS, AGAIN_SECONDS = 10, 0.05
# A row may expire between two questions.
EXPIRY_SECONDS = 1.2
KEYSPACE = "indexes"


@dataclass
class Found:
    """What a server answered: rows as text, or the words of its refusal, and whether ALLOW FILTERING was needed."""

    rows: list | None
    error: str | None
    filtered: bool


class Seed:
    def __init__(self, seed, cassandra, ceto, node, report, trace):
        self.seed, self.cassandra, self.ceto, self.node = seed, cassandra, ceto, node
        self.report, self.trace = report, trace
        self.schema = Schema(seed)
        self.tables = {class_: f"{class_}_{seed}" for class_ in (PLAIN, *CLASSES)}
        self.flushed = seed % 2 == 1
        self.indexes, self.later = [], []
        self.step = 0

    def play(self):
        rng = self.schema.rng
        for class_, table in self.tables.items():
            period = f"memtable_flush_period_in_ms = {FLUSH_PERIOD_MS}" if self.flushed else ""
            self.change(self.cassandra, self.schema.create(table, period))
            self.change(self.ceto, self.schema.create(table))
            for target in self.schema.targets if class_ != PLAIN else ():
                statement = self.schema.index(class_, table, target)
                if statement and rng.random() < 0.3:
                    self.later.append((class_, statement))
                elif statement:
                    self.create_index(class_, statement)
        for self.step in range(STEPS):
            if self.later and rng.random() < NEW_INDEXES:
                self.create_index(*self.later.pop())
            if self.indexes and rng.random() < DROPS:
                name = self.indexes.pop(rng.randrange(len(self.indexes)))
                for server in (self.cassandra, self.ceto):
                    self.change(server, f"DROP INDEX {name}")
            self.disturb(rng)
            if rng.random() < 0.5 or self.step < 20:
                self.write(self.schema.write())
            else:
                self.ask(self.schema.query())
        for table in self.tables.values():
            for server in (self.cassandra, self.ceto):
                server.run(f"DROP TABLE {table}")

    def change(self, server, statement):
        self.note(statement)
        answer = server.run(statement)
        if answer.error:
            raise RuntimeError(f"seed {self.seed}: {answer.error} for {statement}")

    def note(self, statement):
        if self.trace:
            print(f"{self.step}: {statement}", flush=True)

    def create_index(self, class_, statement):
        name = f"i{self.seed}_{class_}_{self.report.counts['indexes']}"
        self.report.counts["indexes"] += 1
        create = f"CREATE {'CUSTOM ' if class_ == 'sasi' else ''}INDEX {name} {statement}"
        self.note(create)
        theirs, ours = (server.run(create) for server in (self.cassandra, self.ceto))
        if theirs.error and not ours.error:
            self.report.add("an index that Cassandra refuses", self.seed, self.step, f"{create}: {theirs.error[1]}")
            self.change(self.ceto, f"DROP INDEX {name}")
        elif ours.error and not theirs.error:
            self.report.add("an index that ceto refuses", self.seed, self.step, f"{create}: {ours.error[1]}")
            self.change(self.cassandra, f"DROP INDEX {name}")
        elif not ours.error:
            self.indexes.append(name)

    def disturb(self, rng):
        """Flush ceto, or kill it and start it again."""
        chance = rng.random()
        if not self.node or not self.flushed:
            return
        if chance < KILLS:
            self.note("kill")
            self.node.kill9()
            self.node.start()
            self.ceto.close()
            self.report.counts["kills"] += 1
        elif chance < KILLS + FLUSHES:
            self.note("flush")
            self.node.nodetool("flush", KEYSPACE)
            self.report.counts["flushes"] += 1

    def write(self, statement):
        for table in self.tables.values():
            text_ = re.sub(r"\bTABLE\b", table, statement)
            self.note(text_)
            theirs, ours = (server.run(text_) for server in (self.cassandra, self.ceto))
            self.report.counts["writes"] += 1
            if bool(theirs.error) != bool(ours.error):
                words = f"{text_}: Cassandra {theirs.error}, ceto {ours.error}"
                self.report.add(f"a write on {table.partition('_')[0]} that one server refuses", self.seed, self.step, words)

    def select(self, server, query, table, filtering=False):
        end = time.monotonic() + BUILD_SECONDS
        while True:
            answer = server.ask(Statement("select", query.text(table, filtering), page=query.page))
            if not answer.error or NOT_AVAILABLE not in answer.error[1] or time.monotonic() > end:
                break
            self.report.counts["asked again while an index is built"] += 1
            time.sleep(AGAIN_SECONDS)
        if answer.error:
            return Found(None, f"{answer.error[0]:04x} {answer.error[1]}", filtering)
        types = [column[2] for column in answer.columns]
        return Found([" | ".join(text(t, v) for t, v in zip(types, row, strict=True)) for row in answer.rows], None, filtering)

    def found(self, server, query, table):
        first = self.select(server, query, table)
        return first if first.error is None else self.select(server, query, table, filtering=True)

    def ask(self, query):
        self.note(query.text("TABLE", False))
        self.report.counts["queries"] += 1
        differences = self.differences(query)
        for _ in range(2):
            if not any(serious for _, serious, _ in differences):
                break
            time.sleep(EXPIRY_SECONDS)
            differences = self.differences(query)
        for kind, _, words in differences:
            self.report.add(kind, self.seed, self.step, words)

    def differences(self, query):
        """Of each kind of difference its name, whether it is asked for again in case a row has just expired, and what was found."""
        out = []
        theirs_plain, ours_plain = (self.found(server, query, self.tables[PLAIN]) for server in (self.cassandra, self.ceto))
        if theirs_plain.rows is not None and theirs_plain.rows != ours_plain.rows:
            out.append((f"without an index: {query.uses}", True, shown(query, self.tables[PLAIN], theirs_plain, ours_plain)))
        expected = ours_plain
        for class_ in CLASSES:
            table = self.tables[class_]
            theirs, ours = (self.found(server, query, table) for server in (self.cassandra, self.ceto))
            self.report.counts["queries by index"] += 1
            words = shown(query, table, theirs, ours)
            if ours.rows != expected.rows:
                out.append((f"{class_}: ceto differs from the table without index: {query.uses}", True, words))
            if theirs.rows is None:
                reason = re.sub(r"[`'\"(<\[].*", "", theirs.error)
                self.report.refused[f"{class_}: {reason}"] += 1
                continue
            self.report.counts["queries by index that both answer"] += 1
            if ours.rows != theirs.rows and ours.rows == expected.rows:
                how = "order" if ours.rows is not None and sorted(ours.rows) == sorted(theirs.rows) else "rows"
                out.append((f"{class_}: Cassandra differs from itself without index ({how}): {query.uses}", False, words))
            if ours.filtered and not theirs.filtered:
                out.append((f"{class_}: ceto wants ALLOW FILTERING: {query.uses}", False, words))
        return out


def shown(query, table, theirs, ours):
    both = [f"{name} {found.error if found.rows is None else found.rows}" for name, found in (("Cassandra", theirs), ("ceto", ours))]
    return "\n      ".join([f"{query.text(table, theirs.filtered)} (page {query.page})", *both])


class Report:
    def __init__(self):
        self.counts, self.refused = Counter(), Counter()
        self.kinds, self.examples = Counter(), defaultdict(list)

    def add(self, kind, seed, step, words):
        self.kinds[kind] += 1
        if len(self.examples[kind]) < EXAMPLES:
            self.examples[kind].append(f"seed {seed}, step {step}: {words}")
            if self.kinds[kind] == 1:
                print(f"{kind}\n   seed {seed}, step {step}: {words}", flush=True)

    def summary(self):
        lines = [f"{name}: {count}" for name, count in sorted(self.counts.items())]
        lines += [f"refused by Cassandra, {count}: {name}" for name, count in self.refused.most_common()]
        for kind, count in sorted(self.kinds.items()):
            lines += [f"{count} x {kind}", *(f"   {example}" for example in self.examples[kind])]
        return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cassandra", metavar="HOST:PORT", required=True)
    parser.add_argument("--ceto", metavar="HOST:PORT", help="default: a node of its own, which is flushed and killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="how many; default: until the minutes are over")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--trace", action="store_true", help="print every statement")
    parser.add_argument("--report", type=Path, help="write the summary to this file after each seed")
    options = parser.parse_args()
    node = None if options.ceto else Node(smp=2, memory="512M").start()
    report = Report()
    try:
        servers = Client(Server.parse(options.cassandra), KEYSPACE), Client(node.server if node else Server.parse(options.ceto), KEYSPACE)
        end, seed = time.monotonic() + 60 * options.minutes, options.seed
        while time.monotonic() < end and (options.seeds is None or seed < options.seed + options.seeds):
            Seed(seed, *servers, node, report, options.trace).play()
            seed += 1
            report.counts["seeds"] += 1
            if options.report:
                options.report.write_text(report.summary())
        print(report.summary())
    finally:
        if node:
            node.remove()


if __name__ == "__main__":
    main()
