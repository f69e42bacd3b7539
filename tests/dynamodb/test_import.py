"""`ceto dynamodb import`: an export to S3, copied to disk, becomes a table of a running node."""

import base64
import gzip
import hashlib
import json

import pytest
from boto3.dynamodb.types import TypeSerializer
from harness.dynamodb import api_node, client_of
from harness.node import NodeFailed, run_ceto

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/music/export/01700000000000-a1b2c3d4"


@pytest.fixture(scope="module")
def node():
    """A node that answers only requests that are signed."""
    node = api_node(smp=2, memory="512M", options=["--alternator-enforce-authorization", "true"])
    node.start()
    yield node
    died, log = not node.alive, node.log()
    node.remove()
    assert not died, f"the node died during the tests\n{log}"


@pytest.fixture(scope="module")
def key(node):
    status, key = node.api("/ceto/dynamodb/keys", "POST")
    assert status == 200
    return key["access_key"], key["secret"]


@pytest.fixture(scope="module")
def imports(node, key):
    def run(export, table, *options):
        words = ["--table", table, "--endpoint", node.endpoint, "--access-key", key[0], *options]
        return run_ceto("dynamodb", "import", str(export), *words, env={"AWS_SECRET_ACCESS_KEY": key[1]})

    return run


def text_of(line):
    """A line as the service writes it: binaries in base64."""
    return json.dumps(line, default=lambda value: base64.b64encode(value).decode())


def write_export(root, files, kind=None, shared=False, view=None):
    """Writes an export as the service does; `files`: the lines of each data file. Returns its directory."""
    export = root / "AWSDynamoDB" / "01700000000000-a1b2c3d4"
    data = root / "AWSDynamoDB" / "data" if shared else export / "data"
    data.mkdir(parents=True)
    export.mkdir(exist_ok=True)
    manifest = []
    for number, lines in enumerate(files):
        packed = gzip.compress("".join(text_of(line) + "\n" for line in lines).encode())
        path = data / f"{number}file.json.gz"
        path.write_bytes(packed)
        md5 = hashlib.md5(packed).digest()
        entry = {
            "itemCount": len(lines),
            "md5Checksum": base64.b64encode(md5).decode(),
            "etag": hashlib.md5(md5).hexdigest() + "-1",
            "dataFileS3Key": f"prefix/{path.relative_to(root)}",
        }
        manifest.append(json.dumps(entry) + "\n")
    summary = {
        "version": "2023-08-01" if kind else "2020-06-30",
        "exportArn": ARN,
        "tableArn": ARN.split("/export")[0],
        "s3Bucket": "bucket",
        "s3Prefix": "prefix",
        "billedSizeBytes": 0,
        "itemCount": sum(map(len, files)),
        "outputFormat": "DYNAMODB_JSON",
    }
    summary |= {"exportType": kind, "outputView": view} if kind else {}
    (export / "manifest-summary.json").write_text(json.dumps(summary))
    (export / "manifest-files.json").write_text("".join(manifest))
    (export / "_started").touch()
    return export


def marshal(**attributes):
    serializer = TypeSerializer()
    return {name: serializer.serialize(value) for name, value in attributes.items()}


def song(artist, number, **rest):
    return marshal(artist=artist, number=number, **rest)


MUSIC = ("--create-table", "--partition-key", "artist:S", "--sort-key", "number:N")


def scan(node, key, table):
    client = client_of(node.endpoint, key)
    pages = client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    found = [item for page in pages for item in page["Items"]]
    return {(item["artist"]["S"], item["number"]["N"]): item for item in found}


def test_a_full_export_becomes_a_table_with_every_type(node, key, imports, tmp_path):
    rich = song(
        "Nina Simone",
        1,
        text="Señor 𝄞",
        binary=b"\x00\xff",
        flag=True,
        nothing=None,
        list=[1, "two", {"three": [3]}],
        map={"deep": {"deeper": {b"x"}}},
        strings={"a", "b"},
        numbers={1, 2},
    )
    rich["precise"] = {"N": "12345678901234567890.123456789"}
    items = [rich] + [song(f"artist {n % 7}", n, text="x" * n) for n in range(1000)]
    lines = [{"Item": item} for item in items]
    export = write_export(tmp_path, [lines[:400], [], lines[400:]])
    printed = imports(export, "full", *MUSIC, "--concurrency", "4")
    assert printed.startswith("table full: 1001 items put, 0 deleted; 3 files; "), printed
    found = scan(node, key, "full")
    assert len(found) == 1001
    stored = found["Nina Simone", "1"]
    for name in ("strings", "numbers"):
        (kind,) = rich[name]
        assert sorted(stored.pop(name)[kind]) == sorted(rich.pop(name)[kind])
    assert stored == rich
    for item in items[1:]:
        assert found[item["artist"]["S"], item["number"]["N"]] == item
    assert imports(export, "full", *MUSIC).startswith("table full: 1001 items put"), "it can be repeated"
    assert len(scan(node, key, "full")) == 1001


