// Browser tests of the demo's page in the order of a user's visit: buttons that kill, pause and add hosts,
// and the texts that follow.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Demo, makeFolder, removeFolder } from "./demo.js";
import { DESK, PHONE, board, button, count, openBrowser, openWindow, shares, sideways, text, until } from "./page_helpers.js";
import { Screenshots } from "./screenshots.js";

const HOMES = 50_000;
const RATE = HOMES * 3 / 60;
const RATE_WITH_DETECTORS = HOMES * 4 / 60;

let folder, demo, browser, window, city, operator, screenshots;

before(async () => {
  folder = await makeFolder();
  screenshots = await Screenshots.temporary();
  [demo, browser] = await Promise.all([Demo.start(folder, { homes: HOMES }), openBrowser()]);
  window = await openWindow(browser, demo.origin);
  [city, operator] = [await window.open("/"), await window.open("/operator")];
});

after(async () => {
  await browser?.close();
  await demo?.kill();
  await removeFolder(folder);
  console.log(`pictures of the scenes: ${screenshots.folder}`);
});

// A scene, at whose end nothing went wrong and the auditor has found everything. Each begins where the last one ended.
let broken = false;
const scene = (name, play) => test(name, async (t) => {
  if (broken) return t.skip("an earlier scene failed");
  broken = true;
  await play();
  await accounted();
  await screenshots.take(operator, name);
  assert.deepEqual(window.wrong, []);
  broken = false;
});

// What is lost stays in flight for ever: so what is in flight must become what a second or two brings.
async function accounted() {
  const sent = await count(city, "audit-sent");
  await until("the auditor has all that was sent", async () => ({
    verdict: await city.locator("#audit").getAttribute("data-verdict"),
    sentence: await text(city, "audit-sentence"),
    processed: await count(city, "audit-processed"),
    flying: await count(city, "audit-flight"),
    lost: await text(city, "audit-lost"),
  }), (now) => !now.lost.includes("overdue") && now.verdict === "right" && now.sentence.startsWith("Every reading sent is")
    && now.processed >= sent && now.flying < 2 * RATE);
}

const near = (rate, wanted) => Math.abs(rate - wanted) < wanted / 10;
const both = (wanted) => ([one, other]) => one === wanted && other === wanted;
const column = async (host) => (await board(operator)).find((column) => column.name === host);

// All that a host has, by "group number", with its epochs.
const tilesOf = async (host) => (await column(host))?.tiles ?? [];

// Whether others own these partitions, with higher epochs.
function taken(columns, host, lost) {
  const others = new Map(columns.filter((column) => column.name !== host && column.state === "running")
    .flatMap((column) => column.tiles.map((tile) => [tile.key, tile])));
  return lost.every(({ key, epoch }) => others.get(key)?.epoch > epoch);
}

scene("scale: five hosts share 16 partitions as 4-3-3-3-3", async () => {
  await until("4-3-3-3-3 in both groups", () => shares(operator), both("4-3-3-3-3"));
  const columns = await until("five columns", () => board(operator), (columns) => columns.length === 5);
  assert.deepEqual(columns.map(({ name, state }) => `${name} ${state}`),
    [1, 2, 3, 4, 5].map((number) => `host-${number} running`));
  const tiles = columns.flatMap(({ tiles }) => tiles.map(({ key }) => key));
  assert.equal(tiles.length, 32);
  assert.equal(new Set(tiles).size, 32, "a partition stands in one place only");
  await until(`${RATE} readings a second`, () => count(city, "rate"), (rate) => near(rate, RATE));
  assert.equal(await text(city, "age-says"), "newest reading in the results");
  assert.equal(await count(city, "audit-replayed"), 0);
});

