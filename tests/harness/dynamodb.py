"""Nodes that serve the DynamoDB API, and boto3 clients of them."""

import boto3
from botocore.config import Config

from .node import Node, free_ports

# The SDK wants credentials and a region; without authorization any are right.
CREDENTIALS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}


def client_of(endpoint, key=None, **options):
    """A client of an endpoint that tries each request once, so that a failed one is seen. `key`: access key and secret."""
    config = Config(retries={"total_max_attempts": 1, "mode": "standard"}, read_timeout=30, **options)
    names = ("aws_access_key_id", "aws_secret_access_key")
    credentials = CREDENTIALS | (dict(zip(names, key, strict=True)) if key else {})
    return boto3.client("dynamodb", endpoint_url=endpoint, config=config, **credentials)


def api_node(**options):
    """A node that serves the API too, not started; `node.endpoint` is its address."""
    (port,) = free_ports(options.get("host", "127.0.0.1"), 1)
    node = Node(options=["--alternator-port", str(port)] + options.pop("options", []), **options)
    node.endpoint = f"http://{node.host}:{port}"
    return node
