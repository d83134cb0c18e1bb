// Code that all pages share: receives server-sent events, and puts their values into the elements of the
// page, only as text.

const still = matchMedia("(prefers-reduced-motion: reduce)");

function setText(node, text) {
  if (node && node.textContent !== text) node.textContent = text;
}

function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (!node || node.getAttribute(name) === value) continue;
    if (value === null) node.removeAttribute(name);
    else node.setAttribute(name, value);
  }
}

// Makes the rows of a list what they should be. A row keeps its element, wherever it goes.
function setRows(list, rows, kept) {
  const template = document.getElementById(list.dataset.template).content.firstElementChild;
  // What goes, goes first: then what stays need not move, and keeps the focus.
  const keys = new Set(rows.map((row) => row.key));
  for (const node of [...list.children]) if (!keys.has(node.dataset.key)) node.remove();
  rows.forEach((row, at) => {
    const node = kept.get(row.key) ?? template.cloneNode(true);
    node.dataset.key = row.key;
    if (list.children[at] !== node) list.insertBefore(node, list.children[at] ?? null);
    setAttributes(node, row.attributes);
    const own = (part) => node.querySelector(`[data-part="${part}"]`);
    for (const [part, text] of Object.entries(row.texts)) setText(own(part), text);
    for (const [part, attributes] of Object.entries(row.parts)) setAttributes(own(part), attributes);
    const inner = node.querySelector("[data-rows]");
    if (inner) setRows(inner, row.rows, kept);
  });
  while (list.children.length > rows.length) list.lastElementChild.remove();
}

function setList(list, rows) {
  const nodes = [...list.querySelectorAll("[data-key]")];
  const kept = new Map(nodes.map((node) => [node.dataset.key, node]));
  const moves = list.dataset.moves && !still.matches;
  const before = moves ? new Map(nodes.map((node) => [node, [node.parentNode, node.getBoundingClientRect()]])) : null;
  setRows(list, rows, kept);
  if (moves) for (const [node, [parent, from]] of before) move(node, parent, from);
  if (list.dataset.news && nodes.length && !still.matches) {
    for (const node of list.children) {
      if (!kept.has(node.dataset.key)) node.animate({ opacity: [0, 1], transform: ["translateY(-6px)", "none"] }, 400);
    }
  }
}

// Lets a tile that changed its column glide from where it was.
function move(node, parent, from) {
  if (!node.isConnected || node.parentNode === parent) return;
  const to = node.getBoundingClientRect();
  const start = `translate(${from.left - to.left}px, ${from.top - to.top}px)`;
  node.animate({ transform: [start, "none"] }, { duration: 600, easing: "cubic-bezier(.3, 0, .1, 1)" });
}

function show(shown) {
  for (const [id, text] of Object.entries(shown.texts)) setText(document.getElementById(id), text);
  for (const [id, attributes] of Object.entries(shown.attributes)) setAttributes(document.getElementById(id), attributes);
  for (const [id, rows] of Object.entries(shown.lists)) {
    const list = document.getElementById(id);
    if (list) setList(list, rows);
  }
}

// The stream. While the page cannot be seen it is closed: a browser has only few connections to give.
const AGAIN = 3000;
const ENDED = 10000;
const path = document.body.dataset.live;
let source = null;
let heard = performance.now();
let ended = false;

function listen() {
  source?.close();
  source = new EventSource(path);
  source.addEventListener("message", (event) => {
    heard = performance.now();
    ended = false;
    show(JSON.parse(event.data));
    tell();
  });
  source.addEventListener("end", () => {
    ended = true;
    tell();
  });
  source.addEventListener("open", () => { heard = performance.now(); });
  source.addEventListener("error", tell);
}

// Says how the stream is: live, waiting (with the age of what is shown), or ended.
function tell() {
  const open = source?.readyState === EventSource.OPEN;
  const quiet = performance.now() - heard;
  const stream = open && !ended ? "live" : ended || quiet > ENDED ? "ended" : "waiting";
  document.body.dataset.stream = stream;
  const seconds = Math.round(quiet / 1000);
  setText(document.getElementById("stream"), stream === "live" ? "live" : `not live for ${seconds} s`);
  const banner = document.getElementById("banner");
  banner.hidden = stream !== "ended";
  setText(banner, "The demo has ended, and this page shows its last state. The page continues when the demo starts again.");
}

if (path) {
  listen();
  setInterval(() => {
    if (document.hidden) return;
    if (source.readyState !== EventSource.OPEN) tell();
  }, 1000);
  // A browser that was refused does not try again by itself.
  setInterval(() => {
    if (!document.hidden && source.readyState === EventSource.CLOSED) listen();
  }, AGAIN);
  document.addEventListener("visibilitychange", () => (document.hidden ? source.close() : listen()));
}
