// The AWS SDK for JavaScript 3, lib-dynamodb: document.js ENDPOINT CUTTING_ENDPOINT PREFIX. tests/drivers/test_dynamodb.py says what these are.
"use strict";

const assert = require("node:assert/strict");
const {
  ConditionalCheckFailedException,
  DynamoDBClient,
  TransactionCanceledException,
  waitUntilTableExists,
  waitUntilTableNotExists,
} = require("@aws-sdk/client-dynamodb");
const { CreateTableCommand, DeleteTableCommand } = require("@aws-sdk/client-dynamodb");
const { DynamoDBDocument, NumberValue, paginateQuery, paginateScan } = require("@aws-sdk/lib-dynamodb");
const { run, settings } = require("./checks");

const [endpoint, , prefix] = process.argv.slice(2);
const client = new DynamoDBClient(settings(endpoint));
const documents = DynamoDBDocument.from(client, {
  marshallOptions: { removeUndefinedValues: true, convertClassInstanceToMap: true },
});
// With a client of its own, in which it keeps its options.
const exact = DynamoDBDocument.from(new DynamoDBClient(settings(endpoint)), {
  unmarshallOptions: { wrapNumbers: true },
});
const TableName = `${prefix}-documents`;
const ITEMS = 150;
const KILOBYTES_10 = "y".repeat(10_000);
const MANY = Array.from({ length: ITEMS }, (_, at) => ({ id: "many", at, v: KILOBYTES_10 }));

async function collected(pages) {
  const found = [];
  for await (const { Items } of pages) found.push(...Items);
  return found;
}

