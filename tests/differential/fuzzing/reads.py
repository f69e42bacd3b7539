"""Random SELECTs."""

from differential.fuzzing.values import NUMBERS

DATES = ["date", "timestamp", "timeuuid"]


class Reads:
    def select(self):
        t, r = self.table, self.random
        kind = r.choice(
            [
                "partition",
                "partition",
                "slice",
                "slice",
                "slice",
                "in",
                "all",
                "all",
                "token",
                "filter",
                "filter",
                "distinct",
                "grouped",
                "grouped",
            ]
        )
        where, order, group, filtering = "", "", "", ""
        if kind in ("partition", "slice", "in"):
            where = self.exact(t.partition)
            if kind == "in":
                where = self.key_in(t.partition)
            if t.clustering and (kind == "slice" or r.random() < 0.3):
                where = self.slice(where)
            if t.clustering and r.random() < 0.3:
                order = " ORDER BY " + self.order()
        elif kind == "token":
            where = self.token_range()
            if t.clustering and r.random() < 0.2:
                where = self.slice(where)
        elif kind == "grouped":
            where = r.choice(["", self.exact(t.partition), self.key_in(t.partition), self.token_range()])
        elif kind == "filter":
            where = " AND ".join(self.filter() for _ in range(r.choice([1, 1, 2])))
            if r.random() < 0.3:
                where += " AND " + self.exact(t.partition)
        if kind == "filter" or r.random() < 0.15:
            filtering = " ALLOW FILTERING" if r.random() < 0.95 else ""
        if r.random() < (0.9 if kind == "grouped" else 0.3 if kind == "distinct" else 0.08):
            keys = t.partition + t.clustering
            names = [c.name for c in keys[: r.randint(len(t.partition) if r.random() < 0.9 else 1, len(keys))]]
            group = " GROUP BY " + ", ".join(names)
        if kind == "distinct" or (kind == "grouped" and r.random() < 0.25):
            columns = "DISTINCT " + ", ".join(
                c.name for c in t.partition + r.sample(t.static, r.randint(0, len(t.static)))
            )
            where = where or r.choice(["", "", self.exact(t.partition), self.token_range()])
        else:
            columns = self.projection(bool(group))
        limits = ""
        if r.random() < (0.6 if kind == "grouped" else 0.03 if kind == "distinct" else 0.2):
            limits += f" PER PARTITION LIMIT {self.limit([1, 1, 2, 3])}"
        if r.random() < 0.25:
            limits += f" LIMIT {self.limit([1, 2, 3, 5])}"
        json = "JSON " if r.random() < 0.04 else ""
        where = f" WHERE {where}" if where else ""
        return f"SELECT {json}{columns} FROM {t.name}{where}{group}{order}{limits}{filtering}"

    def key_in(self, columns):
        r = self.random
        chosen = r.choice(columns)
        parts = []
        for column in columns:
            if column is chosen:
                terms = ", ".join(self.key_term(column) for _ in range(r.randint(1, 4)))
                parts.append(f"{column.name} IN ({terms})")
            else:
                parts.append(f"{column.name} = {self.key_term(column)}")
        return " AND ".join(parts)

    def order(self):
        r = self.random
        columns = self.table.clustering[: r.randint(1, len(self.table.clustering))]
        turned = r.random() < 0.6
        parts = []
        for column in columns:
            asc = (column.order == "ASC") != turned
            if r.random() < 0.05:
                asc = not asc
            parts.append(f"{column.name} {'ASC' if asc else 'DESC'}")
        return ", ".join(parts)

    def token_range(self):
        r = self.random
        columns = self.table.partition
        names = ", ".join(c.name for c in columns)

        def bound():
            if r.random() < 0.3:
                return r.choice(["0", "-9223372036854775808", "9223372036854775807", "-4611686018427387904"])
            return f"token({', '.join(self.key_term(c) for c in columns)})"

        if r.random() < 0.4:
            return f"token({names}) > {bound()} AND token({names}) <= {bound()}"
        return f"token({names}) {r.choice(['>', '>=', '<', '<=', '='])} {bound()}"

    def filter(self):
        t, r = self.table, self.random
        column = r.choice(t.columns)
        name, type_ = column.name, column.type
        if type_.kind == "counter":
            return f"{name} {r.choice(['=', '<', '>='])} {r.choice('015')}"
        if type_.collection and r.random() < 0.6:
            if type_.kind == "map" and (chance := r.random()) < 0.6:
                key = self.of_value(type_.of[0], type_.of[0].value(r, self.odd))
                if chance < 0.25 and not type_.frozen:
                    return f"{name}[{key}] = {self.of_value(type_.of[1], type_.of[1].value(r, self.odd))}"
                return f"{name} CONTAINS KEY {key}"
            return f"{name} CONTAINS {self.of_value(type_.of[-1], type_.of[-1].value(r, self.odd))}"
        if column.few:
            if r.random() < 0.2:
                return f"{name} IN ({', '.join(self.key_term(column) for _ in range(r.randint(1, 3)))})"
            return f"{name} {r.choice(['=', '=', '<', '<=', '>', '>='])} {self.key_term(column)}"
        if r.random() < 0.1:
            terms = ", ".join(self.of_value(type_, type_.value(r)) for _ in range(r.randint(1, 3)))
            return f"{name} IN ({terms})"
        return f"{name} {r.choice(['=', '=', '<', '<=', '>', '>='])} {self.of_value(type_, type_.value(r, self.odd))}"

    # --- what is selected ---

    def projection(self, grouped):
        t, r = self.table, self.random
        if (chance := r.random()) < (0.1 if grouped else 0.3):
            return "*"
        if chance < 0.35:
            return r.choice(["count(*)", "COUNT(1)", "count(*) AS n"])
        names = [c.name for c in r.sample(t.columns, r.randint(1, min(5, len(t.columns))))]
        if grouped:
            names += [self.aggregate() for _ in range(r.choice([1, 1, 2]))]
        elif r.random() < 0.1:
            names = [self.aggregate() for _ in range(r.choice([1, 1, 2]))]
        elif r.random() < 0.6:
            names += [self.computed() for _ in range(r.choice([1, 1, 2]))]
        return ", ".join(
            f"{name} AS a{at}" if r.random() < 0.05 and not name.endswith(" json") else name
            for at, name in enumerate(names)
        )

    def aggregate(self):
        r = self.random
        column = r.choice(self.table.columns)
        functions = ["count", "min", "max", "min", "max"]
        if column.type.kind in (*NUMBERS, "counter"):
            functions += ["sum", "avg", "sum", "avg"]
        return f"{r.choice(functions)}({column.name})"

    def computed(self):
        """A column seen through a function, an element, a cast or a sum."""
        t, r = self.table, self.random
        column = r.choice(t.columns)
        name, type_ = column.name, column.type
        forms = [
            f"token({', '.join(c.name for c in t.partition)})",
            f"toJson({name}) AS json",
        ]  # without a name, Cassandra's differs
        if column.role in ("static", "regular") and not t.clock:
            forms += 2 * [f"writetime({name})", f"ttl({name})", f"maxwritetime({name})"]
        if type_.scalar and type_.kind not in ("counter",):
            forms += [f"{type_.kind}AsBlob({name})", f"{type_.kind}_as_blob({name})"]
            forms += [
                f"cast({name} AS {r.choice(['text', 'ascii', 'int', 'bigint', 'double', 'date', 'timestamp', 'varint', 'decimal', 'float', 'tinyint'])})"
            ]
        if type_.kind in NUMBERS:
            literal = type_.value(r).literal
            forms += [f"{name} {r.choice('+-*/%')} {literal}", f"-{name}", f"{name} + {name}"]
            forms += [f"{function}({name})" for function in ("abs", "round", "exp", "log", "log10")]
        if type_.kind in DATES:
            forms += [
                f"{f}({name})" for f in ("toDate", "toTimestamp", "toUnixTimestamp", "to_date", "to_unix_timestamp")
            ]
        if type_.kind == "timeuuid":
            forms += [f"dateOf({name})", f"unixTimestampOf({name})"]
        if type_.kind == "timestamp":
            forms += [f"minTimeuuid({name})", f"maxTimeuuid({name})", f"{name} + 1d", f"{name} - 1mo"]
        if type_.kind == "date":
            forms += [f"{name} + 1d", f"{name} - 1mo"]
        if type_.collection and type_.kind != "list":
            keys = [self.of_value(type_.of[0], type_.of[0].value(r, self.odd)) for _ in range(2)]
            forms += 2 * [
                f"{name}[{keys[0]}]",
                f"{name}[{keys[0]}..{keys[1]}]",
                f"{name}[{keys[0]}..]",
                f"{name}[..{keys[1]}]",
            ]
            if not t.clock and column.role in ("static", "regular"):
                forms += [
                    f"{r.choice(['writetime', 'maxwritetime'])}({name}[{keys[0]}])",
                    f"ttl({name}[{keys[0]}..{keys[1]}])",
                ]
        if type_.collection:
            functions = [
                "collection_count",
                "collection_min",
                "collection_max",
                "collection_sum",
                "collection_avg",
                "map_keys",
                "map_values",
            ]
            forms += [f"{r.choice(functions)}({name})"]
            if type_.multi_cell and not t.clock:
                forms += [f"{r.choice(functions[:5])}({r.choice(['writetime', 'ttl'])}({name}))"]
        if type_.kind in NUMBERS and self.bound is not None and r.random() < 0.1:
            forms = [f"abs(({type_.kind}){self.unset()})"]
        if type_.kind in ("list", "tuple"):
            forms += [f"{name}[0]"]
        if type_.kind in ("text", "ascii"):
            forms += [f"{name} + 'x'"]
        return r.choice(forms)
