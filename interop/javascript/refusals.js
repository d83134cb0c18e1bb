// Interoperability tests of operations that the hub refuses, and the error that the client gets.
import { createHmac } from "node:crypto";
import { CONNECTION, consumer, isError, producer, raises, receiving, using } from "./client.js";

const HUB = "javascript-refusals";
const FIELDS = Object.fromEntries(
  CONNECTION.split(";").filter(Boolean).map((part) => [part.split("=", 1)[0], part.slice(part.indexOf("=") + 1)]),
);

const send = ({ hub = HUB, connection, partition }) =>
  using(producer(hub, connection), (client) => client.sendBatch([{ body: "refused" }], { partitionId: partition }));
const describe = ({ hub = HUB, connection }) =>
  using(consumer(hub, undefined, connection), (client) => client.getEventHubProperties());
const receive = (error, { hub = HUB, ...options }) =>
  receiving(hub, { offset: "-1" }, options, async (receiver) => isError(await receiver.error(), ...error));

async function everythingRefused(connection) {
  const error = ["UnauthorizedError", true];
  await raises(...error, [], () => send({ connection }));
  await raises(...error, [], () => describe({ connection }));
  await receive(error, { connection });
}

async function badKey() {
  await everythingRefused(CONNECTION.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=bm90IHRoZSBrZXk="));
  await everythingRefused(CONNECTION.replace(/SharedAccessKeyName=[^;]*/, "SharedAccessKeyName=nobody"));
}

function signature(expiry) {
  const resource = encodeURIComponent(`${FIELDS.Endpoint.replace(/\/$/, "")}/${HUB}`);
  const digest = createHmac("sha256", FIELDS.SharedAccessKey).update(`${resource}\n${expiry}`).digest("base64");
  const name = FIELDS.SharedAccessKeyName;
  const token = `SharedAccessSignature sr=${resource}&sig=${encodeURIComponent(digest)}&se=${expiry}&skn=${name}`;
  return `Endpoint=${FIELDS.Endpoint};SharedAccessSignature=${token};UseDevelopmentEmulator=true`;
}

async function expired() {
  const now = Math.floor(Date.now() / 1000);
  await send({ connection: signature(now + 600) });
  await everythingRefused(signature(now - 600));
}

const runsOut = () => {
  const connection = signature(Math.floor(Date.now() / 1000) + 8);
  return receiving(HUB, { offset: "-1" }, { partition: "3", connection }, async (receiver) => {
    await receiver.attached();
    isError(await receiver.error(), "UnauthorizedError", true);
  });
};

async function unknownHub() {
  const error = ["MessagingEntityNotFoundError", false];
  const words = ["The messaging entity", "could not be found"];
  await raises(...error, words, () => send({ hub: "nowhere" }));
  await raises(...error, words, () => describe({ hub: "nowhere" }));
  await receive([...error, ...words], { hub: "nowhere" });
}

const unknownGroup = () =>
  receive(["MessagingEntityNotFoundError", false, "The messaging entity", "could not be found"], { group: "nobody" });

async function unknownPartition() {
  const error = ["ArgumentOutOfRangeError", false];
  const words = ["The specified partition is invalid", "between 0 and 3"];
  await raises(...error, words, () => send({ partition: "4" }));
  await receive([...error, ...words], { partition: "4" });
}

export default {
  "a bad key": badKey,
  "an expired token": expired,
  "a token that runs out while receiving": runsOut,
  "an unknown hub": unknownHub,
  "an unknown group": unknownGroup,
  "an unknown partition": unknownPartition,
};