run({
  "a table is created": async () => {
    await client.send(
      new CreateTableCommand({
        TableName,
        AttributeDefinitions: [
          { AttributeName: "id", AttributeType: "S" },
          { AttributeName: "at", AttributeType: "N" },
        ],
        KeySchema: [
          { AttributeName: "id", KeyType: "HASH" },
          { AttributeName: "at", KeyType: "RANGE" },
        ],
        BillingMode: "PAY_PER_REQUEST",
      }),
    );
    await waitUntilTableExists({ client, maxWaitTime: 60 }, { TableName });
  },

  "a document comes back as the values it was made of": async () => {
    const Item = {
      id: "values",
      at: 1.5,
      empty: "",
      nothing: null,
      yes: true,
      list: [1, "a", [], {}],
      nested: { deeper: { still: [false] } },
      texts: new Set(["a", "b"]),
      numbers: new Set([1, 2]),
      binaries: new Set([Uint8Array.of(1)]),
      bytes: Uint8Array.of(0, 255),
      safe: Number.MAX_SAFE_INTEGER,
      tiny: 1e-7,
    };
    await documents.put({ TableName, Item: { ...Item, left: undefined } });
    const got = (await documents.get({ TableName, Key: { id: "values", at: 1.5 } })).Item;
    assert.deepEqual(got, Item);
    const large = {
      id: "exact",
      at: 1,
      big: 2n ** 100n,
      digits: NumberValue.from("0.12345678901234567890123456789012345678"),
      exponent: NumberValue.from("1.5E+20"),
    };
    await documents.put({ TableName, Item: large });
    const wrapped = (await exact.get({ TableName, Key: { id: "exact", at: 1 } })).Item;
    assert.deepEqual(
      [wrapped.big.toBigInt(), wrapped.digits.toString(), wrapped.exponent.toString()],
      [2n ** 100n, "0.12345678901234567890123456789012345678", "150000000000000000000"],
    );
  },

  "conditions, updates and deletes": async () => {
    const Key = { id: "values", at: 1.5 };
    const updated = await documents.update({
      TableName,
      Key,
      UpdateExpression: "SET #list[0] = :v, nested.deeper.more = :map ADD texts :texts REMOVE yes",
      ExpressionAttributeNames: { "#list": "list" },
      ExpressionAttributeValues: { ":v": 9, ":map": { a: [1] }, ":texts": new Set(["c"]) },
      ReturnValues: "ALL_NEW",
    });
    assert.deepEqual(
      [updated.Attributes.list[0], updated.Attributes.nested.deeper, updated.Attributes.texts, updated.Attributes.yes],
      [9, { still: [false], more: { a: [1] } }, new Set(["a", "b", "c"]), undefined],
    );
    const refused = documents.delete({
      TableName,
      Key,
      ConditionExpression: "nothing = :v",
      ExpressionAttributeValues: { ":v": 1 },
      ReturnValuesOnConditionCheckFailure: "ALL_OLD",
    });
    await assert.rejects(
      refused,
      (error) => error instanceof ConditionalCheckFailedException && error.Item.empty.S === "",
    );
    assert.equal(
      (await documents.delete({ TableName, Key, ReturnValues: "ALL_OLD" })).Attributes.safe,
      Number.MAX_SAFE_INTEGER,
    );
    assert.equal((await documents.get({ TableName, Key })).Item, undefined);
  },

  "batches, queries and scans": async () => {
    for (let next = 0; next < ITEMS; next += 25) {
      let left = { [TableName]: MANY.slice(next, next + 25).map((Item) => ({ PutRequest: { Item } })) };
      while (Object.keys(left).length) left = (await documents.batchWrite({ RequestItems: left })).UnprocessedItems;
    }
    const query = {
      TableName,
      KeyConditionExpression: "id = :id AND #at >= :at",
      ExpressionAttributeNames: { "#at": "at" },
      ExpressionAttributeValues: { ":id": "many", ":at": 3 },
    };
    assert.deepEqual(await collected(paginateQuery({ client: documents }, { ...query })), MANY.slice(3));
    assert.deepEqual(
      await collected(paginateQuery({ client: documents, pageSize: 20 }, { ...query, ScanIndexForward: false })),
      MANY.slice(3).reverse(),
    );
    const scanned = await collected(
      paginateScan(
        { client: documents },
        { TableName, FilterExpression: "size(v) > :n", ExpressionAttributeValues: { ":n": 9_999 } },
      ),
    );
    assert.deepEqual(scanned, MANY);
    const read = await documents.batchGet({
      RequestItems: {
        [TableName]: {
          Keys: [
            { id: "many", at: 0 },
            { id: "none", at: 0 },
          ],
        },
      },
    });
    assert.deepEqual(read.Responses, { [TableName]: [MANY[0]] });
  },

  transactions: async () => {
    await documents.transactWrite({
      TransactItems: [
        { Put: { TableName, Item: { id: "a", at: 1, v: new Set([1]) } } },
        {
          Update: {
            TableName,
            Key: { id: "b", at: 1 },
            UpdateExpression: "SET v = :v",
            ExpressionAttributeValues: { ":v": { x: 1 } },
          },
        },
      ],
    });
    const read = await documents.transactGet({
      TransactItems: ["a", "b", "c"].map((id) => ({ Get: { TableName, Key: { id, at: 1 } } })),
    });
    assert.deepEqual(
      read.Responses.map(({ Item }) => Item?.v),
      [new Set([1]), { x: 1 }, undefined],
    );
    const cancelled = documents.transactWrite({
      TransactItems: [
        { Delete: { TableName, Key: { id: "a", at: 1 } } },
        {
          ConditionCheck: {
            TableName,
            Key: { id: "b", at: 1 },
            ConditionExpression: "v.x = :x",
            ExpressionAttributeValues: { ":x": 2 },
            ReturnValuesOnConditionCheckFailure: "ALL_OLD",
          },
        },
      ],
    });
    await assert.rejects(cancelled, (error) => {
      assert.ok(error instanceof TransactionCanceledException);
      assert.deepEqual(
        error.CancellationReasons.map(({ Code }) => Code),
        ["None", "ConditionalCheckFailed"],
      );
      assert.deepEqual(error.CancellationReasons[1].Item.v, { M: { x: { N: "1" } } });
      return true;
    });
  },

  PartiQL: async () => {
    await documents.executeStatement({
      Statement: `INSERT INTO "${TableName}" VALUE {'id': ?, 'at': ?, 'v': ?}`,
      Parameters: ["partiql", 1, { list: [1, null] }],
    });
    const { Items } = await documents.executeStatement({
      Statement: `SELECT * FROM "${TableName}" WHERE id = ?`,
      Parameters: ["partiql"],
    });
    assert.deepEqual(Items, [{ id: "partiql", at: 1, v: { list: [1, null] } }]);
    const batch = await documents.batchExecuteStatement({
      Statements: [
        { Statement: `UPDATE "${TableName}" SET v = ? WHERE id = 'partiql' AND "at" = 1`, Parameters: ["x"] },
      ],
    });
    assert.equal(batch.Responses[0].Error, undefined);
    await documents.executeTransaction({
      TransactStatements: [
        { Statement: `DELETE FROM "${TableName}" WHERE id = 'partiql' AND "at" = ?`, Parameters: [1] },
      ],
    });
    assert.equal((await documents.get({ TableName, Key: { id: "partiql", at: 1 } })).Item, undefined);
  },

  "a table is deleted": async () => {
    await client.send(new DeleteTableCommand({ TableName }));
    await waitUntilTableNotExists({ client, maxWaitTime: 60 }, { TableName });
  },
});