def change(image, time, new=None, old=None):
    keys = {name: image[name] for name in ("artist", "number")}
    images = {"NewImage": new, "OldImage": old}
    line = {"Metadata": {"WriteTimestampMicros": {"N": str(time)}}, "Keys": keys}
    return line | {name: image for name, image in images.items() if image}


def test_an_incremental_export_follows_a_full_one(node, key, imports, tmp_path):
    before = [song("a", number, text="old") for number in range(10)]
    full = write_export(tmp_path / "full", [[{"Item": item} for item in before]])
    imports(full, "followed", *MUSIC)
    deleted, changed, added = before[3], song("a", 4, text="new"), song("b", 1, text="new")
    lines = [
        change(deleted, 10, old=deleted),
        change(changed, 11, new=changed, old=before[4]),
        change(added, 12, new=added),
    ]
    more = write_export(tmp_path / "more", [lines], "INCREMENTAL_EXPORT", shared=True, view="NEW_AND_OLD_IMAGES")
    printed = imports(more, "followed")
    assert printed.startswith("table followed: 2 items put, 1 deleted; 1 files; "), printed
    expected = {(item["artist"]["S"], item["number"]["N"]): item for item in [*before, changed, added]}
    del expected["a", "3"]
    assert scan(node, key, "followed") == expected


def failure_of(run):
    with pytest.raises(NodeFailed) as failed:
        run()
    assert failed.value.code == 1
    (line,) = failed.value.log.strip().splitlines()
    return line


def test_what_is_wrong_is_named(node, key, imports, tmp_path):
    lines = [{"Item": song("a", number)} for number in range(3)]
    export = write_export(tmp_path, [lines])
    assert "--create-table" in failure_of(lambda: imports(export, "missing"))
    words = ["dynamodb", "import", str(export), "--table", "missing", "--endpoint", node.endpoint]
    assert "MissingAuthenticationTokenException" in failure_of(lambda: run_ceto(*words))
    wrong = [*words, "--access-key", key[0]]
    refused = failure_of(lambda: run_ceto(*wrong, env={"AWS_SECRET_ACCESS_KEY": "another"}))
    assert "InvalidSignatureException" in refused
    assert "https is not supported" in failure_of(lambda: run_ceto(*words[:-1], "https://127.0.0.1:1"))
    assert "expected the directory of an export" in failure_of(lambda: imports(tmp_path, "missing"))
    data = export / "data" / "0file.json.gz"
    packed = data.read_bytes()
    data.write_bytes(packed[:-1])
    refused = failure_of(lambda: imports(export, "damaged", *MUSIC))
    assert str(data) in refused
    assert "md5Checksum" in refused
    assert scan(node, key, "damaged") == {}


def test_a_line_that_is_no_item_is_named_by_its_number(node, key, imports, tmp_path):
    lines = [{"Item": song("a", 1)}, {"Item": marshal(artist="a")}]
    export = write_export(tmp_path, [lines])
    refused = failure_of(lambda: imports(export, "short", *MUSIC))
    assert "0file.json.gz: line 2: no attribute 'number' of type N" in refused


def test_an_import_with_a_state_file_continues(node, key, imports, tmp_path):
    lines = [{"Item": song("a", number)} for number in range(4)]
    export = write_export(tmp_path, [lines[:2], lines[2:]])
    second = export / "data" / "1file.json.gz"
    packed = second.read_bytes()
    second.unlink()
    state = ("--state", str(tmp_path / "state"))
    failure_of(lambda: imports(export, "continued", *MUSIC, *state))
    second.write_bytes(packed)
    printed = imports(export, "continued", *MUSIC, *state)
    expected = "table continued: 2 items put, 0 deleted; 1 files, and 1 that were done before; "
    assert printed.startswith(expected), printed
    assert len(scan(node, key, "continued")) == 4
