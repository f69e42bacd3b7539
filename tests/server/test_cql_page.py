"""docs/cql.md and the node say the same: each row that is refused or warned is tried, and so are the refusals that rows of what works name.

A row is named by its first cell. Its codes, its state and its names are read from the page, so a row that changes there, or is new, needs a case here.
"""

import re

import pytest

from harness import cql
from harness.tables import ROOT, code, rows

pytestmark = pytest.mark.ceto_only("the page of ceto")

PAGE = "docs/cql.md"
NO_EFFECT = "has no effect"
KEYSPACE = "CREATE KEYSPACE {new} WITH replication = {{'class': '%s'%s}}"
NETWORK = KEYSPACE % ("NetworkTopologyStrategy", ", 'replication_factor': 1")
TABLE = "CREATE TABLE {new} (k int PRIMARY KEY, v int) WITH "


def table_with(*options):
    return [TABLE + option.replace("{", "{{").replace("}", "}}") for option in options]


def compaction(options):
    return f"compaction = {{'class': 'SizeTieredCompactionStrategy', {options}}}"


SASI = "org.apache.cassandra.index.sasi.SASIIndex"
ROW = "k = 1 AND c = 1 AND e = 1"

# Statements that are refused, by row. {t} is a table, {row} the key of one of its rows, {new} a name that is free.
REFUSED = {
    "columns that cannot be indexed": ["CREATE INDEX ON {t} (k)"],
    "SAI on vectors": ["CREATE INDEX ON {t} (ve) USING 'sai'"],
    "SASI with `StandardAnalyzer`, or `analyzed` without a class": [
        f"CREATE CUSTOM INDEX ON {{t}} (w) USING '{SASI}' WITH OPTIONS = {{{{{options}}}}}"
        for options in (
            "'analyzer_class': 'org.apache.cassandra.index.sasi.analyzer.StandardAnalyzer'",
            "'analyzed': 'true'",
        )
    ],
    "other classes": ["CREATE CUSTOM INDEX ON {t} (v) USING 'nope'"],
    "`ALTER TABLE` `DROP`, `RENAME` and `ALTER … TYPE` of a column that is indexed": [
        "ALTER TABLE {indexed} DROP v", "ALTER TABLE {indexed} RENAME c TO d", "ALTER TABLE {indexed} ALTER w TYPE blob",
    ],
    "`LocalStrategy`": [KEYSPACE % ("LocalStrategy", "")],
    "`MASKED WITH`": [
        "CREATE TABLE {new} (k int PRIMARY KEY, v text MASKED WITH DEFAULT)",
        "ALTER TABLE {t} ALTER v MASKED WITH DEFAULT",
        "ALTER TABLE {t} ADD x text MASKED WITH DEFAULT",
    ],
    "`compaction` Unified, Incremental, DateTiered, Null": table_with(
        *(f"compaction = {{'class': '{name}CompactionStrategy'}}" for name in ("Unified", "Incremental", "DateTiered", "Null"))
    ),
    "`compression` dictionary compressors of ScyllaDB": table_with(
        "compression = {'sstable_compression': 'ZstdWithDictsCompressor'}", "compression = {'sstable_compression': 'LZ4WithDictsCompressor'}"
    ),
    "`cdc = true`, `cdc = {'enabled': true}`": table_with("cdc = true", "cdc = {'enabled': true}"),
    "`compaction` `unsafe_aggressive_sstable_expiration` of `true`; sizes of levels above 8 EiB": table_with(
        "compaction = {'class': 'TimeWindowCompactionStrategy', 'unsafe_aggressive_sstable_expiration': 'true'}",
        "compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': '10000000000000'}",
    ),
    "`read_repair_chance`, `dclocal_read_repair_chance`": table_with("read_repair_chance = 0.1", "dclocal_read_repair_chance = 0.1"),
    "`synchronous_updates`, `in_memory`, `storage_engine` of ScyllaDB": table_with(
        "synchronous_updates = true", "in_memory = true", "storage_engine = 'logstor'"
    ),
    "`fast_path`": table_with("fast_path = 'on'"),
    "a TTL that ends after 2038-01-19 03:14:06 UTC": ["INSERT INTO {t} (k, c, v) VALUES (1, 1, 1) USING TTL 630720000"],
    "`IF … NOT CONTAINS`, `IF … IS NOT NULL`": [
        "UPDATE {t} SET v = 1 WHERE {row} IF l NOT CONTAINS 1",
        "UPDATE {t} SET v = 1 WHERE {row} IF v IS NOT NULL",
    ],
    "a conditional batch over several partitions or tables": [
        "BEGIN BATCH UPDATE {t} SET v = 1 WHERE {row} IF EXISTS; UPDATE {t} SET v = 1 WHERE k = 2 AND c = 1 AND e = 1 IF EXISTS; APPLY BATCH",
        "BEGIN BATCH UPDATE {t} SET v = 1 WHERE {row} IF EXISTS; UPDATE {other} SET v = 1 WHERE {row}; APPLY BATCH",
    ],
    "the same on `m['k']` and on tuples of columns, and in UPDATE and DELETE": [
        "SELECT k FROM {t} WHERE m['k'] != 1 ALLOW FILTERING",
        "SELECT k FROM {t} WHERE (c, e) != (1, 2) ALLOW FILTERING",
        "SELECT k FROM {t} WHERE (c, e) NOT IN ((1, 2)) ALLOW FILTERING",
        "SELECT k FROM {t} WHERE (c, e) IS NOT NULL ALLOW FILTERING",
        "DELETE FROM {t} WHERE k = 1 AND c != 1",
        "UPDATE {t} SET v = 1 WHERE k = 1 AND c IS NOT NULL",
    ],
    "`= null`, `> null` in WHERE of SELECT": [
        "SELECT k FROM {t} WHERE k = null", "SELECT k FROM {t} WHERE k = 1 AND c > null", "SELECT k FROM {t} WHERE v = null ALLOW FILTERING",
    ],
    "two relations on one column, except a lower and an upper bound, or several CONTAINS and map entries": [
        "SELECT k FROM {t} WHERE k = 1 AND k = 2",
        "SELECT k FROM {t} WHERE k = 1 AND c > 1 AND c > 2",
        "SELECT k FROM {t} WHERE v = 1 AND v < 2 ALLOW FILTERING",
    ],
    "a null among the values of IN on a column that is filtered": ["SELECT k FROM {t} WHERE v IN (1, null) ALLOW FILTERING"],
    "`ORDER BY v ANN OF […]`": ["SELECT k FROM {t} ORDER BY ve ANN OF [1.0, 2.0] LIMIT 1"],
    "other tables of `system` and `system_views` that Cassandra has (`system.batches`, `system.paxos`, `system.top_partitions`, …)": [
        "SELECT * FROM system.batches", "SELECT * FROM system.paxos", "SELECT * FROM system.top_partitions",
    ],
    "writes to other system tables; DDL in `system`": [
        "INSERT INTO system.local (key) VALUES ('other')",
        "CREATE TABLE system.{new} (k int PRIMARY KEY)",
        "ALTER TABLE system.local ADD x int",
        "DROP KEYSPACE system",
    ],
}  # fmt: skip

