"""The command: `./dev mutants --help`."""

import argparse
import fnmatch
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mutants import play, tree
from mutants.places import ROOT, ListError, Mutant, check_lists

CAUGHT_MIN = 0.9


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    # The test or seed that failed; empty: none.
    caught_by: str
    # Whether the changed code ran at all.
    is_reached: bool
    seconds: float

    def line(self):
        outcome = self.caught_by or ("SURVIVED" if self.is_reached else "SURVIVED, never reached")
        return f"{self.mutant.crate:12} {self.mutant.id:44} {outcome}  ({self.seconds:.0f} s)"


def main():
    options = arguments()
    try:
        mutants = [m for m in check_lists() if fnmatch.fnmatch(f"{m.crate}/{m.id}", options.only)]
    except ListError as error:
        sys.exit(f"./dev mutants: {error}")
    if options.list:
        for mutant in mutants:
            print(f"{mutant.crate:12} {mutant.id:44} {mutant.harm}")
        return
    if not mutants:
        sys.exit(f"./dev mutants: no mutant is named {options.only}")
    began = time.monotonic()
    directory = Path(options.directory).resolve()
    with_seeds = not options.no_seeds and any(mutant.seeds for mutant in mutants)
    try:
        tree.copy(check_lists(), directory)
        binaries = tree.build(mutants, directory, with_seeds)
    except tree.BuildFailed as error:
        sys.exit(f"./dev mutants: {error}")
    print(f"{len(mutants)} mutants built in {time.monotonic() - began:.0f} s", flush=True)
    seconds = baseline(binaries)
    verdicts = judge(mutants, binaries, seconds, with_seeds, options.jobs)
    print(f"\n{time.monotonic() - began:.0f} s in all")
    sys.exit(report(verdicts))


def arguments():
    parser = argparse.ArgumentParser(prog="./dev mutants", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", default="*", help="CRATE/ID, with * for any text")
    parser.add_argument("--no-seeds", action="store_true", help="run tests only, no seeds of the simulator")
    parser.add_argument("--list", action="store_true", help="print the mutants and what a user would see of each")
    parser.add_argument("--jobs", type=int, default=1, help="how many mutants run at a time (1)")
    parser.add_argument(
        "--directory",
        metavar="DIR",
        default=ROOT / "target" / "mutants" / "tree",
        help="where the tree is copied to; what is there is replaced (target/mutants/tree)",
    )
    return parser.parse_args()


def baseline(binaries):
    """Run everything without a mutant: all of it must pass. Returns the seconds of each test binary."""
    seconds = {}
    for name, binary in sorted(binaries.items()):
        run = play.play_seeds(binary) if name == play.PLAYER else play.run_test(binary, play.SECONDS_MAX)
        if run.failure:
            print(run.output)
            sys.exit(f"./dev mutants: {name} fails without a mutant: {run.failure}")
        seconds[name] = run.seconds
    print(f"all pass without a mutant, in {sum(seconds.values()):.0f} s", flush=True)
    return seconds


def judge(mutants, binaries, seconds, with_seeds, jobs):
    printing = threading.Lock()

    def judged(mutant):
        verdict = judge_one(mutant, binaries, seconds, with_seeds and mutant.seeds)
        with printing:
            print(verdict.line(), flush=True)
        return verdict

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(judged, mutants))


def judge_one(mutant, binaries, seconds, with_seeds):
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        reached = Path(directory) / "reached"

        def verdict(caught_by):
            return Verdict(mutant, caught_by, reached.exists(), time.monotonic() - began)

        for test in mutant.tests:
            seconds_max = seconds[test] * play.SLOWER_MAX + play.SECONDS_MORE
            run = play.run_test(binaries[test], seconds_max, mutant, reached)
            if run.failure:
                return verdict(f"{test} {run.failure}")
        if with_seeds:
            run = play.play_seeds(binaries[play.PLAYER], mutant, reached)
            if run.failure:
                return verdict(f"simulator {run.failure}")
        return verdict("")


def report(verdicts):
    """Print what survived and the sum; the exit code."""
    survivors = [verdict for verdict in verdicts if not verdict.caught_by]
    unexplained = [verdict for verdict in survivors if not verdict.mutant.survives]
    for verdict in survivors:
        explanation = verdict.mutant.survives or "NOT EXPLAINED"
        print(f"survived: {verdict.mutant.crate}/{verdict.mutant.id}: {verdict.mutant.harm}\n    {explanation}")
    for verdict in verdicts:
        if verdict.caught_by and verdict.mutant.survives:
            print(f"{verdict.mutant.crate}/{verdict.mutant.id} is caught: remove its explanation for surviving")
    caught = len(verdicts) - len(survivors)
    share = caught / len(verdicts)
    print(f"{len(verdicts)} mutants, {caught} caught, {share:.1%}; {len(unexplained)} survivors without an explanation")
    return 1 if unexplained or share < CAUGHT_MIN else 0


main()
