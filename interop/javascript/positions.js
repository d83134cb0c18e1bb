// Interoperability tests that receive from every kind of start position.
import { earliestEventPosition, latestEventPosition } from "@azure/event-hubs";
import { equal, last, receiving, send, sleep } from "./client.js";

const HUB = "javascript-positions";
const COUNT = 6;
const ALL = [0, 1, 2, 3, 4, 5];
const numbers = (events) => events.map((event) => event.sequenceNumber);

/** Six events in partition 0, each at a time of its own, as they are received from the start. */
async function filled() {
  if ((await last(HUB)) < 0) {
    for (let number = 0; number < COUNT; number++) {
      await send(HUB, [{ body: `event ${number}` }], { partitionId: "0" });
      await sleep(20);
    }
  }
  return receiving(HUB, earliestEventPosition, {}, (receiver) => receiver.take(COUNT));
}

const from = (position, expected) =>
  receiving(HUB, position, {}, async (receiver) =>
    equal(numbers(await receiver.take(expected.length)), expected, `${JSON.stringify(position)}:`),
  );

async function earliest() {
  equal(numbers(await filled()), ALL, "all:");
}

async function latest() {
  await send(HUB, [{ body: "old" }, { body: "old" }], { partitionId: "1" });
  const before = await last(HUB, "1");
  await receiving(HUB, latestEventPosition, { partition: "1" }, async (receiver) => {
    await receiver.attached();
    equal(receiver.events[0].sequenceNumber > before, true, "nothing old:");
  });
  const end = await last(HUB, "1");
  const inclusive = { ...latestEventPosition, isInclusive: true };
  await receiving(HUB, inclusive, { partition: "1" }, async (receiver) =>
    equal(numbers(await receiver.take(1)), [end], "inclusive:"),
  );
}

async function sequenceNumber() {
  await filled();
  await from({ sequenceNumber: 2 }, [3, 4, 5]);
  await from({ sequenceNumber: 2, isInclusive: true }, [2, 3, 4, 5]);
  await from({ sequenceNumber: 0, isInclusive: true }, ALL);
}

async function offset() {
  const { offset } = (await filled())[2];
  await from({ offset }, [3, 4, 5]);
  await from({ offset, isInclusive: true }, [2, 3, 4, 5]);
}

async function enqueuedTime() {
  const events = await filled();
  await from({ enqueuedOn: events[2].enqueuedTimeUtc }, [3, 4, 5]);
  await from({ enqueuedOn: events[2].enqueuedTimeUtc.getTime() - 1 }, [2, 3, 4, 5]);
}

async function allPartitions() {
  await filled();
  await send(HUB, [{ body: "other" }], { partitionId: "1" });
  const expected = (await last(HUB, "0")) + (await last(HUB, "1")) + 2;
  await receiving(HUB, earliestEventPosition, { partition: null }, (receiver) => receiver.take(expected));
}

async function tracking() {
  const event = (await filled()).at(-1);
  await receiving(HUB, earliestEventPosition, { track: true }, async (receiver) => {
    await receiver.take(COUNT);
    const found = receiver.context.lastEnqueuedEventProperties;
    equal(found.sequenceNumber, event.sequenceNumber, "sequence number:");
    equal(String(found.offset), event.offset, "offset:");
    equal(new Date(found.enqueuedOn), event.enqueuedTimeUtc, "time:");
    equal(new Date(found.retrievedOn) >= event.enqueuedTimeUtc, true, "retrieval time:");
  });
}

export default {
  "receive from earliest": earliest,
  "receive from latest": latest,
  "receive from a sequence number": sequenceNumber,
  "receive from an offset": offset,
  "receive from an enqueued time": enqueuedTime,
  "receive all partitions at once": allPartitions,
  "know the last enqueued event while receiving": tracking,
};