# Statements with a warning that says that the option has no effect; all names of the row are among them.
WARNED = {
    "`durable_writes = false`": [NETWORK + " AND durable_writes = false"],
    "`incremental_backups`": table_with("incremental_backups = false"),
    "`compaction` `LeveledCompactionStrategy`, `TimeWindowCompactionStrategy`": table_with(
        "compaction = {'class': 'LeveledCompactionStrategy'}",
        "compaction = {'class': 'TimeWindowCompactionStrategy'} AND default_time_to_live = 60",
    ),
    "`compaction` `log_all`, `provide_overlapping_tombstones`": table_with(
        compaction("'log_all': 'true'"), compaction("'provide_overlapping_tombstones': 'cell'")
    ),
    "`compression` `lz4_compressor_type`, `lz4_high_compressor_level`, `min_compress_ratio`": table_with(
        "compression = {'class': 'LZ4Compressor', 'lz4_compressor_type': 'high'}",
        "compression = {'class': 'LZ4Compressor', 'lz4_compressor_type': 'high', 'lz4_high_compressor_level': '9'}",
        "compression = {'class': 'LZ4Compressor', 'min_compress_ratio': '2'}",
    ),
    "`caching` `keys`, `rows_per_partition`, `enabled` of ScyllaDB": table_with(
        "caching = {'keys': 'NONE'}", "caching = {'rows_per_partition': 'ALL'}", "caching = {'enabled': 'false'}"
    ),
    "`additional_write_policy`, `crc_check_chance`, `max_index_interval`": table_with(
        "additional_write_policy = '50p'", "crc_check_chance = 0.5", "max_index_interval = 4096",
        "compression = {'class': 'LZ4Compressor', 'crc_check_chance': '0.5'}",
    ),
}  # fmt: skip

