// dynamodb-admin, started by its command and used as a browser uses it: admin.js ENDPOINT CUTTING_ENDPOINT PREFIX. tests/drivers/test_dynamodb.py says
// what these are.
"use strict";

const assert = require("node:assert/strict");
const { spawn } = require("node:child_process");
const { createInterface } = require("node:readline");
const { run } = require("./checks");

const [endpoint, , prefix] = process.argv.slice(2);
const table = `${prefix}-admin`;
const ITEMS = 60;
const command = [
  "node_modules/dynamodb-admin/dist/dynamodb-admin.js",
  "--dynamo-endpoint",
  endpoint,
  "--host",
  "127.0.0.1",
  "--port",
  "0",
];
const admin = spawn(process.execPath, command, { stdio: ["ignore", "pipe", "inherit"] });
process.on("exit", () => admin.kill());
let address;

async function ask(method, path, body) {
  const options = {
    method,
    ...(body && { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
  };
  const answer = await fetch(address + path, options);
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text;
}

const page = (path) => ask("GET", path);
const json = async (path) => JSON.parse(await ask("GET", path));
const filter = (filters) => `filters=${encodeURIComponent(JSON.stringify(filters))}`;

run({
  "the command starts": async () => {
    for await (const line of createInterface({ input: admin.stdout })) {
      address = line.match(/listening on (http:\S+)/)?.[1];
      if (address) break;
    }
    // Its later lines have no reader, and must not fill the pipe.
    admin.stdout.resume();
    assert.ok(address);
  },

  "a table is created by the form and listed": async () => {
    await page("/create-table");
    await ask("POST", "/create-table", {
      TableDefinition: {
        TableName: table,
        HashAttributeName: "artist",
        HashAttributeType: "S",
        RangeAttributeName: "year",
        RangeAttributeType: "N",
        ReadCapacityUnits: 3,
        WriteCapacityUnits: 3,
      },
    });
    assert.ok((await page("/")).includes(table));
    assert.ok((await json("/api/tables")).some(({ TableName }) => TableName === table));
  },

  "items are added, shown and changed": async () => {
    await page(`/tables/${table}/add-item`);
    for (let year = 0; year < ITEMS; year++) {
      const key = JSON.parse(
        await ask("PUT", `/tables/${table}/add-item`, {
          artist: "Nina Simone",
          year,
          tags: ["a"],
          nested: { deep: null },
        }),
      );
      assert.deepEqual(key, { artist: "Nina Simone", year });
    }
    assert.ok((await page(`/tables/${table}/items/Nina%20Simone,7`)).includes("nested"));
    const changed = JSON.parse(
      await ask("PUT", `/tables/${table}/items/Nina%20Simone,7`, { artist: "Nina Simone", year: 7, note: "changed" }),
    );
    assert.equal(changed.note, "changed");
    assert.equal((await fetch(`${address}/tables/${table}/items/none,7`)).status, 404);
  },

  "a table is scanned and queried by pages": async () => {
    await page(`/tables/${table}`);
    const years = ({ Items }) => Items.map(({ year }) => year);
    const first = await json(`/tables/${table}/items?pageSize=25`);
    const second = await json(`/tables/${table}/items?pageSize=50&startKey=${first.nextKey}`);
    assert.deepEqual([...years(first), ...years(second)], [...Array(ITEMS).keys()]);
    assert.deepEqual([second.nextKey, first.uniqueKeys.slice(0, 2)], [null, ["artist", "year"]]);
    const query = filter({
      artist: { type: "S", operator: "=", value: "Nina Simone" },
      year: { type: "N", operator: ">=", value: "58" },
    });
    assert.deepEqual(years(await json(`/tables/${table}/items?operationType=query&${query}`)), [58, 59]);
    const scan = filter({ note: { type: "S", operator: "begins_with", value: "chan" } });
    assert.deepEqual(years(await json(`/tables/${table}/items?${scan}`)), [7]);
  },

  "what a table is made of is shown": async () => {
    assert.ok((await page(`/tables/${table}/meta`)).includes("ACTIVE"));
    assert.ok((await page(`/tables/${table}/ttl`)).includes("DISABLED"));
    assert.ok((await page(`/tables/${table}/get`)).includes("artist"));
  },

  "items and the table are deleted": async () => {
    await ask("DELETE", `/tables/${table}/items/Nina%20Simone,7`);
    assert.equal((await json(`/tables/${table}/items?pageSize=100`)).Items.length, ITEMS - 1);
    await ask("DELETE", `/tables/${table}/all`);
    assert.deepEqual((await json(`/tables/${table}/items`)).Items, []);
    await ask("DELETE", `/tables/${table}`);
    assert.ok(!(await page("/")).includes(table));
  },
}).then(() => process.exit(0));
