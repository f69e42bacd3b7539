"""The tables of a page: rows as a reader sees them, so that a test can ask the binary about each.

    for row in rows("docs/limits.md", "Of a node"):
        row["limit"]

A cell is the text between two bars; `\\|` is a bar in a cell.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BAR = re.compile(r"(?<!\\)\|")


def rows(page, heading=None):
    """The rows of all tables of a page, or of those below a heading, as cells by the name of their column."""
    return [row for of, table in tables(page) for row in table if heading in (None, of)]


def tables(page):
    """Each table with its heading."""
    found, heading, header = [], None, None
    for line in (ROOT / page).read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("#").strip()
        if not line.startswith("|"):
            header = None
            continue
        cells = [cell.replace("\\|", "|").strip() for cell in _BAR.split(line)[1:-1]]
        if header is None:
            header = cells
            found.append((heading, []))
        elif set("".join(cells)) != {"-"}:
            assert len(cells) == len(header), f"{page}: a row of {len(cells)} cells below a header of {len(header)}: {line}"
            found[-1][1].append(dict(zip(header, cells, strict=True)))
    return found


def code(cell):
    """The texts between backticks, in order."""
    return re.findall(r"`([^`]+)`", cell)


def pages():
    """The pages for users and operators, and the README."""
    docs = ROOT / "docs"
    return [ROOT / "README.md", *sorted(docs.glob("*.md")), *sorted((docs / "operating").glob("*.md"))]
