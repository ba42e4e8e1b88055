// What a script adds to pages that work without one: a clock, buttons that copy commands, and parts that stay up to date.

import { follow } from "./live.js";
import { considerLimits } from "./limits.js";

const clock = document.getElementById("clock");
let ahead = 0; // of the server's clock, in milliseconds

setInterval(() => {
  if (!document.hidden && ahead !== null) clock.textContent = new Date(Date.now() + ahead).toISOString().slice(11, 19);
}, 500);

// copies puts a button beside each command that has none yet.
function copies(root) {
  for (const box of root.querySelectorAll(".command")) {
    if (box.querySelector(".copy")) continue;
    const text = box.querySelector("code").textContent;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy the command " + text);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(box.querySelector("code"));
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
    box.append(button);
  }
}

copies(document);
for (const form of document.querySelectorAll("[data-limits]")) considerLimits(form);
follow({
  on: "live" in document.body.dataset,
  heard: (time) => { ahead = Date.parse(time) - Date.now(); },
  changed: copies,
});

// A menu closes when one clicks elsewhere, or presses Escape.
const menu = document.querySelector(".menu");
document.addEventListener("click", (e) => { if (!menu.contains(e.target)) menu.open = false; });
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape" && menu.open) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
  if (e.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName) && !e.ctrlKey && !e.metaKey && !e.altKey) {
    e.preventDefault();
    document.getElementById("find").focus();
  }
});
