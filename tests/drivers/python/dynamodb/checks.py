"""Runs the checks of a program in order, prints one line for each, and ends the program at the first that fails."""

import sys
import traceback

# Each SDK needs a region and credentials; a node without authorization ignores them.
REGION, KEY, SECRET = "us-east-1", "any", "any"


class Checks:
    def __init__(self):
        self._checks = []

    def check(self, what):
        """A decorator: the function is the check that `what` names."""

        def add(function):
            self._checks.append((what, function))
            return function

        return add

    def run(self, call=lambda function: function()):
        """`call` is how a check is called."""
        for what, function in self._checks:
            try:
                call(function)
            except Exception:
                print(f"failed: {what}\n{traceback.format_exc()}")
                sys.exit(1)
            print(f"ok: {what}")
        print("all as it should be")


def raises(error, function, *arguments, **options):
    """The exception of this class that the call raises."""
    try:
        function(*arguments, **options)
    except error as raised:
        return raised
    raise AssertionError(f"no {error.__name__}")
