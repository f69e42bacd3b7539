"""What the pages say of options, commands and other pages is what the binary says. Nothing here starts a node.

A page that is wrong is mended, not the test: each test reads the page's own words.
"""

import re
import subprocess

import pytest

from harness.node import ceto_binary, run_ceto
from harness.tables import ROOT, code, pages, rows

pytestmark = pytest.mark.ceto_only("the binary itself")

CONFIGURATION = "docs/operating/configuration.md"
NODETOOL = "docs/operating/nodetool.md"
# Nothing listens there, so a command that fails to connect has passed all checks of its words.
NO_NODE = ["--host", "127.0.0.1", "--port", "1"]
UNKNOWN = "no_option_has_this_name"
# Defaults that do nothing.
OFF = ("-1", "none", "0", "0ms", "0B/s")
UNITS = {
    "": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
    "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "minutes": 60_000, "h": 3_600_000, "hours": 3_600_000, "d": 86_400_000,
}  # fmt: skip
AMOUNT = re.compile(r"(\d[\d,.]*\d|\d) ?(" + "|".join(sorted(filter(None, UNITS), key=len, reverse=True)) + r")?\b")


# These check their options after they have connected to a node: tests/server/test_first_hour.py asks them.
READ_BY_COMMAND = {
    "cleanup", "clearsnapshot", "clientstats", "cluster", "compactionstats", "rebuild", "removenode", "repair", "snapshot", "tasks", "toppartitions",
}  # fmt: skip


def options():
    """The rows of all options of a node, by name."""
    return {code(row["option"])[0]: row for row in rows(CONFIGURATION) if "may change" in row}


def default_of(row):
    return row["default"].strip("`")


@pytest.fixture(scope="module")
def help_of_options():
    """Meaning and default of each option by name, as `ceto --help` prints them."""
    found = re.findall(r"^ +(?:-\w, )?--([\w.-]+) (?:<.*>|\[<.*>\])\n +(.*?) \[default: (.*)\]$", run_ceto("--help"), re.M)
    return {name.replace("-", "_"): (meaning, default) for name, meaning, default in found}


# --- options ---


def test_the_page_has_the_options_meanings_and_defaults_of_help(help_of_options):
    page = {name: (row["meaning"], default_of(row)) for name, row in options().items()}
    assert len(page) > 150
    assert page == help_of_options


PRINTED = re.compile(
    r"^( *)# (?P<meaning>.*)\.\n *# Value: (?P<value>.*)\. May change: (?P<change>.*)\.\n(?: *# Default: (?P<text>.*)\.\n)? *(?P<name>\w+):(?: (?P<given>.*))?$",
    re.M,
)


def test_a_printed_configuration_has_the_values_and_defaults_of_the_page():
    text, printed = run_ceto("--print-config"), {}
    for match in PRINTED.finditer(text):
        outer = re.findall(r"^(\w+):$", text[: match.start()], re.M)[-1] + "." if match[1] else ""
        default = match["text"] or match["given"]
        printed[outer + match["name"]] = (match["meaning"], match["value"], default.strip("\"'"), match["change"])
    page = {
        name: (row["meaning"], row["value"].replace("`", ""), default_of(row), row["may change"].replace("`", ""))
        for name, row in options().items()
    }
    assert printed == page


