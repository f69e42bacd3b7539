"""Random tables with random secondary indexes, statements that write them, and queries that an index may answer.

One schema has several tables of the same columns: each class of index has one, and one has no index. A statement names its table TABLE.
"""

import random
from dataclasses import dataclass

ANALYZER = "org.apache.cassandra.index.sasi.analyzer.NonTokenizingAnalyzer"
SASI = "org.apache.cassandra.index.sasi.SASIIndex"
PLAIN, LEGACY, SAI, SASI_CLASS = "plain", "legacy", "sai", "sasi"
CLASSES = (LEGACY, SAI, SASI_CLASS)
# Literals of each type, in the order of the type where it has one: few of them, so that rows share values and lose them again.
VALUES = {
    "int": ["-2147483648", "-1", "0", "1", "2", "300"],
    "bigint": ["-9223372036854775808", "-5", "0", "1", "7", "4294967296"],
    "smallint": ["-32768", "-1", "0", "1", "32767"],
    "tinyint": ["-128", "0", "1", "127"],
    "varint": ["-170141183460469231731687303715884105728", "-129", "-1", "0", "1", "255", "256", "1000000000000000000000"],
    "decimal": ["-10.5", "-1", "0", "0.1", "1", "12345678901234567890.5"],
    "double": ["-1.5", "-1e-300", "0.0", "2.5", "1e300"],
    "float": ["-1.5", "0.0", "2.5", "1e30"],
    "text": ["''", "'a'", "'ab'", "'abc'", "'b'", "'zz'", "'é'", "'𝄞'"],
    "ascii": ["'a'", "'ab'", "'b'", "'zz'"],
    "blob": ["0x", "0x00", "0x0001", "0xff"],
    "boolean": ["false", "true"],
    "uuid": [f"00000000-0000-4000-8000-00000000000{n}" for n in range(4)],
    "timeuuid": ["00000000-0000-1000-8080-808080808080", "00000001-0000-1000-8080-808080808080", "00000000-0001-1000-8080-808080808080"],
    "timestamp": ["-1000", "0", "1700000000000", "'2024-02-29 12:00:00+0000'"],
    "date": ["'1969-12-31'", "'1970-01-01'", "'2024-02-29'"],
    "time": ["'00:00:00'", "'12:34:56.789'", "'23:59:59.999999999'"],
    "inet": ["'0.0.0.0'", "'10.0.0.1'", "'255.255.255.255'", "'::1'", "'fe80::1'"],
}  # fmt: skip
KEY_TYPES = ["int", "text", "bigint", "uuid", "date", "ascii", "tinyint", "timestamp", "inet", "varint", "timeuuid", "blob"]
COLLECTIONS = [
    "list<int>", "list<text>", "set<text>", "set<int>", "set<inet>", "map<text, int>", "map<int, text>", "map<int, bigint>",
    "frozen<list<int>>", "frozen<set<text>>", "frozen<map<text, int>>", "tuple<int, text>",
]  # fmt: skip
PATTERNS = ["a%", "ab%", "%b", "%", "ab", "%b%", "z%", "é%", "%z%"]
STAMP_MAX = 400
TTL_SHORT, TTL_LONG = 1, 10_000


@dataclass
class Column:
    name: str
    type: str
    kind: str  # partition, clustering, static, regular

    @property
    def is_collection(self):
        return self.type.startswith(("list", "set", "map"))

    @property
    def parts(self):
        """The types between the brackets."""
        return self.type.removeprefix("frozen<").partition("<")[2].rstrip(">").split(", ")


@dataclass
class Query:
    """`conditions` are what WHERE says; `uses` the words of it that name a kind of difference."""

    selected: str
    conditions: str
    end: str
    page: int
    uses: str

    def text(self, table, filtering):
        return f"SELECT {self.selected} FROM {table} WHERE {self.conditions}{self.end}{' ALLOW FILTERING' if filtering else ''}"


