// Tests a fleet of the legacy JavaScript library (@azure/event-processor-host) from its start to the
// migration to Ephor, step by step. Prints one line for each step: name, `ok` or `failed`, text, seconds.
// Each step depends on the one before: after a failure the rest is skipped.
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual, inspect } from "node:util";
import { account, ephor, NAMESPACE, Ours } from "./ephor_migration.js";
import { completed } from "./azurite_proxy.js";

const STORAGE = process.env.EPHOR_STORAGE; // without anything in front of it, for what is ours
process.env.EPHOR_STORAGE = await completed(process.env.EPHOR_STORAGE);
const { blobs, CHECKPOINT_EVERY, CONTAINER, Host, HUB, leases, PARTITIONS, Sender, wait } = await import("./fleet.js");

const NEW_CONTAINER = "new-fleet"; // of the fleet that goes on
const KEYS = ["epoch", "offset", "owner", "partitionId", "sequenceNumber", "token"];
const sender = new Sender();
const [first, second] = ["first", "second"].map((name) => new Host(name));
let third; // joins later
let beside; // the container while one has been killed and the other goes on
let behind; // the container when all were stopped

function equal(found, expected, what) {
  if (isDeepStrictEqual(found, expected)) return;
  const show = (value) => inspect(value, { depth: 4, breakLength: Infinity }).slice(0, 200);
  throw new Error(`${what}: expected ${show(expected)}, found ${show(found)}`);
}

const range = (from, to) => Array.from({ length: to - from }, (_, index) => from + index);
const owns = (count, ...hosts) => hosts.every((host) => host.owned.length === count);
const owners = (...hosts) => () => `ownership: ${hosts.map((host) => `${host.name} ${host.owned}`).join(", ")}`;

/** Waits until each of these has its share and no partition is with two. */
const shared = (...hosts) =>
  wait(owners(...hosts), () =>
    owns(PARTITIONS.length / hosts.length, ...hosts) && new Set(hosts.flatMap((host) => host.owned)).size === PARTITIONS.length);

/** Every event that was sent was handed to one of these, as it was sent. */
const processed = async (...hosts) => {
  const seen = () => new Set(hosts.flatMap((host) => host.events.map((event) => `${event.partition}/${event.sequence}`)));
  await wait(() => `all ${sender.sent * PARTITIONS.length} events, of which ${seen().size} came`,
    () => seen().size >= sender.sent * PARTITIONS.length);
  equal(seen().size, sender.sent * PARTITIONS.length, "different events");
  for (const host of hosts) {
    for (const { text, sequence } of host.events) equal(text, String(sequence), "text of an event");
  }
};

/** The last checkpoint that has to be stored when all of these events were processed. */
const due = () => sender.sent - (sender.sent % CHECKPOINT_EVERY) - 1;
const stored = () =>
  wait(() => `checkpoints at ${due()}`, async () =>
    Object.values(await leases()).every((lease) => lease.sequenceNumber === due()));

/** No host complained of anything but of checkpoints that came behind the loss of a lease. */
function unharmed(...hosts) {
  const harmless = /lease lost while updating the checkpoint|ignoring out of date checkpoint/i;
  for (const host of hosts) equal(host.errors.filter((text) => !harmless.test(text)), [], `errors of ${host.name}`);
}

async function share() {
  await shared(first, second);
  await sender.send(25);
  await processed(first, second);
  for (const host of [first, second]) {
    for (const partition of host.owned) equal(host.sequences(partition), range(0, 25), `${host.name} of ${partition}`);
  }
  unharmed(first, second);
}

async function store() {
  await stored();
  const records = await leases();
  equal(Object.keys(records).sort(), PARTITIONS, "partitions with a blob");
  for (const host of [first, second]) {
    for (const partition of host.owned) {
      const { owner, epoch, offset } = records[partition];
      const last = host.events.find((event) => event.partition === partition && event.sequence === 24);
      equal({ owner, offset, keys: Object.keys(records[partition]).sort() }, { owner: host.name, offset: last.offset, keys: KEYS },
        `blob of ${partition}`);
      equal(epoch >= 0, true, `epoch ${epoch} of ${partition}`);
    }
  }
}

/** Those of the one that stopped begin behind its checkpoint, to the event; the others go on as if nothing was. */
async function takeOver() {
  await sender.send(3); // behind the checkpoint
  await processed(first, second);
  const moved = [...first.owned];
  const kept = [...second.owned];
  equal(await first.stop(), 0, "end of the one that was stopped");
  await shared(second);
  await sender.send(2);
  await processed(first, second);
  for (const partition of moved) await wait(`30 of ${partition}`, () => second.sequences(partition).at(-1) === 29);
  for (const partition of moved) equal(second.sequences(partition), range(25, 30), `taken over of ${partition}`);
  for (const partition of kept) equal(second.sequences(partition), range(0, 30), `kept of ${partition}`);
  await stored();
  unharmed(first, second);
  return `${moved.length} partitions, each from its checkpoint`;
}

/** What a host was handed of a partition it took from another: from a checkpoint, with no gap behind the other. */
function goesOn(taker, giver, partition) {
  const [begin, last] = [taker.sequences(partition)[0], giver.sequences(partition).at(-1)];
  equal(begin % CHECKPOINT_EVERY, 0, `${taker.name} begins with ${begin} in ${partition}, behind a checkpoint`);
  equal(begin <= last + 1, true, `${taker.name} begins with ${begin} in ${partition}, ${giver.name} ended with ${last}`);
}

