"""PynamoDB: pynamodb_models.py ENDPOINT CUTTING_ENDPOINT PREFIX. tests/drivers/test_dynamodb.py says what these are."""

import os
import sys
from datetime import UTC, datetime, timedelta

from checks import KEY, REGION, SECRET, Checks, raises
from pynamodb.attributes import (
    BinaryAttribute,
    BinarySetAttribute,
    BooleanAttribute,
    JSONAttribute,
    ListAttribute,
    MapAttribute,
    NullAttribute,
    NumberAttribute,
    NumberSetAttribute,
    TTLAttribute,
    UnicodeAttribute,
    UnicodeSetAttribute,
    UTCDateTimeAttribute,
    VersionAttribute,
)
from pynamodb.connection import Connection
from pynamodb.exceptions import (
    DeleteError,
    DoesNotExist,
    GetError,
    PutError,
    TableDoesNotExist,
    TableError,
    TransactWriteError,
    UpdateError,
)
from pynamodb.models import Model
from pynamodb.transactions import TransactGet, TransactWrite

ENDPOINT, CUTTING_ENDPOINT, PREFIX = sys.argv[1:4]
ITEMS = 150
KILOBYTES_10 = "y" * 10_000
checks = Checks()
# Transactions have no model that has the credentials.
os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
connection = Connection(host=ENDPOINT, region=REGION)


class Settings:
    host = ENDPOINT
    region = REGION
    aws_access_key_id = KEY
    aws_secret_access_key = SECRET
    billing_mode = "PAY_PER_REQUEST"


class Track(MapAttribute):
    title = UnicodeAttribute()
    seconds = NumberAttribute(default=0)


class Album(Model):
    class Meta(Settings):
        table_name = f"{PREFIX}-albums"

    artist = UnicodeAttribute(hash_key=True)
    year = NumberAttribute(range_key=True)
    plays = NumberAttribute(default=0)
    labels = UnicodeSetAttribute(null=True)
    numbers = NumberSetAttribute(null=True)
    cover = BinaryAttribute(null=True, legacy_encoding=False)
    covers = BinarySetAttribute(null=True, legacy_encoding=False)
    live = BooleanAttribute(null=True)
    nothing = NullAttribute(null=True)
    more = JSONAttribute(null=True)
    released = UTCDateTimeAttribute(null=True)
    tracks = ListAttribute(of=Track, null=True)
    raw = MapAttribute(null=True)
    ends = TTLAttribute(null=True)
    text = UnicodeAttribute(null=True)


class Counter(Model):
    class Meta(Settings):
        table_name = f"{PREFIX}-versions"

    name = UnicodeAttribute(hash_key=True)
    count = NumberAttribute(default=0)
    version = VersionAttribute()


def years(albums):
    return [album.year for album in albums]


@checks.check("tables are created from models")
def creates():
    assert raises(GetError, Album.get, "a", 1).cause_response_code == "ResourceNotFoundException"
    raises(TableDoesNotExist, Album.describe_table)
    assert not Album.exists()
    Album.create_table(wait=True)
    Counter.create_table(wait=True)
    assert Album.exists()
    assert Album.describe_table()["TableStatus"] == "ACTIVE"
    # Again, as each start of an application does. The TTL is there already, which DynamoDB refuses to enable.
    Album.create_table(wait=True, ignore_update_ttl_errors=True)
    keys = [{"attribute_name": "p", "attribute_type": "S"}]
    schema = [{"attribute_name": "p", "key_type": "HASH"}]
    again = raises(TableError, connection.create_table, Album.Meta.table_name, keys, schema, billing_mode="PAY_PER_REQUEST")
    assert again.cause_response_code == "ResourceInUseException"


@checks.check("a model comes back as it was")
def saves():
    album = Album(
        "Nina Simone", 1965, labels={"Philips", ""}, numbers={1, -2.5}, cover=b"\x00\xff", covers={b"\x01"}, live=False, nothing=None,
        more={"list": [1, None, {}]}, released=datetime(1965, 10, 1, tzinfo=UTC), tracks=[Track(title="Sinnerman", seconds=622), Track(title="")],
        raw={"a": {"b": [1, "x"]}}, ends=timedelta(days=1),
    )  # fmt: skip
    album.save()
    read = Album.get("Nina Simone", 1965, consistent_read=True)
    for name in ("plays", "labels", "numbers", "cover", "covers", "live", "more", "released", "ends"):
        assert getattr(read, name) == getattr(album, name), name
    assert [(track.title, track.seconds) for track in read.tracks] == [("Sinnerman", 622), ("", 0)]
    assert read.raw.as_dict() == {"a": {"b": [1, "x"]}}
    raises(DoesNotExist, Album.get, "Nina Simone", 1)


