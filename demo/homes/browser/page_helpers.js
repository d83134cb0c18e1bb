// Test helpers: open the browser and pages, record every error of a page, and read the text on it.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
  "--disable-sync", "--no-first-run"];
const PATIENCE = 60; // seconds until what should be seen is seen

export const DESK = { width: 1280, height: 860 };
export const PHONE = { width: 390, height: 844 };

export const openBrowser = () =>
  chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });

// Whoever leaves a page ends its stream: that is no failure.
const left = (request) =>
  new URL(request.url()).pathname.startsWith("/live/") && request.failure()?.errorText === "net::ERR_ABORTED";

// A window on one origin. `wrong` gets all that must not be: errors, failures, requests that go elsewhere.
export async function openWindow(browser, origin, settings = {}) {
  const context = await browser.newContext({ viewport: DESK, colorScheme: "light", baseURL: origin, ...settings });
  const wrong = [];
  const note = (what) => wrong.push(what);
  context.on("request", (request) => {
    if (new URL(request.url()).origin !== origin) note(`a request to another origin: ${request.url()}`);
  });
  context.on("requestfailed", (request) => {
    if (!left(request)) note(`a failed request: ${request.url()} ${request.failure()?.errorText}`);
  });
  context.on("response", (response) => {
    if (response.status() >= 400) note(`${response.status()} for ${response.url()}`);
  });
  context.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) note(`console: ${message.text()}`);
  });
  context.on("weberror", (error) => note(`JavaScript: ${error.error().stack}`));
  return { context, wrong, open: async (path) => opened(await context.newPage(), path) };
}

async function opened(page, path) {
  await page.goto(path);
  return page;
}

// Looks again and again until `right` is true of what `look` gives; says what it saw if that never is.
export async function until(what, look, right = Boolean, seconds = PATIENCE) {
  let seen;
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await sleep(150)) {
    seen = await look();
    if (right(seen)) return seen;
  }
  return assert.fail(`not within ${seconds} s: ${what}; seen last: ${JSON.stringify(seen)}`);
}

export const text = (page, id) => page.evaluate((id) => document.getElementById(id).textContent, id);

// "1,204" as a number.
export const count = async (page, id) => Number((await text(page, id)).replaceAll(",", ""));

// The board as it stands there: the columns, and every partition in them.
export const board = (page) => page.evaluate(() => {
  const said = (node, part) => node.querySelector(`[data-part="${part}"]`).textContent;
  return [...document.querySelectorAll("#board > .column")].map((column) => ({
    name: said(column, "name"),
    state: column.dataset.state,
    tiles: [...column.querySelectorAll(".share")].flatMap((share) =>
      [...share.querySelectorAll(".tile")].map((tile) => ({
        key: `${said(share, "group")} ${said(tile, "id")}`,
        epoch: Number(said(tile, "epoch").slice(1)),
        state: tile.dataset.state,
      }))),
  }));
});

// "4-3-3-3-3" of each group, as the sentences above the board say it, if all 16 partitions have owners.
export const shares = async (page) => {
  const sentences = [await text(page, "says-consolidate"), await text(page, "says-alarms")];
  return sentences.map((sentence) => sentence.match(/^16 of 16 partitions owned \(([\d-]+)\)/)?.[1] ?? sentence);
};

// The button of a host.
export const button = (page, host, name) =>
  page.locator(`#board > [data-host="${host}"]`).getByRole("button", { name, exact: true });

export const sideways = (page) =>
  page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
