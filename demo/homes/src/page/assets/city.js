// The page of the city: the map shows the data of the block under the pointer, and arrow keys move from
// block to block.

import "./shared.js";

const map = document.querySelector("svg.map");
const blocks = [...map.querySelectorAll("a.block")];
const side = Number(map.dataset.side);
const summary = document.getElementById("inspect");
const inspected = document.getElementById("inspected");

function inspect(block) {
  summary.hidden = Boolean(block);
  inspected.hidden = !block;
  if (block) inspected.textContent = block.getAttribute("aria-label");
}

map.addEventListener("pointerover", (event) => inspect(event.target.closest("a.block")));
map.addEventListener("pointerleave", () => inspect(null));
map.addEventListener("focusin", (event) => inspect(event.target.closest("a.block")));
map.addEventListener("focusout", () => inspect(null));

map.addEventListener("keydown", (event) => {
  const at = blocks.indexOf(event.target.closest("a.block"));
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -side, ArrowDown: side }[event.key];
  const next = step && blocks[at + step];
  if (!next) return;
  event.preventDefault();
  blocks[at].setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
});
