// The AWS SDK for JavaScript 3, client-dynamodb: sdk.js ENDPOINT CUTTING_ENDPOINT PREFIX. tests/drivers/test_dynamodb.py says what these are.
"use strict";

const assert = require("node:assert/strict");
const dynamodb = require("@aws-sdk/client-dynamodb");
const { run, settings } = require("./checks");

const [endpoint, cuttingEndpoint, prefix] = process.argv.slice(2);
const client = new dynamodb.DynamoDB(settings(endpoint));
const table = `${prefix}-music`;
const other = `${prefix}-counters`;
const WAIT = { client, maxWaitTime: 60 };
// 60 items of 300 KB are more than the 16 MB that one BatchGetItem returns; 300 of 10 KB are three pages of 1 MB.
const LARGE_ITEMS = 60;
const KILOBYTES_300 = "x".repeat(300_000);
const PAGED_ITEMS = 300;
const KILOBYTES_10 = "y".repeat(10_000);

const key = (p, c) => ({ p: { S: p }, c: { N: String(c) } });

function rejects(promise, error, matches = {}) {
  return assert.rejects(promise, (caught) => {
    assert.ok(caught instanceof error, caught);
    for (const [name, value] of Object.entries(matches)) {
      if (value instanceof RegExp) assert.match(caught[name], value);
      else assert.deepEqual(caught[name], value);
    }
    return true;
  });
}

// ValidationException has no class in this SDK: it is a DynamoDBServiceException of that name.
const refuses = (promise, message) =>
  rejects(promise, dynamodb.DynamoDBServiceException, { name: "ValidationException", message });

async function get(p, c) {
  return (await client.getItem({ TableName: table, Key: key(p, c), ConsistentRead: true })).Item;
}

async function items(pages) {
  const found = [];
  let count = 0;
  for await (const page of pages) {
    found.push(...(page.Items ?? []));
    count += 1;
  }
  return [found, count];
}

async function writeAll(requests) {
  for (let next = 0; next < requests.length; next += 25) {
    let left = { [table]: requests.slice(next, next + 25) };
    while (Object.keys(left).length) left = (await client.batchWriteItem({ RequestItems: left })).UnprocessedItems;
  }
}

