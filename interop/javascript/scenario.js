// Runs the interoperability tests with the JavaScript SDK, and prints one line for each: name, `ok` or
// `failed`, text, seconds.
import exclusiveReceivers from "./exclusive_receivers.js";
import positions from "./positions.js";
import refusals from "./refusals.js";
import restart from "./restart.js";
import secure from "./secure.js";
import sending from "./sending.js";
import values from "./values.js";

const only = process.argv.slice(2);
const all = [sending, positions, values, exclusiveReceivers, refusals, secure, restart];
for (const [name, operation] of all.flatMap(Object.entries)) {
  if (only.length && !only.some((word) => name.includes(word))) continue;
  const start = Date.now();
  let result = "ok";
  let text = "";
  try {
    text = (await operation()) ?? "";
  } catch (caught) {
    const error = caught.errors?.at(-1) ?? caught; // after several tries: what the last one met
    result = "failed";
    text = `${error.code ?? error.name}: ${error.message}`.replace(/\s+/g, " ").slice(0, 300);
  }
  console.log([name, result, text, ((Date.now() - start) / 1000).toFixed(1)].join("\t"));
}
process.exit(0);
