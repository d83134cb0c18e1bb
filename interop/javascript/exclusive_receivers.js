// Interoperability tests with several receivers of one partition: which of them the hub admits, and which
// it disconnects.
import { latestEventPosition } from "@azure/event-hubs";
import { equal, isError, Receiver, receiving, send } from "./client.js";

const HUB = "javascript-ownership";
// This client sends no owner level when it is 0, hence 1 is the lowest here.
const STOLEN = ["ReceiverDisconnectedError", false];
const at = (level, act) => receiving(HUB, latestEventPosition, { level }, act);

const steal = (firstLevel, secondLevel) =>
  at(firstLevel, async (first) => {
    await first.attached();
    await at(secondLevel, async (second) => {
      await second.attached();
      isError(await first.error(), ...STOLEN, "New receiver", `higher epoch of '${secondLevel}'`);
      await second.attached();
    });
  });

async function refused(firstLevel, secondLevel, ...words) {
  await at(firstLevel, async (first) => {
    await first.attached();
    await at(secondLevel, async (second) => isError(await second.error(), ...STOLEN, ...words));
    await first.attached();
  });
  await at(secondLevel, (second) => second.attached());
}

async function higher() {
  await steal(3, 4);
  await steal(undefined, 1);
}

async function sixth() {
  const open = () => new Receiver(HUB, latestEventPosition, { group: "six" });
  const five = [];
  try {
    for (let n = 0; n < 5; n++) five.push(await open().attached());
    const sixth = open();
    isError(await sixth.error(), "QuotaExceededError", false, "maximum number of allowed receivers", "which is 5");
    await sixth.close();
    for (const receiver of five) receiver.events.length = 0;
    await send(HUB, [{ body: "for five" }], { partitionId: "0" });
    for (const receiver of five) equal((await receiver.take(1))[0].body.toString(), '"for five"');
    await five.pop().close();
    five.push(await open().attached());
  } finally {
    for (const receiver of five) await receiver.close();
  }
}

export default {
  "an equal owner level steals": () => steal(1, 1),
  "a higher owner level steals": higher,
  "a lower owner level is refused": () => refused(5, 4, "with a higher epoch '5' already exists"),
  "no owner level beside one is refused": () => refused(1, undefined, "non-epoch receiver is not allowed"),
  "the sixth receiver without owner level is refused": sixth,
};