run({
  "a table is created, waited for and described": async () => {
    const created = await client.createTable({
      TableName: table,
      AttributeDefinitions: [
        { AttributeName: "p", AttributeType: "S" },
        { AttributeName: "c", AttributeType: "N" },
      ],
      KeySchema: [
        { AttributeName: "p", KeyType: "HASH" },
        { AttributeName: "c", KeyType: "RANGE" },
      ],
      BillingMode: "PAY_PER_REQUEST",
      Tags: [{ Key: "team", Value: "music" }],
    });
    assert.ok(created.TableDescription.CreationDateTime instanceof Date);
    const { state, reason } = await dynamodb.waitUntilTableExists(WAIT, { TableName: table });
    assert.equal(state, "SUCCESS");
    const { Table } = await client.describeTable({ TableName: table });
    assert.equal(Table.TableStatus, "ACTIVE");
    assert.deepEqual(
      Table.KeySchema.map((part) => part.AttributeName),
      ["p", "c"],
    );
    assert.equal(Table.BillingModeSummary.BillingMode, "PAY_PER_REQUEST");
    assert.match(Table.TableArn, new RegExp(`^arn:aws:dynamodb:[^:]*:[0-9]*:table/${table}$`));
    assert.equal((await client.describeTable({ TableName: Table.TableArn })).Table.TableId, Table.TableId);
    await client.createTable({
      TableName: other,
      AttributeDefinitions: [{ AttributeName: "id", AttributeType: "B" }],
      KeySchema: [{ AttributeName: "id", KeyType: "HASH" }],
      ProvisionedThroughput: { ReadCapacityUnits: 5, WriteCapacityUnits: 6 },
    });
    await dynamodb.waitUntilTableExists(WAIT, { TableName: other });
    const throughput = (await client.describeTable({ TableName: other })).Table.ProvisionedThroughput;
    assert.deepEqual([throughput.ReadCapacityUnits, throughput.WriteCapacityUnits], [5, 6]);
  },

  "errors of tables have their classes": async () => {
    const keys = {
      AttributeDefinitions: [{ AttributeName: "id", AttributeType: "S" }],
      KeySchema: [{ AttributeName: "id", KeyType: "HASH" }],
      BillingMode: "PAY_PER_REQUEST",
    };
    await rejects(client.createTable({ TableName: table, ...keys }), dynamodb.ResourceInUseException, {
      message: /Table already exists/,
    });
    await rejects(client.describeTable({ TableName: `${prefix}-none` }), dynamodb.ResourceNotFoundException, {
      message: /Table: .*-none not found/,
    });
    await rejects(
      client.getItem({ TableName: `${prefix}-none`, Key: { id: { S: "a" } } }),
      dynamodb.ResourceNotFoundException,
    );
    await rejects(client.deleteTable({ TableName: `${prefix}-none` }), dynamodb.ResourceNotFoundException);
    await refuses(
      client.createTable({ TableName: "a", ...keys }),
      /at least 3 characters|length greater than or equal to 3/,
    );
    await refuses(
      client.getItem({ TableName: table, Key: { p: { S: "a" } } }),
      /The provided key element does not match the schema/,
    );
    await refuses(
      client.putItem({ TableName: table, Item: { p: { N: "1" }, c: { N: "1" } } }),
      /Type mismatch for key p expected: S actual: N/,
    );
    await refuses(
      client.getItem({ TableName: table, Key: key("a", 1), ProjectionExpression: "a b" }),
      /Invalid ProjectionExpression: Syntax error/,
    );
  },

  "values of every type come back": async () => {
    const item = {
      ...key("types", 1),
      text: { S: 'Größe \u{1F3B5}\n"\\' },
      emptyText: { S: "" },
      long: { N: "12345678901234567890123456789012345678" },
      small: { N: "-0.00000000000000000000000000000000000001" },
      large: { N: "9".repeat(38) },
      bytes: { B: Uint8Array.of(0, 1, 254, 255) },
      emptyBytes: { B: new Uint8Array() },
      yes: { BOOL: true },
      no: { BOOL: false },
      nothing: { NULL: true },
      list: { L: [{ S: "a" }, { N: "1" }, { L: [] }, { M: {} }] },
      map: { M: { "deep.er": { M: { list: { L: [{ NULL: true }] } } } } },
    };
    const sets = {
      texts: { SS: ["b", "a", ""] },
      numbers: { NS: ["1", "-2.5", "1000"] },
      binaries: { BS: [Uint8Array.of(2), Uint8Array.of(1)] },
    };
    await client.putItem({ TableName: table, Item: { ...item, ...sets } });
    const { texts, numbers, binaries, ...rest } = await get("types", 1);
    assert.deepEqual(rest, item);
    assert.deepEqual(texts.SS.sort(), ["", "a", "b"]);
    assert.deepEqual(numbers.NS.sort(), ["-2.5", "1", "1000"]);
    assert.deepEqual(binaries.BS.map((bytes) => bytes[0]).sort(), [1, 2]);
    // Numbers that are equal come back in one plain form.
    await client.putItem({
      TableName: table,
      Item: { ...key("types", 2), n: { L: ["1.0", "1E+3", "-0", "0012", "1e-2"].map((N) => ({ N })) } },
    });
    assert.deepEqual(
      (await get("types", 2)).n.L.map(({ N }) => N),
      ["1", "1000", "0", "12", "0.01"],
    );
    for (const empty of [{ SS: [] }, { NS: [] }, { BS: [] }]) {
      await refuses(client.putItem({ TableName: table, Item: { ...key("types", 3), empty } }), /set.* not be empty/i);
    }
    await refuses(
      client.putItem({ TableName: table, Item: { ...key("types", 3), twice: { SS: ["a", "a"] } } }),
      /duplicates/,
    );
    await refuses(
      client.putItem({ TableName: table, Item: { ...key("types", 3), n: { N: "1".repeat(39) } } }),
      /38 significant digits/,
    );
    await refuses(
      client.putItem({ TableName: table, Item: { ...key("types", 3), n: { N: "one" } } }),
      /cannot be converted to a numeric value/,
    );
    await refuses(client.putItem({ TableName: table, Item: key("", 3) }), /empty string value/);
    await refuses(
      client.putItem({ TableName: table, Item: { ...key("types", 3), long: { S: "x".repeat(410_000) } } }),
      /Item size has exceeded the maximum allowed size/,
    );
  },

  "a put replaces an item and returns the old one": async () => {
    const put = (item, options) =>
      client.putItem({ TableName: table, Item: { ...key("put", 1), ...item }, ...options });
    assert.equal((await put({ v: { N: "1" } }, { ReturnValues: "ALL_OLD" })).Attributes, undefined);
    const { Attributes, ConsumedCapacity } = await put(
      { v: { N: "2" } },
      { ReturnValues: "ALL_OLD", ReturnConsumedCapacity: "TOTAL" },
    );
    assert.deepEqual(Attributes, { ...key("put", 1), v: { N: "1" } });
    assert.deepEqual([ConsumedCapacity.TableName, ConsumedCapacity.CapacityUnits], [table, 1]);
    assert.equal((await put({ w: { N: "3" } })).Attributes, undefined);
    assert.deepEqual(await get("put", 1), { ...key("put", 1), w: { N: "3" } });
    await refuses(put({}, { ReturnValues: "ALL_NEW" }), /ReturnValues/);
  },

  "a condition that fails returns the item": async () => {
    const put = (options) =>
      client.putItem({
        TableName: table,
        Item: key("put", 1),
        ConditionExpression: "attribute_not_exists(p)",
        ...options,
      });
    await rejects(put(), dynamodb.ConditionalCheckFailedException, {
      message: /^The conditional request failed$/,
      Item: undefined,
    });
    await rejects(put({ ReturnValuesOnConditionCheckFailure: "ALL_OLD" }), dynamodb.ConditionalCheckFailedException, {
      Item: { ...key("put", 1), w: { N: "3" } },
    });
  },

  "an update returns what was asked for": async () => {
    await client.putItem({
      TableName: table,
      Item: {
        ...key("update", 1),
        n: { N: "1" },
        tags: { SS: ["a", "b"] },
        gone: { S: "x" },
        nested: { M: { list: { L: [{ N: "0" }] } } },
        same: { S: "s" },
      },
    });
    const update = async (ReturnValues) =>
      (
        await client.updateItem({
          TableName: table,
          Key: key("update", 1),
          UpdateExpression:
            "SET #n = #n + :one, nested.#l[0] = :one, fresh = if_not_exists(fresh, :zero) + :one, joined = list_append(nested.#l, :list) REMOVE gone ADD added :one, more :set DELETE tags :set",
          ExpressionAttributeNames: { "#n": "n", "#l": "list" },
          ExpressionAttributeValues: {
            ":one": { N: "1" },
            ":zero": { N: "0" },
            ":list": { L: [{ S: "l" }] },
            ":set": { SS: ["b"] },
          },
          ReturnValues,
        })
      ).Attributes;
    assert.equal(await update("NONE"), undefined);
    assert.deepEqual(await update("UPDATED_OLD"), {
      n: { N: "2" },
      nested: { M: { list: { L: [{ N: "1" }] } } },
      fresh: { N: "1" },
      joined: { L: [{ N: "0" }, { S: "l" }] },
      added: { N: "1" },
      more: { SS: ["b"] },
      tags: { SS: ["a"] },
    });
    assert.deepEqual(await update("UPDATED_NEW"), {
      n: { N: "4" },
      nested: { M: { list: { L: [{ N: "1" }] } } },
      fresh: { N: "3" },
      joined: { L: [{ N: "1" }, { S: "l" }] },
      added: { N: "3" },
      more: { SS: ["b"] },
      tags: { SS: ["a"] },
    });
    const old = await update("ALL_OLD");
    const now = await update("ALL_NEW");
    assert.deepEqual([old.n, old.added, old.same, old.gone], [{ N: "4" }, { N: "3" }, { S: "s" }, undefined]);
    assert.deepEqual([now.n, now.added, now.same, now.p], [{ N: "6" }, { N: "5" }, { S: "s" }, { S: "update" }]);
    assert.deepEqual(await get("update", 1), now);
    // An update makes an item that is not there, and a set that becomes empty is removed.
    const made = await client.updateItem({ TableName: table, Key: key("update", 2), ReturnValues: "ALL_NEW" });
    assert.deepEqual(made.Attributes, key("update", 2));
    const emptied = {
      TableName: table,
      Key: key("update", 1),
      UpdateExpression: "DELETE tags :a",
      ExpressionAttributeValues: { ":a": { SS: ["a"] } },
      ReturnValues: "ALL_NEW",
    };
    assert.equal((await client.updateItem(emptied)).Attributes.tags, undefined);
    const Item = await get("update", 1);
    await rejects(
      client.updateItem({
        ...emptied,
        ConditionExpression: "attribute_exists(tags)",
        ReturnValues: "NONE",
        ReturnValuesOnConditionCheckFailure: "ALL_OLD",
      }),
      dynamodb.ConditionalCheckFailedException,
      { Item },
    );
    await refuses(
      client.updateItem({ ...emptied, UpdateExpression: "SET p = :a" }),
      /Cannot update attribute p. This attribute is part of the key/,
    );
    await refuses(
      client.updateItem({ ...emptied, UpdateExpression: "SET nowhere.deep = :a" }),
      /The document path provided in the update expression is invalid for update/,
    );
  },

  "conditions of every operator hold": async () => {
    await client.putItem({
      TableName: table,
      Item: {
        ...key("where", 1),
        n: { N: "10" },
        s: { S: "bebop" },
        l: { L: [{ S: "a" }] },
        set: { NS: ["1", "2"] },
        b: { B: Uint8Array.of(1, 2) },
      },
    });
    const values = {
      ":n": { N: "10.0" },
      ":m": { N: "11" },
      ":s": { S: "beb" },
      ":p": { S: "bop" },
      ":t": { S: "S" },
      ":a": { S: "a" },
      ":one": { N: "1" },
      ":five": { N: "5" },
    };
    const holds = [
      "n = :n",
      "n <> :m",
      "n < :m AND n <= :n",
      "n > :five AND n >= :n",
      "n BETWEEN :five AND :m",
      "n IN (:five, :n)",
      "begins_with(s, :s)",
      "contains(s, :p)",
      "contains(l, :a)",
      "contains(#set, :one)",
      "attribute_type(s, :t)",
      "attribute_exists(l[0]) AND attribute_not_exists(l[1])",
      "size(s) = :five",
      "NOT (n = :m) AND (n = :n OR n = :m)",
      "not contains (s, :a)",
      "size(b) < :five",
      "l[0] = :a",
    ];
    for (const condition of holds) {
      for (const [expression, isTrue] of [
        [condition, true],
        [`NOT (${condition})`, false],
      ]) {
        const used = Object.fromEntries(
          Object.entries(values).filter(([name]) => new RegExp(`${name}\\b`).test(condition)),
        );
        const put = client.updateItem({
          TableName: table,
          Key: key("where", 1),
          ConditionExpression: expression,
          ...(Object.keys(used).length && { ExpressionAttributeValues: used }),
          ...(condition.includes("#set") && { ExpressionAttributeNames: { "#set": "set" } }),
        });
        if (isTrue) await put;
        else await rejects(put, dynamodb.ConditionalCheckFailedException);
      }
    }
  },

  "a delete removes an item and returns it": async () => {
    const remove = (options) => client.deleteItem({ TableName: table, Key: key("put", 1), ...options });
    const not = {
      ConditionExpression: "w = :w",
      ExpressionAttributeValues: { ":w": { N: "0" } },
      ReturnValuesOnConditionCheckFailure: "ALL_OLD",
    };
    await rejects(remove(not), dynamodb.ConditionalCheckFailedException, { Item: { ...key("put", 1), w: { N: "3" } } });
    assert.deepEqual((await remove({ ReturnValues: "ALL_OLD" })).Attributes, { ...key("put", 1), w: { N: "3" } });
    assert.equal((await remove({ ReturnValues: "ALL_OLD" })).Attributes, undefined);
    assert.equal(await get("put", 1), undefined);
  },

  "a query reads all pages": async () => {
    const all = Array.from({ length: PAGED_ITEMS }, (_, c) => ({
      ...key("pages", c),
      v: { S: KILOBYTES_10 },
      even: { BOOL: c % 2 === 0 },
    }));
    await writeAll(all.map((Item) => ({ PutRequest: { Item } })));
    // A paginator writes into the request that it is given.
    const query = {
      TableName: table,
      KeyConditionExpression: "p = :p",
      ExpressionAttributeValues: { ":p": { S: "pages" } },
    };
    const numbers = (found) => found.map((item) => Number(item.c.N));
    const upwards = [...Array(PAGED_ITEMS).keys()];
    const [found, pages] = await items(dynamodb.paginateQuery({ client }, { ...query }));
    assert.deepEqual(found, all);
    assert.equal(pages, 3);
    const [down] = await items(
      dynamodb.paginateQuery({ client, pageSize: 70 }, { ...query, ScanIndexForward: false, ConsistentRead: true }),
    );
    assert.deepEqual(numbers(down), [...upwards].reverse());
    const [even] = await items(
      dynamodb.paginateQuery(
        { client },
        {
          ...query,
          KeyConditionExpression: "p = :p AND c BETWEEN :low AND :high",
          FilterExpression: "even = :yes",
          ProjectionExpression: "c",
          ExpressionAttributeValues: {
            ":p": { S: "pages" },
            ":low": { N: "10" },
            ":high": { N: "19" },
            ":yes": { BOOL: true },
          },
        },
      ),
    );
    assert.deepEqual(
      even,
      [10, 12, 14, 16, 18].map((c) => ({ c: { N: String(c) } })),
    );
    const counted = await client.query({
      ...query,
      KeyConditionExpression: "p = :p AND c < :c",
      ExpressionAttributeValues: { ":p": { S: "pages" }, ":c": { N: "7" } },
      Select: "COUNT",
    });
    assert.deepEqual(
      [counted.Count, counted.ScannedCount, counted.Items, counted.LastEvaluatedKey],
      [7, 7, undefined, undefined],
    );
    const first = await client.query({ ...query, Limit: 3 });
    assert.deepEqual(first.LastEvaluatedKey, key("pages", 2));
    assert.deepEqual(
      numbers((await client.query({ ...query, Limit: 2, ExclusiveStartKey: first.LastEvaluatedKey })).Items),
      [3, 4],
    );
    await refuses(client.query({ ...query, KeyConditionExpression: "p > :p" }), /Query key condition not supported/);
  },

  "a scan reads all pages, also in parallel": async () => {
    const [found, pages] = await items(dynamodb.paginateScan({ client }, { TableName: table, ConsistentRead: true }));
    assert.ok(pages > 2, pages);
    const identity = (item) => `${item.p.S}/${item.c.N}`;
    const segments = await Promise.all(
      [0, 1, 2, 3].map((Segment) =>
        items(dynamodb.paginateScan({ client, pageSize: 50 }, { TableName: table, Segment, TotalSegments: 4 })),
      ),
    );
    assert.deepEqual(segments.flatMap(([part]) => part.map(identity)).sort(), found.map(identity).sort());
    const [filtered] = await items(
      dynamodb.paginateScan(
        { client },
        {
          TableName: table,
          FilterExpression: "#p = :p AND c < :c",
          ProjectionExpression: "#p, c",
          ExpressionAttributeNames: { "#p": "p" },
          ExpressionAttributeValues: { ":p": { S: "pages" }, ":c": { N: "3" } },
        },
      ),
    );
    assert.deepEqual(
      filtered.sort((a, b) => a.c.N - b.c.N),
      [0, 1, 2].map((c) => key("pages", c)),
    );
    await refuses(client.scan({ TableName: table, Segment: 4, TotalSegments: 4 }), /Segment/);
  },

  "batches are written and read until nothing is left": async () => {
    const keys = Array.from({ length: LARGE_ITEMS }, (_, c) => key("large", c));
    await writeAll(keys.map((Key) => ({ PutRequest: { Item: { ...Key, v: { S: KILOBYTES_300 } } } })));
    let left = { [table]: { Keys: [...keys, key("large", -1)], ConsistentRead: true, ProjectionExpression: "c, v" } };
    const found = [];
    let rounds = 0;
    while (Object.keys(left).length) {
      const answer = await client.batchGetItem({ RequestItems: left });
      found.push(...answer.Responses[table]);
      left = answer.UnprocessedKeys;
      rounds += 1;
      if (left[table]) assert.equal(left[table].ProjectionExpression, "c, v");
    }
    assert.ok(rounds > 1, rounds);
    assert.deepEqual(
      found.map((item) => Number(item.c.N)).sort((a, b) => a - b),
      [...Array(LARGE_ITEMS).keys()],
    );
    await writeAll(keys.map((Key) => ({ DeleteRequest: { Key } })));
    const none = await client.batchGetItem({
      RequestItems: { [table]: { Keys: keys }, [other]: { Keys: [{ id: { B: Uint8Array.of(1) } }] } },
    });
    assert.deepEqual([none.Responses, none.UnprocessedKeys], [{ [table]: [], [other]: [] }, {}]);
    await refuses(
      client.batchGetItem({ RequestItems: { [table]: { Keys: [key("a", 1), key("a", 1)] } } }),
      /Provided list of item keys contains duplicates/,
    );
    const tooMany = Array.from({ length: 101 }, (_, c) => key("a", c));
    await refuses(
      client.batchGetItem({ RequestItems: { [table]: { Keys: tooMany } } }),
      /(less than or equal to 100|Too many items requested)/,
    );
  },

  "a transaction is done as a whole": async () => {
    const count = {
      Update: {
        TableName: other,
        Key: { id: { B: Uint8Array.of(7) } },
        UpdateExpression: "ADD n :one",
        ExpressionAttributeValues: { ":one": { N: "1" } },
      },
    };
    const written = {
      TransactItems: [
        {
          Put: {
            TableName: table,
            Item: { ...key("both", 1), v: { S: "put" } },
            ConditionExpression: "attribute_not_exists(p)",
          },
        },
        count,
        { Delete: { TableName: table, Key: key("update", 2) } },
        { ConditionCheck: { TableName: table, Key: key("where", 1), ConditionExpression: "attribute_exists(p)" } },
      ],
      ClientRequestToken: `${prefix}-token`,
    };
    await client.transactWriteItems(written);
    await client.transactWriteItems(written);
    await rejects(
      client.transactWriteItems({ ...written, TransactItems: [count] }),
      dynamodb.IdempotentParameterMismatchException,
    );
    const read = await client.transactGetItems({
      TransactItems: [
        { Get: { TableName: table, Key: key("both", 1), ProjectionExpression: "v" } },
        { Get: { TableName: table, Key: key("update", 2) } },
        { Get: { TableName: other, Key: { id: { B: Uint8Array.of(7) } } } },
      ],
      ReturnConsumedCapacity: "TOTAL",
    });
    assert.deepEqual(
      read.Responses.map(({ Item }) => Item),
      [{ v: { S: "put" } }, undefined, { id: { B: Uint8Array.of(7) }, n: { N: "1" } }],
    );
    assert.deepEqual(read.ConsumedCapacity.map(({ TableName }) => TableName).sort(), [other, table]);
  },

  "a cancelled transaction has a reason for each item": async () => {
    const condition = { ConditionExpression: "v = :v", ExpressionAttributeValues: { ":v": { S: "other" } } };
    const cancelled = {
      TransactItems: [
        { Put: { TableName: table, Item: key("both", 2) } },
        {
          Update: {
            TableName: table,
            Key: key("both", 1),
            UpdateExpression: "SET w = :v",
            ...condition,
            ReturnValuesOnConditionCheckFailure: "ALL_OLD",
          },
        },
        { Delete: { TableName: table, Key: key("where", 1), ...condition } },
      ],
    };
    await rejects(client.transactWriteItems(cancelled), dynamodb.TransactionCanceledException, {
      message:
        "Transaction cancelled, please refer cancellation reasons for specific reasons [None, ConditionalCheckFailed, ConditionalCheckFailed]",
      CancellationReasons: [
        { Code: "None" },
        {
          Code: "ConditionalCheckFailed",
          Message: "The conditional request failed",
          Item: { ...key("both", 1), v: { S: "put" } },
        },
        { Code: "ConditionalCheckFailed", Message: "The conditional request failed" },
      ],
    });
    assert.equal(await get("both", 2), undefined);
    const twice = { Put: { TableName: table, Item: key("both", 3) } };
    await refuses(
      client.transactWriteItems({ TransactItems: [twice, twice] }),
      /Transaction request cannot include multiple operations on one item/,
    );
  },

  "PartiQL statements write and read": async () => {
    const execute = (Statement, Parameters, options) => client.executeStatement({ Statement, Parameters, ...options });
    for (const c of [1, 2, 3])
      await execute(`INSERT INTO "${table}" VALUE {'p': ?, 'c': ?, 'v': {'list': [1, 'a'], 'set': <<1, 2>>}}`, [
        { S: "partiql" },
        { N: String(c) },
      ]);
    await rejects(execute(`INSERT INTO "${table}" VALUE {'p': 'partiql', 'c': 1}`), dynamodb.DuplicateItemException);
    const select = `SELECT c, v.list[1] FROM "${table}" WHERE p = ? ORDER BY c DESC`;
    const first = await execute(select, [{ S: "partiql" }], { Limit: 2 });
    const rest = await execute(select, [{ S: "partiql" }], { Limit: 2, NextToken: first.NextToken });
    assert.deepEqual([first.Items.map(({ c }) => c.N), rest.Items.map(({ c }) => c.N)], [["3", "2"], ["1"]]);
    const updated = await execute(
      `UPDATE "${table}" SET v.x = 5 REMOVE v.list[0] WHERE p = 'partiql' AND c = 2 RETURNING ALL NEW *`,
    );
    assert.deepEqual([updated.Items[0].v.M.x, updated.Items[0].v.M.list], [{ N: "5" }, { L: [{ S: "a" }] }]);
    await rejects(
      execute(`UPDATE "${table}" SET v.x = 6 WHERE p = 'partiql' AND c = 2 AND v.x = 1`, undefined, {
        ReturnValuesOnConditionCheckFailure: "ALL_OLD",
      }),
      dynamodb.ConditionalCheckFailedException,
      { Item: updated.Items[0] },
    );
    const batch = await client.batchExecuteStatement({
      Statements: [
        { Statement: `SELECT c FROM "${table}" WHERE p = 'partiql' AND c = 3` },
        { Statement: `SELECT * FROM "${prefix}-none" WHERE p = 'a'` },
      ],
    });
    assert.deepEqual(batch.Responses[0].Item, { c: { N: "3" } });
    assert.equal(batch.Responses[1].Error.Code, "ResourceNotFound");
    await client.executeTransaction({
      TransactStatements: [
        { Statement: `DELETE FROM "${table}" WHERE p = 'partiql' AND c = 1` },
        { Statement: `UPDATE "${table}" SET w = ? WHERE p = 'partiql' AND c = 2`, Parameters: [{ BOOL: true }] },
      ],
    });
    const [left] = await items(
      dynamodb.paginateQuery(
        { client },
        { TableName: table, KeyConditionExpression: "p = :p", ExpressionAttributeValues: { ":p": { S: "partiql" } } },
      ),
    );
    assert.deepEqual(
      left.map(({ c, w }) => [c.N, w?.BOOL]),
      [
        ["2", true],
        ["3", undefined],
      ],
    );
    await rejects(
      client.executeTransaction({
        TransactStatements: [{ Statement: `UPDATE "${table}" SET w = 1 WHERE p = 'partiql' AND c = 2 AND w = 7` }],
      }),
      dynamodb.TransactionCanceledException,
      { CancellationReasons: [{ Code: "ConditionalCheckFailed", Message: "The conditional request failed" }] },
    );
    await refuses(execute("SELEKT"), /Statement wasn't well formed, can't be processed/);
  },

  "a table has a TTL, tags and another billing mode": async () => {
    const { TimeToLiveSpecification } = await client.updateTimeToLive({
      TableName: table,
      TimeToLiveSpecification: { Enabled: true, AttributeName: "ends" },
    });
    assert.deepEqual(TimeToLiveSpecification, { Enabled: true, AttributeName: "ends" });
    assert.deepEqual((await client.describeTimeToLive({ TableName: table })).TimeToLiveDescription, {
      TimeToLiveStatus: "ENABLED",
      AttributeName: "ends",
    });
    const { Table } = await client.describeTable({ TableName: table });
    const ResourceArn = Table.TableArn;
    await client.tagResource({
      ResourceArn,
      Tags: [
        { Key: "stage", Value: "test" },
        { Key: "team", Value: "sound" },
      ],
    });
    await client.untagResource({ ResourceArn, TagKeys: ["stage"] });
    assert.deepEqual((await client.listTagsOfResource({ ResourceArn })).Tags, [{ Key: "team", Value: "sound" }]);
    await client.updateTable({ TableName: other, BillingMode: "PAY_PER_REQUEST", DeletionProtectionEnabled: true });
    await dynamodb.waitUntilTableExists(WAIT, { TableName: other });
    assert.equal(
      (await client.describeTable({ TableName: other })).Table.BillingModeSummary.BillingMode,
      "PAY_PER_REQUEST",
    );
    await refuses(client.deleteTable({ TableName: other }), /deletion protection/i);
    await client.updateTable({ TableName: other, DeletionProtectionEnabled: false });
    const names = [];
    for await (const page of dynamodb.paginateListTables({ client, pageSize: 1 }, {})) names.push(...page.TableNames);
    assert.ok(names.includes(table) && names.includes(other), names);
    const limits = await client.describeLimits({});
    assert.ok(limits.AccountMaxReadCapacityUnits > 0);
    assert.ok((await client.describeEndpoints({})).Endpoints.length);
  },

  "a request whose answer is lost is sent again and done once": async () => {
    const cut = new dynamodb.DynamoDB(settings(cuttingEndpoint));
    const id = { id: { B: Uint8Array.of(9) } };
    const add = {
      TableName: other,
      Key: id,
      UpdateExpression: "ADD n :one",
      ExpressionAttributeValues: { ":one": { N: "1" } },
    };
    await cut.putItem({ TableName: other, Item: { ...id, n: { N: "0" } } });
    for (let i = 0; i < 3; i++) await cut.transactWriteItems({ TransactItems: [{ Update: add }] });
    const { Item, $metadata } = await cut.getItem({ TableName: other, Key: id, ConsistentRead: true });
    assert.deepEqual([Item.n, $metadata.attempts], [{ N: "3" }, 2]);
  },

  "a table is deleted and waited for": async () => {
    for (const TableName of [table, other]) {
      assert.equal((await client.deleteTable({ TableName })).TableDescription.TableStatus, "DELETING");
      assert.equal((await dynamodb.waitUntilTableNotExists(WAIT, { TableName })).state, "SUCCESS");
    }
    await rejects(client.scan({ TableName: table }), dynamodb.ResourceNotFoundException);
  },
});
