"""Random CQL, made anew from a seed: one table and a sequence of statements on it.

The outcome of every statement is defined: writes carry explicit timestamps, no two of them the same unless they stand in
one batch, and TTLs are far longer than a run. Values come from small sets, so that statements meet the same rows often.
About every seventh statement is damaged, by dropping, repeating or exchanging a token: the answers must agree on those too.
"""

import random
import re

KEYSPACE = "differential"
STATEMENTS = 60
TTL_SECONDS = 1_000_000
TIMESTAMPS = range(1, 1000)

LITERALS = {
    "int": ["0", "1", "-1", "2147483647", "7"],
    "bigint": ["0", "-5", "9223372036854775807"],
    "tinyint": ["-128", "0", "127"],
    "text": ["'a'", "'b'", "'ab'", "'grüße'", "'z'"],
    "ascii": ["'A'", "'a'", "'~'"],
    "blob": ["0x00", "0xff", "0x0001", "0xcafe"],
    "boolean": ["true", "false"],
    "uuid": [
        "00000000-0000-4000-8000-000000000001",
        "ffffffff-0000-4000-8000-000000000000",
        "7fffffff-0000-1000-8000-000000000000",
    ],
    "timestamp": ["0", "'2024-02-29T12:00:00.123+0000'", "-1"],
    "date": ["'1970-01-01'", "'2024-02-29'", "'1969-12-31'"],
    "double": ["0", "-1.5", "1e10"],
    "decimal": ["0", "1.50", "-12345678901234567890.1"],
    "varint": ["0", "-1", "123456789012345678901234567890"],
    "inet": ["'127.0.0.1'", "'::1'"],
}
TOKEN = re.compile(r"'[^']*'|0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|-?\d[\w.]*|\w+|<=|>=|\S")


def damage(random, tokens):
    """A statement of these tokens with one of them missing, repeated, or in another's place."""
    at = random.randrange(len(tokens))
    how = random.choice(["drop", "drop", "repeat", "exchange"])
    if how == "drop":
        del tokens[at]
    elif how == "repeat":
        tokens.insert(at, tokens[at])
    else:
        other = random.randrange(len(tokens))
        tokens[at], tokens[other] = tokens[other], tokens[at]
    return " ".join(tokens)


