// Helpers of the scenario: hosts of the legacy JavaScript library as child processes, a sender, and the
// blobs of their container.
import events from "@azure/event-hubs";
import storage from "azure-storage";
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

export const HUB = "eph-js-leases";
export const PARTITIONS = ["0", "1", "2", "3", "4", "5", "6", "7"];
export const CONTAINER = "old-fleet";
export const STORAGE = process.env.EPHOR_STORAGE;
/** The library takes no port and no emulator: always TLS to 5671. Hence an address of its own. */
const [ADDRESS] = process.env.EPHOR_TLS.split(":");
export const CONNECTION = process.env.EPHOR_CONNECTION.replace(/Endpoint=[^;]*/, `Endpoint=sb://${ADDRESS}/`)
  .replace(/;UseDevelopmentEmulator=true/, "");
export const CHECKPOINT_EVERY = 5;
const PATIENCE = 60000; // milliseconds until something that should happen counts as failed
const PROGRAM = fileURLToPath(new URL("host.js", import.meta.url));

export const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

export async function wait(what, condition) {
  const end = Date.now() + PATIENCE;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`waited ${PATIENCE / 1000} s for ${typeof what === "string" ? what : what()}`);
    await sleep(50);
  }
}

export class Host {
  static running = new Set();

  constructor(name) {
    this.name = name;
    this.owned = [];
    this.events = [];
    this.errors = [];
    this.process = fork(PROGRAM, [name], { stdio: ["ignore", "ignore", "inherit", "ipc"] });
    this.ended = new Promise((done) => this.process.once("exit", (code, signal) => done(signal ?? code)));
    Host.running.add(this);
    this.ended.then(() => Host.running.delete(this));
    this.process.on("message", ({ event, owned, error }) => {
      if (event) this.events.push(event);
      if (owned) this.owned = owned;
      if (error) this.errors.push(error);
    });
  }

  /** The sequence numbers it was handed of a partition, in order. */
  sequences(partition) {
    return this.events.filter((event) => event.partition === partition).map((event) => event.sequence);
  }

  stop() {
    this.process.send("stop");
    return this.ended;
  }

  kill() {
    this.process.kill("SIGKILL");
    return this.ended;
  }
}

/** Sends to every partition; the text of an event is its own sequence number. */
export class Sender {
  constructor() {
    this.client = events.EventHubClient.createFromConnectionString(CONNECTION, HUB);
    this.sent = 0; // of each partition
  }

  async send(count) {
    const bodies = Array.from({ length: count }, (_, index) => ({ body: Buffer.from(String(this.sent + index)) }));
    await Promise.all(PARTITIONS.map((partition) => this.client.sendBatch(bodies, partition)));
    this.sent += count;
  }

  /** Goes on until `act` is done. */
  async during(act) {
    let done = false;
    const acting = act().finally(() => (done = true));
    const sending = async () => {
      while (!done) {
        await this.send(1);
        await sleep(100);
      }
    };
    await Promise.all([acting, sending()]);
  }
}

const service = storage.createBlobService(STORAGE);
const call = (name) => promisify(service[name]).bind(service);

/** Every blob of the container: its name, what it says of its lease and owner, and its text. */
export async function blobs() {
  const { entries } = await call("listBlobsSegmented")(CONTAINER, null, { include: "metadata" });
  return Promise.all(entries.map(async ({ name, etag, lastModified, lease, metadata, contentSettings }) => ({
    name,
    etag,
    lastModified,
    lease: lease?.state,
    metadata,
    type: contentSettings?.contentType,
    text: await call("getBlobToText")(CONTAINER, name),
  })));
}

/** What the blob of each partition says. */
export async function leases() {
  return Object.fromEntries((await blobs()).map(({ text }) => [JSON.parse(text).partitionId, JSON.parse(text)]));
}
