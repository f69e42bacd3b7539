"""The lists of mutants, and the places in the source that they change."""

import tomllib
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LISTS = Path(__file__).resolve().parent
FIELDS = {"id", "file", "within", "original", "mutated", "harm", "tests", "seeds", "survives"}
REQUIRED = {"id", "file", "original", "mutated", "harm"}
SWITCH = "stdx::planted::is_mutant"


class ListError(Exception):
    """A list names what is not there. The message names the mutant."""


@dataclass(frozen=True)
class Mutant:
    """One bug that is planted on purpose."""

    id: str
    crate: str
    # Path from the root of the tree.
    file: str
    # Text that occurs once in the file and begins the item that has the place; empty: the whole file.
    within: str
    original: str
    mutated: str
    # What a user would see.
    harm: str
    # Test targets, "crate:target", in the order in which they are run.
    tests: tuple
    # Whether seeds of the simulator are played when no test fails.
    seeds: bool
    # Why nothing can catch it; empty: something must.
    survives: str

    @property
    def number(self):
        """What selects the mutant. It follows from the id alone, so a new mutant does not change the code of another crate."""
        return zlib.crc32(self.id.encode())

    @property
    def is_statement(self):
        return self.original.endswith(";")


def read_lists(directory=LISTS):
    """All mutants, crate by crate."""
    mutants = []
    for path in sorted(directory.glob("*.toml")):
        content = tomllib.loads(path.read_text())
        for entry in content["mutant"]:
            mutants.append(mutant_of(path.stem, entry, content["tests"]))
    for field in ("id", "number"):
        seen = set()
        for mutant in mutants:
            value = getattr(mutant, field)
            if value in seen:
                raise ListError(f"mutant {mutant.id}: another mutant has the same {field}")
            seen.add(value)
    return mutants


def mutant_of(crate, entry, tests):
    name = entry.get("id", "without id")
    if unknown := set(entry) - FIELDS:
        raise ListError(f"mutant {name} of {crate}: unknown fields {', '.join(sorted(unknown))}")
    if missing := REQUIRED - set(entry):
        raise ListError(f"mutant {name} of {crate}: the fields {', '.join(sorted(missing))} are missing")
    return Mutant(
        id=name,
        crate=crate,
        file=f"crates/{crate}/src/{entry['file']}",
        within=entry.get("within", ""),
        original=entry["original"].strip(),
        mutated=entry["mutated"].strip(),
        harm=entry["harm"],
        tests=tuple(entry.get("tests", tests)),
        seeds=entry.get("seeds", True),
        survives=entry.get("survives", ""),
    )


def place_of(mutant, source):
    """Where the mutant's original stands in the source of its file: start and end."""
    start, end = 0, len(source)
    if mutant.within:
        start, end = item_of(mutant, source)
    count = source.count(mutant.original, start, end)
    if count != 1:
        where = f"within '{mutant.within}' of {mutant.file}" if mutant.within else f"in {mutant.file}"
        raise ListError(f"mutant {mutant.id}: its original stands {count} times {where}, expected once")
    at = source.index(mutant.original, start, end)
    return at, at + len(mutant.original)


def item_of(mutant, source):
    """Start and end of the item that `within` begins. The formatter closes an item at the indentation of its first line."""
    if source.count(mutant.within) != 1:
        count = source.count(mutant.within)
        raise ListError(f"mutant {mutant.id}: '{mutant.within}' stands {count} times in {mutant.file}, expected once")
    at = source.index(mutant.within)
    line = source.rindex("\n", 0, at) + 1 if "\n" in source[:at] else 0
    indentation = source[line:].split(source[line:].lstrip(" "), 1)[0]
    end = source.find(f"\n{indentation}}}", at)
    return at, end if end >= 0 else len(source)


def rewrite(mutants, source):
    """The source of a file with all of its mutants behind their switches."""
    at_place = defaultdict(list)
    for mutant in mutants:
        at_place[place_of(mutant, source)].append(mutant)
    out, done = [], 0
    for (start, end), here in sorted(at_place.items()):
        if start < done:
            raise ListError(f"mutant {here[0].id}: its place overlaps that of another mutant")
        out += [source[done:start], switched(here)]
        done = end
    return "".join([*out, source[done:]])


def switched(mutants):
    """An expression in parentheses, or a statement, that is the original unless one of these mutants is selected."""
    branches = [f"if {SWITCH}({mutant.number}) {{ {mutant.mutated} }} else " for mutant in mutants]
    text = "".join(branches) + f"{{ {mutants[0].original} }}"
    return text if mutants[0].is_statement else f"({text})"


def check_lists(root=ROOT):
    """Read all lists and find every place.

    Raises ListError, which names each mutant whose place is not where its list says."""
    mutants, errors = read_lists(), []
    for file, here in by_file(mutants).items():
        if not (root / file).is_file():
            errors.append(f"mutant {here[0].id}: there is no {file}")
            continue
        source = (root / file).read_text()
        for mutant in here:
            try:
                place_of(mutant, source)
            except ListError as error:
                errors.append(str(error))
        if not errors:
            rewrite(here, source)
    if errors:
        raise ListError("\n".join(errors))
    return mutants


def by_file(mutants):
    files = defaultdict(list)
    for mutant in mutants:
        files[mutant.file].append(mutant)
    return files
