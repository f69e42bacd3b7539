"""Terms: a literal, or a marker with the bytes that are bound to it; and conditions on keys made of them.

While a statement is built, a marker stands as NUL n NUL, because parts are made in another order than they stand in the text.
"""

import re
import struct

from differential.fuzzing.values import LONG, NATIVE, NULL, Type, Value, random_type

UNSET = object()
MARKER = re.compile("\0(\\d+)\0")


class Terms:
    random, table, bound, protocol = None, None, None, 4

    # --- one statement ---

    def begin(self, bind):
        self.bound = [] if bind else None
        self.bind_chance = self.random.choice([0.3, 0.8, 1])
        self.named = self.random.random() < 0.2
        self.odd = 0.05 if bind else 0

    def finish(self, text):
        """The text with markers as CQL writes them, and the bound values in its order; None for a statement without bound values."""
        if self.bound is None:
            return text, None
        order = [int(n) for n in MARKER.findall(text)]
        values = [self.bound[n][1] for n in order]
        return MARKER.sub(lambda m: f":m{m[1]}" if self.named else "?", text), values

    def without_markers(self, text):
        return MARKER.sub(lambda m: self.bound[int(m[1])][0], text)

    # --- terms ---

    def of_value(self, type_, value):
        r = self.random
        if self.bound is None or r.random() > self.bind_chance:
            if type_.scalar and r.random() < 0.02:
                return f"({type_}){value.literal}"
            return value.literal
        data = value.data
        if data is not None and r.random() < 0.01:
            data = r.choice([b"", data[:-1], data + b"\0", b"\xff\xff\xff\xff", b"\x80"])
        self.bound.append((value.literal, data))
        return f"\0{len(self.bound) - 1}\0"

    def assigned(self, column):
        """A value for a column in INSERT or SET."""
        r = self.random
        if (chance := r.random()) < 0.08:
            return self.of_value(column.type, NULL)
        if chance < 0.14 and self.bound is not None:
            return self.unset()
        if chance < 0.145:
            return self.wrong_literal()
        if chance < 0.17 and column.type.kind in ("text", "blob") and self.bound is not None:
            return self.of_value(column.type, Value("null", b"y" * LONG))
        return self.of_value(column.type, column.type.value(r, self.odd))

    def limit(self, choices):
        """A number of rows."""
        number = self.random.choice(choices)
        if self.bound is not None and self.random.random() < 0.05:
            return self.unset()
        return self.of_value(Type("int"), Value(str(number), struct.pack(">i", number)))

    def unset(self):
        # Protocol 3 does not know it.
        self.bound.append(("null", UNSET if self.protocol > 3 else None))
        return f"\0{len(self.bound) - 1}\0"

    def element(self, type_):
        r = self.random
        if (chance := r.random()) < 0.12:
            return self.of_value(type_, NULL)
        if chance < 0.14 and self.bound is not None:
            return self.unset()
        return self.of_value(type_, type_.value(r, self.odd))

    def key_term(self, column, plain=False):
        r = self.random
        chance = 1 if plain else r.random()
        if chance < 0.004:
            return self.wrong_literal()
        if chance < 0.008:
            return self.of_value(column.type, NULL)
        if chance < 0.01 and self.bound is not None:
            return self.unset()
        value = r.choice(column.few)
        if not column.type.scalar and chance < 0.1:
            value = column.type.value(r, self.odd)
        return value.literal if plain else self.of_value(column.type, value)

    def key_set(self, type_):
        """The set of keys that is taken from a map, with its type."""
        keys = Type("set", [type_.of[0]])
        return keys, keys.filled(self.random, self.random.choice([1, 2]), self.odd)

    def wrong_literal(self):
        kind = self.random.choice(list(NATIVE))
        return self.random.choice(
            [
                self.random.choice(NATIVE[kind]).literal,
                random_type(self.random).value(self.random).literal,
                self.random.choice(
                    [
                        "null",
                        "'x'",
                        "''",
                        "0x",
                        "-1",
                        "1.5",
                        "[]",
                        "{}",
                        "{1: 1}",
                        "[null]",
                        "(1, 2)",
                        "''''",
                        "99999999999",
                        "NaN",
                    ]
                ),
            ]
        )

    # --- conditions on keys ---

    def exact(self, columns, partition=None):
        """Equal or IN on each of these columns."""
        r = self.random
        parts = []
        for column in columns:
            name = column.name
            if partition and name in partition:
                parts.append(f"{name} = {partition[name]}")
            elif r.random() < 0.06:
                terms = ", ".join(self.key_term(column) for _ in range(r.randint(0, 3)))
                parts.append(f"{name} IN ({terms})")
            else:
                parts.append(f"{name} = {self.key_term(column)}")
        if r.random() < 0.1:
            r.shuffle(parts)
        return " AND ".join(parts)

    def slice(self, where):
        """A condition on a prefix of the clustering columns, behind one on the partition."""
        r = self.random
        clustering = self.table.clustering
        if r.random() < 0.25:
            return f"{where} AND {self.multi_column(clustering)}"
        depth = r.randrange(len(clustering))
        last = clustering[depth]
        parts = [where]
        for column in clustering[:depth]:
            if r.random() < 0.15:
                terms = ", ".join(self.key_term(column) for _ in range(r.randint(1, 3)))
                parts.append(f"{column.name} IN ({terms})")
            else:
                parts.append(f"{column.name} = {self.key_term(column)}")
        shape = r.choice(["=", "in", "below", "above", "between"])
        if shape == "=":
            parts.append(f"{last.name} = {self.key_term(last)}")
        if shape == "in":
            terms = ", ".join(self.key_term(last) for _ in range(r.randint(0, 4)))
            parts.append(f"{last.name} IN ({terms})")
        if shape in ("above", "between"):
            parts.append(f"{last.name} {r.choice(['>', '>='])} {self.key_term(last)}")
        if shape in ("below", "between"):
            parts.append(f"{last.name} {r.choice(['<', '<='])} {self.key_term(last)}")
        return " AND ".join(parts)

    def multi_column(self, clustering):
        r = self.random
        columns = clustering[: r.randint(1, len(clustering))]
        names = "(" + ", ".join(c.name for c in columns) + ")"

        def row(length=len(columns)):
            return "(" + ", ".join(self.key_term(c) for c in columns[:length]) + ")"

        shape = r.choice(["=", "in", "in", "slice", "slice", "between", "mixed"])
        if shape == "=":
            return f"{names} = {row()}"
        if shape == "in":
            return f"{names} IN ({', '.join(row() for _ in range(r.randint(1, 3)))})"
        if shape == "slice":
            return f"{names} {r.choice(['>', '>=', '<', '<='])} {row()}"
        if shape == "between":
            return f"{names} {r.choice(['>', '>='])} {row()} AND {names} {r.choice(['<', '<='])} {row()}"
        length = r.randint(1, len(columns))
        shorter = "(" + ", ".join(c.name for c in columns[:length]) + ")"
        return f"{names} {r.choice(['>', '>='])} {row()} AND {shorter} {r.choice(['<', '<='])} {row(length)}"

    def choose(self, *weighted):
        return self.random.choices([choice for _, choice in weighted], [weight for weight, _ in weighted])[0]
