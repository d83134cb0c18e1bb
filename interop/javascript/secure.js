// Interoperability tests over TLS, with the certificate that the server generated. Node reads
// NODE_EXTRA_CA_CERTS when it starts, so the client that does not trust the certificate is a process of its
// own.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { CONNECTION, consumer, equal, producer, receiving, using } from "./client.js";

const HUB = "javascript-tls";
const [ADDRESS, PORT] = process.env.EPHOR_TLS.split(":");
const RETRY = { retryOptions: { maxRetries: 0, timeoutInMs: 5000 } };

/** The connection string of this host, with TLS. */
const over = (host) => CONNECTION.replace(/sb:\/\/[^;/]*/, `sb://${host}:${PORT}`).replace(/UseDevelopmentEmulator=true;?/, "");
const secure = (host = "localhost") => producer(HUB, over(host), RETRY);
const last = () =>
  using(secure(), async (client) => (await client.getPartitionProperties("0")).lastEnqueuedSequenceNumber);
const received = (sequenceNumber, count) =>
  receiving(HUB, { sequenceNumber }, { connection: over("localhost") }, (receiver) => receiver.take(count));

async function describe() {
  for (const host of ["localhost", ADDRESS]) {
    await using(secure(host), async (client) => {
      equal((await client.getEventHubProperties()).partitionIds, ["0"], "partitions:");
      equal((await client.getPartitionProperties("0")).partitionId, "0", "partition:");
    });
  }
  await using(consumer(HUB, "$Default", over("localhost")), async (client) =>
    equal(await client.getPartitionIds(), ["0"], "partitions:"),
  );
}

async function sendAndReceive() {
  const before = await last();
  const events = Array.from({ length: 100 }, (_, number) => ({ body: `event ${number}` }));
  await using(secure(), async (client) => {
    const batch = await client.createBatch({ partitionId: "0" });
    for (const event of events) equal(batch.tryAdd(event), true);
    await client.sendBatch(batch);
  });
  const found = await received(before, 100);
  equal(found.map((event) => JSON.parse(event.body.toString())), events.map((event) => event.body), "received:");
}

async function megabyte() {
  const before = await last();
  const body = Buffer.from(Array.from({ length: 1_048_000 }, (_, n) => (n * 7) % 251));
  await using(secure(), (client) => client.sendBatch([{ body }], { partitionId: "0" }));
  equal(body.equals((await received(before, 1))[0].body), true, "same bytes:");
}

async function untrusted() {
  const { NODE_EXTRA_CA_CERTS, ...env } = process.env;
  const { stdout } = await promisify(execFile)(process.execPath, [fileURLToPath(import.meta.url), "alone"], { env });
  if (!stdout.includes("self-signed certificate")) throw new Error(`without trust: ${stdout}`);
}

if (process.argv[2] === "alone") {
  await using(secure(), (client) => client.getEventHubProperties()).then(
    () => console.log("connected"),
    (error) => console.log(error.message),
  );
  process.exit(0);
}

export default {
  "over TLS: describe the hub": describe,
  "over TLS: send a batch and receive it": sendAndReceive,
  "over TLS: an event of 1 MB both ways": megabyte,
  "over TLS: a certificate that is not trusted": untrusted,
};
