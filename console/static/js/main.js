// Joins the stream to the parts of the page.

import { Blocks } from "./blocks.js";
import { el, set } from "./dom.js";
import { clock } from "./format.js";
import { Hits } from "./hits.js";
import { Live } from "./live.js";
import { Meters } from "./meters.js";
import { Rules } from "./rules.js";
import { hear, now, ticking } from "./time.js";

const find = (id) => document.getElementById(id);
const meters = new Meters(find("meters"));
const rules = new Rules();
const hits = new Hits();
const blocks = new Blocks();

let paused = false;
let link = { name: "connecting", text: "Connecting" };
let heard = ""; // the server's time of the newest pulse
let problems = [];
const held = new Map(); // section → newest frame that came while paused

function status() {
  const shown = paused && link.name === "live" ? { name: "paused", text: "Paused" } : link;
  find("link").dataset.state = shown.name;
  set(find("link-text"), shown.text);
  const lines = problems.map((p) => [el("strong", "", p.part), ` ${p.detail}.`]);
  if (link.name === "lost") {
    lines.unshift([el("strong", "", "The console's server"), ` does not answer: what is shown is from ${heard ? `${clock(heard)} UTC` : "before"}.`]);
  }
  const state = lines.length ? "problem" : heard ? "well" : "wait";
  const text = JSON.stringify([state, lines.map((l) => l.map((part) => part.textContent ?? part))]);
  const box = find("status");
  if (box.dataset.text === text) return;
  box.dataset.text = text;
  box.dataset.state = state;
  const well = state === "well" ? "No problem is reported." : "Waiting for the first word from the server.";
  box.replaceChildren(...(lines.length ? lines : [[well]]).map((line) => el("p", "status-line", ...line)));
}

// stale says beside a section's heading how old it is.
function stale(id, section) {
  const note = find(id);
  note.hidden = !section.stale;
  if (section.stale) set(note, section.stale.since ? `as of ${clock(section.stale.since)} UTC` : "not known");
}

const draw = {
  pulse(pulse) {
    meters.show(pulse);
  },
  rules(section) {
    for (const node of document.querySelectorAll(".period")) set(node, `${section.minutes} minutes`);
    rules.show(section);
    hits.offer(section.rules);
    stale("rules-stale", section);
  },
  hits(section) {
    hits.show(section);
    stale("over-stale", section);
  },
  blocks(section) {
    blocks.show(section);
    stale("blocks-stale", section);
  },
};

function take(name, section) {
  if (paused) held.set(name, section);
  else draw[name](section);
}

new Live("/api/v1/stream", {
  state(name, text) {
    link = { name, text };
    status();
  },
  pulse(pulse) {
    heard = pulse.at;
    problems = pulse.problems;
    hear(pulse.at);
    status();
    take("pulse", pulse);
  },
  rules: (section) => take("rules", section),
  hits: (section) => take("hits", section),
  blocks: (section) => take("blocks", section),
});

find("pause").addEventListener("click", () => {
  paused = !paused;
  find("pause").setAttribute("aria-pressed", String(paused));
  set(find("pause"), paused ? "Resume" : "Pause");
  if (!paused) for (const [name, section] of held) draw[name](section);
  held.clear();
  status();
});

ticking(() => {
  if (heard) set(find("clock"), new Date(now()).toISOString().slice(11, 19));
});
status();
