"""Compare ceto with Apache Cassandra on random schemas and statements.

    fuzz.py --cassandra HOST:PORT --ceto HOST:PORT --seed N --minutes M    seeds N, N+1, ... for M minutes
    fuzz.py --cassandra HOST:PORT --own-node --seed N --minutes M          the same, on a node that is flushed and killed meanwhile
    fuzz.py --cassandra HOST:PORT --ceto HOST:PORT --seed N --write NAME   the statements of seed N as NAME.cql, for test_scripts.py

One seed is one table and STATEMENTS statements. A difference is reported once for each shape, with the fewest statements that show it.
`intended.txt` lists differences that are meant.
"""

import argparse
import contextlib
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

LINE_MAX = 5_000
KEPT = "Cassandra keeps rows that it cannot flush behind a TRUNCATE; the seed ends"
FLUSHES, KILLS, SWEEPS = 0.02, 0.003, 0.1
SWEEP_ROWS_MAX = 12
# Cassandra refuses batches above this; ceto refuses far larger ones unless it is told.
OPTIONS = ("--batch-size-fail-threshold", "50KiB")
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from differential.fuzzing.answers import Client, difference  # noqa: E402
from differential.fuzzing.report import Intended, Report, key_of  # noqa: E402
from differential.fuzzing.scripts import BYTE_FOR_BYTE, script_line  # noqa: E402
from differential.fuzzing.shrink import Shrinker  # noqa: E402
from differential.fuzzing.statements import STATEMENTS, Generator, Statement  # noqa: E402
from harness import Node, Server  # noqa: E402


def main():
    options = parse()
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(Node(smp=2, memory="512M", options=OPTIONS)) if options.own_node else None
        ceto = node.server if node else Server.parse(options.ceto)
        servers = Client(Server.parse(options.cassandra)), Client(ceto)
        intended = Intended(HERE / "intended.txt")
        if options.write:
            write(options, servers, intended)
            return
        report = Report(options.report)
        end = time.monotonic() + 60 * options.minutes
        seed = options.seed
        while time.monotonic() < end and (options.seeds is None or seed < options.seed + options.seeds):
            Seed(seed, servers, report, intended, node).play(options.statements, end)
            seed += 1
            report.progress(seed)
        report.write()
        print(report.summary(options.seed, seed))
        sys.exit(bool(report.groups))


def write(options, servers, intended):
    """A script of one seed, without what differs on purpose."""
    generator = Generator(options.seed, f"{options.write}_t")
    lines = [
        f"{BYTE_FOR_BYTE} Made by fuzz.py --seed {options.seed} --statements {options.statements} --write {options.write}."
    ]
    for statement in generator.statements(options.statements):
        answers = [server.ask(statement) for server in servers]
        found = difference(statement, *answers)
        if len(script_line(statement)) < LINE_MAX and not (found and intended.reason(found, statement, answers)):
            lines.append(script_line(statement))
            if found:
                print(f"differs: {found}: {script_line(statement)}")
    for server in servers:
        server.run(f"DROP TABLE {generator.table.name}")
    (HERE / f"{options.write}.cql").write_text("\n".join(lines) + "\n")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cassandra", metavar="HOST:PORT", required=True)
    ceto = parser.add_mutually_exclusive_group(required=True)
    ceto.add_argument("--ceto", metavar="HOST:PORT")
    ceto.add_argument("--own-node", action="store_true", help="start a node, which is flushed and killed between statements")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="how many seeds; default: until the minutes are over")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--statements", type=int, default=STATEMENTS, help="of each seed")
    parser.add_argument("--report", type=Path, help="also write the differences to this file, as they are found")
    parser.add_argument("--write", metavar="NAME", help="write NAME.cql instead of comparing")
    return parser.parse_args()


class Seed:
    """One seed on both servers."""

    def __init__(self, seed, servers, report, intended, node):
        self.seed, self.servers, self.report, self.intended, self.node = seed, servers, report, intended, node
        self.generator = Generator(seed)
        self.random = random.Random(f"what is done to the node, {seed}")
        self.asked = []

    def play(self, count, end):
        table = self.generator.table
        for statement in self.generator.statements(count):
            if time.monotonic() > end:
                break
            self.disturb()
            answers, found = self.compare(statement)
            if statement.kind == "truncate" and self.keeps_rows():
                break
            rows = len(answers[0].rows)
            if statement.kind == "select" and 1 < rows <= SWEEP_ROWS_MAX and self.random.random() < SWEEPS:
                for page in range(1, rows + 2):
                    self.compare(replace(statement, page=page))
            if not found:
                continue
            if statement.kind in ("create", "alter") and any(a.error for a in answers):
                break  # the tables are not the same any more
            if diverged(self.servers, table.name):
                truncate = Statement("truncate", f"TRUNCATE {table.name}")
                if any(server.ask(truncate).error for server in self.servers) or self.keeps_rows():
                    break  # Cassandra could not flush the table
                self.asked.append(truncate)
        for server in self.servers:
            server.run(f"DROP TABLE IF EXISTS {table.name}")

    def keeps_rows(self):
        """Whether Cassandra shows rows behind a TRUNCATE: those of a memtable that it cannot flush, such as one with a decimal key that has a scale and no digits.
        The first TRUNCATE fails then; later ones are acknowledged, and so is the first one behind an ALTER."""
        everything = Statement("select", f"SELECT * FROM {self.generator.table.name}")
        kept = bool(self.servers[0].ask(everything).rows)
        self.report.intended[KEPT] += kept
        return kept

    def disturb(self):
        """Now and then, flush the node, or kill it and start it again."""
        if not self.node:
            return
        if (chance := self.random.random()) < KILLS:
            self.node.kill9()
            self.node.start()
            self.servers[1].close()
            self.report.kinds["kill"] += 1
        elif chance < KILLS + FLUSHES:
            self.node.nodetool("flush")
            self.report.kinds["flush"] += 1

    def compare(self, statement):
        """Both answers, and how they differ."""
        report = self.report
        self.asked.append(statement)
        answers = [server.ask(statement) for server in self.servers]
        report.compared += 1
        report.kinds[statement.kind] += 1
        report.errors += bool(answers[0].error)
        found = difference(statement, *answers)
        if not found:
            return answers, None
        reason = self.intended.reason(found, statement, answers)
        if reason:
            report.intended[reason] += 1
            return answers, found
        report.differences += 1
        key = key_of(found, statement, answers)
        if report.is_new(key):
            script, shown = Shrinker(self.servers, self.generator.table, key).shrink(self.asked)
            # What stood in a late row before may be recognised now.
            if not (script and self.intended.reason(found, script[-1], shown)):
                report.add(self.seed, found, script, shown)
        return answers, found


def diverged(servers, table):
    """Whether the tables hold different rows, so that later differences would only repeat this one."""
    everything = Statement("select", f"SELECT * FROM {table}")
    return difference(everything, *(server.ask(everything) for server in servers)) is not None


if __name__ == "__main__":
    main()