# What rows of another state say: statements, and the code they end with; None: they are taken without a word; a text: with a warning that has it.
ALSO = {
    "a write timestamp in the far future": [
        ("INSERT INTO {t} (k, c, e) VALUES (8, 8, 8) USING TIMESTAMP 99999999999999999", "maximum_timestamp_warn_threshold"),
    ],
    "`SimpleStrategy`, `NetworkTopologyStrategy` with datacenters or `replication_factor`": [
        (KEYSPACE % ("NetworkTopologyStrategy", ", 'replication_factor': 7"), "replication factor"),
    ],
    "`paxos_grace_seconds`": [
        (table_with("paxos_grace_seconds = 60")[0], "paxos_grace_seconds"), (table_with("paxos_grace_seconds = 864000")[0], None),
    ],
    "`consistency`, `storage` of ScyllaDB": [
        (NETWORK + " AND consistency = 'global'", 0x2300),
        (NETWORK + " AND storage = {{'type': 'S3', 'endpoint': 'a', 'bucket': 'b'}}", 0x2300),
        (NETWORK + " AND consistency = 'eventual' AND storage = {{'type': 'LOCAL'}}", None),
    ],
    "`compaction` `SizeTieredCompactionStrategy`": [
        (statement, None)
        for statement in table_with(
            *(compaction(f"'{name}': '{value}'") for name, value in {
                "min_threshold": 3, "max_threshold": 9, "bucket_low": 0.4, "bucket_high": 1.6, "min_sstable_size": 1000000,
                "tombstone_threshold": 0.3, "unchecked_tombstone_compaction": "true", "enabled": "false",
            }.items())
        )
    ],
    "`compaction` `tombstone_compaction_interval`": [(s, None) for s in table_with(compaction("'tombstone_compaction_interval': '60'"))],
    "`compaction` `only_purge_repaired_tombstones`": [(s, None) for s in table_with(compaction("'only_purge_repaired_tombstones': 'true'"))],
    "`comment`, `default_time_to_live`, `gc_grace_seconds`, `bloom_filter_fp_chance`, `min_index_interval`, `id`": [
        (s, None) for s in table_with("comment = 'c'", "default_time_to_live = 60", "gc_grace_seconds = 60", "bloom_filter_fp_chance = 0.1",
                                      "min_index_interval = 64", "id = 5a1c395e-b41f-11e5-9f22-ba0be0483c19")
    ],
    "`memtable_flush_period_in_ms`": [(s, None) for s in table_with("memtable_flush_period_in_ms = 60000")],
    "`allow_auto_snapshot`": [(s, None) for s in table_with("allow_auto_snapshot = false")],
    "`incremental_backups`": [(s, None) for s in table_with("incremental_backups = true")],
    "`speculative_retry`": [
        (s, None) for s in table_with(*(f"speculative_retry = '{value}'" for value in ("99p", "10ms", "MIN(99p,10ms)", "MAX(99p,10ms)", "ALWAYS", "NONE")))
    ],
    "`per_partition_rate_limit`": [(s, None) for s in table_with("per_partition_rate_limit = {'max_reads_per_second': 9}")],
    "`large_data_guardrails_enabled`": [(s, None) for s in table_with("large_data_guardrails_enabled = true")],
    "`extensions`": [(s, None) for s in table_with("extensions = {'a': 0x00}")],
    "`tablets`": [
        (s, None) for s in table_with(*(f"tablets = {{'{name}': '2'}}" for name in ("min_tablet_count", "max_tablet_count", "min_per_shard_tablet_count",
                                                                                   "expected_data_size_in_gb")), "tablets = {'pow2_count': 'true'}")
    ],
    "`tombstone_gc`": [(s, None) for s in table_with(*(f"tombstone_gc = {{'mode': '{mode}'}}" for mode in ("repair", "timeout", "immediate", "disabled")))],
    "`compression` LZ4, Snappy, Deflate, Zstd, Noop, `chunk_length_in_kb`, `compression_level`, off": [
        (s, None) for s in table_with(*(f"compression = {{'{key}': '{name}Compressor'}}" for key in ("class", "sstable_compression")
                                        for name in ("LZ4", "Snappy", "Deflate", "Zstd", "Noop")),
                                      "compression = {'class': 'ZstdCompressor', 'chunk_length_in_kb': '16', 'compression_level': '5'}",
                                      "compression = {'enabled': 'false'}")
    ],
    "`caching` `keys`, `rows_per_partition`, `enabled` of ScyllaDB": [(s, None) for s in table_with("caching = {'enabled': 'true'}")],
    "`cdc = true`, `cdc = {'enabled': true}`": [(s, None) for s in table_with("cdc = false")],
    "`read_repair`": [(s, None) for s in table_with("read_repair = 'BLOCKING'", "read_repair = 'NONE'")],
    "`memtable`": [(table_with("memtable = 'trie'")[0], 0x2300), (table_with("memtable = 'default'")[0], None)],
    "`synchronous_updates`, `in_memory`, `storage_engine` of ScyllaDB": [
        (s, None) for s in table_with("synchronous_updates = false", "in_memory = false", "storage_engine = ''")
    ],
    "a type as a Java class name in quotes": [
        *((f"CREATE TABLE {{new}} (k int PRIMARY KEY, v '{name}')", 0x2200) for name in (
            "CompositeType(Int32Type)", "DynamicCompositeType(a=>Int32Type)", "EmptyType", "LexicalUUIDType", "PartitionerDefinedOrder", "UserType(ks,61,62:Int32Type)",
        )),
        ("CREATE TABLE {new} (k int PRIMARY KEY, v 'CounterColumnType')", 0x2300),
        ("CREATE TABLE {new} (k int PRIMARY KEY, v 'ListType(org.apache.cassandra.db.marshal.Int32Type)')", None),
    ],
    "`CREATE TABLE … LIKE`, with `WITH` for other options": [("CREATE TABLE {new} LIKE {t} WITH INDEXES", None)],
    "`IF … LIKE`, `IF … NOT IN`, `IF … BETWEEN`": [
        ("UPDATE {t} SET v = 1 WHERE {row} IF v NOT IN (1)", None), ("UPDATE {t} SET v = 1 WHERE {row} IF v BETWEEN 1 AND 2", None),
    ],
    "`SET n = n + 1`, `n += 1`, `t += 'a'` of numbers and texts in an UPDATE with IF": [
        ("UPDATE {t} SET v = v + 1 WHERE {row}", 0x2200), ("UPDATE {t} SET v += null WHERE k = 9 AND c = 9 AND e = 9 IF v = null", 0x2200),
        ("UPDATE {t} SET v -= 1 WHERE {row} IF EXISTS", None),
    ],
    "`m['k']`, `s[e]`, `m['a'..'b']` in the selection": [("SELECT l[0] FROM {t}", 0x2200), ("SELECT m['k'], m['a'..'b'] FROM {t}", None)],
    "`ALLOW FILTERING`": [("SELECT k FROM {t} WHERE v = 1", 0x2200)],
    "`c BETWEEN a AND b`, on single columns, tuples and `token()`": [
        ("SELECT k FROM {t} WHERE k = 1 AND c BETWEEN 1 AND 2", None), ("SELECT k FROM {t} WHERE token(k) BETWEEN 1 AND 2", None),
    ],
    "SELECT without FROM: `SELECT now(), 5 + 3`": [("SELECT now(), 5 + 3", None), ("SELECT v", "refused"), ("SELECT 5 WHERE k = 1", 0x2000), ("SELECT 5 LIMIT 1", None)],
    "`BYPASS CACHE` of ScyllaDB": [("SELECT * FROM {t} WHERE k = 1 BYPASS CACHE", None)],
    "`USING TIMEOUT` of ScyllaDB on SELECT": [("SELECT * FROM {t} WHERE k = 1 USING TIMEOUT 5s", None)],
    "`GROUP BY` primary key columns, the last of them also in a function that grows with it: `GROUP BY k, floor(c, 1h)`": [("SELECT k FROM {t} GROUP BY k, abs(c)", 0x2200)],
    "`system.config`": [("DELETE FROM system.config WHERE name = 'auto_snapshot'", "refused"), ("UPDATE system.config USING TTL 5 SET value = 'true' WHERE name = 'auto_snapshot'", "refused")],
    "`DESCRIBE INDEX`, `MATERIALIZED VIEW`": [("DESCRIBE INDEX {t}", 0x2200), ("DESCRIBE MATERIALIZED VIEW {t}", 0x2200)],
    "`DESCRIBE CLUSTER`, `[FULL] SCHEMA`, `[ONLY] KEYSPACE`, `KEYSPACES`, `TABLE(S)`, `TYPE(S)`, a name, `WITH INTERNALS`": [("DESCRIBE SCHEMA AND PASSWORDS", 0x2000)],
    "`mask_null`, `mask_default`, `mask_replace`, `mask_inner`, `mask_outer`, `mask_hash`": [
        *((f"SELECT mask_hash(v, '{name}') FROM {{t}}", None) for name in ("MD5", "SHA-1", "SHA-256", "SHA-384", "SHA-512", "SHA-512/256")),
        ("SELECT mask_hash(v, 'MD2') FROM {t}", 0x2200),
    ],
    "`system_auth.roles`": [("INSERT INTO system_auth.roles (role, can_login) VALUES ('nobody', true)", None)],
}  # fmt: skip

