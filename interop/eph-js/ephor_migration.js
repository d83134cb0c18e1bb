// The migration from the legacy library to Ephor: the `ephor` command that imports the checkpoints, and an
// Ephor host.
import { execFile, spawn } from "node:child_process";
import { openSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

const { EPHOR_CONNECTION, EPHOR_FOLDER, EPHOR_OUR_HOST, EPHOR_PROGRAM } = process.env;
const PATIENCE = 30000; // milliseconds for one command

/** The namespace as hosts of ours name it: without the port. */
export const NAMESPACE = EPHOR_CONNECTION.match(/Endpoint=sb:\/\/([^:;/]+)/)[1];

/** The account in a connection string as a URL, and the key that opens it. */
export function account(connection) {
  const [, name] = connection.match(/AccountName=([^;]+)/);
  const [, key] = connection.match(/AccountKey=([^;]+)/);
  const [, endpoint] = connection.match(/BlobEndpoint=([^;]+)/);
  const place = (container, more = {}) => `azblob://${name}/${container}?${new URLSearchParams({ endpoint, ...more })}`;
  return { key, place };
}

/** One `ephor` command, as a person types it; gives what it prints, and fails when it does. */
export async function ephor(key, ...words) {
  const environment = { ...process.env, AZURE_STORAGE_KEY: key };
  const { stdout } = await promisify(execFile)(EPHOR_PROGRAM, words, { env: environment, timeout: PATIENCE });
  return stdout;
}

/** A host of ours on a container of its own. It has the part of a host of the old fleet that the steps look at. */
export class Ours {
  constructor(connection, container, hub, every) {
    this.name = "ephor";
    this.owned = [];
    this.events = [];
    this.errors = [];
    const variables = {
      EPHOR_STORAGE: connection, MIXED_CONTAINER: container, MIXED_HUB: hub, MIXED_CHECKPOINT_EVERY: String(every),
      MIXED_SHARED_WITH: "ephor", RUST_LOG: "trace",
    };
    const log = openSync(join(EPHOR_FOLDER, "ours.log"), "w");
    this.process = spawn(EPHOR_OUR_HOST, { env: { ...process.env, ...variables }, stdio: ["ignore", "pipe", log] });
    this.ended = new Promise((done) => this.process.once("exit", (code, signal) => done(signal ?? code)));
    createInterface(this.process.stdout).on("line", (line) => this.read(JSON.parse(line)));
  }

  read(told) {
    if (told.begun) this.owned.push(told.begun);
    else if (told.ended) this.owned = this.owned.filter((partition) => partition !== told.ended);
    else if (told.error) this.errors.push(told.error);
    else this.events.push(told);
  }

  sequences(partition) {
    return this.events.filter((event) => event.partition === partition).map((event) => event.sequence);
  }

  kill() {
    this.process.kill("SIGKILL");
    return this.ended;
  }
}
