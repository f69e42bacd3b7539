#!/usr/bin/env bash
# cassandra-driver 4.8.0 for Node.js: `for await` over a result whose first page is empty and that has more pages.
# Expected: the rows of the next page. Seen: no row, and the next page is never asked for, though isPaged() is true.
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf -- "$home"' EXIT
cd "$home"
npm init -y >/dev/null
npm install --silent cassandra-driver@4.8.0 >/dev/null
node - <<'NODE'
const ResultSet = require('cassandra-driver/lib/types/result-set');
const assert = require('assert');

/** A first page with these rows, and one more page with a row. */
function pages(rows) {
  const result = new ResultSet({ rows, meta: { pageState: Buffer.from('01', 'hex') } }, null, {}, 0, 1, true);
  result.asked = 0;
  result.nextPageAsync = () => {
    result.asked += 1;
    return Promise.resolve({ rows: [{ v: 7 }], rawPageState: undefined });
  };
  return result;
}

(async () => {
  for (const [rows, expected, asked] of [[[{ v: 1 }], [1, 7], 1], [[], [], 0]]) {
    const result = pages(rows), found = [];
    for await (const row of result) found.push(row.v);
    console.log(`first page of ${rows.length} rows: paged ${result.isPaged()}, found`, found, `asked for ${result.asked} more pages`);
    assert.deepStrictEqual([result.isPaged(), found, result.asked], [true, expected, asked], 'the behaviour has changed');
  }
})().catch(error => { console.error(error); process.exit(1); });
NODE
