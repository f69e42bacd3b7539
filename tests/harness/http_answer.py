"""One HTTP request, as a function and as a command: python http_answer.py HOST:PORT METHOD PATH [BODY]

The command prints the status, and from the next line on the body. The harness runs it where a node is that it cannot reach itself.
"""

import contextlib
import http.client
import sys

ANSWER_SECONDS = 60.0


def http_answer(address, method, path, body=None):
    """The status and the body, as text."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=ANSWER_SECONDS)
    with contextlib.closing(connection):
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


if __name__ == "__main__":
    print(*http_answer(*sys.argv[1:]), sep="\n", end="")
