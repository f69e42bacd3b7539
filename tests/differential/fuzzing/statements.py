"""Random statements on the table of a seed: the same seed makes the same statements.

The outcome of each is defined. Either all writes carry a timestamp, or none does and the servers' clocks date them (conditions
need that); TTLs are far longer than a run.
"""

import random
import re
from dataclasses import dataclass

from differential.fuzzing.reads import Reads
from differential.fuzzing.schema import Table
from differential.fuzzing.terms import Terms
from differential.generate import damage

STATEMENTS = 300
TTL_SECONDS = 1_000_000
TIMESTAMPS = 2_000
TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|0x[0-9a-f]*|[0-9a-f]{8}-[0-9a-f-]{27}|-?\d[\w.]*|\w+|<=|>=|!=|:m\d+|\S")


@dataclass
class Statement:
    """`values` is None for a text that is sent as it is; else it is prepared, and these are bound: bytes, None or UNSET.

    `frame` sends the text of a BATCH as a BATCH frame, each statement of it for itself. `protocol` is the version that it is sent in.
    """

    kind: str
    text: str
    values: list | None = None
    page: int | None = None
    frame: bool = False
    protocol: int = 4


class Generator(Terms, Reads):
    def __init__(self, seed, name=None):
        self.random = random.Random(f"ceto fuzz {seed}")
        self.table = Table(self.random, name or f"f{seed}")
        self.protocol = self.random.choice([3, 4, 4, 5])
        self.bound = None
        self._clock = 0

    def statements(self, count=STATEMENTS):
        yield self.sent("create", self.table.create())
        writes = (
            [(20, self.count), (3, self.counter_batch)]
            if self.table.counter
            else [(9, self.insert), (8, self.update), (6, self.delete), (3, self.batch)]
        )
        if self.table.clock and not self.table.counter:
            writes += [(6, self.conditional), (2, self.conditional_batch)]
        rest = [(24, self.select), (1.5, self.mistake), (0.6, self.alter), (0.1, self.truncate)]
        for _ in range(count):
            make = self.choose(*writes, *rest)
            yield self.statement(make)
        yield self.sent("select", f"SELECT * FROM {self.table.name}")

    def sent(self, kind, text, values=None, page=None, frame=False):
        return Statement(kind, text, values, page, frame, self.protocol)

    def statement(self, make):
        r = self.random
        can_bind = make not in (self.mistake, self.alter, self.truncate)
        self.begin(bind=can_bind and r.random() < 0.4)
        text = make()
        kind = make.__name__
        if r.random() < 0.02:
            return self.sent("damaged", self.damaged(self.without_markers(text)))
        text, values = self.finish(text)
        page = r.choice([1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 10]) if kind == "select" and r.random() < 0.5 else None
        frame = "batch" in kind and r.random() < 0.5
        return self.sent(kind, text, values, page, frame)

    def using(self, ttl=True):
        parts = []
        if not self.table.clock:
            # Now and then an earlier timestamp again, so that writes meet that have the same one.
            self._clock += self.random.choice([0, 1, 1, 1, 2])
            at = self.random.randint(1, self._clock + 1) if self.random.random() < 0.3 else self._clock
            parts.append(f"TIMESTAMP {at}")
        if ttl and self.random.random() < 0.1:
            parts.append(f"TTL {TTL_SECONDS}")
        return " USING " + " AND ".join(parts) if parts else ""

    # --- writes ---

    def insert(self, using=None, conditional=False, partition=None):
        t, r = self.table, self.random
        chosen = r.sample(t.values, r.randint(0, len(t.values)))
        only_static = chosen and all(c.role == "static" for c in chosen) and r.random() < 0.5
        keys = t.partition + ([] if only_static else t.clustering)
        if r.random() < 0.01:
            keys = r.sample(keys, len(keys) - 1)
        pairs = [(c.name, self.key_of(c, partition)) for c in keys] + [(c.name, self.assigned(c)) for c in chosen]
        if r.random() < 0.2:
            r.shuffle(pairs)
        names, terms = ", ".join(name for name, _ in pairs), ", ".join(term for _, term in pairs)
        condition = " IF NOT EXISTS" if conditional else ""
        using = self.using() if using is None else using
        return f"INSERT INTO {t.name} ({names}) VALUES ({terms}){condition}{using}"

    def key_of(self, column, partition=None):
        return partition[column.name] if partition and column.name in partition else self.key_term(column)

    def update(self, using=None, conditions="", partition=None):
        t, r = self.table, self.random
        if not t.values:
            return self.insert(using, partition=partition)
        only_static = t.static and (not t.regular or r.random() < 0.2)
        columns = t.static if only_static else t.values if r.random() < 0.3 else t.regular or t.static
        chosen = r.sample(columns, min(len(columns), r.choice([1, 1, 2, 3])))
        using = self.using() if using is None else using
        changes = ", ".join(self.assignment(c) for c in chosen)
        keys = t.partition if only_static and r.random() < 0.95 else t.partition + t.clustering
        return f"UPDATE {t.name}{using} SET {changes} WHERE {self.exact(keys, partition)}{conditions}"

    def assignment(self, column):
        name, r, type_ = column.name, self.random, column.type
        if type_.kind == "counter":
            return f"{name} = {name} {r.choice('+-')} {r.choice(['0', '1', '5', '-3', '9223372036854775807'])}"
        if not type_.multi_cell or r.random() < 0.35:
            return f"{name} = {self.assigned(column)}"
        filled = self.of_value(type_, type_.filled(r, r.choice([0, 1, 2, 2]), self.odd))
        if type_.kind == "list":
            index = r.choice(["0", "0", "1", "2", "5"])
            return r.choice(
                [
                    f"{name} = {name} + {filled}",
                    f"{name} = {filled} + {name}",
                    f"{name} = {name} - {filled}",
                    f"{name} += {filled}",
                    f"{name}[{index}] = {self.element(type_.of[0])}",
                ]
            )
        if type_.kind == "set":
            return r.choice([f"{name} = {name} {r.choice('+-')} {filled}", f"{name} {r.choice('+-')}= {filled}"])
        less = self.of_value(*self.key_set(type_))
        key = self.of_value(type_.of[0], type_.of[0].value(r, self.odd))
        return r.choice(
            [
                f"{name} = {name} + {filled}",
                f"{name} = {name} - {less}",
                f"{name} -= {less}",
                f"{name}[{key}] = {self.element(type_.of[1])}",
            ]
        )

    def delete(self, using=None, partition=None, conditions=""):
        t, r = self.table, self.random
        using = self.using(ttl=False) if using is None else using
        kind = (
            "row"
            if conditions
            else r.choice(["row", "row", "columns", "columns", "prefix", "range", "range", "partition"])
        )
        what, where = "", self.exact(t.partition, partition)
        if kind == "columns" and t.values:
            columns = r.sample(t.values, min(len(t.values), r.choice([1, 1, 2])))
            what = ", ".join(self.deleted(c) for c in columns) + " "
            keys = t.partition if all(c.role == "static" for c in columns) else t.partition + t.clustering
            where = self.exact(keys, partition)
        elif kind in ("row", "columns"):
            where = self.exact(t.partition + t.clustering, partition)
        elif kind in ("prefix", "range") and t.clustering:
            where = self.slice(where)
        return f"DELETE {what}FROM {t.name}{using} WHERE {where}{conditions}"

    def deleted(self, column):
        if column.type.multi_cell and self.random.random() < 0.5:
            if column.type.kind == "list":
                return f"{column.name}[{self.random.choice('0012')}]"
            return f"{column.name}[{self.of_value(column.type.of[0], column.type.of[0].value(self.random, self.odd))}]"
        return column.name

    def count(self):
        return self.update(using="")

    def counter_batch(self):
        parts = [self.update(using="") for _ in range(self.random.randint(1, 3))]
        return f"BEGIN COUNTER BATCH {'; '.join(parts)}; APPLY BATCH"

    def batch(self):
        using = self.using(ttl=False) if self.random.random() < 0.7 else ""
        own = "" if using or self.table.clock else None
        parts = [
            self.random.choice([self.insert, self.update, self.delete])(using=own)
            for _ in range(self.random.randint(1, 4))
        ]
        return self._batch(using, parts)

    def _batch(self, using, parts):
        kind = self.random.choice(["", "UNLOGGED "])
        return f"BEGIN {kind}BATCH{using} {'; '.join(parts)}; APPLY BATCH"

    # --- conditions ---

    def conditional(self, partition=None):
        kind = self.random.choice(["insert", "update", "update", "delete"])
        if kind == "insert":
            return self.insert(using=self.using(), conditional=True, partition=partition)
        write = self.update if kind == "update" else self.delete
        return write(using="", partition=partition, conditions=self.conditions())

    def conditional_batch(self):
        partition = {c.name: self.key_term(c, plain=True) for c in self.table.partition}
        parts = [self.conditional(partition)]
        for _ in range(self.random.randint(0, 2)):
            write = self.random.choice([self.insert, self.update, self.delete])
            parts.append(write(using="", partition=partition))
        self.random.shuffle(parts)
        return self._batch("", parts)

    def conditions(self):
        r = self.random
        columns = self.table.values
        if not columns or r.random() < 0.2:
            return r.choice([" IF EXISTS", " IF EXISTS", " IF NOT EXISTS"])
        chosen = [r.choice(columns) for _ in range(r.choice([1, 1, 2]))]
        return " IF " + " AND ".join(self.condition(c) for c in chosen)

    def condition(self, column):
        r, type_, name = self.random, column.type, column.name
        if type_.multi_cell and type_.kind != "set" and r.random() < 0.4:
            key = self.of_value(type_.of[0], type_.of[0].value(r)) if type_.kind == "map" else r.choice("012")
            name, type_ = f"{name}[{key}]", type_.of[-1]
        if r.random() < 0.15:
            terms = ", ".join(self.of_value(type_, type_.value(r)) for _ in range(r.randint(0, 3)))
            return f"{name} IN ({terms})"
        return f"{name} {r.choice(['=', '=', '=', '!=', '<', '<=', '>', '>='])} {self.element(type_)}"

    # --- schema ---

    def alter(self):
        t, r = self.table, self.random
        kind = r.choice(["add", "add", "drop", "drop", "rename"])
        if kind == "drop" and t.values and len(t.columns) > 2:
            # Not USING TIMESTAMP: Cassandra cannot flush newer cells of a column that it dropped so.
            return f"ALTER TABLE {t.name} DROP {t.drop()}"
        if kind == "rename":
            return f"ALTER TABLE {t.name} RENAME {t.rename()}"
        return f"ALTER TABLE {t.name} ADD {t.add()}"

    def truncate(self):
        return f"TRUNCATE {self.table.name}"

    # --- mistakes ---

    def mistake(self):
        r, t = self.random, self.table
        key = r.choice(t.partition)
        first, value = key.name, key.type.value(r).literal
        other = r.choice(t.columns)
        wrong = self.wrong_literal()
        name, where = t.name, f"{first} = {value}"
        dated = "" if t.clock else self.using(ttl=False)  # it may succeed
        made = r.choice(
            [
                f"SELECT nothing FROM {name}",
                f"SELECT * FROM {name}_unknown",
                f"SELECT * FROM {name} WHERE nothing = 1",
                f"SELECT * FROM {name} WHERE {other.name} = null ALLOW FILTERING",
                f"SELECT * FROM {name} WHERE {other.name} = {wrong} ALLOW FILTERING",
                f"SELECT * FROM {name} WHERE {other.name} IN ({wrong}) ALLOW FILTERING",
                f"SELECT * FROM {name} WHERE {other.name} CONTAINS {wrong} ALLOW FILTERING",
                f"SELECT * FROM {name} WHERE {other.name} != {wrong} ALLOW FILTERING",
                f"SELECT * FROM {name} WHERE {other.name} LIKE '%a' ALLOW FILTERING",
                f"SELECT * FROM {name} WHERE {other.name} IS NOT NULL ALLOW FILTERING",
                f"SELECT * FROM {name} WHERE {other.name}[{wrong}] = {wrong} ALLOW FILTERING",
                f"SELECT * FROM {name} WHERE {where} ORDER BY {other.name}",
                f"SELECT * FROM {name} WHERE {where} AND {where}",
                f"SELECT * FROM {name} WHERE {first} > {value}",
                f"SELECT * FROM {name} WHERE token({first}) > {wrong}",
                f"SELECT * FROM {name} WHERE token({other.name}) > 0",
                f"SELECT * FROM {name} LIMIT {wrong}",
                f"SELECT * FROM {name} PER PARTITION LIMIT 0",
                f"SELECT DISTINCT {other.name} FROM {name}",
                f"SELECT writetime({first}) FROM {name}",
                f"SELECT {other.name}[{wrong}] FROM {name}",
                f"SELECT cast({other.name} AS int) FROM {name}",
                f"SELECT sum({other.name}) FROM {name}",
                f"SELECT {other.name}, count(*) FROM {name} GROUP BY {other.name}",
                f"INSERT INTO {name} ({other.name}) VALUES ({wrong})",
                f"INSERT INTO {name} ({first}, nothing) VALUES ({value}, 1)",
                f"INSERT INTO {name} ({first}, {first}) VALUES ({value}, {value})",
                f"INSERT INTO {name} ({first}) VALUES ({value}, {value})",
                f"INSERT INTO {name} ({first}, {other.name}) VALUES ({value}, {wrong}) USING TIMESTAMP 1",
                f"INSERT INTO {name} ({first}) VALUES ({value}) USING TTL {wrong}",
                f"INSERT INTO {name} ({first}) VALUES ({value}) USING TIMESTAMP {wrong}",
                f"UPDATE {name}{dated} SET {other.name} = {wrong} WHERE {where}",
                f"UPDATE {name}{dated} SET {other.name} = {other.name} + {wrong} WHERE {where}",
                f"UPDATE {name}{dated} SET {other.name}[{wrong}] = {wrong} WHERE {where}",
                f"UPDATE {name} SET {other.name} = 1 WHERE {where} IF {other.name} = {wrong}",
                f"DELETE {other.name} FROM {name} WHERE {where}",
                f"DELETE {other.name}[{wrong}] FROM {name} WHERE {where}",
                f"DELETE FROM {name} WHERE {other.name} = {wrong}",
                f"DELETE FROM {name} USING TTL 3 WHERE {where}",
                f"CREATE TABLE {name} (k int PRIMARY KEY)",
                f"ALTER TABLE {name} DROP {first}",
                f"ALTER TABLE {name} DROP nothing",
                f"ALTER TABLE {name} ADD {other.name} int",
                f"ALTER TABLE {name} RENAME {other.name} TO {first}",
                f"ALTER TABLE {name} ADD x counter",
                f"ALTER TABLE {name} ADD x map<duration, int>",
                f"ALTER TABLE {name} ADD x list<list<int>>",
                f"TRUNCATE {name}_unknown",
            ]
        )
        # A deleted counter counts from zero again in ceto, and never again in Cassandra.
        return f"SELECT {wrong} FROM {name}" if t.counter and made.startswith("DELETE") else made

    def damaged(self, text):
        return damage(self.random, TOKEN.findall(text))
