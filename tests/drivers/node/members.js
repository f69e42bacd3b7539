// The nodes that the Node.js driver knows and takes for up: members.js HOST PORT. It prints them whenever it reads a line.
"use strict";

const readline = require("node:readline");
const cassandra = require("cassandra-driver");

async function main([host, port]) {
  const client = new cassandra.Client({
    contactPoints: [`${host}:${port}`],
    localDataCenter: "datacenter1",
    // The driver takes this port for the nodes that it finds in system.peers.
    protocolOptions: { port: Number(port) },
  });
  await client.connect();
  for await (const _ of readline.createInterface({ input: process.stdin })) {
    const up = client.hosts.values().filter((node) => node.isUp());
    const shown = up.map((node) => `${node.hostId}=${node.address.slice(0, node.address.lastIndexOf(":"))}`);
    console.log(`known ${shown.join(" ")}`);
  }
  await client.shutdown();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