def complaints(directory, pairs):
    """The complaints of a start about options of a file, by name. The file also has an unknown option, so the start ends there."""
    file, outer = directory / "asked.yaml", {}
    for name, value in pairs:
        first, _, inner = name.partition(".")
        outer.setdefault(first, []).append(f"  {inner}: {value}" if inner else f" {value}")
    lines = [f"{first}:" + "".join(f"\n{line}" if line[1] == " " else line for line in given) for first, given in outer.items()]
    file.write_text("\n".join([*lines, f"{UNKNOWN}: 1", ""]))
    done = subprocess.run(
        [ceto_binary(), "--workdir", str(directory), "--options-file", str(file)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1 and UNKNOWN in done.stderr, done.stderr
    said = [line for line in done.stderr.splitlines() if UNKNOWN not in line]
    return {re.search(r"option '([\w.]+)' at line", line)[1]: line for line in said}


def test_every_option_and_old_spelling_takes_the_kind_of_value_that_the_page_says(tmp_path):
    """A value of another kind is refused at every name of the page, and by that name."""
    kinds = ("number", "port", "bytes", "duration", "`true` or `false`", "seconds")
    spellings = [[name, *code(row["old spellings"])] for name, row in options().items() if row["value"].startswith(kinds)]
    # One file has one spelling of an option.
    for nth in range(max(map(len, spellings))):
        wrong = [names[nth] for names in spellings if nth < len(names)]
        said = complaints(tmp_path, [(name, "a word") for name in wrong])
        assert [name for name in wrong if "'a word' given, expected " not in said.get(name, "")] == []
    assert len(spellings) > 100 and nth > 0


def test_every_option_takes_its_default(tmp_path):
    given = [(name, default_of(row)) for name, row in options().items() if row["default"].startswith("`")]
    given = [(name, value) for name, value in given if "." not in name]
    assert len(given) > 120
    assert complaints(tmp_path, given) == {}


def test_options_that_stop_the_start_do_so_with_the_reason_of_the_page(tmp_path):
    stops = [row for row in rows(CONFIGURATION) if "why it stops" in row]
    assert len(stops) > 20
    other = {}
    for row in stops:
        (name,), met = code(row["option"]), code(row["value that is met"])
        name = name.removesuffix(".class_name")
        for value in met:
            assert complaints(tmp_path, [(name, value)]) == {}, f"{name}: {value}"
        other[name] = ("true" if "false" in met else "false" if "true" in met else "another", row["why it stops"])
    said = complaints(tmp_path, [(name, value) for name, (value, _) in other.items()])
    for name, (value, why) in other.items():
        assert name in said, f"{name}: {value} is taken"
        assert why.replace("`", "") in said[name].replace("`", ""), f"{said[name]!r} does not say {why!r}"


def test_options_with_their_values_in_the_text_of_pages_are_taken(tmp_path):
    known, asked = options(), {}
    for page in pages():
        text = page.read_text()
        for name, value in re.findall(r"(?:`|^    (?: {4})*)(\w+): ([^`\n]+?)(?:`|$)", text, re.M):
            if name in known:
                asked.setdefault((name, value), page.name)
    assert len(asked) > 20
    for (name, value), page in asked.items():
        assert (said := complaints(tmp_path, [(name, value)])) == {}, f"{page}: {said}"


# --- figures ---


def amount(text, option):
    """A figure of a page, or of an option's default, in bytes, milliseconds or pieces."""
    match = AMOUNT.match(text)
    number = float(match[1].replace(",", "")) * UNITS[match[2] or ""]
    # These have their unit in the name.
    return number * 1000 if option.endswith("_in_seconds") and not match[2] else number


def shows(text, option, default):
    """Whether a cell gives the default of an option."""
    if default in OFF:
        return any(word in text for word in ("off", "none")) or default in re.findall(r"-?\d+", text)
    if AMOUNT.match(default):
        return any(amount(found[0], option) == amount(default, option) for found in AMOUNT.finditer(text))
    return default in text


def names_of(cell, known):
    """Options that a cell names; `{warn,fail}` in a name stands for both."""
    for name in code(cell):
        if match := re.fullmatch(r"(\w+)\{(\w+),(\w+)\}(\w*)", name):
            yield from (f"{match[1]}{each}{match[4]}" for each in match.groups()[1:3])
        elif name in known:
            yield name


def test_tables_of_other_pages_give_the_defaults_of_the_options():
    known, found = options(), 0
    for page in pages():
        name = str(page.relative_to(ROOT))
        for row in rows(name):
            if name == CONFIGURATION or "default" not in row:
                continue
            for option in names_of(next(iter(row.values())), known):
                default = default_of(known[option])
                assert shows(row["default"], option, default), f"{name}: {option} has the default {default}, not {row['default']}"
                found += 1
    assert found > 50


@pytest.mark.parametrize(
    "pattern",
    [
        r"`(?P<option>\w+)`,? \((?P<figure>\d[^)]*)\)",
        r"\(`(?P<option>\w+)`, (?P<figure>\d[^)]*)\)",
        r"(?P<figure>\d[\d,.]*(?: \w+)?) \(`(?P<option>\w+)`\)",
        r"`(?P<option>\w+)`, (?P<figure>\d[^|,]*) by default",
    ],
)
def test_figures_beside_an_option_in_the_text_are_its_default(pattern):
    known, found = options(), []
    for page in pages():
        for match in re.finditer(pattern, page.read_text()):
            if match["option"] in known:
                default = default_of(known[match["option"]])
                if default != match["figure"]:
                    assert shows(match["figure"], match["option"], default), f"{page.name}: {match[0]}, but the default is {default}"
                found.append(match[0])
    assert found, "no page has such a figure"


def test_ports_of_the_page_of_installation_are_the_defaults():
    known = options()
    for row in rows("docs/install.md", "Ports"):
        assert default_of(known[code(row["option"])[0]]) == row["port"], row


def test_figures_of_a_node_on_the_page_of_limits_are_those_of_its_options(tmp_path):
    limits = {row["what"]: row["limit"] for row in rows("docs/limits.md", "Of a node")}
    shards, memory, directories = (int(re.match(r"\d+", limits[what])[0]) for what in ("shards", "memory", "data directories"))
    least, most = f"{memory}MiB", f"[{', '.join('d' * (number + 1) for number in range(directories))}]"
    overprovisioned = ("overprovisioned", "true")
    assert complaints(tmp_path, [("smp", shards), ("memory", least), ("data_file_directories", most), overprovisioned]) == {}
    beyond = [("smp", shards + 1), ("memory", f"{memory - 1}MiB"), ("data_file_directories", most.replace("]", ", more]")), overprovisioned]
    assert complaints(tmp_path, beyond).keys() == {"smp", "memory", "data_file_directories"}


# --- commands ---


@pytest.fixture(scope="module")
def commands():
    """How each command of nodetool is called, by its name."""
    lines = re.findall(r"^ {4}(\S.*?) +(?:[A-Z][a-z]+ .*)$", run_ceto("nodetool", "help"), re.M)
    return {line.split()[0]: line for line in lines}


def lines_of_pages(word):
    """Code of pages that begins with a word: lines of blocks, without the explanation after some blanks, and code in a sentence."""
    for page in pages():
        text = page.read_text()
        found = [re.split(r" {2,}", line)[0] for line in re.findall(r"^ {4,}(?:\$ )?(\S.*)$", text, re.M)]
        for line in found + [span for line in text.splitlines() if not line.startswith("```") for span in code(line)]:
            if line == word or line.startswith(f"{word} "):
                yield page.name, line.removeprefix(word).replace("\\|", "|").strip()


def test_commands_of_nodetool_that_pages_name_are_there(commands):
    """Each line is called with its placeholders as values. No node answers, and the command fails for that reason alone."""
    lines = {*lines_of_pages("ceto nodetool"), *lines_of_pages("nodetool")}
    for row in rows(NODETOOL):
        lines |= {("nodetool.md", line) for line in code(row["command"])}
    refused = {"import", "refresh"}  # what the text says is not there
    tried = set()
    for page, line in sorted(lines):
        words = re.sub(r"[\[\]…]", "", line).replace("start|status|finalize", "start").replace("on|off", "on").split()
        words = words[: next((at for at, word in enumerate(words) if "|" in word), None)]
        command = next((word for word in words if not word.startswith("-")), None)
        if command in (None, "help") or "--host" in words or command in refused:
            continue
        done = subprocess.run([ceto_binary(), "nodetool", *NO_NODE, *words], capture_output=True, text=True, timeout=60)
        assert "does not answer" in done.stderr or "usage: ceto nodetool" in done.stderr, f"{page}: {line}: {done.stderr}"
        assert "unknown" not in done.stderr, f"{page}: {line}: {done.stderr}"
        told = run_ceto("nodetool", "help", command)
        # Some are explained by their short form alone.
        given = [option for option in words if re.match(r"--?[a-z]", option)]
        assert all(option in told or f"[{option[1:3]}]" in told for option in given), f"{page}: {line}: {told}"
        tried.add(command)
    assert len(tried) > 40, tried


def test_every_command_of_nodetool_is_on_a_page(commands):
    text = "\n".join(page.read_text() for page in pages())
    assert len(commands) > 60
    assert not (missing := [name for name in commands if not re.search(rf"\b{name}\b", text)]), missing


def test_commands_of_cassandra_that_the_page_calls_refused_are_refused():
    text = (ROOT / NODETOOL).read_text().partition("\n## Commands of Cassandra that are refused\n")[2].partition("\n## ")[0]
    explained, absent = text.strip().split("\n\n")
    for name in code(explained.partition(":")[0]):
        said = refused("nodetool", *NO_NODE, name)
        assert all(word in said for word in code(explained.partition(":")[2])), said
    assert len(code(absent)) == 4, absent
    for name in code(absent):
        assert f"unknown command '{name}'" in refused("nodetool", *NO_NODE, name)


def refused(*arguments, cwd=None):
    done = subprocess.run([ceto_binary(), *arguments], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0, done.stdout
    return done.stderr


def test_nodetool_without_a_host_asks_the_node_of_the_directory_that_the_page_names(tmp_path):
    assert "Without these options it asks the node of `./data`, else the one at 127.0.0.1, port 10000" in (ROOT / NODETOOL).read_text()
    usage = run_ceto("nodetool")
    assert "without options that of ./data, else that at 127.0.0.1, port 10000" in usage and "localhost" not in usage
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "api").write_text("127.0.0.1:1\n")
    assert "127.0.0.1:1 does not answer" in refused("nodetool", "info", cwd=tmp_path)


def test_names_that_are_options_are_refused_with_the_usage_of_the_command(commands):
    """A word with a dash that the command does not know is never taken for the name of a keyspace."""
    for name in commands.keys() - READ_BY_COMMAND:
        said = refused("nodetool", *NO_NODE, name, "--no-such-option")
        assert f"{name}: unknown option --no-such-option" in said and f"ceto nodetool {name}" in said, said


def test_options_of_other_commands_that_pages_name_are_there(help_of_options):
    """Lines of pages that start a node, or call a command that is not nodetool."""
    helps, server = {}, {f"--{name.replace('_', '-')}" for name in help_of_options} | {"--options-file", "--print-config"}
    for page, line in sorted({*lines_of_pages("ceto")}):
        words = line.split()
        given = [word for word in words if re.match(r"--[a-z]", word)]
        if not words or words[0] == "nodetool":
            continue
        if words[0].startswith("-"):
            assert set(given) <= server | {"--help", "--version"}, f"{page}: ceto {line}"
            continue
        call = words[: 2 if words[0] in ("perf", "sstable", "dynamodb") and len(words) > 1 else 1]
        for each in call[-1].split("|"):
            command = (*call[:-1], each)
            if command not in helps:
                helps[command] = run_ceto(*command, "--help")
            assert all(re.search(rf"{re.escape(option)}\b", helps[command]) for option in given), f"{page}: ceto {line}"
    assert len(helps) >= 8, helps.keys()


# --- what pages say of refusals, of each other, and of the machine ---


def test_what_a_node_says_by_the_tables_of_pages_is_in_the_binary():
    """Tables with a column `it says`: the words between what differs, `…`, are texts of the binary."""
    binary, found = ceto_binary().read_bytes(), 0
    for page in pages():
        for row in rows(page.relative_to(ROOT)):
            for says in re.split(r"[;…`]", row.get("it says", "")):
                # A remark in brackets is the page's own.
                words = re.sub(r"^ *\([^)]*\) *", "", says).strip(" .")
                if len(words) > 8:
                    assert words.encode() in binary, f"{page.name}: no text of the binary has {words!r}"
                    found += 1
    assert found > 40


def test_lines_of_the_log_in_the_text_of_pages_are_in_the_binary():
    """Text in italics or as code after words such as `the log says`."""
    behind = r"(?:\blog says|\blogs(?: it too)?|\blog of [^:`*.(|]{1,40}|\bthe line|\blists them)[:,]? ?\(?([`*])([^`*\n]+)\1"
    binary, found = ceto_binary().read_bytes(), 0
    for page in pages():
        for match in re.finditer(behind, page.read_text()):
            for words in match[2].split("…"):
                assert words.strip(" .").encode() in binary, f"{page.name}: no text of the binary has {words!r}"
                found += 1
    assert found > 10


def test_pages_that_are_named_by_their_command_are_in_the_binary():
    listed = run_ceto("page")
    named = {name for _, line in lines_of_pages("ceto page") if (name := line) and name != "[NAME]"}
    assert len(named) >= 4
    for name in named:
        assert run_ceto("page", name).startswith("# "), name
        assert re.search(rf"^ +{name}\b", listed, re.M), f"the list has no {name}"


def test_what_must_be_there_to_build_is_what_the_manifest_asks_for():
    manifest = (ROOT / "Cargo.toml").read_text()
    needed = re.search(r'^rust-version = "([\d.]+)"', manifest, re.M)[1]
    for page in ("README.md", "docs/install.md"):
        assert re.findall(r"([\d.]+\d) or newer", (ROOT / page).read_text()) == [needed], page


def test_cqlsh_is_installed_where_python_is_not_to_be_changed():
    """Debian 12 and others refuse pip outside of a virtual environment."""
    for page in pages():
        for line in re.findall(r"^(?: {4,}|\$ )(?:sudo )?(?:python3? -m )?pip3? install .*$", page.read_text(), re.M):
            raise AssertionError(f"{page.name}: {line.strip()}")
    assert re.findall(r"^ {4}pipx install cqlsh$", (ROOT / "README.md").read_text(), re.M)


def test_the_unit_of_systemd_starts_a_node_whose_options_are_written_before(tmp_path):
    text = (ROOT / "docs/install.md").read_text().partition("\n## systemd\n")[2]
    written, start = re.search(r"printf '(.*)\\n' \| sudo -u (\w+) tee (\S+)/ceto\.yaml", text), text.index("systemctl enable --now")
    assert 0 < written.start() < text.index("```ini") < start, "options, unit, start"
    pairs = [line.split(": ") for line in written[1].split("\\n")]
    assert pairs and complaints(tmp_path, pairs) == {}
    unit = dict(line.split("=", 1) for line in text.partition("```ini\n")[2].partition("```")[0].splitlines() if re.match(r"\w+=", line))
    assert (unit["User"], unit["ExecStart"]) == (written[2], f"/usr/local/bin/ceto --workdir {written[3]}")
