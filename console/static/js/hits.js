// Over-limit sources, with their evidence on demand.

import { Keyed, el, set, source } from "./dom.js";
import { evidence, fetchEvidence } from "./evidence.js";
import { clock, count, plural, saturating, span } from "./format.js";
import { Outcome } from "./outcome.js";
import { ticking } from "./time.js";

const shownFirst = 10;

function cell(names, ...children) {
  const td = el("td", names, ...children);
  td.setAttribute("role", "cell");
  return td;
}

export function row(names, ...cells) {
  const tr = el("tr", names, ...cells);
  tr.setAttribute("role", "row");
  return tr;
}

export { cell };

// Hit is one source: a tbody with its row and, when open, a row with the evidence.
class Hit {
  constructor(hit) {
    this.toggle = el("button", "open");
    this.toggle.type = "button";
    this.toggle.setAttribute("aria-expanded", "false");
    this.who = el("div", "source");
    this.rule = el("div", "quiet rule-of");
    this.count = el("div", "big");
    this.limit = el("div", "quiet");
    this.last = el("div", "big");
    this.first = el("div", "quiet");
    this.with = el("div", "quiet");
    this.outcome = new Outcome();
    this.phase = el("div", "quiet");
    this.running = el("span", "running");
    this.running.setAttribute("aria-hidden", "true");
    this.phaseText = document.createTextNode("");
    this.phase.append(this.running, this.phaseText);
    this.row = row("row", cell("c-open", this.toggle), cell("c-source", this.who, this.rule), cell("c-count num", this.count, this.limit),
      cell("c-when", this.last, this.first), cell("c-with", this.with), cell("c-out", this.outcome.node, this.phase));
    this.node = el("tbody", "", this.row);
    this.node.setAttribute("role", "rowgroup");
    this.node.update = (h) => this.update(h);
    this.node.tick = () => this.outcome.tick();
    this.detailId = `evidence-${hit.id}`;
    this.row.addEventListener("click", (e) => {
      if (!getSelection().toString() || e.target === this.toggle) this.turn();
    });
  }

  update(hit) {
    this.hit = hit;
    source(this.who, hit.source);
    this.toggle.setAttribute("aria-label", `Evidence on ${this.who.title || "this source"}, rule ${hit.rule}`);
    set(this.rule, hit.rule);
    set(this.count, `+${count(hit.count)}`);
    set(this.limit, `past ${count(hit.limit)} in ${span(hit.window_ms)}`);
    set(this.last, clock(hit.last));
    set(this.first, `from ${clock(hit.first)}`);
    const many = (n, thing) => (n ? `${saturating(n)} ${thing}${n === 1 ? "" : "s"}` : "");
    const lines = [many(hit.users, "user"), many(hit.devices, "device")].filter(Boolean);
    if (hit.grouped) lines.unshift("field missing");
    if (this.with.dataset.text !== lines.join()) this.with.replaceChildren(...lines.map((l) => el("div", "", l)));
    this.with.dataset.text = lines.join();
    this.outcome.show(hit.outcome);
    const ended = hit.phase === "closed";
    this.running.hidden = ended;
    const word = ended ? "ended" : "running";
    if (this.phaseText.data !== word) this.phaseText.data = word;
    if (this.detail && this.samples !== hit.samples) this.load();
  }

  turn() {
    const open = !this.detail;
    this.toggle.setAttribute("aria-expanded", String(open));
    if (!open) {
      this.detail.remove();
      this.detail = null;
      this.toggle.removeAttribute("aria-controls");
      return;
    }
    this.box = cell("", el("p", "quiet", "Reading the evidence."));
    this.box.colSpan = 6;
    this.detail = row("detail", this.box);
    this.detail.id = this.detailId;
    this.toggle.setAttribute("aria-controls", this.detailId);
    this.node.append(this.detail);
    this.load();
  }

  async load() {
    const { box } = this;
    this.samples = this.hit.samples;
    try {
      box.replaceChildren(evidence(await fetchEvidence(this.hit.id)));
    } catch (error) {
      box.replaceChildren(el("p", "quiet", `The evidence cannot be shown: ${error.message}`));
    }
  }
}

export class Hits {
  constructor() {
    this.section = null;
    this.all = false;
    this.select = document.getElementById("over-rule");
    this.summary = document.getElementById("over-count");
    this.empty = document.getElementById("over-empty");
    this.more = document.getElementById("over-more");
    const table = document.querySelector("table.hits");
    this.rows = new Keyed(table, (hit) => new Hit(hit).node, { before: table.tHead });
    this.options = new Map();
    this.select.addEventListener("change", () => this.draw());
    this.more.addEventListener("click", () => {
      this.all = !this.all;
      this.draw();
    });
    ticking(() => this.rows.each((hit) => hit.tick()));
  }

  // offer lists the rules in the filter; a choice stays while its rule does.
  offer(rules) {
    const ids = rules.map((r) => r.id);
    for (const [id, option] of this.options) {
      if (ids.includes(id)) continue;
      option.remove();
      this.options.delete(id);
    }
    for (const id of ids) {
      if (this.options.has(id)) continue;
      const option = el("option", "", id);
      option.value = id;
      this.options.set(id, option);
      this.select.append(option);
    }
  }

  show(section) {
    this.section = section;
    this.draw();
  }

  draw() {
    if (!this.section) return;
    const rule = this.select.value;
    const hits = this.section.hits.filter((h) => !rule || h.rule === rule);
    const shown = this.all ? hits : hits.slice(0, shownFirst);
    this.rows.show(shown, (h) => h.id);
    const running = hits.filter((h) => h.phase !== "closed").length;
    set(this.summary, hits.length ? `${this.section.more ? "newest " : ""}${plural(hits.length, "episode")}, ${count(running)} running` : "");
    this.empty.hidden = hits.length > 0;
    set(this.empty, rule ? `Nobody was over the limit of ${rule} in the last ${this.section.minutes} minutes.`
      : `Nobody was over a limit in the last ${this.section.minutes} minutes.`);
    if (this.section.stale && !this.section.stale.since) set(this.empty, `${this.section.stale.store} does not answer.`);
    this.more.hidden = hits.length <= shownFirst;
    set(this.more, this.all ? `Show the newest ${shownFirst}` : `Show all ${count(hits.length)}`);
  }
}
