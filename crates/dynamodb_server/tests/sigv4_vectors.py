"""Writes sigv4_vectors.txt: requests that botocore has signed, as bytes on the wire. Run it where botocore is installed:

    python3 sigv4_vectors.py > sigv4_vectors.txt

Each vector is a line: access key, secret, seconds of the clock, and the request in hexadecimal.
"""

import datetime
import urllib.parse

import botocore.auth
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

NOW = datetime.datetime(2024, 2, 29, 23, 59, 58, tzinfo=datetime.timezone.utc)


class Clock(datetime.datetime):
    @classmethod
    def utcnow(cls):
        return NOW.replace(tzinfo=None)

    @classmethod
    def now(cls, tz=None):
        return NOW if tz else NOW.replace(tzinfo=None)


botocore.auth.datetime = type("module", (), {"datetime": Clock, "timezone": datetime.timezone, "timedelta": datetime.timedelta})
if hasattr(botocore.auth, "get_current_datetime"):
    botocore.auth.get_current_datetime = lambda *a, **k: NOW.replace(tzinfo=None)


def wire(request, body):
    prepared = request.prepare()
    url = urllib.parse.urlsplit(prepared.url)
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = [f"{prepared.method} {target} HTTP/1.1"]
    headers = {name: value for name, value in prepared.headers.items()}
    lower = {name.lower() for name in headers}
    if "host" not in lower:
        headers["Host"] = url.netloc
    if "content-length" not in lower and body:
        headers["Content-Length"] = str(len(body))
    for name, value in headers.items():
        lines.append(f"{name}: {value.decode() if isinstance(value, bytes) else value}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def signed(signer, access, secret, region, body, url="http://localhost:8000/", headers=(), method="POST"):
    all_headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "DynamoDB_20120810.PutItem", **dict(headers)}
    request = AWSRequest(method=method, url=url, headers=all_headers, data=body)
    signer(Credentials(access, secret), "dynamodb", region).add_auth(request)
    # The signer for queries moves the body into the query.
    print(access, secret, int(NOW.timestamp()), wire(request, body if request.data else b"").hex())


signed(SigV4Auth, "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1", b"{}")
signed(SigV4Auth, "cassandra", "$6$x799axABC$abc/def.", "eu-west-3", b'{"TableName": "t", "Item": {"k": {"S": "\xc3\xa9"}}}')
signed(SigV4Auth, "a", "b", "x", b"x" * 1000)
signed(SigV4Auth, "AKID", "secret", "us-east-1", b"{}", headers={"X-Amz-Meta": "a   b  c", "Accept": " x "})
signed(SigV4Auth, "AKID", "secret", "us-east-1", b"{}", url="http://localhost:8000/?b=2&a=1&c=%20x&d")
signed(SigV4Auth, "AKID", "secret", "us-east-1", b"", url="http://node.example.com/", method="GET")
signed(SigV4QueryAuth, "AKID", "secret", "us-east-1", b"{}")
signed(SigV4QueryAuth, "AK-ID", "sec.ret", "us-east-1", b'{"a": 1}', url="http://localhost:8000/?z=%C3%A9")
