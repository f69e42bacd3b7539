"""Makes and checks the test vectors of this directory with Apache's Python driver (pip install cassandra-driver lz4
python-snappy).

    python driver.py requests > requests.txt     what the driver sends, and what it means
    python driver.py seen < responses.txt        what the driver understands of the frames we send
"""
import io
import struct
import sys
import uuid

from cassandra.connection import locally_supported_compressions, segment_codec_lz4, segment_codec_no_compression
from cassandra.cqltypes import BytesType, Int32Type
from cassandra.protocol import (_UNSET_VALUE, AuthResponseMessage, BatchMessage, ExecuteMessage, OptionsMessage,
                                PrepareMessage, ProtocolHandler, QueryMessage, RegisterMessage, ResultMessage,
                                StartupMessage)
from cassandra.query import BatchType

CONSISTENCY = ["ANY", "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "SERIAL", "LOCAL_SERIAL",
               "LOCAL_ONE"]
LZ4 = locally_supported_compressions["lz4"]
SNAPPY = locally_supported_compressions["snappy"]

# What a driver remembers of a prepared statement, when it asks to skip the metadata.
TWO_COLUMNS = [("ks", "t", "k", Int32Type), ("ks", "t", "v", BytesType)]


def value(v):
    return "null" if v is None else "unset" if v is _UNSET_VALUE else "0x" + v.hex()


def values(vs):
    return "[" + ", ".join(value(v) for v in vs or []) + "]"


def options(m):
    text = ""
    if getattr(m, "fetch_size", None):
        text += " page_size=%d" % m.fetch_size
    if getattr(m, "paging_state", None):
        text += " paging_state=0x" + m.paging_state.hex()
    if m.serial_consistency_level:
        text += " serial_consistency=" + CONSISTENCY[m.serial_consistency_level]
    if m.timestamp is not None:
        text += " timestamp=%d" % m.timestamp
    if m.keyspace:
        text += " keyspace=" + m.keyspace
    return text


def describe(m, version):
    if isinstance(m, StartupMessage):
        return "STARTUP " + " ".join("%s=%s" % (k, m.options[k]) for k in m.options) + " CQL_VERSION=" + m.cqlversion
    if isinstance(m, OptionsMessage):
        return "OPTIONS"
    if isinstance(m, RegisterMessage):
        return "REGISTER " + " ".join(m.event_list)
    if isinstance(m, AuthResponseMessage):
        return "AUTH_RESPONSE 0x" + m.response.hex()
    if isinstance(m, PrepareMessage):
        return "PREPARE %r" % m.query + (" keyspace=" + m.keyspace if m.keyspace else "")
    if isinstance(m, QueryMessage):
        return "QUERY %r %s %s" % (m.query, CONSISTENCY[m.consistency_level], values(m.query_params)) + options(m)
    if isinstance(m, ExecuteMessage):
        text = "EXECUTE 0x%s" % m.query_id.hex()
        if version >= 5:
            text += " metadata=0x" + m.result_metadata_id.hex()
        return text + " %s %s" % (CONSISTENCY[m.consistency_level], values(m.query_params)) + options(m)
    if isinstance(m, BatchMessage):
        entries = ", ".join(("0x" + q.hex() if prepared else repr(q)) + " " + values(p) for prepared, q, p in m.queries)
        return "BATCH %s {%s} %s" % (m.batch_type.name, entries, CONSISTENCY[m.consistency_level]) + options(m)
    raise TypeError(m)


def messages(version):
    unset = [_UNSET_VALUE] if version >= 4 else []
    keyspace = "ks" if version >= 5 else None
    statement_id = bytes(range(16))
    yield OptionsMessage()
    yield StartupMessage("3.4.6", {"DRIVER_NAME": "driver é", "COMPRESSION": "lz4"})
    yield RegisterMessage(["TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE"])
    yield AuthResponseMessage(b"\0cassandra\0cassandra")
    yield PrepareMessage("SELECT v FROM t WHERE k = ?", keyspace)
    yield QueryMessage("SELECT * FROM system.local", 1)
    query = QueryMessage("SELECT ünïcode FROM t", 6, 8, 5000, b"\x01\x02\x03", 1700000000000001, None, keyspace)
    query.query_params = [b"", None, b"abc"]
    yield query
    yield ExecuteMessage(statement_id, [b"\0\0\0\0\0\0\0\x2a"], 10, result_metadata_id=b"\xaa\xbb")
    yield ExecuteMessage(statement_id, [None] + unset + [b"x" * 300], 4, 9, 100, b"\xff" * 20, 5,
                         result_metadata_id=b"\xaa\xbb")
    if version >= 4:
        payload = ExecuteMessage(b"i", [], 1, result_metadata_id=b"")
        payload.custom_payload = {"a": b"1", "b": b""}
        payload.tracing = True
        yield payload
    yield BatchMessage(BatchType.LOGGED, [], 1)
    yield BatchMessage(BatchType.UNLOGGED, [(False, "INSERT INTO t (k) VALUES (1)", []),
                                            (True, statement_id, [b"\x01", None] + unset)], 5, 8, 7, keyspace)
    yield BatchMessage(BatchType.COUNTER, [(True, b"", [b""])] * 3, 2)


