// dynamoose: dynamoose.js ENDPOINT CUTTING_ENDPOINT PREFIX. tests/drivers/test_dynamodb.py says what these are.
"use strict";

const assert = require("node:assert/strict");
const dynamoose = require("dynamoose");
const { run, settings } = require("./checks");

const [endpoint, , prefix] = process.argv.slice(2);
const client = new dynamoose.aws.ddb.DynamoDB(settings(endpoint));
dynamoose.aws.ddb.set(client);

const schema = new dynamoose.Schema(
  {
    artist: { type: String, hashKey: true },
    song: { type: String, rangeKey: true },
    plays: { type: Number, default: 0 },
    released: Date,
    labels: { type: Set, schema: [String] },
    parts: { type: Array, schema: [{ type: Object, schema: { name: String, seconds: Number } }] },
    cover: Buffer,
    live: Boolean,
    note: [String, dynamoose.type.NULL],
    text: String,
  },
  { timestamps: true },
);
const Song = dynamoose.model(`${prefix}-songs`, schema);
const table = new dynamoose.Table(`${prefix}-songs`, [Song], {
  create: true,
  update: ["ttl", "tags"],
  throughput: "ON_DEMAND",
  expires: { ttl: 4_000_000, attribute: "ends" },
  tags: { team: "music" },
  initialize: false,
});
const ITEMS = 150;
const KILOBYTES_10 = "y".repeat(10_000);
const many = Array.from({ length: ITEMS }, (_, i) => ({
  artist: "many",
  song: String(i).padStart(4, "0"),
  plays: i,
  text: KILOBYTES_10,
}));
const songs = (found) => found.map(({ song }) => song);

run({
  "a table is created from a schema": async () => {
    await table.initialize();
    assert.equal((await client.describeTable({ TableName: table.name })).Table.TableStatus, "ACTIVE");
    assert.equal(
      (await client.describeTimeToLive({ TableName: table.name })).TimeToLiveDescription.AttributeName,
      "ends",
    );
    // Again, as each start of an application does.
    await table.initialize();
  },

  "a model is created once and read back": async () => {
    const values = {
      artist: "Nina Simone",
      song: "Sinnerman",
      plays: 3,
      released: new Date(0),
      labels: new Set(["Philips", "Verve"]),
      parts: [{ name: "", seconds: 622.5 }],
      cover: Buffer.from([0, 255]),
      live: false,
      note: null,
    };
    await Song.create(values);
    const read = await Song.get({ artist: "Nina Simone", song: "Sinnerman" }, { consistent: true });
    const { createdAt, updatedAt, ends, ...rest } = read;
    assert.deepEqual({ ...rest, cover: Buffer.from(rest.cover) }, values);
    assert.ok([createdAt, updatedAt, ends].every((time) => time instanceof Date));
    await assert.rejects(Song.create(values), { name: "ConditionalCheckFailedException" });
    await Song.create({ ...values, plays: 4 }, { overwrite: true });
    assert.equal(await Song.get({ artist: "Nina Simone", song: "none" }), undefined);
  },

  "updates and conditions": async () => {
    const key = { artist: "Nina Simone", song: "Sinnerman" };
    const updated = await Song.update(key, {
      $ADD: { plays: 2 },
      $SET: { live: true },
      $REMOVE: ["note"],
      $DELETE: { labels: new Set(["Verve"]) },
    });
    assert.deepEqual(
      [updated.plays, updated.live, updated.note, updated.labels],
      [6, true, undefined, new Set(["Philips"])],
    );
    const condition = new dynamoose.Condition().where("plays").lt(6).or().where("live").eq(false);
    await assert.rejects(Song.update(key, { plays: 0 }, { condition }), { name: "ConditionalCheckFailedException" });
    const holds = new dynamoose.Condition()
      .where("plays")
      .between(5, 7)
      .and()
      .where("song")
      .beginsWith("Sin")
      .where("labels")
      .contains("Philips")
      .where("none")
      .not()
      .exists();
    assert.equal((await Song.update(key, { plays: 7 }, { condition: holds, return: "item" })).plays, 7);
    const song = await Song.get(key);
    song.parts.push({ name: "second", seconds: 1 });
    await song.save();
    assert.equal((await Song.get(key)).parts.length, 2);
    await song.delete();
    assert.equal(await Song.get(key), undefined);
  },

  "batches, queries and scans": async () => {
    for (let next = 0; next < ITEMS; next += 25) {
      assert.deepEqual((await Song.batchPut(many.slice(next, next + 25))).unprocessedItems, []);
    }
    const all = await Song.query("artist").eq("many").all(0).exec();
    assert.deepEqual(songs(all), songs(many));
    const first = await Song.query("artist").eq("many").limit(10).exec();
    const next = await Song.query("artist").eq("many").startAt(first.lastKey).limit(10).exec();
    assert.deepEqual(songs(next), songs(many.slice(10, 20)));
    const down = await Song.query("artist")
      .eq("many")
      .where("song")
      .between("0003", "0006")
      .filter("plays")
      .gt(3)
      .sort("descending")
      .attributes(["song"])
      .exec();
    assert.deepEqual(songs(down), ["0006", "0005", "0004"]);
    assert.equal((await Song.query("artist").eq("many").where("song").lt("0010").count().exec()).count, 10);
    assert.deepEqual(songs(await Song.scan().parallel(4).all(0).exec()).sort(), songs(many));
    assert.equal((await Song.scan("plays").in([1, 2, 500]).all(0).exec()).length, 2);
    const read = await Song.batchGet([
      { artist: "many", song: "0001" },
      { artist: "many", song: "none" },
    ]);
    assert.deepEqual([songs(read), read.unprocessedKeys], [["0001"], []]);
    assert.equal((await Song.batchGet([{ artist: "many", song: "none" }])).length, 0);
    await Song.batchDelete([{ artist: "many", song: "0001" }]);
    assert.equal(await Song.get({ artist: "many", song: "0001" }), undefined);
  },

  transactions: async () => {
    const key = { artist: "many", song: "0002" };
    await dynamoose.transaction([
      Song.transaction.create({ artist: "both", song: "a" }),
      Song.transaction.update(key, { plays: 20 }),
      Song.transaction.delete({ artist: "many", song: "0003" }),
      Song.transaction.condition({ artist: "many", song: "0004" }, new dynamoose.Condition("plays").eq(4)),
    ]);
    const read = await dynamoose.transaction([
      Song.transaction.get({ artist: "both", song: "a" }),
      Song.transaction.get(key),
    ]);
    assert.deepEqual(
      read.map(({ plays }) => plays),
      [0, 20],
    );
    const refused = dynamoose.transaction([
      Song.transaction.create({ artist: "both", song: "b" }),
      Song.transaction.create({ artist: "both", song: "a" }),
    ]);
    await assert.rejects(refused, (error) => {
      assert.deepEqual(
        error.CancellationReasons.map(({ Code }) => Code),
        ["None", "ConditionalCheckFailed"],
      );
      return error.name === "TransactionCanceledException";
    });
    assert.equal(await Song.get({ artist: "both", song: "b" }), undefined);
  },

  "a table is deleted": async () => {
    await client.deleteTable({ TableName: table.name });
  },
});
