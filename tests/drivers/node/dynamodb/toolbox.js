// dynamodb-toolbox: toolbox.js ENDPOINT CUTTING_ENDPOINT PREFIX. tests/drivers/test_dynamodb.py says what these are.
"use strict";

const assert = require("node:assert/strict");
const { ConditionalCheckFailedException, DynamoDB, TransactionCanceledException } = require("@aws-sdk/client-dynamodb");
const { DynamoDBDocumentClient } = require("@aws-sdk/lib-dynamodb");
const toolbox = require("dynamodb-toolbox");
const { run, settings } = require("./checks");

const { any, binary, boolean, item, list, map, nul, number, record, set, string } = toolbox;
const [endpoint, , prefix] = process.argv.slice(2);
const client = new DynamoDB(settings(endpoint));
const table = new toolbox.Table({
  name: `${prefix}-shelf`,
  partitionKey: { name: "pk", type: "string" },
  sortKey: { name: "sk", type: "number" },
  documentClient: DynamoDBDocumentClient.from(client, { marshallOptions: { removeUndefinedValues: true } }),
});
const Album = new toolbox.Entity({
  name: "Album",
  table,
  schema: item({
    artist: string().key().savedAs("pk"),
    year: number().key().savedAs("sk"),
    plays: number().default(0),
    labels: set(string()).optional(),
    tracks: list(map({ title: string(), seconds: number() })).optional(),
    ratings: record(string(), number()).optional(),
    cover: binary().optional(),
    live: boolean().optional(),
    nothing: nul().optional(),
    more: any().optional(),
  }),
});
const ITEMS = 150;
const KILOBYTES_10 = "y".repeat(10_000);
const key = { artist: "Nina Simone", year: 1965 };
const build = (command) => Album.build(command);
const get = async (of) => (await build(toolbox.GetItemCommand).key(of).options({ consistent: true }).send()).Item;
const years = (found) => found.map(({ year }) => year);