def requests():
    print("# Made by `python driver.py requests`. A frame, then what it means.")
    for version in (3, 4, 5):
        for stream, message in enumerate(messages(version)):
            plain = ProtocolHandler.encode_message(message, stream, version, None, False)
            print("plain v%d stream=%d" % (version, stream), plain.hex())
            print("   ", describe(message, version))
            if version < 5 and len(plain) > 9 and not isinstance(message, StartupMessage):
                for name, (compress, _) in (("lz4", LZ4), ("snappy", SNAPPY)):
                    frame = ProtocolHandler.encode_message(message, stream, version, compress, False)
                    print("%s v%d stream=%d" % (name, version, stream), frame.hex())
                    print("   ", describe(message, version))
            if version >= 5 and not isinstance(message, (StartupMessage, OptionsMessage)):
                for name, codec in (("segments", segment_codec_no_compression), ("segments-lz4", segment_codec_lz4)):
                    out = io.BytesIO()
                    codec.encode(out, plain)
                    print("%s v%d stream=%d" % (name, version, stream), out.getvalue().hex())
                    print("   ", describe(message, version))


def unwrap(framing, data):
    """Frames from the bytes of a connection."""
    if framing.startswith("segments"):
        codec = segment_codec_lz4 if framing == "segments-lz4" else segment_codec_no_compression
        stream, frames = io.BytesIO(data), b""
        while stream.tell() < len(data):
            header = codec.decode_header(stream)
            frames += codec.decode(stream, header).payload
        data = frames
    while data:
        version, flags, stream, opcode, length = struct.unpack(">BBhBi", data[:9])
        yield version, flags, stream, opcode, data[9:9 + length]
        data = data[9 + length:]


def show(x):
    if isinstance(x, type):
        return x.cql_parameterized_type()
    if isinstance(x, (list, tuple)):
        return "[" + ", ".join(show(i) for i in x) + "]"
    if isinstance(x, dict):
        return "{" + ", ".join("%s: %s" % (k, show(x[k])) for k in sorted(x)) + "}"
    if isinstance(x, bytes):
        return "0x" + x.hex()
    return str(x)


FIELDS = ["kind", "info", "message", "code", "event_type", "event_args", "authenticator", "challenge", "token",
          "cql_versions", "options", "new_keyspace", "query_id", "result_metadata_id", "bind_metadata", "pk_indexes",
          "column_metadata", "paging_state", "column_names", "column_types", "parsed_rows", "schema_change_event",
          "warnings", "custom_payload", "trace_id"]


def seen():
    for line in sys.stdin:
        line = line.rstrip("\n")
        if line.startswith("    "):
            continue
        print(line)
        if not line or line.startswith("#"):
            continue
        name, framing, data = line.split(" ")
        for version, flags, stream, opcode, body in unwrap(framing, bytes.fromhex(data)):
            assert version & 0x80, "not a response"
            decompress = {"lz4": LZ4[1], "snappy": SNAPPY[1]}.get(framing)
            try:
                m = ProtocolHandler.decode_message(version & 0x7f, {}, stream, flags, opcode, body, decompress, TWO_COLUMNS)
            except Exception as error:
                print("    stream=%d driver cannot read it: %r" % (stream, error))
                continue
            fields = ["%s=%s" % (f, show(getattr(m, f))) for f in FIELDS if getattr(m, f, None) is not None]
            print("    stream=%d %s %s" % (stream, m.name, " ".join(fields)))


{"requests": requests, "seen": seen}[sys.argv[1]]()
