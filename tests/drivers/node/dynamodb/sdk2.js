// The AWS SDK for JavaScript 2, which is not maintained any more and widely used: sdk2.js ENDPOINT CUTTING_ENDPOINT PREFIX.
// tests/drivers/test_dynamodb.py says what these are.
"use strict";

const assert = require("node:assert/strict");
process.env.AWS_SDK_JS_SUPPRESS_MAINTENANCE_MODE_MESSAGE = "1";
const AWS = require("aws-sdk");
const { run, settings } = require("./checks");

const [endpoint, cuttingEndpoint, prefix] = process.argv.slice(2);
// It checks the CRC of each answer unless it is told not to.
const client = new AWS.DynamoDB({ ...settings(endpoint), dynamoDbCrc32: true });
const documents = new AWS.DynamoDB.DocumentClient({ service: client });
const TableName = `${prefix}-two`;
const ITEMS = 150;
const KILOBYTES_10 = "y".repeat(10_000);
const many = Array.from({ length: ITEMS }, (_, at) => ({ id: "many", at, v: KILOBYTES_10 }));

run({
  "a table is created and waited for": async () => {
    const request = {
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
    };
    await client.createTable(request).promise();
    await client.waitFor("tableExists", { TableName }).promise();
    await assert.rejects(client.createTable(request).promise(), {
      code: "ResourceInUseException",
      statusCode: 400,
      retryable: false,
    });
    await assert.rejects(client.describeTable({ TableName: `${prefix}-none` }).promise(), {
      code: "ResourceNotFoundException",
    });
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
      texts: documents.createSet(["a", "b"]),
      numbers: documents.createSet([1, 2]),
      bytes: Buffer.from([0, 255]),
    };
    await documents.put({ TableName, Item }).promise();
    const got = (await documents.get({ TableName, Key: { id: "values", at: 1.5 }, ConsistentRead: true }).promise())
      .Item;
    assert.deepEqual(got.texts.values.sort(), ["a", "b"]);
    assert.deepEqual({ ...got, texts: 0, numbers: 0 }, { ...Item, texts: 0, numbers: 0 });
    await assert.rejects(documents.put({ TableName, Item: { id: "", at: 1 } }).promise(), {
      code: "ValidationException",
    });
  },

  "conditions, updates and deletes": async () => {
    const Key = { id: "values", at: 1.5 };
    const update = {
      TableName,
      Key,
      UpdateExpression: "SET #list[0] = :v ADD texts :texts REMOVE yes",
      ExpressionAttributeNames: { "#list": "list" },
      ExpressionAttributeValues: { ":v": 9, ":texts": documents.createSet(["c"]) },
      ReturnValues: "ALL_NEW",
    };
    const { Attributes } = await documents.update(update).promise();
    assert.deepEqual(
      [Attributes.list[0], Attributes.texts.values.sort(), Attributes.yes],
      [9, ["a", "b", "c"], undefined],
    );
    const refused = {
      TableName,
      Key,
      ConditionExpression: "#at > :at",
      ExpressionAttributeNames: { "#at": "at" },
      ExpressionAttributeValues: { ":at": 7 },
    };
    await assert.rejects(documents.delete(refused).promise(), {
      code: "ConditionalCheckFailedException",
      message: "The conditional request failed",
    });
    // The parameters that expressions replaced.
    const legacy = {
      TableName,
      Key,
      Expected: { empty: { Value: "" } },
      AttributeUpdates: { count: { Action: "ADD", Value: 2 } },
      ReturnValues: "UPDATED_NEW",
    };
    assert.deepEqual((await documents.update(legacy).promise()).Attributes, { count: 2 });
    assert.equal((await documents.delete({ TableName, Key, ReturnValues: "ALL_OLD" }).promise()).Attributes.count, 2);
  },

  "batches, queries and scans": async () => {
    for (let next = 0; next < ITEMS; next += 25) {
      let left = { [TableName]: many.slice(next, next + 25).map((Item) => ({ PutRequest: { Item } })) };
      while (Object.keys(left).length)
        left = (await documents.batchWrite({ RequestItems: left }).promise()).UnprocessedItems;
    }
    const query = { TableName, KeyConditionExpression: "id = :id", ExpressionAttributeValues: { ":id": "many" } };
    const found = [];
    await new Promise((resolve, reject) => {
      documents.query(query).eachPage((error, page) => {
        if (error) reject(error);
        else if (page) found.push(...page.Items);
        else resolve();
        return true;
      });
    });
    assert.deepEqual(found, many);
    const parts = await Promise.all(
      [0, 1].map((Segment) => documents.scan({ TableName, Segment, TotalSegments: 2, Select: "COUNT" }).promise()),
    );
    assert.ok(parts.every(({ Count, LastEvaluatedKey }) => Count > 0 || !LastEvaluatedKey));
    const read = await documents
      .batchGet({ RequestItems: { [TableName]: { Keys: [3, -1].map((at) => ({ id: "many", at })) } } })
      .promise();
    assert.deepEqual(read.Responses, { [TableName]: [many[3]] });
  },

  "a transaction is cancelled with its reasons": async () => {
    const items = [
      { Put: { TableName, Item: { id: "both", at: 1 } } },
      { Delete: { TableName, Key: { id: "many", at: 4 } } },
    ];
    await documents.transactWrite({ TransactItems: items }).promise();
    const read = await documents
      .transactGet({
        TransactItems: [
          { Get: { TableName, Key: { id: "both", at: 1 } } },
          { Get: { TableName, Key: { id: "many", at: 4 } } },
        ],
      })
      .promise();
    assert.deepEqual(read.Responses, [{ Item: { id: "both", at: 1 } }, {}]);
    const twice = [
      { Put: { TableName, Item: { id: "both", at: 1 }, ConditionExpression: "attribute_not_exists(id)" } },
    ];
    const refused = documents.transactWrite({ TransactItems: twice }).promise();
    await assert.rejects(refused, {
      code: "TransactionCanceledException",
      message: /specific reasons \[ConditionalCheckFailed\]$/,
    });
  },

  "a request whose answer is lost is sent again and done once": async () => {
    const cut = new AWS.DynamoDB.DocumentClient(settings(cuttingEndpoint));
    const Update = {
      TableName,
      Key: { id: "both", at: 2 },
      UpdateExpression: "ADD n :one",
      ExpressionAttributeValues: { ":one": 1 },
    };
    for (let i = 0; i < 3; i++) await cut.transactWrite({ TransactItems: [{ Update }] }).promise();
    assert.equal((await documents.get({ TableName, Key: Update.Key, ConsistentRead: true }).promise()).Item.n, 3);
  },

  "a table is deleted and waited for": async () => {
    await client.deleteTable({ TableName }).promise();
    await client.waitFor("tableNotExists", { TableName }).promise();
  },
});
