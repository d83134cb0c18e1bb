// Interoperability tests that send every kind of value (sizes, properties, bodies) and receive it unchanged.
import { equal, last, producer, raises, receiving, send, using } from "./client.js";

const HUB = "javascript-values";
const MEGABYTE = 1_048_000; // of the 1,048,576 that the link takes, with room for the rest of the message

/** The same events after a way through the hub. */
async function through(...events) {
  const before = await last(HUB);
  for (const event of events) await send(HUB, [event], { partitionId: "0" });
  return receiving(HUB, { sequenceNumber: before }, {}, (receiver) => receiver.take(events.length));
}

async function megabyte() {
  const body = Buffer.from(Array.from({ length: MEGABYTE }, (_, n) => (n * 7) % 251));
  const [event] = await through({ body });
  equal(body.equals(event.body), true, "same bytes:");
}

async function tooLarge() {
  const before = await last(HUB);
  const event = { body: Buffer.alloc(1_048_577) };
  await using(producer(HUB), async (client) => {
    const batch = await client.createBatch({ partitionId: "0" });
    equal(batch.tryAdd(event), false, "added:");
    await raises("MessageTooLargeError", false, [], () => client.sendBatch([event], { partitionId: "0" }));
    await client.sendBatch([{ body: "after it" }], { partitionId: "0" });
  });
  equal(await last(HUB), before + 1, "last:");
}

async function largestBatch() {
  const before = await last(HUB);
  const [least, most] = await using(producer(HUB), async (client) => {
    /** A batch of one event; none if the client has no room for it. */
    const batchOf = async (size) => {
      const batch = await client.createBatch({ partitionId: "0" });
      return batch.tryAdd({ body: Buffer.alloc(size) }) ? batch : undefined;
    };
    let [largest, tooLarge] = [0, 1_048_577];
    while (tooLarge - largest > 1) {
      const middle = Math.floor((largest + tooLarge) / 2);
      if (await batchOf(middle)) largest = middle;
      else tooLarge = middle;
    }
    for (const size of [largest - 1, largest]) await client.sendBatch(await batchOf(size));
    return [largest - 1, largest];
  });
  const events = await receiving(HUB, { sequenceNumber: before }, {}, (receiver) => receiver.take(2));
  equal(events.map((event) => event.body.length), [least, most], "sizes:");
}

async function properties() {
  const sent = {
    string: "grün", empty: "", long: "x".repeat(1000), int: 42, negative: -7, large: 2 ** 40, float: 0.1,
    true: true, false: false, date: new Date("2024-02-29T12:30:15.250Z"), bytes: Buffer.from([0, 255]), nothing: null,
  };
  const [event] = await through({ body: "typed", properties: { ...sent } });
  const expected = { ...sent, date: sent.date.getTime() }; // this client gives dates back as milliseconds
  equal(Object.keys(event.properties).sort(), Object.keys(expected).sort(), "names:");
  for (const name in expected) {
    const found = event.properties[name];
    // Of bytes this client makes an object of numbers; so it does with every server.
    equal(name === "bytes" ? Buffer.from(Object.values(found)) : found, expected[name], name);
  }
}

async function systemProperties() {
  const full = {
    body: Buffer.from("full"),
    bodyType: "data",
    properties: {
      messageId: "m", to: "t", subject: "s", replyTo: "r", correlationId: "c", contentType: "ct",
      contentEncoding: "ce", groupId: "g", groupSequence: 3, replyToGroupId: "rg",
    },
  };
  const simple = { body: "x", contentType: "text/x-test", messageId: "message 1", correlationId: 17 };
  const [first, second] = await through(simple, full);
  equal([first.contentType, first.messageId, first.correlationId], ["text/x-test", "message 1", 17]);
  const found = second.getRawAmqpMessage().properties;
  for (const name in full.properties) equal(found[name], full.properties[name], name);
  const annotations = Object.keys(first.getRawAmqpMessage().messageAnnotations).sort();
  const expected = ["x-opt-enqueued-time", "x-opt-offset", "x-opt-sequence-number", "x-opt-sequence-number-epoch"];
  equal(annotations, expected, "annotations:");
}

async function kindsOfBodies() {
  const sent = [
    { bodyType: "data", body: Buffer.from("data") },
    { bodyType: "value", body: { a: [1, true, "x"] } },
    { bodyType: "sequence", body: [[1, "two"], [3.5]] },
    { bodyType: "data", body: Buffer.alloc(0) },
  ];
  const found = (await through(...sent)).map((event) => event.getRawAmqpMessage());
  for (const [n, message] of found.entries()) {
    equal(message.bodyType, sent[n].bodyType, "kind:");
    let body = message.body?.typecode ? message.body.content : message.body; // sequences stay a section here
    if (message.bodyType === "data") body = Buffer.from(body);
    equal(JSON.stringify(body), JSON.stringify(sent[n].body), sent[n].bodyType);
  }
}

export default {
  "an event of 1 MB both ways": megabyte,
  "an event beyond the limit is refused": tooLarge,
  "the largest batch, and one byte less and more": largestBatch,
  "all types of properties unchanged": properties,
  "system properties unchanged": systemProperties,
  "all kinds of bodies unchanged": kindsOfBodies,
};