run({
  "a table is created": async () => {
    await client.createTable({
      TableName: table.getName(),
      AttributeDefinitions: [
        { AttributeName: "pk", AttributeType: "S" },
        { AttributeName: "sk", AttributeType: "N" },
      ],
      KeySchema: [
        { AttributeName: "pk", KeyType: "HASH" },
        { AttributeName: "sk", KeyType: "RANGE" },
      ],
      BillingMode: "PAY_PER_REQUEST",
    });
  },

  "an item is put once and read back": async () => {
    const values = {
      ...key,
      labels: new Set(["Philips", "Verve"]),
      tracks: [{ title: "", seconds: 622.5 }],
      ratings: { all: 4.5, "a b.c": 1 },
      cover: Uint8Array.of(0, 255),
      live: false,
      nothing: null,
      more: { deep: [[]] },
    };
    const put = build(toolbox.PutItemCommand).item(values);
    await put.send();
    const { created, modified, entity, ...read } = await get(key);
    assert.deepEqual(read, { ...values, plays: 0 });
    const refused = put
      .options({ condition: { attr: "artist", exists: false }, returnValuesOnConditionFalse: "ALL_OLD" })
      .send();
    await assert.rejects(
      refused,
      (error) => error instanceof ConditionalCheckFailedException && error.Item.live.BOOL === false,
    );
    assert.equal((await put.options({ returnValues: "ALL_OLD" }).send()).Attributes.year, 1965);
    assert.equal(await get({ ...key, year: 1 }), undefined);
  },

  "updates, conditions and deletes": async () => {
    const { $add, $append, $delete, $get, $remove, $sum } = toolbox;
    const update = build(toolbox.UpdateItemCommand).item({
      ...key,
      plays: $add(3),
      labels: $delete(new Set(["Verve"])),
      tracks: $append([{ title: "b", seconds: 1 }]),
      ratings: { all: $sum($get("ratings.all"), 1) },
      live: $remove(),
    });
    const { Attributes } = await update
      .options({
        returnValues: "ALL_NEW",
        condition: { and: [{ attr: "plays", lt: 1 }, { not: { attr: "labels", contains: "RCA" } }] },
      })
      .send();
    assert.deepEqual(
      [Attributes.plays, Attributes.labels, Attributes.tracks.length, Attributes.ratings.all, Attributes.live],
      [3, new Set(["Philips"]), 2, 5.5, undefined],
    );
    const condition = {
      or: [
        { attr: "plays", between: [10, 20] },
        { attr: "tracks[0].title", beginsWith: "z" },
        { attr: "labels", size: "labels", gt: 5 },
      ],
    };
    await assert.rejects(update.options({ condition }).send(), ConditionalCheckFailedException);
    const remove = build(toolbox.DeleteItemCommand).key(key).options({ returnValues: "ALL_OLD" });
    assert.equal((await remove.send()).Attributes.plays, 3);
    assert.equal((await remove.send()).Attributes, undefined);
  },

  "batches, queries and scans": async () => {
    const {
      BatchGetCommand,
      BatchGetRequest,
      BatchPutRequest,
      BatchWriteCommand,
      QueryCommand,
      ScanCommand,
      executeBatchGet,
      executeBatchWrite,
    } = toolbox;
    for (let next = 0; next < ITEMS; next += 25) {
      const requests = Array.from({ length: 25 }, (_, i) =>
        build(BatchPutRequest).item({ artist: "many", year: next + i, more: KILOBYTES_10 }),
      );
      assert.deepEqual(
        (await executeBatchWrite({ maxAttempts: Infinity }, table.build(BatchWriteCommand).requests(...requests)))
          .UnprocessedItems,
        {},
      );
    }
    const query = (range, options) =>
      table
        .build(QueryCommand)
        .query({ partition: "many", ...(range && { range }) })
        .entities(Album)
        .options(options)
        .send();
    const upwards = [...Array(ITEMS).keys()];
    assert.deepEqual(years((await query(undefined, { maxPages: Infinity })).Items), upwards);
    const first = await query({ gte: 3 }, { limit: 10 });
    assert.deepEqual(
      years((await query({ gte: 3 }, { limit: 10, exclusiveStartKey: first.LastEvaluatedKey })).Items),
      upwards.slice(13, 23),
    );
    assert.deepEqual(
      years((await query({ between: [3, 6] }, { reverse: true, filters: { Album: { attr: "plays", lt: 1 } } })).Items),
      [6, 5, 4, 3],
    );
    assert.equal((await query({ lt: 7 }, { select: "COUNT" })).Count, 7);
    const parts = await Promise.all(
      [0, 1, 2].map((segment) =>
        table.build(ScanCommand).entities(Album).options({ segment, totalSegments: 3, maxPages: Infinity }).send(),
      ),
    );
    assert.deepEqual(
      years(parts.flatMap(({ Items }) => Items ?? [])).sort((a, b) => a - b),
      upwards,
    );
    const requests = [3, -1].map((year) => build(BatchGetRequest).key({ artist: "many", year }));
    const { Responses } = await executeBatchGet(
      { maxAttempts: Infinity },
      table.build(BatchGetCommand).requests(...requests),
    );
    assert.deepEqual(
      Responses[0].map((found) => found?.year),
      [3, undefined],
    );
  },

  transactions: async () => {
    const {
      ConditionCheck,
      DeleteTransaction,
      GetTransaction,
      PutTransaction,
      UpdateTransaction,
      executeTransactGet,
      executeTransactWrite,
    } = toolbox;
    await executeTransactWrite(
      { clientRequestToken: `${prefix}-token` },
      build(PutTransaction).item({ artist: "both", year: 1 }),
      build(UpdateTransaction).item({ artist: "many", year: 1, plays: 5 }),
      build(DeleteTransaction).key({ artist: "many", year: 2 }),
      build(ConditionCheck).key({ artist: "many", year: 3 }).condition({ attr: "plays", eq: 0 }),
    );
    const read = await executeTransactGet(
      build(GetTransaction).key({ artist: "both", year: 1 }),
      build(GetTransaction).key({ artist: "many", year: 1 }),
      build(GetTransaction).key({ artist: "many", year: 2 }),
    );
    assert.deepEqual(
      read.Responses.map(({ Item }) => Item?.plays),
      [0, 5, undefined],
    );
    const refused = executeTransactWrite(
      build(PutTransaction).item({ artist: "both", year: 2 }),
      build(PutTransaction)
        .item({ artist: "both", year: 1 })
        .options({ condition: { attr: "artist", exists: false } }),
    );
    await assert.rejects(
      refused,
      (error) =>
        error instanceof TransactionCanceledException && error.CancellationReasons[1].Code === "ConditionalCheckFailed",
    );
    assert.equal(await get({ artist: "both", year: 2 }), undefined);
  },

  "a table is deleted": async () => {
    await client.deleteTable({ TableName: table.getName() });
  },
});
