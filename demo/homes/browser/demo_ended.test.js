// Browser tests of the page after the demo has ended: it says so, and updates again when a new demo starts.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Demo, makeFolder, removeFolder } from "./demo.js";
import { count, openBrowser, openWindow, text, until } from "./page_helpers.js";

const SMALL = { homes: 2_000, hosts: 1 };

let folder, demo, browser, window, pages;

before(async () => {
  folder = await makeFolder();
  [demo, browser] = await Promise.all([Demo.start(folder, SMALL), openBrowser()]);
  window = await openWindow(browser, demo.origin);
  await window.context.addInitScript(listenForTheLastWord);
  pages = await Promise.all(["/", "/operator", "/home/7"].map(window.open));
});

after(async () => {
  await browser?.close();
  await demo?.kill();
  await removeFolder(folder);
});

// In the page: notes whether a stream said that it is over, and did not merely break.
function listenForTheLastWord() {
  const Plain = window.EventSource;
  window.EventSource = class extends Plain {
    constructor(...all) {
      super(...all);
      this.addEventListener("end", () => { window.lastWord = true; });
    }
  };
}
const lastWord = (page) => page.evaluate(() => window.lastWord === true);

// The same of all pages, whatever they show.
const all = (what, look, right, seconds) => Promise.all(pages.map((page) => until(what, () => look(page), right, seconds)));
const stream = (page) => page.getAttribute("body", "data-stream");
const banner = (page) => page.locator("#banner").isVisible();

test("a demo that is killed: the page says first that it is not live, then that it has ended", async () => {
  await all("it is live", stream, (stream) => stream === "live");
  await until("readings come", () => count(pages[0], "audit-processed"), (processed) => processed > 0);
  assert.deepEqual(window.wrong, []);
  assert.deepEqual(await Promise.all(pages.map(banner)), [false, false, false]);
  assert.equal(await demo.kill(), "SIGKILL");
  await all("it is not live", (page) => text(page, "stream"), (says) => /^not live for \d+ s$/.test(says));
  await all("it has ended", banner);
  assert.deepEqual(await Promise.all(pages.map(lastWord)), [false, false, false]);
  await pages[1].getByRole("button", { name: "Add a host" }).click();
  await until("the button says so, too", () => text(pages[1], "toast"), (says) => says === "The demo does not answer.");
});

test("another demo at the same address: the page goes on by itself", async () => {
  demo = await Demo.start(folder, { ...SMALL, port: demo.port });
  await all("it is live again", stream, (stream) => stream === "live");
  await all("nobody says that it has ended", banner, (seen) => !seen);
  const sent = await count(pages[0], "audit-sent");
  await until("readings come", () => count(pages[0], "audit-processed"), (processed) => processed > sent);
});

test("Ctrl-C: the page says that it has ended, and nothing is lost", async () => {
  const code = demo.end();
  await all("it has ended", banner);
  assert.deepEqual(await Promise.all(pages.map(lastWord)), [true, true, true], "said, not guessed from silence");
  assert.equal(await code, 0, demo.says);
  assert.match(demo.says, /lost 0, unexpected 0, homes that differ 0/);
  const unanswered = /^(a failed request|console): .*net::ERR_/;
  assert.deepEqual(window.wrong.filter((wrong) => !unanswered.test(wrong)), [], "nothing but that nobody answers");
});