/** The one that joins takes leases that are held, each with a higher epoch; the hub ends the receiver of the loser. */
async function steal() {
  const before = await leases();
  third = new Host("third");
  await sender.during(() => shared(second, third));
  await processed(first, second, third);
  await wait("an event of each", () => third.owned.every((partition) => third.sequences(partition).length));
  for (const partition of third.owned) goesOn(third, second, partition);
  const after = await leases();
  for (const partition of third.owned) {
    const { owner, epoch } = after[partition];
    equal([owner, epoch > before[partition].epoch], ["third", true], `owner and higher epoch ${epoch} of ${partition}`);
  }
  unharmed(second, third);
  return `${third.owned.length} partitions, ${sender.sent} events in each`;
}

async function killed() {
  const moved = [...third.owned];
  await third.kill();
  beside = await blobs();
  // What it handed out is known as far as it told; its leases run out by themselves.
  const known = Object.fromEntries(moved.map((partition) => [partition, second.sequences(partition).length]));
  const start = Date.now();
  await sender.during(() => shared(second));
  const seconds = (Date.now() - start) / 1000;
  await processed(first, second, third);
  for (const partition of moved) {
    await wait(`the last of ${partition}`, () => second.sequences(partition).at(-1) === sender.sent - 1);
    const taken = { name: "second", sequences: () => second.sequences(partition).slice(known[partition]) };
    goesOn(taken, third, partition);
  }
  unharmed(second);
  return `${moved.length} partitions after ${seconds.toFixed(0)} s, ${sender.sent} events in each`;
}

/** Nobody is left: the leases are free, the records are as they were written, and lie there for whoever comes next. */
async function left() {
  await sender.send(CHECKPOINT_EVERY - (sender.sent % CHECKPOINT_EVERY) + 2); // two events behind the last checkpoint
  await processed(first, second, third);
  await stored();
  equal(await second.stop(), 0, "end of the last");
  const all = (behind = await blobs());
  equal(all.map((blob) => blob.name), PARTITIONS.map((partition) => `$default/${partition}`), "blobs");
  equal(all.map((blob) => blob.lease), PARTITIONS.map(() => "available"), "state of the leases");
  for (const { text } of all) equal(JSON.parse(text).sequenceNumber, due(), "sequence number");
  const description = { container: CONTAINER, eventsOfEachPartition: sender.sent, checkpoint: due(), stopped: all, oneKilled: beside };
  await writeFile(process.env.EPHOR_KEEP, JSON.stringify(description, null, 2) + "\n");
  return `${all[0].name}: ${all[0].text} ${JSON.stringify(all[0].metadata)}; all in ${process.env.EPHOR_KEEP}`;
}

/** By the two commands that docs/stores.md names; the old container is only read. */
async function export_and_import() {
  const { key, place } = account(STORAGE);
  const group = `${HUB}/$Default`;
  const old = place(CONTAINER, { layout: "eph", namespace: NAMESPACE, hub: HUB });
  const file = join(process.env.EPHOR_FOLDER, "positions.json");
  await writeFile(file, await ephor(key, "checkpoint", "export", group, "--store", old));
  await ephor(key, "checkpoint", "import", group, file, "--store", place(NEW_CONTAINER), "--yes");
  const listed = JSON.parse(await ephor(key, "checkpoint", "list", group, "--store", place(NEW_CONTAINER), "--output", "json"));
  equal(listed.length, PARTITIONS.length, "checkpoints in the new container");
  equal(await blobs(), behind, "the old container");
  return JSON.stringify(listed[0]);
}

/** A host of ours begins behind each checkpoint, to the event, and misses none to the end. */
async function ours() {
  const host = new Ours(STORAGE, NEW_CONTAINER, HUB, CHECKPOINT_EVERY);
  Host.running.add(host);
  await wait(owners(host), () => owns(PARTITIONS.length, host));
  await sender.send(2 * CHECKPOINT_EVERY);
  const last = (partition) => host.sequences(partition).at(-1) ?? -1;
  await wait(() => `the last of each: ${PARTITIONS.map(last)}`, () => PARTITIONS.every((partition) => last(partition) === sender.sent - 1));
  const begin = JSON.parse(behind[0].text).sequenceNumber + 1;
  for (const partition of PARTITIONS) equal(host.sequences(partition), range(begin, sender.sent), `events of ${partition}`);
  for (const { text, sequence } of host.events) equal(text, String(sequence), "text of an event");
  equal(host.errors, [], "errors of our host");
  await host.kill();
  equal(await blobs(), behind, "the old container");
  return `each partition from ${begin} to ${sender.sent - 1}`;
}

const steps = {
  "two hosts share the partitions": share,
  "their checkpoints lie in the blobs": store,
  "one is stopped: the other goes on from its checkpoints": takeOver,
  "one joins under load: it takes half, by higher epochs": steal,
  "one is killed under load: its leases run out, the other goes on": killed,
  "all are stopped: their container stays as it is": left,
  "their positions are exported and imported elsewhere; their container is only read": export_and_import,
  "a host of ours goes on behind their checkpoints, to the event": ours,
};
for (const [name, step] of Object.entries(steps)) {
  const start = Date.now();
  let [result, text] = ["ok", ""];
  try {
    text = (await step()) ?? "";
  } catch (error) {
    [result, text] = ["failed", error.message.replace(/\s+/g, " ").slice(0, 300)];
  }
  console.log([name, result, text, ((Date.now() - start) / 1000).toFixed(1)].join("\t"));
  if (result === "failed") break;
}
for (const host of Host.running) host.kill();
process.exit(0);
