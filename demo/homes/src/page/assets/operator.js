// The operator's page: buttons send actions to the server, and show its answer.

import "./shared.js";

const toast = document.getElementById("toast");
let hide = 0;

function say(text, wrong) {
  toast.textContent = text;
  toast.dataset.state = wrong ? "wrong" : "done";
  toast.hidden = false;
  clearTimeout(hide);
  hide = setTimeout(() => { toast.hidden = true; }, 6000);
}

function order(button) {
  const { action, on, milliseconds } = button.dataset;
  const order = { action };
  const host = button.closest("[data-host]")?.dataset.host;
  if (host) order.host = host;
  if (on !== undefined) order.on = on === "true";
  if (milliseconds !== undefined) order.milliseconds = Number(milliseconds);
  return order;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-action]");
  if (!button || button.getAttribute("aria-busy")) return;
  button.setAttribute("aria-busy", "true");
  try {
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch("/api/act", { method: "POST", headers, body: JSON.stringify(order(button)) });
    const { done, error } = await answer.json();
    say(done ?? error, !answer.ok);
  } catch {
    say("The demo does not answer.", true);
  } finally {
    button.removeAttribute("aria-busy");
  }
});