scene("load: a new sensor in every home, three more hosts, and the load spreads", async () => {
  await operator.getByRole("button", { name: "Switch the detectors on" }).click();
  await until("the detectors are on", () => text(operator, "detectors"), (says) => says === "● on");
  await operator.getByRole("button", { name: "Switch the detectors off" }).waitFor();
  // The first by keyboard alone: from the top of the page by Tab, and Enter.
  const focused = () => operator.evaluate(() => document.activeElement.textContent);
  await operator.reload();
  for (let presses = 0; presses < 20 && await focused() !== "Add a host"; presses += 1) await operator.keyboard.press("Tab");
  const outline = await operator.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(outline, "solid", "one sees where one is");
  await operator.keyboard.press("Enter");
  await until("the answer", () => text(operator, "toast"), (says) => says.startsWith("host-6 starts"));
  assert.equal(await focused(), "Add a host");
  for (const host of ["host-7", "host-8"]) {
    await operator.getByRole("button", { name: "Add a host" }).click();
    await until("the answer", () => text(operator, "toast"), (says) => says.startsWith(`${host} starts`));
  }
  await until("two partitions each", () => shares(operator), both("2-2-2-2-2-2-2-2"));
  const cut = () => operator.locator("#board").evaluate((board) => board.scrollWidth - board.clientWidth);
  await until("eight hosts have room, when all tiles have arrived", cut, (pixels) => pixels === 0);
  await until("a third more readings", () => count(city, "rate"), (rate) => near(rate, RATE_WITH_DETECTORS));
  assert.equal(await count(city, "audit-replayed"), 0, "a planned move repeats nothing");
});

scene("resume: a host that is stopped hands over, and nothing is repeated", async () => {
  const lost = await tilesOf("host-2");
  assert.equal(lost.length, 4);
  // Somebody is about to press a key elsewhere: the column of another goes, and this must not take the place away.
  await button(operator, "host-5", "Slow").focus();
  await button(operator, "host-2", "Stop").evaluate((button) => button.click());
  await until("it is over", () => text(operator, "ended"), (says) => says === "○ stopped: host-2");
  await until("others have what it had", () => board(operator), (columns) => taken(columns, "host-2", lost));
  await until("seven hosts share", () => shares(operator), both("3-3-2-2-2-2-2"));
  const focused = await operator.evaluate(() => {
    const { dataset } = document.activeElement;
    return `${document.activeElement.closest("[data-host]")?.dataset.host} ${dataset.action}`;
  });
  assert.equal(focused, "host-5 slow_host", "who works by keyboard stays where they were");
  assert.equal(await count(city, "audit-replayed"), 0, "a stop repeats nothing");
});

scene("failure: a host is killed, and the others take its partitions", async () => {
  const lost = await tilesOf("host-3");
  assert.ok(lost.length >= 4);
  await button(operator, "host-3", "Kill").click();
  await until("the answer", () => text(operator, "toast"), (says) => says.startsWith("host-3 is dead"));
  await until("it is dead", () => text(operator, "ended"), (says) => says.endsWith("✕ dead: host-3"));
  await until("others have what it had", () => board(operator), (columns) => taken(columns, "host-3", lost));
  await until("six hosts share", () => shares(operator), both("3-3-3-3-2-2"));
  const changes = await text(operator, "changes");
  assert.match(changes, /moves from host-3 to host-\d, epoch \d+: its owner stopped renewing/);
});

scene("resume: a host paused beyond its lease is fenced, and begins anew", async () => {
  const lost = await tilesOf("host-4");
  assert.ok(lost.length >= 4);
  await button(operator, "host-4", "Pause").click();
  await until("it is paused", () => column("host-4"), (host) => host.state === "paused");
  await until("others have what it had", () => board(operator), (columns) => taken(columns, "host-4", lost));
  await until("five hosts share", () => shares(operator), both("4-3-3-3-3"));
  assert.deepEqual(await tilesOf("host-4"), []);
  await button(operator, "host-4", "Resume").click();
  await until("six hosts share", () => shares(operator), both("3-3-3-3-2-2"));
  const back = await until("it has a share again", () => column("host-4"), (host) => host.tiles.length >= 4);
  assert.equal(back.state, "running");
  // It learns by its own clock or from the store that its leases are over; its log says which partitions it let go.
  const log = (await readFile(join(folder, "demo", "host-4.log"), "utf8")).split("\n");
  for (const { key } of lost) {
    const [group, partition] = key.split(" ");
    const says = (line) => line.includes(`partition ${partition}:`) && line.includes(`/${group} `) && /fenced|lost/.test(line);
    assert.ok(log.some(says), `${key} in ${log.join("\n")}`);
  }
  const before = new Map(lost.map(({ key, epoch }) => [key, epoch]));
  for (const { key, epoch } of back.tiles) assert.ok(epoch > (before.get(key) ?? 0), `${key}: a new epoch`);
});

