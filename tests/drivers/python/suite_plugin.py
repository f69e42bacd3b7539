"""A plugin of pytest. Tests whose name `module.Class.test` matches the expression LEAVE_OUT are not run; the others' outcomes go into the file OUTCOMES."""

import os
import re

PACKAGE = "tests.integration."
ORDER = ["passed", "skipped", "failed"]
names = {}
outcomes = {}


def pytest_collection_modifyitems(config, items):
    unwanted = re.compile(os.environ["LEAVE_OUT"])
    for item in items:
        parts = [item.module.__name__.removeprefix(PACKAGE), *([item.cls.__name__] if item.cls else []), item.name]
        names[item.nodeid] = ".".join(parts)
    out = [item for item in items if unwanted.fullmatch(names[item.nodeid])]
    items[:] = [item for item in items if item not in out]
    config.hook.pytest_deselected(items=out)


def pytest_runtest_logreport(report):
    """Of a test's three steps the worst counts."""
    name = names[report.nodeid]
    outcomes[name] = max(outcomes.get(name, "passed"), report.outcome, key=ORDER.index)


def pytest_sessionfinish():
    with open(os.environ["OUTCOMES"], "w", encoding="utf-8") as file:
        file.writelines(f"{outcome} {name}\n" for name, outcome in outcomes.items())
