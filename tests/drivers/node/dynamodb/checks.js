"use strict";

// Runs the checks in order, prints one line for each, and ends the program at the first that fails.
exports.run = async (checks) => {
  for (const [what, check] of Object.entries(checks)) {
    try {
      await check();
    } catch (error) {
      console.log(`failed: ${what}`);
      console.log(error);
      process.exit(1);
    }
    console.log(`ok: ${what}`);
  }
  console.log("all as it should be");
};

// Each SDK needs a region and credentials; a node without authorization ignores them.
exports.settings = (endpoint) => ({
  endpoint,
  region: "us-east-1",
  credentials: { accessKeyId: "any", secretAccessKey: "any" },
});
