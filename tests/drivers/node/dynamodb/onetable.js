// dynamodb-onetable: onetable.js ENDPOINT CUTTING_ENDPOINT PREFIX. tests/drivers/test_dynamodb.py says what these are.
"use strict";

const assert = require("node:assert/strict");
const { DynamoDBClient } = require("@aws-sdk/client-dynamodb");
const { Table } = require("dynamodb-onetable");
const { Dynamo } = require("dynamodb-onetable/Dynamo");
const { run, settings } = require("./checks");

const [endpoint, , prefix] = process.argv.slice(2);
const ITEMS = 150;
const KILOBYTES_10 = "y".repeat(10_000);
const table = new Table({
  client: new Dynamo({ client: new DynamoDBClient(settings(endpoint)) }),
  name: `${prefix}-one`,
  partial: true,
  schema: {
    format: "onetable:1.1.0",
    version: "0.0.1",
    indexes: { primary: { hash: "pk", sort: "sk" } },
    models: {
      Account: {
        pk: { type: String, value: "account:${name}" },
        sk: { type: String, value: "account:" },
        name: { type: String, required: true },
        email: { type: String, unique: true },
        balance: { type: Number, default: 0 },
        opened: { type: Date },
        tags: { type: Set },
        address: { type: Object, schema: { street: { type: String }, zip: { type: Number } } },
        notes: { type: Array },
        secret: { type: Buffer },
        ends: { type: Date, ttl: true },
      },
      Order: {
        pk: { type: String, value: "account:${name}" },
        sk: { type: String, value: "order:${number}" },
        name: { type: String, required: true },
        number: { type: String, required: true },
        text: { type: String },
      },
    },
    params: { isoDates: true, timestamps: true },
  },
});
const Account = table.getModel("Account");
const Order = table.getModel("Order");
const numbers = (found) => found.map(({ number }) => number);
const numbered = (i) => String(i).padStart(4, "0");

run({
  "a table is created from a schema": async () => {
    await table.createTable({ TimeToLiveSpecification: { AttributeName: "ends", Enabled: true } });
    assert.equal(await table.exists(), true);
    assert.equal((await table.describeTable()).Table.TableStatus, "ACTIVE");
    assert.ok((await table.listTables()).includes(table.name));
    await table.updateTable({ provisioned: { ReadCapacityUnits: 5, WriteCapacityUnits: 5 } });
  },

  "a model is created once, with unique attributes, and read back": async () => {
    const values = {
      name: "ann",
      email: "ann@example.com",
      balance: 10.5,
      opened: new Date(0),
      tags: new Set(["a", "b"]),
      address: { street: "", zip: 1 },
      notes: [1, "x", { y: [] }],
      secret: Buffer.from([0, 255]),
      ends: new Date(4_000_000_000_000),
    };
    await Account.create(values);
    const { created, updated, ...read } = await Account.get({ name: "ann" }, { consistent: true });
    assert.deepEqual({ ...read, secret: Buffer.from(read.secret) }, values);
    assert.ok(created instanceof Date && updated instanceof Date);
    await assert.rejects(Account.create({ ...values, email: "other@example.com" }), /Cannot create/);
    await assert.rejects(Account.create({ name: "bob", email: "ann@example.com" }), /Cannot create unique attributes/);
    assert.equal(await Account.get({ name: "bob" }), undefined);
    await Account.create({ name: "bob", email: "bob@example.com" });
    await Account.update({ name: "bob", email: "robert@example.com" });
    await Account.create({ name: "eve", email: "bob@example.com" });
    await Account.remove({ name: "eve" });
  },

  "updates, conditions and removals": async () => {
    const updated = await Account.update(
      { name: "ann" },
      {
        add: { balance: 5 },
        push: { notes: ["last"] },
        set: { "address.zip": "${address.zip} + {1}" },
        remove: ["opened"],
        delete: { tags: new Set(["b"]) },
      },
    );
    assert.deepEqual(
      [updated.balance, updated.notes.length, updated.address.zip, updated.opened, updated.tags],
      [15.5, 4, 2, undefined, new Set(["a"])],
    );
    await assert.rejects(Account.update({ name: "ann", balance: 0 }, { where: "${balance} > {100}" }), (error) =>
      /Conditional/.test(`${error.message} ${error.code}`),
    );
    await assert.rejects(Account.update({ name: "none", balance: 0 }), (error) =>
      /Conditional/.test(`${error.message} ${error.code}`),
    );
    await Account.upsert({ name: "zoe", balance: 1 });
    assert.equal((await Account.get({ name: "zoe" })).balance, 1);
    await Account.remove({ name: "zoe" });
    assert.equal(await Account.get({ name: "zoe" }), undefined);
  },

  "batches, finds and scans": async () => {
    for (let next = 0; next < ITEMS; next += 25) {
      const batch = {};
      for (let i = next; i < next + 25; i++)
        await Order.create({ name: "ann", number: numbered(i), text: KILOBYTES_10 }, { batch, exists: null });
      await table.batchWrite(batch);
    }
    const all = Array.from({ length: ITEMS }, (_, i) => numbered(i));
    assert.deepEqual(numbers(await Order.find({ name: "ann" })), all);
    const first = await Order.find({ name: "ann" }, { limit: 10 });
    assert.deepEqual(numbers(await Order.find({ name: "ann" }, { limit: 10, next: first.next })), all.slice(10, 20));
    const down = await Order.find(
      { name: "ann", sk: { between: ["order:0003", "order:0006"] } },
      { reverse: true, where: '${number} <> {"0005"}', fields: ["number"] },
    );
    assert.deepEqual(numbers(down), ["0006", "0004", "0003"]);
    assert.equal((await Order.find({ name: "ann", sk: { begins: "order:001" } }, { count: true })).count, 10);
    assert.deepEqual(numbers(await Order.scan()).sort(), all);
    const parts = await Promise.all([0, 1].map((segment) => Order.scan({}, { segment, segments: 2 })));
    assert.deepEqual(numbers(parts.flat()).sort(), all);
    const grouped = table.groupByType(
      await table.queryItems({ pk: "account:ann" }, { parse: true, hidden: true, limit: 300 }),
    );
    assert.deepEqual([grouped.Account.length, grouped.Order.length > 1], [1, true]);
    const batch = {};
    for (const number of ["0001", "none"]) await Order.get({ name: "ann", number }, { batch });
    assert.deepEqual(numbers(await table.batchGet(batch, { parse: true })), ["0001"]);
  },

  transactions: async () => {
    const transaction = {};
    await Account.update({ name: "ann" }, { add: { balance: -1 }, transaction });
    await Account.update({ name: "bob" }, { add: { balance: 1 }, transaction });
    await Order.remove({ name: "ann", number: "0002" }, { transaction });
    await table.transact("write", transaction);
    const read = {};
    for (const name of ["ann", "bob"]) await Account.get({ name }, { transaction: read });
    assert.deepEqual(
      (await table.transact("get", read, { parse: true })).map(({ balance }) => balance),
      [14.5, 1],
    );
    const refused = {};
    await Account.update({ name: "bob" }, { add: { balance: 1 }, transaction: refused });
    await Account.update({ name: "ann" }, { add: { balance: -1 }, where: "${balance} > {100}", transaction: refused });
    await assert.rejects(table.transact("write", refused), (error) => /cancel/i.test(`${error.message} ${error.code}`));
    assert.equal((await Account.get({ name: "bob" })).balance, 1);
  },

  "a table is deleted": async () => {
    await table.deleteTable("DeleteTableForever");
    assert.equal(await table.exists(), false);
  },
});
