"""A node that serves the DynamoDB API, and boto3 clients of it.

pytest tests/dynamodb                         a ceto node that the harness starts
pytest tests/dynamodb --server HOST:PORT      any server of the API that runs already, for example an emulator: the oracle
"""

import pytest
from harness.dynamodb import api_node, client_of

@pytest.fixture(scope="session")
def endpoint(pytestconfig):
    if address := pytestconfig.getoption("--server"):
        yield f"http://{address}"
        return
    node = api_node(smp=2, memory="512M", runtime=pytestconfig.getoption("--runtime"))
    node.start()
    yield node.endpoint
    died = not node.alive
    log = node.log()
    node.remove()
    assert not died, f"the node died during the tests\n{log}"


@pytest.fixture
def own_node():
    """A started node of the test's own, whose log is synced with each write: it may be killed."""
    node = api_node(smp=2, memory="512M", commitlog_sync="batch")
    try:
        node.start()
        yield node
    finally:
        node.remove()


@pytest.fixture(scope="session")
def client(endpoint):
    return client_of(endpoint)


@pytest.fixture
def table(client):
    """table("p:S", "c:N") creates a table with these keys and returns its name."""
    made = []

    def create(*keys, **options):
        names = [key.split(":") for key in keys]
        name = f"t{len(made)}-{id(made):x}"
        client.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": t} for n, t in names],
            KeySchema=[
                {"AttributeName": n, "KeyType": kind} for (n, _), kind in zip(names, ["HASH", "RANGE"], strict=False)
            ],
            **{"BillingMode": "PAY_PER_REQUEST"} | options,
        )
        made.append(name)
        return name

    yield create
    for name in made:
        client.delete_table(TableName=name)