# The table of what is not supported: 2200 and these words, unless the row has another code.
NOT_SUPPORTED = {
    "`CREATE MATERIALIZED VIEW`": [
        "CREATE MATERIALIZED VIEW {new} AS SELECT * FROM {t} WHERE k IS NOT NULL AND c IS NOT NULL AND e IS NOT NULL PRIMARY KEY (c, k, e)"
    ],
    "`CREATE TRIGGER`": ["CREATE TRIGGER tr ON {t} USING 'x'"],
    "`CREATE`, `ALTER`, `DROP ROLE` and `USER`, `GRANT`, `REVOKE`, `LIST …`, `ADD IDENTITY`": [
        "CREATE ROLE r", "ALTER ROLE r WITH LOGIN = true", "DROP ROLE r", "CREATE USER u WITH PASSWORD 'p'", "ALTER USER u WITH PASSWORD 'p'", "DROP USER u",
        "GRANT SELECT ON ALL KEYSPACES TO r", "REVOKE SELECT ON ALL KEYSPACES FROM r", "LIST ROLES", "LIST USERS", "LIST ALL PERMISSIONS", "ADD IDENTITY 'i' TO ROLE 'r'",
    ],
    "service levels of ScyllaDB (`CREATE SERVICE LEVEL`, `ATTACH`, `LIST`)": [
        "CREATE SERVICE LEVEL s", "ATTACH SERVICE LEVEL s TO r", "LIST ALL SERVICE LEVELS",
    ],
    "`PRUNE MATERIALIZED VIEW`, `BEGIN TRANSACTION`": ["PRUNE MATERIALIZED VIEW v", "BEGIN TRANSACTION COMMIT TRANSACTION"],
}  # fmt: skip