class Schema:
    def __init__(self, seed):
        self.rng = rng = random.Random(f"indexes {seed}")
        types = lambda pool, least, most: [rng.choice(pool) for _ in range(rng.randrange(least, most + 1))]
        self.columns = []
        self._add("partition", "p", types(KEY_TYPES, 1, 2))
        self._add("clustering", "c", types(KEY_TYPES, 0, 2))
        self.has_clustering = any(c.kind == "clustering" for c in self.columns)
        if self.has_clustering:
            self._add("static", "s", types(list(VALUES), 0, 2))
        self._add("regular", "v", types(list(VALUES), 2, 5))
        self._add("regular", "w", types(COLLECTIONS, 1, 3))
        self.orders = [f"{c.name} {rng.choice(['ASC', 'DESC'])}" for c in self.of("clustering")]
        self.targets = [t for c in self.columns for t in self._targets(c) if rng.random() < 0.6]
        self.keys = [[rng.choice(VALUES[c.type]) for c in self.of("partition")] for _ in range(6)]
        # Literals that both servers read and that are the same value as another one would make duplicate keys: none is.
        self.rows = [[rng.choice(VALUES[c.type]) for c in self.of("clustering")] for _ in range(8)]

    def _add(self, kind, letter, types):
        self.columns += [Column(f"{letter}{i}", type_, kind) for i, type_ in enumerate(types)]

    def of(self, *kinds):
        return [c for c in self.columns if c.kind in kinds]

    def _targets(self, column):
        if column.kind == "partition" and len(self.of("partition")) == 1:
            return []
        if column.type.startswith("frozen"):
            return [f"full({column.name})"]
        if column.type.startswith("map"):
            return [f"{part}({column.name})" for part in ("keys", "values", "entries")]
        return [column.name]

    def create(self, table, more=""):
        named = [f"{c.name} {c.type}{' static' if c.kind == 'static' else ''}" for c in self.columns]
        names = lambda kind: ", ".join(c.name for c in self.of(kind))
        key = f"({names('partition')})" + (f", {names('clustering')}" if self.has_clustering else "")
        options = ([f"CLUSTERING ORDER BY ({', '.join(self.orders)})"] if self.orders else []) + ([more] if more else [])
        ends = f" WITH {' AND '.join(options)}" if options else ""
        return f"CREATE TABLE {table} ({', '.join(named)}, PRIMARY KEY ({key})){ends}"

    def index(self, class_, table, target):
        """CREATE INDEX of a class on a target, without the name; None where the class has no such index."""
        column = target.rstrip(")").rpartition("(")[2]
        if class_ == LEGACY:
            return f"ON {table} ({target})"
        if class_ == SAI:
            return f"ON {table} ({target}) USING 'sai'"
        type_ = next(c.type for c in self.columns if c.name == column)
        if type_ not in VALUES:
            return None
        options = ""
        if type_ in ("text", "ascii"):
            mode = self.rng.choice(["PREFIX", "CONTAINS"])
            options = f" WITH OPTIONS = {{'mode': '{mode}', 'analyzer_class': '{ANALYZER}', 'case_sensitive': 'true'}}"
        return f"ON {table} ({column}) USING '{SASI}'{options}"

    # --- values ---

    def value(self, type_):
        rng = self.rng
        if type_ in VALUES:
            return rng.choice(VALUES[type_])
        if type_.startswith("frozen"):
            return self.value(type_.removeprefix("frozen<").removesuffix(">"))
        kind, _, rest = type_.partition("<")
        parts = rest.rstrip(">").split(", ")
        some = range(rng.randrange(1, 4))
        if kind == "list":
            return f"[{', '.join(self.value(parts[0]) for _ in some)}]"
        if kind == "set":
            return f"{{{', '.join(sorted({self.value(parts[0]) for _ in some}))}}}"
        if kind == "map":
            return f"{{{', '.join(f'{k}: {self.value(parts[1])}' for k in sorted({self.value(parts[0]) for _ in some}))}}}"
        return f"({', '.join(self.value(part) for part in parts)})"

    def _partition(self):
        key = self.rng.choice(self.keys)
        return [f"{c.name} = {v}" for c, v in zip(self.of("partition"), key, strict=True)]

    def _row(self):
        row = self.rng.choice(self.rows)
        return self._partition() + [f"{c.name} = {v}" for c, v in zip(self.of("clustering"), row, strict=True)]

    # --- writes ---

    def write(self):
        stamp = self.rng.randrange(1, STAMP_MAX)
        if self.rng.random() < 0.06:
            return f"BEGIN UNLOGGED BATCH {self._one(stamp)}; {self._one(stamp)}; APPLY BATCH"
        return self._one(stamp)

    def _one(self, stamp):
        rng, roll = self.rng, self.rng.random()
        using = f"USING TIMESTAMP {stamp}"
        ttl = rng.random()
        living = using + (f" AND TTL {TTL_SHORT}" if ttl < 0.06 else f" AND TTL {TTL_LONG}" if ttl < 0.14 else "")
        regular, static = self.of("regular"), self.of("static")
        row = " AND ".join(self._row())
        if roll < 0.4:
            some = rng.sample(regular, rng.randrange(1, len(regular) + 1))
            named = [part.split(" = ", 1) for part in self._row()] + [[c.name, self._or_null(c.type)] for c in some]
            if static and rng.random() < 0.2:
                named.append([static[0].name, self.value(static[0].type)])
            names, values = zip(*named, strict=True)
            return f"INSERT INTO TABLE ({', '.join(names)}) VALUES ({', '.join(values)}) {living}"
        if roll < 0.6:
            column = rng.choice(regular)
            return f"UPDATE TABLE {living} SET {column.name} = {self._or_null(column.type)} WHERE {row}"
        if roll < 0.7 and static:
            column = rng.choice(static)
            return f"UPDATE TABLE {living} SET {column.name} = {self._or_null(column.type)} WHERE {' AND '.join(self._partition())}"
        if roll < 0.82 and (change := self._change_of_a_collection()):
            return f"UPDATE TABLE {living} SET {change} WHERE {row}"
        if roll < 0.88:
            return f"DELETE {rng.choice(regular).name} FROM TABLE {using} WHERE {row}"
        if roll < 0.91 and static:
            return f"DELETE {rng.choice(static).name} FROM TABLE {using} WHERE {' AND '.join(self._partition())}"
        if roll < 0.95:
            return f"DELETE FROM TABLE {using} WHERE {row}"
        if roll < 0.98 and self.has_clustering:
            first = self.of("clustering")[0]
            bound = f"{first.name} {rng.choice(['>', '<', '>=', '<='])} {self.value(first.type)}"
            return f"DELETE FROM TABLE {using} WHERE {' AND '.join(self._partition())} AND {bound}"
        return f"DELETE FROM TABLE {using} WHERE {' AND '.join(self._partition())}"

    def _or_null(self, type_):
        return "null" if self.rng.random() < 0.06 else self.value(type_)

    def _change_of_a_collection(self):
        some = [c for c in self.of("regular") if c.is_collection]
        if not some:
            return None
        column = self.rng.choice(some)
        name, kind, parts = column.name, column.type.partition("<")[0], column.parts
        if kind == "list":
            one = self.value(parts[0])
            return self.rng.choice([f"{name} = {name} + [{one}]", f"{name} = [{one}] + {name}"])
        if kind == "set":
            return f"{name} = {name} {self.rng.choice('+-')} {{{self.value(parts[0])}}}"
        key = self.value(parts[0])
        return self.rng.choice([f"{name}[{key}] = {self.value(parts[1])}", f"{name}[{key}] = null", f"{name} = {name} - {{{key}}}"])

    # --- queries ---

    def query(self):
        rng = self.rng
        conditions, uses = {}, set()
        for _ in range(rng.choice([1, 1, 1, 2, 2, 3])):
            column = rng.choice(self.columns)
            # Two conditions on one column are the bounds of a slice.
            text, use = self._condition(column)
            conditions[column.name] = text
            uses.add(use)
        reverse = ""
        if rng.random() < 0.2:
            conditions |= dict(zip([c.name for c in self.of("partition")], self._partition(), strict=True))
            uses.add("a partition")
            if self.orders and rng.random() < 0.3:
                turn = {"ASC": "DESC", "DESC": "ASC"} if rng.random() < 0.5 else {"ASC": "ASC", "DESC": "DESC"}
                reverse = " ORDER BY " + ", ".join(f"{n} {turn[o]}" for n, o in map(str.split, self.orders))
                uses.add("ORDER BY")
        elif rng.random() < 0.1:
            names = ", ".join(c.name for c in self.of("partition"))
            conditions["token"] = f"token({names}) {rng.choice(['>', '<='])} {rng.choice([-(1 << 62), 0, 1 << 62])}"
            uses.add("token")
        selected = self._selected()
        end = reverse
        if "(" not in selected:
            end += rng.choice(["", "", "", "", " LIMIT 2", " PER PARTITION LIMIT 1"])
        if end.endswith(("2", "1")):
            uses.add("a limit")
        if selected.startswith("DISTINCT"):
            uses.add("DISTINCT")
        page = rng.choice([1, 2, 5000])
        return Query(selected, " AND ".join(conditions.values()), end, page, ", ".join(sorted(uses)))

    def _selected(self):
        rng, whole = self.rng, ", ".join(c.name for c in self.columns)
        roll = rng.random()
        if roll < 0.6:
            return whole
        if roll < 0.8:
            some = [c.name for c in self.of("partition")] + [c.name for c in self.columns if rng.random() < 0.3]
            return ", ".join(dict.fromkeys(some))
        if roll < 0.9:
            return "count(*)"
        if roll < 0.93 and self.of("static"):
            return "DISTINCT " + ", ".join(c.name for c in self.of("partition", "static"))
        column = rng.choice([c for c in self.of("regular") if c.type in VALUES])
        return f"count({column.name}), min({column.name}), max({column.name})"

    def _condition(self, column):
        rng, name, type_ = self.rng, column.name, column.type
        roll = rng.random()
        if type_ in VALUES:
            if roll < 0.5:
                return f"{name} = {self.value(type_)}", f"{column.kind} {type_} ="
            if roll < 0.6:
                values = dict.fromkeys(self.value(type_) for _ in range(rng.randrange(1, 4)))
                return f"{name} IN ({', '.join(values)})", f"{column.kind} {type_} IN"
            if roll < 0.75 and type_ in ("text", "ascii"):
                return f"{name} LIKE '{rng.choice(PATTERNS)}'", f"{column.kind} {type_} LIKE"
            if roll < 0.85:
                return f"{name} {rng.choice(['<', '<=', '>', '>='])} {self.value(type_)}", f"{column.kind} {type_} range"
            return f"{name} >= {self.value(type_)} AND {name} < {self.value(type_)}", f"{column.kind} {type_} slice"
        if type_.startswith(("frozen", "tuple")) and (roll < 0.7 or not type_.startswith("frozen")):
            return f"{name} = {self.value(type_)}", "frozen ="
        if "map" in type_:
            key, value = column.parts
            if roll < 0.35 and not type_.startswith("frozen"):
                return f"{name}[{self.value(key)}] = {self.value(value)}", "entry"
            if roll < 0.7:
                return f"{name} CONTAINS KEY {self.value(key)}", f"CONTAINS KEY {key}"
            return f"{name} CONTAINS {self.value(value)}", f"CONTAINS {value}"
        return f"{name} CONTAINS {self.value(column.parts[0])}", f"CONTAINS {column.parts[0]}"
