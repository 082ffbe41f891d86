// Serves fixtures.json on 127.0.0.1 and prints its address. Ends with its standard input, so that it
// outlives nobody who started it; without one (`< /dev/null` ends it at once) use a terminal.
//
//   node start.mjs [PORT]      default 0: a free one

import { fileURLToPath } from "node:url";

import { LLMock } from "@copilotkit/aimock";

const mock = new LLMock({
  port: Number(process.argv[2] ?? 0),
  host: "127.0.0.1",
  chunkSize: 12,
  logLevel: "silent",
  strict: true, // what no fixture answers is an error, never a guess
});
mock.loadFixtureFile(fileURLToPath(new URL("fixtures.json", import.meta.url)));
await mock.start();
console.log(`aimock at ${mock.url}`);

const stop = () => mock.stop().finally(() => process.exit(0));
process.on("SIGTERM", stop);
process.on("SIGINT", stop);
process.stdin.on("end", stop).resume();