def by_first_cell(wanted):
    return {next(iter(row.values())): row for row in rows(PAGE) if wanted(row)}


def codes_of(text):
    return {int(number, 16) for number in re.findall(r"\b2[0-4]00\b", text)}


@pytest.fixture(scope="module")
def names(session):
    """Tables that statements may name, the last one with indexes; statements that would change one are refused."""
    made = {key: cql.unique("page") for key in ("t", "other", "indexed")}
    for name in made.values():
        session.execute(
            f"CREATE TABLE {name} (k int, c int, e int, v int, w text, l list<int>, m map<text, int>, ve vector<float, 2>, PRIMARY KEY (k, c, e))"
        )
    for column in ("c", "v", "w"):
        session.execute(f"CREATE INDEX ON {made['indexed']} ({column})")
    yield made
    for name in made.values():
        session.execute(f"DROP TABLE {name}")


@pytest.fixture
def ask(session, names):
    """ask(statement): (None, warnings) when it is taken, or (code, message). What it makes is dropped at once."""

    def run(statement):
        new = cql.unique("new")
        future = session.execute_async(statement.format(new=new, row=ROW, **names))
        try:
            future.result()
        except Exception as failure:  # the driver has one class per code; error_of tells answers from other failures
            return cql.error_of(failure)
        if match := re.match(r"CREATE (KEYSPACE|TABLE)", statement):
            session.execute(f"DROP {match[1]} {new}")
        return None, future.warnings or []

    return run