class Column:
    def __init__(self, name, kind, order=None):
        self.name = name
        self.kind = kind
        self.order = order
        shape = re.fullmatch(r"(?:frozen<)?(list|set|map)<(.*?)>+", kind)
        self.collection = shape[1] if shape else None
        self.frozen = kind.startswith("frozen")
        self.elements = shape[2].split(", ") if shape else [kind]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(f"ceto differential {seed}")
        self.table = f"t{seed}"
        self.times = self.random.sample(TIMESTAMPS, len(TIMESTAMPS))
        self._make_schema()

    def statements(self, count=STATEMENTS):
        yield self.create_table()
        for _ in range(count):
            statement = self._choose(
                (6, self.insert),
                (5, self.update),
                (4, self.delete),
                (2, self.batch),
                (10, self.select),
                (1, self.mistake),
            )()
            if self.random.random() < 0.15:
                statement = self.damaged(statement)
            yield statement
        yield f"SELECT * FROM {self.table}"

    # --- the table ---

    def _make_schema(self):
        r = self.random
        simple = list(LITERALS)
        self.partition = [Column(f"p{n}", r.choice(simple)) for n in range(r.choice([1, 1, 2]))]
        self.clustering = [
            Column(f"c{n}", r.choice(simple), r.choice(["ASC", "DESC"])) for n in range(r.choice([0, 1, 1, 2, 3]))
        ]
        self.static = [Column("s0", r.choice(simple))] if self.clustering and r.random() < 0.6 else []
        kinds = [
            lambda: r.choice(simple),
            lambda: r.choice(simple),
            lambda: f"list<{r.choice(['int', 'text'])}>",
            lambda: f"set<{r.choice(['int', 'text', 'uuid'])}>",
            lambda: f"map<{r.choice(['text', 'int'])}, {r.choice(['int', 'text', 'boolean'])}>",
            lambda: r.choice(["frozen<list<int>>", "frozen<set<text>>", "frozen<map<text, int>>"]),
        ]
        self.regular = [Column(f"v{n}", r.choice(kinds)()) for n in range(r.choice([1, 2, 3, 4]))]

    def create_table(self):
        columns = [f"{c.name} {c.kind}" for c in self.partition + self.clustering]
        columns += [f"{c.name} {c.kind} static" for c in self.static] + [f"{c.name} {c.kind}" for c in self.regular]
        partition = ", ".join(c.name for c in self.partition)
        key = ", ".join([f"({partition})"] + [c.name for c in self.clustering])
        order = ", ".join(f"{c.name} {c.order}" for c in self.clustering)
        options = f" WITH CLUSTERING ORDER BY ({order})" if order else ""
        return f"CREATE TABLE {self.table} ({', '.join(columns)}, PRIMARY KEY ({key})){options}"

    # --- values ---

    def literal(self, column):
        if not column.collection:
            return self.random.choice(LITERALS[column.kind])
        size = self.random.choice([0, 1, 2, 3])
        return self._collection(column, size)

    def _collection(self, column, size):
        if column.collection == "map":
            key, value = column.elements
            keys = self.random.sample(LITERALS[key], min(size, len(LITERALS[key])))
            return "{" + ", ".join(f"{k}: {self.random.choice(LITERALS[value])}" for k in keys) + "}"
        values = [self.random.choice(LITERALS[column.elements[0]]) for _ in range(size)]
        return f"[{', '.join(values)}]" if column.collection == "list" else f"{{{', '.join(dict.fromkeys(values))}}}"

    def using(self, with_ttl=False):
        ttl = f" AND TTL {TTL_SECONDS}" if with_ttl and self.random.random() < 0.15 else ""
        return f" USING TIMESTAMP {self.times.pop()}{ttl}"

    # --- writes ---

    def insert(self, using=None):
        columns = list(self.partition)
        others = self.static + self.regular
        chosen = self.random.sample(others, self.random.randint(0, len(others)))
        only_static = self.static and set(chosen) <= set(self.static) and chosen and self.random.random() < 0.5
        columns += chosen if only_static else self.clustering + chosen
        values = ["null" if c in others and self.random.random() < 0.1 else self.literal(c) for c in columns]
        names = ", ".join(c.name for c in columns)
        using = self.using(with_ttl=True) if using is None else using
        return f"INSERT INTO {self.table} ({names}) VALUES ({', '.join(values)}){using}"

    def update(self, using=None):
        only_static = self.static and self.random.random() < 0.2
        columns = self.static if only_static else self.regular
        chosen = self.random.sample(columns, self.random.randint(1, len(columns)))
        sets = ", ".join(self._assignment(c) for c in chosen)
        where = (
            self._keys(self.partition) if only_static else self._keys(self.partition + self.clustering, may_be_in=True)
        )
        using = self.using(with_ttl=True) if using is None else using
        return f"UPDATE {self.table}{using} SET {sets} WHERE {where}"

    def _assignment(self, column):
        name, r = column.name, self.random
        if not column.collection or column.frozen or r.random() < 0.3:
            return f"{name} = {'null' if r.random() < 0.1 else self.literal(column)}"
        filled = self._collection(column, r.choice([1, 2]))
        if column.collection == "list":
            value = r.choice(LITERALS[column.elements[0]])
            return r.choice(
                [
                    f"{name} = {name} + {filled}",
                    f"{name} = {filled} + {name}",
                    f"{name} = {name} - {filled}",
                    f"{name}[{r.choice('0012')}] = {value}",
                ]
            )
        if column.collection == "set":
            return f"{name} = {name} {r.choice('+-')} {filled}"
        key, value = (r.choice(LITERALS[kind]) for kind in column.elements)
        return r.choice(
            [
                f"{name} = {name} + {filled}",
                f"{name} = {name} - {{{key}}}",
                f"{name}[{key}] = {value}",
                f"{name}[{key}] = null",
            ]
        )

    def delete(self, using=None):
        r = self.random
        using = self.using() if using is None else using
        kind = r.choice(["row", "row", "columns", "prefix", "range", "partition"])
        what, where = "", self._keys(self.partition)
        if kind == "columns":
            columns = r.sample(self.regular, r.randint(1, len(self.regular)))
            what = ", ".join(self._deleted(c) for c in columns)
        if kind in ("row", "columns"):
            where = self._keys(self.partition + self.clustering, may_be_in=True)
        elif kind in ("prefix", "range") and self.clustering:
            where = self._clustering_slice(where)
        return f"DELETE {what + ' ' if what else ''}FROM {self.table}{using} WHERE {where}"

    def _deleted(self, column):
        if column.collection and not column.frozen and self.random.random() < 0.5:
            key = (
                self.random.choice("012")
                if column.collection == "list"
                else self.random.choice(LITERALS[column.elements[0]])
            )
            return f"{column.name}[{key}]"
        return column.name

    def batch(self):
        using = self.using()
        parts = [
            self.random.choice([self.insert, self.update, self.delete])(using="")
            for _ in range(self.random.randint(1, 3))
        ]
        kind = self.random.choice(["", "UNLOGGED "])
        return f"BEGIN {kind}BATCH{using} {'; '.join(parts)}; APPLY BATCH"

    # --- reads ---

    def select(self):
        r = self.random
        where, order, filtering = "", "", ""
        kind = r.choice(
            ["partition", "partition", "slice", "slice", "slice", "in", "all", "token", "filter", "distinct"]
        )
        if kind in ("partition", "slice"):
            where = self._keys(self.partition)
            if kind == "slice" and self.clustering:
                where = self._clustering_slice(where)
            if self.clustering and r.random() < 0.3:
                order = f" ORDER BY {self.clustering[0].name} {r.choice(['ASC', 'DESC'])}"
        elif kind == "in":
            where = self._keys(self.partition, may_be_in=True)
        elif kind == "token":
            names = ", ".join(c.name for c in self.partition)
            values = ", ".join(self.literal(c) for c in self.partition)
            where = f"token({names}) {r.choice(['>', '>=', '<', '<='])} token({values})"
        elif kind == "filter":
            where, filtering = self._filter(), " ALLOW FILTERING"
        if kind == "distinct":
            columns = "DISTINCT " + ", ".join(c.name for c in self.partition + self.static)
        else:
            columns = self._projection()
        limits = r.choice(["", "", " LIMIT 1", " LIMIT 3", " PER PARTITION LIMIT 1", " PER PARTITION LIMIT 2 LIMIT 3"])
        if kind == "distinct" and "PER" in limits:
            limits = " LIMIT 2"
        where = f" WHERE {where}" if where else ""
        return f"SELECT {columns} FROM {self.table}{where}{order}{limits}{filtering}"

    def _projection(self):
        r = self.random
        everything = self.partition + self.clustering + self.static + self.regular
        if (choice := r.random()) < 0.5:
            return "*"
        if choice < 0.6:
            return "COUNT(*)"
        names = [c.name for c in r.sample(everything, r.randint(1, len(everything)))]
        timed = [c.name for c in self.static + self.regular if not c.collection]
        if timed and r.random() < 0.4:
            names.append(f"WRITETIME({r.choice(timed)}) AS written")
        return ", ".join(names)

    def _filter(self):
        column = self.random.choice(self.clustering + self.static + self.regular)
        if column.collection and not column.frozen:
            if column.collection == "map" and self.random.random() < 0.5:
                return f"{column.name} CONTAINS KEY {self.random.choice(LITERALS[column.elements[0]])}"
            return f"{column.name} CONTAINS {self.random.choice(LITERALS[column.elements[-1]])}"
        operator = "=" if column.kind == "boolean" else self.random.choice(["=", "=", "<", "<=", ">", ">="])
        return f"{column.name} {operator} {self.literal(column)}"

    # --- conditions on keys ---

    def _keys(self, columns, may_be_in=False):
        if may_be_in and self.random.random() < 0.2:
            last = columns[-1]
            values = ", ".join(self.literal(last) for _ in range(2))
            return " AND ".join(
                [f"{c.name} = {self.literal(c)}" for c in columns[:-1]] + [f"{last.name} IN ({values})"]
            )
        return " AND ".join(f"{c.name} = {self.literal(c)}" for c in columns)

    def _clustering_slice(self, where):
        r = self.random
        depth = r.randrange(len(self.clustering))
        equal, last = self.clustering[:depth], self.clustering[depth]
        if len(self.clustering) > 1 and r.random() < 0.2:
            columns = self.clustering[: depth + 1]
            names, values = ", ".join(c.name for c in columns), ", ".join(self.literal(c) for c in columns)
            return f"{where} AND ({names}) {r.choice(['>', '>=', '<', '<=', '='])} ({values})"
        parts = [where] + [f"{c.name} = {self.literal(c)}" for c in equal]
        shape = r.choice(["=", "below", "above", "between"])
        if shape == "=":
            parts.append(f"{last.name} = {self.literal(last)}")
        if shape in ("above", "between"):
            parts.append(f"{last.name} {r.choice(['>', '>='])} {self.literal(last)}")
        if shape in ("below", "between"):
            parts.append(f"{last.name} {r.choice(['<', '<='])} {self.literal(last)}")
        return " AND ".join(parts)

    # --- mistakes ---

    def mistake(self):
        r, t = self.random, self.table
        first, value = self.partition[0].name, self.literal(self.partition[0])
        return r.choice(
            [
                f"SELECT nothing FROM {t}",
                f"SELECT * FROM {t}_unknown",
                f"SELECT * FROM {t} WHERE nothing = 1",
                f"SELECT * FROM {t} WHERE {self.regular[0].name} = null ALLOW FILTERING",
                f"SELECT * FROM {t} WHERE {first} = {value} ORDER BY {self.regular[0].name}",
                f"SELECT * FROM {t} WHERE {first} > {value}",
                f"SELECT * FROM {t} LIMIT 0",
                f"SELECT DISTINCT {self.regular[0].name} FROM {t}",
                f"INSERT INTO {t} ({self.regular[0].name}) VALUES (null)",
                f"INSERT INTO {t} ({first}, nothing) VALUES ({value}, 1)",
                f"INSERT INTO {t} ({first}) VALUES (null)",
                f"INSERT INTO {t} ({first}) VALUES ({value}, {value})",
                f"UPDATE {t} SET {first} = {value} WHERE {first} = {value}",
                f"UPDATE {t} SET {self.regular[0].name} = [[[]]] WHERE {first} = {value}",
                f"DELETE {first} FROM {t} WHERE {first} = {value}",
                f"DELETE FROM {t} WHERE {self.regular[0].name} = null",
                f"CREATE TABLE {t} (k int PRIMARY KEY)",
                f"ALTER TABLE {t} DROP {first}",
                f"ALTER TABLE {t} ADD {first} int",
                f"TRUNCATE {t}_unknown",
            ]
        )

    def damaged(self, statement):
        return damage(self.random, TOKEN.findall(statement))

    def _choose(self, *weighted):
        return self.random.choices([choice for _, choice in weighted], [weight for weight, _ in weighted])[0]
