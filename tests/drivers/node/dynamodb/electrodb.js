// ElectroDB: electrodb.js ENDPOINT CUTTING_ENDPOINT PREFIX. tests/drivers/test_dynamodb.py says what these are.
"use strict";

const assert = require("node:assert/strict");
const { DynamoDB } = require("@aws-sdk/client-dynamodb");
const { Entity, Service } = require("electrodb");
const { run, settings } = require("./checks");

const [endpoint, , prefix] = process.argv.slice(2);
const client = new DynamoDB(settings(endpoint));
const table = `${prefix}-store`;
const ITEMS = 150;
const KILOBYTES_10 = "y".repeat(10_000);

const Album = new Entity(
  {
    model: { entity: "album", version: "1", service: "music" },
    attributes: {
      artist: { type: "string", required: true },
      year: { type: "number", required: true, padding: { length: 4, char: "0" } },
      title: { type: "string", required: true },
      plays: { type: "number", default: 0 },
      labels: { type: "set", items: "string" },
      tracks: {
        type: "list",
        items: { type: "map", properties: { title: { type: "string" }, seconds: { type: "number" } } },
      },
      ratings: { type: "map", properties: { all: { type: "number" } } },
      genre: { type: ["jazz", "soul"] },
      changed: { type: "number", watch: "*", set: () => 7 },
    },
    indexes: {
      albums: {
        collection: "catalog",
        pk: { field: "pk", composite: ["artist"] },
        sk: { field: "sk", composite: ["year", "title"] },
      },
    },
  },
  { client, table },
);
const Concert = new Entity(
  {
    model: { entity: "concert", version: "1", service: "music" },
    attributes: { artist: { type: "string", required: true }, day: { type: "string", required: true } },
    indexes: {
      concerts: {
        collection: "catalog",
        pk: { field: "pk", composite: ["artist"] },
        sk: { field: "sk", composite: ["day"] },
      },
    },
  },
  { client, table },
);
const music = new Service({ album: Album, concert: Concert });
const key = { artist: "Nina Simone", year: 1965, title: "Pastel Blues" };