def test_every_row_that_is_refused_or_warned_has_a_case():
    legend = ("refused", "**warned**", "works", "differs")
    of_state = lambda state: {name for name in by_first_cell(lambda row: row.get("state") == state) if name not in legend}  # noqa: E731
    assert REFUSED.keys() == of_state("refused")
    assert WARNED.keys() == of_state("**warned**")
    assert NOT_SUPPORTED.keys() == by_first_cell(lambda row: "alternative" in row).keys()
    assert not (unknown := ALSO.keys() - by_first_cell(lambda row: "state" in row).keys()), unknown


@pytest.mark.parametrize("row", REFUSED)
def test_what_the_page_calls_refused_is_refused_with_its_code(ask, row):
    [text] = [found["what to know"] for name, found in by_first_cell(lambda row: "what to know" in row).items() if name == row]
    answers = {statement: ask(statement) for statement in REFUSED[row]}
    assert {got for got, _ in answers.values()} == codes_of(text), answers
    # Each of the row's names is refused.
    assert len(answers) >= len([name for name in code(row) if re.fullmatch(r"\w+_\w+", name)])


@pytest.mark.parametrize("row", WARNED)
def test_what_the_page_calls_warned_is_taken_and_the_client_is_told(ask, row):
    for statement in WARNED[row]:
        got, said = ask(statement)
        assert got is None, f"{statement}: {said}"
        assert [line for line in said if NO_EFFECT in line], f"{statement}: {said}"
    text = " ".join(WARNED[row])
    assert all(name in text for name in code(row)), f"no statement has all of {code(row)}"


@pytest.mark.parametrize("row", ALSO)
def test_what_else_a_row_says_is_so(ask, row):
    [text] = [" ".join(found.values()) for name, found in by_first_cell(lambda row: "state" in row).items() if name == row]
    for statement, expected in ALSO[row]:
        got, said = ask(statement)
        if expected == "refused":
            assert got in (cql.SYNTAX, cql.INVALID, cql.CONFIG), f"{statement}: {said}"
        elif isinstance(expected, str):
            assert got is None and any(expected in warning for warning in said), f"{statement}: {said}"
            assert expected in text and "warning" in text, text
        else:
            assert got == expected, f"{statement}: {said}"
        if expected is None:
            assert not [line for line in said if NO_EFFECT in line], f"{statement}: {said}"
        elif isinstance(expected, int):
            assert expected in codes_of(text), f"the row has no {expected:x}: {text}"


@pytest.mark.parametrize("row", NOT_SUPPORTED)
def test_what_the_page_calls_not_supported_is_refused_so(ask, row):
    alternative = by_first_cell(lambda row: "alternative" in row)[row]["alternative"]
    [expected] = codes_of(alternative) or {0x2200}
    for statement in NOT_SUPPORTED[row]:
        got, said = ask(statement)
        assert got == expected, f"{statement}: {got}: {said}"
        if expected == cql.INVALID:
            assert "not supported yet" in said, f"{statement}: {said}"
        elif expected == cql.UNAUTHORIZED:
            assert "You have to be logged in" in said, f"{statement}: {said}"


def test_readme_names_as_without_effect_what_the_page_does():
    readme = (ROOT / "README.md").read_text()
    sentence = re.search(r"\*\*Accepted without effect\*\*, with a warning to the client: (.*?)\n- ", readme, re.S)[1]
    warned = {name for row in WARNED for name in code(row)} | {row.split()[0].strip("`") for row in WARNED}
    assert set(code(sentence)) <= warned, set(code(sentence)) - warned
    without_names = re.sub(r"`[^`]+`", "", sentence)
    assert not (statements := re.findall(r"\b[A-Z]{3,}\b", without_names)), f"no row that is warned has {statements}"
