"""What requests of the DynamoDB API cost: instructions in the process, and processor time over loopback, beside an emulator of the service
that keeps its data in memory. CETO_DYNOXIDE names the script that starts and stops it (`start PORT`, `stop PORT`).
"""

import http.client
import json
import os
import re
import subprocess
import time

from figures import figure

from harness.dynamodb import api_node
from harness.node import free_ports

INSTRUCTIONS_MAX = {"get": 20_000, "put": 30_000, "update": 30_000, "modify": 40_000, "delete": None, "transact": None}
TRANSACTION_MAX = 3.0
OPERATIONS = 2_000
REQUESTS = int(os.environ.get("CETO_DYNAMODB_REQUESTS", "20000"))
# Processor time of a request against that of the emulator.
RATIO_MAX = 0.2
KEYS = 1_000


def dynamodb(counted):
    """`counted(arguments, operations)` counts the instructions of `ceto perf` with these arguments."""
    per_operation = {}
    for operation, most in INSTRUCTIONS_MAX.items():
        counts = [counted(["items", operation], OPERATIONS * times) for times in (1, 2)]
        per_operation[operation] = (counts[1] - counts[0]) / OPERATIONS
        figure(f"{operation}, items under callgrind", per_operation[operation], "instructions/op", most=most)
    ratio = per_operation["transact"] / per_operation["update"]
    figure("a transaction of two items against an update", ratio, "times", most=TRANSACTION_MAX)
    with api_node(smp=1) as node:
        own = _measure(int(node.endpoint.rpartition(":")[2]), node.pid)
    for name, cost in own.items():
        figure(f"{name} over loopback, processor time", cost, "us")
    script = os.environ.get("CETO_DYNOXIDE")
    if script is None:
        print("no emulator: CETO_DYNOXIDE names the script that starts it")
        return
    (port,) = free_ports("127.0.0.1", 1)
    said = subprocess.run([script, "start", str(port)], check=True, capture_output=True, text=True).stdout
    try:
        others = _measure(port, int(re.search(r"pid (\d+)", said)[1]))
    finally:
        subprocess.run([script, "stop", str(port)], check=True)
    for name, cost in others.items():
        figure(f"{name} over loopback, the emulator's", cost, "us")
        figure(f"{name} against the emulator's", own[name] / cost, "times", most=RATIO_MAX)


def _measure(port, pid):
    """Microseconds of processor time of the server for each request of one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    table = {"TableName": "bench", "KeySchema": [{"AttributeName": "p", "KeyType": "HASH"}],
             "AttributeDefinitions": [{"AttributeName": "p", "AttributeType": "S"}], "BillingMode": "PAY_PER_REQUEST"}  # fmt: skip
    _ask(connection, "CreateTable", json.dumps(table))
    time.sleep(1)
    puts = [json.dumps({"TableName": "bench", "Item": _item(key)}) for key in range(KEYS)]
    gets = [json.dumps({"TableName": "bench", "Key": {"p": {"S": f"item {key}"}}}) for key in range(KEYS)]
    costs = {}
    for name, bodies in (("PutItem", puts), ("GetItem", gets)):
        for body in bodies:
            _ask(connection, name, body)
        before = _cpu_us(pid)
        for number in range(REQUESTS):
            _ask(connection, name, bodies[number % KEYS])
        costs[name] = (_cpu_us(pid) - before) / REQUESTS
    connection.close()
    return costs


def _item(key):
    texts = {name: {"S": f"{key * 31 + number:034}"} for number, name in enumerate("abcde")}
    rest = {"n": {"N": str(key)}, "is": {"BOOL": True}, "l": {"L": [{"N": "1"}, {"N": "2"}]}, "m": {"M": {"x": {"S": "one"}}}}
    return {"p": {"S": f"item {key}"}} | texts | rest


def _ask(connection, operation, body):
    headers = {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": "application/x-amz-json-1.0",
               "Authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"}  # fmt: skip
    connection.request("POST", "/", body, headers)
    answer = connection.getresponse()
    said = answer.read()
    if answer.status != 200:
        raise SystemExit(f"{operation}: {answer.status} {said[:300]}")


def _cpu_us(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000_000 / os.sysconf("SC_CLK_TCK")
