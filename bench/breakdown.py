"""Where the instructions of a request go, on three nodes under callgrind: exact, and the same on every machine.

Nodes collect only while the requests run, after the data was flushed and read once. The counts are of whole processes, so what nodes
do besides is in them: more of it than usual, because everything is some fifty times slower.
"""

import collections
import contextlib
import re
import subprocess
import tempfile
from pathlib import Path

from cluster import CONNECTIONS, NODES, WORKLOADS, Ceto, errors_of, load
from figures import figure

OPERATIONS = 5_000
PARTITIONS = 2_000
FUNCTIONS = 45
INSTRUCTIONS_MAX = {"write": 20_000, "read": 22_500, "conditional write": 75_000}
SMALL = {"connections": CONNECTIONS // 4, "partitions": PARTITIONS}


def profile():
    for workload, options in WORKLOADS.items():
        with tempfile.TemporaryDirectory(prefix="ceto-bench-profile-") as directory:
            wrapper = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={directory}/%p"]
            with Ceto(wrapper=wrapper, runtime="epoll") as nodes:
                _warm(nodes, options)
                _control(nodes, "--instr=on")
                result = load(nodes, *options, "--no-populate", "--warm-up", "0", "--operations", str(OPERATIONS), **SMALL)
                _control(nodes, "--instr=off")
                _control(nodes, "--dump")
                _show(workload, [_read(path) for path in Path(directory).glob("*.1")], errors_of(result))


def _warm(nodes, options):
    once = ["--warm-up", "0", "--operations", str(PARTITIONS)]
    load(nodes, *options, *once, **SMALL)
    for node in nodes.cluster:
        node.nodetool("flush")
    load(nodes, *options, "--no-populate", *once, **SMALL)


def _control(nodes, option):
    for pid in nodes.pids:
        subprocess.run(["callgrind_control", option, str(pid)], check=True, capture_output=True)


def _show(workload, of_nodes, errors):
    own, whole, calls = (sum((counts[i] for counts in of_nodes), collections.Counter()) for i in range(3))
    figure(f"{workload}, {NODES} nodes under callgrind, {errors}", sum(own.values()) / OPERATIONS, "instructions/op", most=INSTRUCTIONS_MAX[workload])
    print(f"{'with callees':>14} {'own':>9} {'calls':>8}   function")
    for name, count in whole.most_common(FUNCTIONS):
        print(f"{count / OPERATIONS:14,.0f} {own[name] / OPERATIONS:9,.0f} {calls[name] / OPERATIONS:8,.1f}   {name}")


def _read(path):
    """Instructions of each function, with and without those that it calls, and how often it was called.

    The format is that of Valgrind's manual, "Callgrind Format Specification": a name stands in full where it comes first, later only
    its number; the line behind `calls=` is what the call cost, any other line that begins with a position is the function's own.
    """
    names, own, whole, calls = {}, collections.Counter(), collections.Counter(), collections.Counter()

    def named(text):
        number, name = re.fullmatch(r"(\(\d+\)) ?(.*)", text).groups()
        return names.setdefault(number, _short(name))

    function = callee = called = None
    with contextlib.closing(path.open()) as lines:
        for line in lines:
            line = line.rstrip()
            if line.startswith("fn="):
                function = named(line[3:])
            elif line.startswith("cfn="):
                callee = named(line[4:])
            elif line.startswith("calls="):
                called = int(line[6:].split()[0])
            elif function and re.match(r"[+*\-\d]", line):
                cost = int(line.split()[1])
                if called is None:
                    own[function] += cost
                else:
                    calls[callee] += called
                    called = None
                # What a function that calls itself costs is counted once for each time.
                whole[function] += cost
    return own, whole, calls


def _short(name):
    return re.sub(r"<impl [^>]*>::|::\{\{closure\}\}|'\d+", "", name)[:120]
