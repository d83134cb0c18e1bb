// Helpers of every operation: clients with short timeouts, and a receiver that runs in the background.
import { EventHubConsumerClient, EventHubProducerClient } from "@azure/event-hubs";
import { isDeepStrictEqual, inspect } from "node:util";

export const CONNECTION = process.env.EPHOR_CONNECTION;
const PATIENCE = 60000; // milliseconds until something that should happen counts as failed: a token ends 30 s late
const FAST = { retryOptions: { maxRetries: 0, retryDelayInMs: 50, timeoutInMs: 10000 } };

export const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

export function producer(hub, connection = CONNECTION, options = FAST) {
  return new EventHubProducerClient(connection, hub, options);
}

export function consumer(hub, group = "$Default", connection = CONNECTION, options = FAST) {
  return new EventHubConsumerClient(group, connection, hub, options);
}

/** Runs `act` with a client and closes the client. */
export async function using(client, act) {
  try {
    return await act(client);
  } finally {
    await client.close();
  }
}

export const send = (hub, events, options) =>
  using(producer(hub), (client) => client.sendBatch(events, options));

export async function wait(what, condition) {
  const end = Date.now() + PATIENCE;
  while (!condition()) {
    if (Date.now() > end) throw new Error(`waited ${PATIENCE / 1000} s for ${what}`);
    await sleep(10);
  }
}

/** The sequence number of the last event, -1 if there is none. */
export const last = (hub, partition = "0") =>
  using(producer(hub), async (client) => (await client.getPartitionProperties(partition)).lastEnqueuedSequenceNumber);

export function equal(found, expected, what = "") {
  if (isDeepStrictEqual(found, expected)) return;
  const show = (value) => inspect(value).slice(0, 200);
  throw new Error(`${what} expected ${show(expected)}, found ${show(found)}`);
}

/** One partition, received beside the test: `events` and `errors` grow. */
export class Receiver {
  constructor(hub, position, { partition = "0", group, level, connection, options, track = false } = {}) {
    this.hub = hub;
    this.partition = partition;
    this.events = [];
    this.errors = [];
    this.client = consumer(hub, group, connection, options);
    this.subscription = this.client.subscribe(
      ...(partition === null ? [] : [partition]), // null: all of them
      {
        processEvents: async (events, context) => {
          this.events.push(...events);
          this.context = context;
        },
        processError: async (error) => void this.errors.push(error),
      },
      {
        startPosition: position,
        ownerLevel: level,
        maxBatchSize: 50,
        maxWaitTimeInSeconds: 0.2,
        trackLastEnqueuedEventProperties: track,
        skipParsingBodyAsJson: true,
      },
    );
  }

  async close() {
    await this.subscription.close();
    await this.client.close();
  }

  async take(count) {
    await wait(`${count} events`, () => this.errors.length || this.events.length >= count);
    if (this.errors.length) throw this.errors[0];
    equal(this.events.length, count, "number of events:");
    return this.events;
  }

  /** Until the link is open, which shows when it receives what is sent now. */
  async attached() {
    await using(producer(this.hub), async (client) => {
      const end = Date.now() + PATIENCE;
      const before = this.events.length;
      while (this.events.length === before && !this.errors.length) {
        if (Date.now() > end) throw new Error("waited for a receiver to open");
        await client.sendBatch([{ body: "are you there?" }], { partitionId: this.partition });
        await sleep(50);
      }
    });
    if (this.errors.length) throw this.errors[0];
    return this;
  }

  async error() {
    await wait("an error", () => this.errors.length);
    return this.errors[0];
  }
}

export const receiving = (hub, position, options, act) => using(new Receiver(hub, position, options), act);

/** The same error as PROTOCOL lists: its code, whether it may be tried again, and words of its text. */
export function isError(error, code, retryable, ...words) {
  equal([error.code ?? error.name, error.retryable], [code, retryable], `${error.message}:`.slice(0, 300));
  for (const word of words) {
    if (!error.message.includes(word)) throw new Error(`'${word}' is not in: ${error.message}`);
  }
}

export async function raises(code, retryable, words, act) {
  let error;
  try {
    await act();
  } catch (caught) {
    error = caught;
  }
  if (!error) throw new Error(`no ${code} was raised`);
  isError(error, code, retryable, ...words);
}
