"""Compare ceto with Apache Cassandra on random schemas and statements.

    fuzz.py --cassandra HOST:PORT --ceto HOST:PORT --seed N --minutes M    seeds N, N+1, ... for M minutes
    fuzz.py --cassandra HOST:PORT --ceto HOST:PORT --seed N --write NAME   the statements of seed N as NAME.cql, for test_scripts.py

One seed is one table and STATEMENTS statements. A difference is reported once for each shape, with the fewest statements that show it.
`intended.txt` lists differences that are meant.
"""

import argparse
import sys
import time
from pathlib import Path

LINE_MAX = 5_000
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from differential.fuzzing.answers import Client, difference  # noqa: E402
from differential.fuzzing.report import Intended, Report, key_of  # noqa: E402
from differential.fuzzing.scripts import BYTE_FOR_BYTE, script_line  # noqa: E402
from differential.fuzzing.shrink import Shrinker  # noqa: E402
from differential.fuzzing.statements import STATEMENTS, Generator, Statement  # noqa: E402
from harness import Server  # noqa: E402


def main():
    options = parse()
    servers = Client(Server.parse(options.cassandra)), Client(Server.parse(options.ceto))
    intended = Intended(HERE / "intended.txt")
    if options.write:
        write(options, servers, intended)
        return
    report = Report(options.report)
    end = time.monotonic() + 60 * options.minutes
    seed = options.seed
    while time.monotonic() < end and (options.seeds is None or seed < options.seed + options.seeds):
        play(seed, servers, report, intended, options.statements, end)
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
    parser.add_argument("--ceto", metavar="HOST:PORT", required=True)
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
        failed = any(a.error for a in answers)
        found = difference(statement, *answers)
        if not found:
            continue
        reason = intended.reason(found, statement, answers)
        if reason:
            report.intended[reason] += 1
        else:
            report.differences += 1
            key = key_of(found, statement, answers)
            if report.is_new(key):
                script, answers = Shrinker(servers, generator.table, key).shrink(asked)
                # What stood in a late row before may be recognised now.
                if not (script and intended.reason(found, script[-1], answers)):
                    report.add(seed, found, script, answers)
        if statement.kind in ("create", "alter") and failed:
            break  # the tables are not the same any more
        if diverged(servers, generator.table.name):
            truncate = Statement("truncate", f"TRUNCATE {generator.table.name}")
            if any(server.ask(truncate).error for server in servers):
                break  # Cassandra could not flush the table
            asked.append(truncate)
    for server in servers:
        server.run(f"DROP TABLE IF EXISTS {generator.table.name}")


def diverged(servers, table):
    """Whether the tables hold different rows, so that later differences would only repeat this one."""
    everything = Statement("select", f"SELECT * FROM {table}")
    return difference(everything, *(server.ask(everything) for server in servers)) is not None


if __name__ == "__main__":
    main()
