// The page of one home: shows the data of the minute under the pointer.

import "./shared.js";

const MINUTES = 1440;
const NAMES = [[8, "an alarm"], [4, "door open"], [2, "movement"], [1, "heard"]];
const strip = document.getElementById("today");
const chart = strip.querySelector("svg");
const line = document.getElementById("minute");
const hint = line.textContent;

chart.addEventListener("pointermove", (event) => {
  const box = chart.getBoundingClientRect();
  const at = Math.floor(((event.clientX - box.left) / box.width) * MINUTES);
  const minute = Math.min(Math.max(at, 0), MINUTES - 1);
  const bits = parseInt(strip.dataset.minutes[minute] ?? "0", 16);
  const names = NAMES.filter(([bit]) => bits & bit).map(([, name]) => name);
  const clock = [Math.floor(minute / 60), minute % 60].map((part) => String(part).padStart(2, "0")).join(":");
  line.textContent = `${clock}: ${names.join(", ") || "nothing"}`;
});
chart.addEventListener("pointerleave", () => { line.textContent = hint; });
