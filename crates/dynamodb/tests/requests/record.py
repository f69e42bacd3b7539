#!/usr/bin/env python3
"""Records what dynoxide answers to the requests of this folder.

    record.py PORT [FILE...]    ask dynoxide on PORT of this machine, and write its answers into the files (default: all)

A case is a line `Operation {body}`, a line `----` and the answer: `ok`, or an error as `Name: message`. A body is one
line of JSON; `@N(x)` in it stands for N times the text x. A condition that fails
(or an item that INSERT finds) counts as `ok`: the request was accepted.
differences.txt has the cases in which the crate answers otherwise on purpose: there the recorded answer becomes the
line `# recorded: ...` before the case, and the answer stays.
"""
import json
import pathlib
import re
import sys
import time
import urllib.error
import urllib.request

FOLDER = pathlib.Path(__file__).parent
PORT = int(sys.argv[1])
AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
)


def ask(operation, body):
    headers = {
        "X-Amz-Target": "DynamoDB_20120810." + operation,
        "Content-Type": "application/x-amz-json-1.0",
        "Authorization": AUTHORIZATION,
        "X-Amz-Date": "20260101T000000Z",
    }
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/", data=body.encode(), headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def expand(body):
    return re.sub(r"@(\d+)\(([^)]*)\)", lambda found: found[2] * int(found[1]), body)


def prepare():
    """Drops all tables and creates those of tables.txt."""
    # A table whose vector index is being created is not deleted at once.
    while names := ask("ListTables", "{}")[1]["TableNames"]:
        for name in names:
            ask("UpdateTable", json.dumps({"TableName": name, "DeletionProtectionEnabled": False}))
            ask("DeleteTable", json.dumps({"TableName": name}))
        time.sleep(0.05)
    for line in (FOLDER / "tables.txt").read_text().splitlines():
        if line.startswith("CreateTable "):
            status, answer = ask("CreateTable", line.split(" ", 1)[1])
            assert status == 200, answer


def text(status, answer):
    if status == 200:
        return "ok"
    name = answer["__type"].split("#")[1]
    message = answer.get("message") or answer.get("Message") or ""
    reasons = answer.get("CancellationReasons", [])
    if name in ("ConditionalCheckFailedException", "DuplicateItemException"):
        return "ok"
    if reasons and {reason["Code"] for reason in reasons} <= {"None", "ConditionalCheckFailed"}:
        return "ok"
    listed = "".join(f"\n{reason['Code']}: {reason.get('Message', '')}".rstrip(" :") for reason in reasons)
    return f"{name}: {message}".rstrip(" :") + listed


def record(path):
    blocks, changed = [], False
    for block in path.read_text().strip("\n").split("\n\n"):
        lines = block.split("\n")
        comments = [line for line in lines if line.startswith("#")]
        rest = [line for line in lines if not line.startswith("#")]
        if not rest:
            blocks.append(block)
            continue
        operation, body = rest[0].split(" ", 1)
        status, answer = ask(operation, expand(body))
        if status == 200 and operation not in ("GetItem", "Query", "Scan", "DescribeTable", "ListTables"):
            changed = True
        if changed and operation.endswith("Table"):
            prepare()
            changed = False
        recorded = text(status, answer)
        if path.name == "differences.txt":
            comments = [line for line in comments if not line.startswith("# recorded: ")]
            comments.append("# recorded: " + recorded.replace("\n", " / "))
            blocks.append("\n".join(comments + rest))
        else:
            blocks.append("\n".join(comments + [rest[0], "----", recorded]))
    path.write_text("\n\n".join(blocks) + "\n")
    print(path.name, len(blocks))


if __name__ == "__main__":
    prepare()
    files = [FOLDER / name for name in sys.argv[2:]] or sorted(FOLDER.glob("*.txt"))
    for file in files:
        if file.name != "tables.txt":
            record(file)
            prepare()
