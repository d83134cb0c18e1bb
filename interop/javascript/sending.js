// Interoperability tests that send events, and that read the runtime properties of hub and partitions.
import { EventHubBufferedProducerClient } from "@azure/event-hubs";
import { CONNECTION, consumer, equal, last, producer, receiving, send, using } from "./client.js";

const HUB = "javascript-sending";
const PARTITIONS = ["0", "1", "2", "3"];
const TEN = Array.from({ length: 10 }, (_, number) => ({ body: `event ${number}` }));
const everywhere = () => Promise.all(PARTITIONS.map((partition) => last(HUB, partition)));
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
export const text = (event) => JSON.parse(event.body.toString());

async function stored(count, act) {
  const before = sum(await everywhere());
  await act();
  equal(sum(await everywhere()) - before, count, "stored:");
}

const sendOne = () => stored(1, () => send(HUB, [{ body: "alone" }]));

const sendBatch = () =>
  stored(102, () =>
    using(producer(HUB), async (client) => {
      const batch = await client.createBatch();
      for (let number = 0; number < 100; number++) equal(batch.tryAdd({ body: `event ${number}` }), true);
      await client.sendBatch(batch);
      await client.sendBatch([{ body: "in a list" }, { body: "of two" }]);
    }),
  );

async function sendWithKey() {
  const before = await everywhere();
  await using(producer(HUB), async (client) => {
    const batch = await client.createBatch({ partitionKey: "a key" });
    for (const event of TEN) equal(batch.tryAdd(event), true);
    await client.sendBatch(batch);
    await client.sendBatch(TEN, { partitionKey: "a key" });
    await client.sendBatch([{ body: "alone" }], { partitionKey: "a key" });
  });
  const after = await everywhere();
  const changed = PARTITIONS.filter((_, n) => after[n] !== before[n]);
  equal(changed.length, 1, "partitions of one key:");
  const [partition] = changed;
  await receiving(HUB, { sequenceNumber: before[partition] }, { partition }, async (receiver) => {
    const events = await receiver.take(21);
    equal(events.map((event) => event.partitionKey), Array(21).fill("a key"), "key:");
    equal(events.map(text), [...TEN, ...TEN, { body: "alone" }].map((event) => event.body), "order:");
  });
}

async function sendToPartition() {
  const before = await last(HUB, "2");
  await using(producer(HUB), async (client) => {
    const batch = await client.createBatch({ partitionId: "2" });
    for (const event of TEN) equal(batch.tryAdd(event), true);
    await client.sendBatch(batch);
    await client.sendBatch([{ body: "alone" }], { partitionId: "2" });
  });
  await receiving(HUB, { sequenceNumber: before }, { partition: "2" }, async (receiver) => {
    const events = await receiver.take(11);
    equal(events.map(text), [...TEN.map((event) => event.body), "alone"], "order:");
    equal(events.map((event) => event.sequenceNumber), events.map((_, n) => before + 1 + n), "sequence:");
    equal(events.every((event) => event.partitionKey == null), true, "no key:");
  });
}

const sendBuffered = () =>
  stored(100, async () => {
    let sent = 0;
    const failed = [];
    const client = new EventHubBufferedProducerClient(CONNECTION, HUB, {
      onSendEventsSuccessHandler: async ({ events }) => void (sent += events.length),
      onSendEventsErrorHandler: async ({ error }) => void failed.push(error),
    });
    for (let n = 0; n < 100; n++) {
      await client.enqueueEvent({ body: `event ${n}` }, { partitionKey: `key ${n % 7}` });
    }
    await client.flush();
    await client.close();
    equal([sent, failed], [100, []], "told:");
  });

async function describeHub() {
  for (const make of [producer, consumer]) {
    await using(make(HUB), async (client) => {
      const found = await client.getEventHubProperties();
      equal(found.name, HUB, "name:");
      equal(found.partitionIds, PARTITIONS, "partitions:");
      equal(found.createdOn.getFullYear() >= 2024, true, "created:");
      equal(await client.getPartitionIds(), PARTITIONS, "partitions:");
    });
  }
}

async function describePartition() {
  await send(HUB, [{ body: "one" }, { body: "two" }], { partitionId: "3" });
  const found = await using(producer(HUB), (client) => client.getPartitionProperties("3"));
  await receiving(HUB, { offset: "-1" }, { partition: "3" }, async (receiver) => {
    const event = (await receiver.take(found.lastEnqueuedSequenceNumber + 1)).at(-1);
    equal([found.eventHubName, found.partitionId], [HUB, "3"], "names:");
    equal([found.beginningSequenceNumber, found.isEmpty], [0, false], "beginning:");
    equal(found.lastEnqueuedSequenceNumber, event.sequenceNumber, "last sequence number:");
    equal(String(found.lastEnqueuedOffset), event.offset, "last offset:");
    equal(found.lastEnqueuedOnUtc, event.enqueuedTimeUtc, "last time:");
  });
}

export default {
  "send one event": sendOne,
  "send a batch without a key": sendBatch,
  "send a batch with a key": sendWithKey,
  "send a batch to a partition": sendToPartition,
  "send through the client's buffer": sendBuffered,
  "describe the hub": describeHub,
  "describe a partition": describePartition,
};
