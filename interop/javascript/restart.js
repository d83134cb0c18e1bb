// Interoperability tests while the server is killed and started again on the same data and port.
import { createInterface } from "node:readline";
import { CONNECTION, equal, last, producer, receiving, using, wait } from "./client.js";

const HUB = "javascript-restart";
const PATIENT = { retryOptions: { maxRetries: 100, retryDelayInMs: 100, maxRetryDelayInMs: 200, timeoutInMs: 2000 } };
const number = (event) => JSON.parse(event.body.toString());
const upTo = (end) => Array.from({ length: end }, (_, n) => n);

let answers;
/** Asks the runner, which owns the server, and waits until it is back. */
async function restartServer() {
  answers ??= createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  console.log("restart");
  equal((await answers.next()).value, "restarted");
}

const living = (partition, act) =>
  receiving(HUB, { offset: "-1" }, { partition, options: PATIENT }, (receiver) =>
    using(producer(HUB, CONNECTION, PATIENT), (client) =>
      act(receiver, (body) => client.sendBatch([{ body }], { partitionId: partition })),
    ),
  );

/** Both clients live through it; every event arrives once. */
const idle = () =>
  living("0", async (receiver, send) => {
    for (let n = 0; n < 20; n++) await send(n);
    await receiver.take(20);
    await restartServer();
    for (let n = 20; n < 40; n++) await send(n);
    const events = await receiver.take(40);
    equal(events.map(number), upTo(40), "events:");
    equal(events.map((event) => event.sequenceNumber), upTo(40), "sequence:");
  });

/** Killed three times. Repeats come only from the client: a sender that tries again. */
async function busy() {
  const kills = 3;
  const acknowledged = [];
  let stop = false;
  let failed;
  let end;
  await living("1", async (receiver, send) => {
    const sender = (async () => {
      for (let n = 0; !stop; n++) {
        await send(n);
        acknowledged.push(n);
      }
    })().catch((error) => (failed = error));
    for (let n = 0; n <= kills; n++) {
      const count = acknowledged.length;
      await wait("50 sends", () => failed || acknowledged.length >= count + 50);
      if (n < kills) await restartServer();
    }
    stop = true;
    await sender;
    if (failed) throw failed;
    end = await last(HUB, "1");
    await wait("all events", () => receiver.errors.length || receiver.events.length > end);
    if (receiver.errors.length) throw receiver.errors[0];
    equal(receiver.events.map((event) => event.sequenceNumber), upTo(end + 1), "handed out:");
  });
  return receiving(HUB, { offset: "-1" }, { partition: "1" }, async (receiver) => {
    const stored = (await receiver.take(end + 1)).map(number);
    equal([...new Set(stored)], acknowledged, "stored and acknowledged:");
    const twice = stored.length - acknowledged.length;
    if (twice > kills) throw new Error(`${twice} events stored twice by ${kills} kills`);
    return `${acknowledged.length} sent, ${twice} stored twice by a retry, 0 handed out twice`;
  });
}

export default {
  "killed and restarted while idle": idle,
  "killed and restarted while sending and receiving": busy,
};