scene("resume: the hub is killed and comes back", async () => {
  await operator.getByRole("button", { name: "Restart the hub" }).click();
  await until("the answer", () => text(operator, "toast"), (says) => says.startsWith("the hub was killed and is running again"));
  await until("it is up", () => text(operator, "hub"), (says) => says === "● up");
  const sent = await count(city, "audit-sent");
  await until("sensors go on", () => count(city, "audit-processed"), (now) => now > sent + 2 * RATE);
  await until("the page is live", () => city.getAttribute("body", "data-stream"), (stream) => stream === "live");
  await until("data is new", () => text(city, "age-says"), (says) => says === "newest reading in the results");
  await until("the same hosts share", () => shares(operator), both("3-3-3-3-2-2"));
});

scene("residents: a home by its number, and one with an alarm from the feed", async () => {
  const numbers = Array.from({ length: 200 }, (_, number) => number);
  const number = await until("a home's new detector was heard", async () => {
    for (const number of numbers) if ((await demo.ask(`/api/home/${number}`)).sensors.length === 4) return number;
    return null;
  }, (number) => number !== null);
  const home = await window.open("/");
  await home.getByLabel("Find a home by its number").fill(String(number));
  await home.keyboard.press("Enter");
  await home.getByRole("heading", { level: 1, name: `Home ${number}` }).waitFor();
  assert.equal(new URL(home.url()).pathname, `/home/${number}`);
  const sensors = home.locator("#sensors > li");
  const names = await until("four sensors", () => sensors.locator("h3").allTextContents(), ({ length }) => length === 4);
  assert.ok(names.includes("carbon monoxide"), String(names));
  assert.ok((await sensors.locator(".room").allTextContents()).every(Boolean), "each hangs in a room");
  const minutes = await home.locator("#today").getAttribute("data-minutes");
  const heard = minutes.search(/[1-9a-f]/);
  assert.ok(heard >= 0 && minutes.length === 1440, "the day has minutes in which the home was heard of");
  const strip = await home.locator("#today svg").boundingBox();
  await home.mouse.move(strip.x + (heard + 0.5) / 1440 * strip.width, strip.y + strip.height / 2);
  assert.match(await text(home, "minute"), /^\d\d:\d\d: .*heard/);

  await home.goto("/");
  const alarm = home.locator("#alarms > li[data-state=open] a").first();
  await alarm.waitFor({ timeout: 60_000 });
  const name = await alarm.textContent();
  await alarm.click();
  await home.waitForURL(/\/home\/\d+$/);
  assert.equal((await home.locator("h1").textContent()).toLowerCase(), name);
  assert.match(await text(home, "mood"), /^▲ .+, since /);
  assert.ok(await home.locator("#alarms > li[data-state=open]").count() >= 1);
  await screenshots.take(home, "a home with an alarm");
  await home.close();
});

scene("light, dark, and a phone without sideways scrolling", async () => {
  for (const [look, settings] of [
    ["desk light", { viewport: DESK, colorScheme: "light" }],
    ["desk dark", { viewport: DESK, colorScheme: "dark" }],
    ["phone light", { viewport: PHONE, colorScheme: "light", isMobile: true, hasTouch: true }],
    ["phone dark", { viewport: PHONE, colorScheme: "dark", isMobile: true, hasTouch: true }],
  ]) {
    const other = await openWindow(browser, demo.origin, settings);
    await Promise.all([["city", "/"], ["operator", "/operator"], ["home", "/home/4711"]].map(async ([name, path]) => {
      const page = await other.open(path);
      await until("live", () => page.getAttribute("body", "data-stream"), (stream) => stream === "live");
      assert.equal(await sideways(page), 0, `${name}, ${look}`);
      const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number));
      assert.equal(ground.every((part) => part < 128), settings.colorScheme === "dark", `${name}, ${look}: ${ground}`);
      await screenshots.take(page, `${name} ${look}`);
    }));
    assert.deepEqual(other.wrong, []);
    await other.context.close();
  }
});

test("the end: Ctrl-C, the page says so, nothing is lost", async () => {
  const code = demo.end();
  await until("the page says that it is over", () => city.locator("#banner").isVisible());
  assert.match(await text(city, "banner"), /^The demo has ended/);
  assert.equal(await code, 0, demo.says);
  const [, sent, processed] = demo.says.match(/sent (\d+), processed (\d+), lost 0, unexpected 0, homes that differ 0/) ?? [];
  assert.ok(sent > 0 && sent === processed, demo.says);
  const refused = /ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/;
  assert.deepEqual(window.wrong.filter((wrong) => !refused.test(wrong)), [], "nothing but that nobody answers");
  console.log(demo.says.slice(demo.says.indexOf("sent " + sent)).trim());
});
