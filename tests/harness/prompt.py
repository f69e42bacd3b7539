"""`./dev cluster N`: some nodes in one terminal, and a prompt to hurt them. All of them end with it."""

import contextlib
import shlex
import signal
import sys

from harness.cluster import NODES_MAX, Cluster
from harness.node import NodeFailed

HELP = """\
status           the nodes, their processes and what they use
kill N           SIGKILL
stop N           SIGTERM: drain, then end
start N...       start nodes that were killed or stopped
pause N          SIGSTOP: it keeps its sockets and answers nobody
resume N         go on after pause
split N...       pause all of these. A real split is impossible here: all nodes call from 127.0.0.1, so that no firewall
                 could tell them apart, and setting one up needs privileges
heal             resume all that are paused
add              start one more node
log N            the last lines that it printed
quit             end them all; what they kept is removed"""


class Prompt:
    def __init__(self, cluster):
        self.cluster = cluster
        self.paused = set()

    def run(self, line):
        """Run one line; False when it was the last."""
        command, *words = shlex.split(line) or [""]
        if command in ("quit", "exit"):
            return False
        numbers = [self._number(word) for word in words]
        match command:
            case "":
                pass
            case "status":
                self.status()
            case "kill" | "stop" | "log" | "pause" | "resume" if len(numbers) == 1:
                getattr(self, command)(*numbers)
            case "start" if numbers:
                self.cluster.start(*numbers)
            case "split" if numbers:
                for number in numbers:
                    self.pause(number)
            case "heal":
                for number in sorted(self.paused):
                    self.resume(number)
            case "add":
                print(f"node {self.cluster.add()} serves")
            case _:
                print(HELP)
        return True

    def _number(self, word):
        if not word.isdecimal() or not 1 <= int(word) <= len(self.cluster.nodes):
            raise ValueError(f"there is no node {word}; they are counted from 1 to {len(self.cluster.nodes)}")
        return int(word)

    def _running(self, number):
        if not self.cluster.node(number).alive:
            raise ValueError(f"node {number} does not run")
        return self.cluster.node(number)

    def kill(self, number):
        self._running(number).kill9()
        self.paused.discard(number)

    def stop(self, number):
        self._running(number).stop()
        self.paused.discard(number)

    def pause(self, number):
        self._running(number).pause()
        self.paused.add(number)

    def resume(self, number):
        self._running(number).resume()
        self.paused.discard(number)

    def log(self, number):
        print(self.cluster.node(number).log(), end="")

    def status(self):
        for number, node in enumerate(self.cluster, 1):
            if not node.alive:
                print(f"{number}  {node.host}  does not run")
                continue
            state = "paused" if number in self.paused else "runs"
            memory = node.resident_bytes() >> 20
            print(f"{number}  {node.host}  {state}, pid {node.pid}, {memory} MiB, {node.cpu_seconds():.1f} s of processor")


def main():
    size = sys.argv[1] if len(sys.argv) > 1 else "3"
    if not size.isdecimal() or not 1 <= int(size) <= NODES_MAX:
        sys.exit(f"./dev cluster takes a number of nodes from 1 to {NODES_MAX}, not {size}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.suppress(KeyboardInterrupt), Cluster(int(size), options=sys.argv[2:]) as cluster:
        print(f"{size} nodes serve: cqlsh {cluster.node(1).host} {cluster.ports[0]}    (help)")
        prompt = Prompt(cluster)
        while True:
            try:
                if not prompt.run(input("cluster> ")):
                    break
            except EOFError:
                break
            except (ValueError, NodeFailed) as failure:
                print(failure)


if __name__ == "__main__":
    main()
