// Prints one line for each model request that aimock has seen: its number, how many messages it held,
// and whether it asked for a stream.
//
//   node requests.mjs URL

const url = process.argv[2];
if (!url) {
  console.error("usage: node requests.mjs URL");
  process.exit(2);
}
const answer = await fetch(`${url}/__aimock/journal`, { signal: AbortSignal.timeout(10_000) });
if (!answer.ok) {
  console.error(`aimock answered ${answer.status}`);
  process.exit(1);
}
const journal = await answer.json();
const entries = Array.isArray(journal) ? journal : journal.entries ?? journal.requests;
entries
  .filter((entry) => entry.path.endsWith("/chat/completions"))
  .forEach(({ body }, index) => {
    const kind = body.stream ? "streamed" : "whole";
    console.log(`${index + 1} model=${body.model} messages=${body.messages.length} ${kind}`);
  });
