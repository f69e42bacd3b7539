// The ways in which the Node.js driver reads results: results.js HOST PORT. tests/drivers/test_whole_results.py has the commands.
"use strict";

const readline = require("node:readline");
const cassandra = require("cassandra-driver");

const WHOLE = {
  "async iteration": async (client, query, options) => collected(await client.execute(query, [], options)),
  "eachRow with autoPage": (client, query, options) =>
    new Promise((resolve, reject) => {
      const rows = [];
      const done = (error) => (error ? reject(error) : resolve(rows));
      client.eachRow(query, [], { ...options, autoPage: true }, (_, row) => rows.push(row), done);
    }),
  "eachRow with nextPage": (client, query, options) =>
    new Promise((resolve, reject) => {
      const rows = [];
      client.eachRow(query, [], options, (_, row) => rows.push(row), (error, result) => {
        if (error) reject(error);
        else if (result.nextPage) result.nextPage();
        else resolve(rows);
      });
    }),
  "stream by events": (client, query, options) =>
    new Promise((resolve, reject) => {
      const rows = [];
      const stream = client.stream(query, [], options);
      stream.on("readable", () => {
        for (let row; (row = stream.read()); ) rows.push(row);
      });
      stream.on("end", () => resolve(rows));
      stream.on("error", reject);
    }),
  "stream by async iteration": (client, query, options) => collected(client.stream(query, [], options)),
  "page by page": async (client, query, options) => {
    const rows = [];
    for (let pageState; ; ) {
      const result = await client.execute(query, [], { ...options, pageState });
      rows.push(...result.rows);
      if (!(pageState = result.pageState)) return rows;
    }
  },
};

async function collected(rows) {
  const read = [];
  for await (const row of rows) read.push(row);
  return read;
}

async function byEachWay(client, query, options) {
  const answer = { whole: {}, page: {}, first: {} };
  for (const [name, way] of Object.entries(WHOLE)) answer.whole[name] = await way(client, query, options);
  answer.page.rows = (await client.execute(query, [], options)).rows;
  answer.page.iteration = [...(await client.execute(query, [], options))];
  answer.first.first = (await client.execute(query, [], options)).first();
  return answer;
}

async function main([host, port]) {
  const client = new cassandra.Client({
    contactPoints: [`${host}:${port}`],
    localDataCenter: "datacenter1",
    socketOptions: { readTimeout: 30000 },
  });
  await client.connect();
  let prepared;
  const commands = {
    read: ([rows, ...words]) => byEachWay(client, words.join(" "), { fetchSize: Number(rows) }),
    prepare: async (words) => {
      prepared = words.join(" ");
      // The driver prepares what has values when it is first executed with them.
      if (!prepared.includes("?")) await client.execute(prepared, [], { prepare: true });
      return {};
    },
    execute: ([rows]) => byEachWay(client, prepared, { fetchSize: Number(rows), prepare: true }),
    insert: async ([key, ...fields]) => {
      const value = Object.fromEntries(fields.map((field) => [field, field]));
      await client.execute(prepared, [Number(key), value], { prepare: true });
      return {};
    },
  };
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(" ");
    try {
      console.log(JSON.stringify(await commands[command](words)));
    } catch (error) {
      console.log(`failed ${error}`);
    }
  }
  await client.shutdown();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
