// Takes the screenshots in docs/pictures: node docs_screenshots.js FOLDER. All show a city of 100,000 homes
// except the page of one home: that needs a day of data, so it comes from a small city whose time runs
// fast.

import { mkdir } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { Screenshots } from "./screenshots.js";
import { Demo, makeFolder, removeFolder } from "./demo.js";
import { PHONE, board, button, openBrowser, openWindow, until } from "./page_helpers.js";

const SCREEN = { width: 1240, height: 850 };
const RUNNING = 75; // seconds until there is something to see
const EVENING = [17 * 60, 23 * 60]; // minutes of the day at which a home's picture is taken

await mkdir(process.argv[2], { recursive: true });
const screenshots = new Screenshots(process.argv[2]);
const folder = await makeFolder();
const browser = await openBrowser();

async function take(demo, name, path, settings, prepare = () => {}) {
  const window = await openWindow(browser, demo.origin, { viewport: SCREEN, ...settings });
  const page = await window.open(path);
  await until("live", () => page.getAttribute("body", "data-stream"), (stream) => stream === "live");
  await prepare(page);
  await sleep(1500); // what is new has come in
  console.log(await screenshots.take(page, name));
  await window.context.close();
}

async function withDemo(options, play) {
  const demo = await Demo.start(folder, options);
  try {
    await play(demo);
  } finally {
    const code = await demo.end();
    console.log(`ended with ${code}: ${demo.says.match(/sent .*/g)?.pop()}`);
  }
}

// A host is killed, and its partitions are with the others, while the new owners catch up.
async function failure(page) {
  const lost = (await board(page)).find(({ name }) => name === "host-3").tiles.length;
  await button(page, "host-3", "Kill").click();
  await until("its leases run out", () => board(page), (columns) => columns.every(({ name }) => name !== "host-3"));
  console.log(`${lost} partitions of host-3 are with others`);
}

// A home of which there is something to tell: movement, an open door, and a short alarm if there is one.
async function told(demo, homes) {
  const minute = async () => (await demo.ask("/api/home/0"))?.minute ?? 0;
  const hours = async () => (await demo.ask("/api/home/0")).today?.filter(Boolean).length ?? 0;
  await until("an evening", async () => [await minute(), await hours()],
    ([now, heard]) => now >= EVENING[0] && now <= EVENING[1] && heard > 480, 400);
  let best = [0, -1];
  for (let number = 0; number < homes; number += 1) {
    const { today } = await demo.ask(`/api/home/${number}`);
    const minutes = (bit) => today.filter((minute) => minute & bit).length;
    const alarm = minutes(8) > 0 && minutes(8) < 60;
    const worth = (alarm ? 1000 : 0) + minutes(2) + minutes(4) * 5;
    if (worth > best[1]) best = [number, worth];
  }
  return best[0];
}

try {
  await withDemo({ homes: 100_000 }, async (demo) => {
    await sleep(RUNNING * 1000);
    await take(demo, "city light", "/", { colorScheme: "light" });
    await take(demo, "city dark", "/", { colorScheme: "dark" });
    await take(demo, "phone", "/", { colorScheme: "light", viewport: PHONE, isMobile: true });
    await take(demo, "operator after a failure", "/operator", { colorScheme: "light", viewport: { ...SCREEN, height: 1150 } }, failure);
  });
  const small = { homes: 300, speed: 300 };
  await withDemo(small, async (demo) => {
    await take(demo, "home", `/home/${await told(demo, small.homes)}`, { colorScheme: "light" });
  });
} finally {
  await browser.close();
  await removeFolder(folder);
}
