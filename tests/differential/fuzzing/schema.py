"""The table of a seed. It changes with each ALTER TABLE that the generator expects to succeed."""

from differential.fuzzing.values import Type, random_key_type, random_type

POOL = 5


class Column:
    def __init__(self, name, role, type_, order="ASC"):
        self.name, self.role, self.type, self.order = name, role, type_, order
        self.few = []  # the values that key columns take, so that statements meet the same rows


class Table:
    """`clock` says who dates the writes: the servers' clocks, which IF needs, or USING TIMESTAMP."""

    def __init__(self, random, name):
        self.name = name
        self.random = random
        self.counter = random.random() < 0.1
        self.clock = self.counter or random.random() < 0.3
        self.dropped = []
        self.columns = []
        self._added = 0
        for _ in range(random.choice([1, 1, 2, 3])):
            self._add("partition", random_key_type(random))
        for _ in range(random.choice([0, 1, 1, 2, 2, 3])):
            type_ = random_key_type(random)
            # Cassandra 5.0 overlooks that a key is a collection when its order is DESC: it neither sorts nor finds the elements.
            self._add("clustering", type_, "ASC" if type_.collection else random.choice(["ASC", "DESC"]))
        for _ in range(random.choice([0, 1, 1, 2]) if self.clustering else 0):
            self._add("static", self._value_type())
        for _ in range(random.choice([0, 1, 2, 3, 4, 5]) if not self.counter else random.randint(1, 2)):
            self._add("regular", self._value_type())

    def _value_type(self):
        return Type("counter") if self.counter else random_type(self.random)

    def _add(self, role, type_, order="ASC"):
        prefix = {"partition": "p", "clustering": "c", "static": "s", "regular": "v"}[role]
        name = f"{prefix}{self._added}"
        if self.random.random() < 0.03:
            name = f'"{prefix.upper()} {self._added}"'
        self._added += 1
        column = Column(name, role, type_, order)
        type_.fix_pool(self.random, POOL)
        if role in ("partition", "clustering"):
            size = self.random.choice([1, 2, 3] if role == "partition" else [2, 3, 4])
            column.few = [type_.value(self.random) for _ in range(size)]
        self.columns.append(column)
        return column

    def of(self, *roles):
        return [c for c in self.columns if c.role in roles]

    @property
    def partition(self):
        return self.of("partition")

    @property
    def clustering(self):
        return self.of("clustering")

    @property
    def static(self):
        return self.of("static")

    @property
    def regular(self):
        return self.of("regular")

    @property
    def values(self):
        return self.of("static", "regular")

    def create(self):
        columns = [f"{c.name} {c.type}{' static' if c.role == 'static' else ''}" for c in self.columns]
        key = ", ".join([f"({', '.join(c.name for c in self.partition)})"] + [c.name for c in self.clustering])
        order = ", ".join(f"{c.name} {c.order}" for c in self.clustering)
        options = f" WITH CLUSTERING ORDER BY ({order})" if order else ""
        return f"CREATE TABLE {self.name} ({', '.join(columns)}, PRIMARY KEY ({key})){options}"

    # --- ALTER TABLE ---

    def add(self):
        """Text behind ADD, for a new column or one that was dropped."""
        # Of a column that is back, Cassandra hides what is older than the drop: nearly all that is written with timestamps.
        if self.dropped and self.random.random() < (0.6 if self.clock else 0.1):
            column = self.dropped.pop()
            self.columns.append(column)
        else:
            role = "static" if self.clustering and self.random.random() < 0.3 else "regular"
            column = self._add(role, self._value_type())
        return f"{column.name} {column.type}{' static' if column.role == 'static' else ''}"

    def drop(self):
        column = self.random.choice(self.values)
        self.columns.remove(column)
        self.dropped.append(column)
        return column.name

    def rename(self):
        column = self.random.choice(self.partition + self.clustering)
        old, column.name = column.name, f"{column.name.strip(chr(34)).replace(' ', '').lower()}r"
        return f"{old} TO {column.name}"