run({
  "a table is created": async () => {
    await client.createTable({
      TableName: table,
      AttributeDefinitions: ["pk", "sk"].map((AttributeName) => ({ AttributeName, AttributeType: "S" })),
      KeySchema: [
        { AttributeName: "pk", KeyType: "HASH" },
        { AttributeName: "sk", KeyType: "RANGE" },
      ],
      BillingMode: "PAY_PER_REQUEST",
    });
  },

  "an entity is created once and read back": async () => {
    const values = {
      ...key,
      labels: ["Philips", "Verve"],
      tracks: [{ title: "Sinnerman", seconds: 622 }],
      ratings: { all: 4.5 },
      genre: "jazz",
    };
    await Album.create(values).go();
    const { data } = await Album.get(key).go({ consistent: true });
    assert.deepEqual({ ...data, labels: [...data.labels].sort() }, { ...values, plays: 0, changed: 7 });
    await assert.rejects(
      Album.create(values).go(),
      (error) =>
        error.cause?.name === "ConditionalCheckFailedException" || /conditional request failed/.test(error.message),
    );
    assert.equal((await Album.get({ ...key, title: "none" }).go()).data, null);
  },

  "updates, conditions and deletes": async () => {
    const { data } = await Album.patch(key)
      .add({ plays: 3, labels: ["RCA"] })
      .append({ tracks: [{ title: "Be My Husband", seconds: 200 }] })
      .set({ genre: "soul" })
      .data(({ ratings }, { set }) => set(ratings.all, 5))
      .where(({ genre, plays }, { eq, lt }) => `${eq(genre, "jazz")} AND ${lt(plays, 1)}`)
      .go({ response: "all_new" });
    assert.deepEqual(
      [data.plays, data.tracks.length, data.genre, data.ratings.all, [...data.labels].sort()],
      [3, 2, "soul", 5, ["Philips", "RCA", "Verve"]],
    );
    const changed = await Album.update(key)
      .subtract({ plays: 1 })
      .remove(["ratings"])
      .delete({ labels: ["RCA"] })
      .go({ response: "updated_new" });
    assert.equal(changed.data.plays, 2);
    await assert.rejects(
      Album.patch({ ...key, title: "none" })
        .set({ plays: 1 })
        .go(),
      /conditional request failed/,
    );
    const failed = await Album.patch(key)
      .set({ plays: 9 })
      .where(({ plays }, { gt }) => gt(plays, 100))
      .go({ returnOnConditionCheckFailure: "all_old" });
    assert.deepEqual([failed.rejected, failed.data.plays], [true, 2]);
    assert.equal(
      (await Album.upsert({ ...key, year: 1966, title: "Wild Is the Wind" }).go({ response: "all_new" })).data.year,
      1966,
    );
    assert.equal(
      (await Album.remove({ ...key, year: 1966, title: "Wild Is the Wind" }).go({ response: "all_old" })).data.title,
      "Wild Is the Wind",
    );
    await assert.rejects(Album.remove({ ...key, title: "none" }).go(), /conditional request failed/);
    await Album.delete({ ...key, title: "none" }).go();
  },

  "batches, queries and scans": async () => {
    const many = Array.from({ length: ITEMS }, (_, year) => ({
      artist: "many",
      year,
      title: KILOBYTES_10.slice(0, 900),
      tracks: [{ title: KILOBYTES_10 }],
    }));
    assert.deepEqual((await Album.put(many).go({ concurrency: 3 })).unprocessed, []);
    const years = ({ data }) => data.map(({ year }) => year);
    const upwards = [...Array(ITEMS).keys()];
    assert.deepEqual(years(await Album.query.albums({ artist: "many" }).go({ pages: "all" })), upwards);
    const first = await Album.query.albums({ artist: "many" }).go({ count: 10 });
    assert.deepEqual(
      years(await Album.query.albums({ artist: "many" }).go({ count: 10, cursor: first.cursor })),
      upwards.slice(10, 20),
    );
    assert.deepEqual(
      years(await Album.query.albums({ artist: "many" }).between({ year: 3 }, { year: 6 }).go({ order: "desc" })),
      [5, 4, 3],
    );
    assert.deepEqual(
      years(
        await Album.query
          .albums({ artist: "many" })
          .gte({ year: 147 })
          .where(({ year }, { ne }) => ne(year, 148))
          .go({ attributes: ["year"] }),
      ),
      [147, 149],
    );
    const scanned = await Album.scan.where(({ artist }, { eq }) => eq(artist, "many")).go({ pages: "all" });
    assert.deepEqual(
      years(scanned).sort((a, b) => a - b),
      upwards,
    );
    const read = await Album.get(many.slice(0, 120)).go({ concurrency: 2, preserveBatchOrder: true });
    assert.deepEqual([years(read), read.unprocessed], [upwards.slice(0, 120), []]);
    assert.deepEqual((await Album.delete(many.slice(0, 50)).go()).unprocessed, []);
    assert.deepEqual(years(await Album.query.albums({ artist: "many" }).go({ pages: "all" })), upwards.slice(50));
  },

  "collections and transactions of a service": async () => {
    const { canceled } = await music.transaction
      .write(({ album, concert }) => [
        concert.create({ artist: "Nina Simone", day: "1965-06-01" }).commit(),
        album.patch(key).add({ plays: 1 }).commit(),
      ])
      .go();
    assert.equal(canceled, false);
    const { data } = await music.collections.catalog({ artist: "Nina Simone" }).go();
    assert.deepEqual([data.album.map(({ plays }) => plays), data.concert.map(({ day }) => day)], [[3], ["1965-06-01"]]);
    const refused = await music.transaction
      .write(({ album, concert }) => [
        album.patch(key).add({ plays: 1 }).commit(),
        concert.create({ artist: "Nina Simone", day: "1965-06-01" }).commit({ response: "all_old" }),
      ])
      .go();
    assert.equal(refused.canceled, true);
    assert.deepEqual(
      refused.data.map(({ rejected, code }) => [rejected, code]),
      [
        [false, "None"],
        [true, "ConditionalCheckFailed"],
      ],
    );
    assert.equal(refused.data[1].item.day, "1965-06-01");
    const read = await music.transaction
      .get(({ album, concert }) => [
        album.get(key).commit(),
        concert.get({ artist: "Nina Simone", day: "none" }).commit(),
      ])
      .go();
    assert.deepEqual(
      read.data.map(({ item }) => item?.plays),
      [3, undefined],
    );
  },

  "a table is deleted": async () => {
    await client.deleteTable({ TableName: table });
  },
});