@checks.check("conditions, updates and deletes")
def updates():
    album = Album.get("Nina Simone", 1965)
    failure = raises(PutError, album.save, condition=Album.artist.does_not_exist())
    assert failure.cause_response_code == "ConditionalCheckFailedException"
    album.update(
        actions=[
            Album.plays.add(2), Album.labels.add({"RCA"}), Album.tracks[0].title.set("changed"), Album.raw["a"]["c"].set(5), Album.live.remove(),
        ],
        condition=Album.plays.between(0, 1) & (Album.labels.contains("Philips") | ~Album.year.exists()) & Album.tracks[0].title.startswith("Sin"),
    )  # fmt: skip
    assert (album.plays, album.labels, album.live, album.tracks[0].title) == (2, {"Philips", "", "RCA"}, None, "changed")
    failure = raises(UpdateError, album.update, actions=[Album.plays.set(0)], condition=Album.plays.is_in(7, 8))
    assert failure.cause_response_code == "ConditionalCheckFailedException"
    raises(DeleteError, album.delete, condition=Album.plays > 100)
    album.refresh()
    assert album.raw["a"]["c"] == 5
    album.delete(condition=Album.plays == 2)
    raises(DoesNotExist, album.refresh)


@checks.check("a version keeps two writers apart")
def versions():
    Counter("a").save()
    mine, theirs = Counter.get("a"), Counter.get("a")
    mine.update(actions=[Counter.count.set(Counter.count + 1)])
    assert (mine.count, mine.version) == (1, 2)
    raises(PutError, theirs.save)
    raises(DeleteError, theirs.delete)
    mine.delete()


@checks.check("batches, queries and scans")
def many():
    with Album.batch_write() as batch:
        for year in range(ITEMS):
            batch.save(Album("many", year, text=KILOBYTES_10))
    assert years(Album.query("many")) == list(range(ITEMS))
    assert years(Album.query("many", Album.year.between(3, 6), Album.plays == 0, scan_index_forward=False, page_size=2)) == [6, 5, 4, 3]
    pages = Album.query("many", limit=10)
    assert years(pages) == list(range(10))
    assert pages.last_evaluated_key == {"artist": {"S": "many"}, "year": {"N": "9"}}
    assert years(Album.query("many", last_evaluated_key=pages.last_evaluated_key, limit=2, attributes_to_get=["year"])) == [10, 11]
    assert Album.count("many", Album.year < 7) == 7
    parts = [years(Album.scan(segment=segment, total_segments=3, page_size=40)) for segment in range(3)]
    assert sorted(sum(parts, [])) == list(range(ITEMS))
    assert sorted(years(Album.scan(Album.year.is_in(3, 4, 1000) & (Album.text.exists())))) == [3, 4]
    # More than the hundred keys of one request.
    assert sorted(years(Album.batch_get([("many", year) for year in range(-5, 120)]))) == list(range(120))
    with Album.batch_write() as batch:
        for year in range(50):
            batch.delete(Album("many", year))
    assert Album.count("many") == ITEMS - 50


@checks.check("transactions")
def transactions():
    with TransactWrite(connection=connection, client_request_token=f"{PREFIX}-token"[-36:]) as transaction:
        transaction.save(Album("both", 1), condition=Album.artist.does_not_exist())
        transaction.update(Album("many", 60), actions=[Album.plays.set(9)])
        transaction.delete(Album("many", 61))
        transaction.condition_check(Album, "many", 62, condition=Album.plays == 0)
    with TransactGet(connection=connection) as transaction:
        both, changed, gone = (transaction.get(Album, *key) for key in (("both", 1), ("many", 60), ("many", 61)))
    assert (both.get().year, changed.get().plays) == (1, 9)
    raises(DoesNotExist, gone.get)
    try:
        with TransactWrite(connection=connection) as transaction:
            transaction.save(Album("both", 2))
            transaction.save(Album("both", 1), condition=Album.artist.does_not_exist(), return_values="ALL_OLD")
        raise AssertionError("not cancelled")
    except TransactWriteError as failure:
        assert failure.cause_response_code == "TransactionCanceledException"
        assert [reason and reason.code for reason in failure.cancellation_reasons] == [None, "ConditionalCheckFailed"]
        assert failure.cancellation_reasons[1].raw_item["year"] == {"N": "1"}
    raises(DoesNotExist, Album.get, "both", 2)


@checks.check("tables are deleted")
def deletes():
    for model in (Album, Counter):
        model.delete_table()
        assert not model.exists()


checks.run()
