"""Compare ceto with Apache Cassandra on random schemas and statements.

    fuzz.py --cassandra HOST:PORT --ceto HOST:PORT --seed N --minutes M    seeds N, N+1, ... for M minutes
    fuzz.py --seed N --write NAME                                          the statements of seed N as NAME.cql, for test_scripts.py

One seed is one table and STATEMENTS statements. A difference is reported once for each shape, with the fewest statements that show it.
`intended.txt` lists differences that are meant.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from differential.fuzzing.answers import Client, difference  # noqa: E402
from differential.fuzzing.report import Intended, Report  # noqa: E402
from differential.fuzzing.scripts import script_lines  # noqa: E402
from differential.fuzzing.shrink import Shrinker  # noqa: E402
from differential.fuzzing.statements import STATEMENTS, Generator, Statement  # noqa: E402
from harness import Server  # noqa: E402

WRITES = ("insert", "update", "delete", "batch", "conditional", "conditional_batch", "count", "truncate", "mistake", "damaged")


def main():
    options = parse()
    if options.write:
        path = HERE / f"{options.write}.cql"
        path.write_text("\n".join(script_lines(Generator(options.seed).statements(options.statements))) + "\n")
        return
    servers = Client(Server.parse(options.cassandra)), Client(Server.parse(options.ceto))
    report = Report(options.report)
    intended = Intended(HERE / "intended.txt")
    end = time.monotonic() + 60 * options.minutes
    seed = options.seed
    while time.monotonic() < end and (options.seeds is None or seed < options.seed + options.seeds):
        play(seed, servers, report, intended, options.statements, end)
        seed += 1
        report.progress(seed)
    report.write()
    print(report.summary(options.seed, seed))
    sys.exit(bool(report.groups))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cassandra", metavar="HOST:PORT", default="127.0.0.1:9342")
    parser.add_argument("--ceto", metavar="HOST:PORT", default="127.0.0.1:9042")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="how many seeds; default: until the minutes are over")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--statements", type=int, default=STATEMENTS, help="of each seed")
    parser.add_argument("--report", type=Path, help="also write the differences to this file, as they are found")
    parser.add_argument("--write", metavar="NAME", help="write NAME.cql instead of comparing")
    return parser.parse_args()


def play(seed, servers, report, intended, count, end):
    """One seed on both servers."""
    generator = Generator(seed)
    asked = []
    for statement in generator.statements(count):
        if time.monotonic() > end:
            break
        asked.append(statement)
        answers = [server.ask(statement) for server in servers]
        report.compared += 1
        report.kinds[statement.kind] += 1
        report.errors += bool(answers[0].error)
        found = difference(statement, *answers)
        if not found:
            continue
        reason = intended.reason(found, statement, answers)
        if reason:
            report.intended[reason] += 1
        else:
            report.differences += 1
            if report.is_new(found, statement, answers):
                shrinker = Shrinker(servers, generator.table.name, found)
                report.add(seed, found, *shrinker.shrink(asked))
        if statement.kind in ("create", "alter") and any(a.error for a in answers):
            break  # the tables are not the same any more
        if diverged(servers, generator.table.name):
            for server in servers:
                server.run(f"TRUNCATE {generator.table.name}")
            asked.append(Statement("truncate", f"TRUNCATE {generator.table.name}"))
    for server in servers:
        server.run(f"DROP TABLE IF EXISTS {generator.table.name}")


def diverged(servers, table):
    """Whether the tables hold different rows, so that later differences would only repeat this one."""
    everything = Statement("select", f"SELECT * FROM {table}")
    return difference(everything, *(server.ask(everything) for server in servers)) is not None


if __name__ == "__main__":
    main()
