// Blocks with their remaining time, and who was released.

import { Keyed, command, el, set, source, svg } from "./dom.js";
import { clock, count, left } from "./format.js";
import { cell, row } from "./hits.js";
import { ticking, until } from "./time.js";

const shownFirst = 10;

class Block {
  constructor() {
    this.who = el("div", "source");
    this.rule = el("div", "quiet rule-of");
    this.countdown = el("div", "countdown tabular");
    this.rest = svg("rect", { class: "rest", height: "4", width: "0" });
    this.ends = el("div", "quiet");
    const bar = svg("svg", { class: "bar", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { class: "track", width: "100", height: "4" }), this.rest);
    this.release = el("button", "button", "Release");
    this.release.type = "button";
    this.release.setAttribute("aria-expanded", "false");
    this.release.addEventListener("click", () => this.turn());
    this.row = row("row", cell("", this.who, this.rule), cell("num", el("div", "left", this.countdown, bar, this.ends)), cell("", this.release));
    this.node = el("tbody", "", this.row);
    this.node.setAttribute("role", "rowgroup");
    this.node.update = (b) => this.update(b);
    this.node.tick = () => this.tick();
  }

  update(block) {
    this.block = block;
    source(this.who, block.source);
    set(this.rule, block.rule);
    set(this.ends, block.in_force ? `until ${clock(block.until)}` : "holds nobody: demoted");
    this.row.classList.toggle("lapsed", !block.in_force);
    this.release.hidden = !block.command;
    this.release.setAttribute("aria-label", `Release ${this.who.title} from ${block.rule}: show the command`);
    this.tick();
  }

  // turn shows or hides the command that releases the source.
  turn() {
    this.release.setAttribute("aria-expanded", String(!this.detail));
    if (this.detail) {
      this.detail.remove();
      this.detail = null;
      return;
    }
    const box = cell("", command(this.block.command));
    box.colSpan = 3;
    this.detail = row("detail", box);
    this.node.append(this.detail);
  }

  tick() {
    const rest = until(this.block.until);
    const whole = Date.parse(this.block.until) - Date.parse(this.block.since);
    set(this.countdown, left(rest));
    const width = String(Math.max(0, Math.min(100, Math.round((1000 * rest) / whole) / 10)));
    if (this.rest.getAttribute("width") !== width) this.rest.setAttribute("width", width);
    this.node.hidden = rest <= 0;
  }
}

function makeReleased() {
  const who = el("div", "source");
  const rule = el("div", "quiet rule-of");
  const at = el("div", "");
  const by = el("div", "quiet");
  const node = el("li", "", el("div", "", who, rule), el("div", "when", at, by));
  node.update = (r) => {
    source(who, r.source);
    set(rule, r.rule);
    set(at, clock(r.released));
    set(by, r.by ? `by ${r.by}` : "");
  };
  return node;
}

export class Blocks {
  constructor() {
    this.section = null;
    this.all = false;
    const table = document.querySelector("table.blocks");
    this.rows = new Keyed(table, () => new Block().node, { before: table.tHead });
    this.released = new Keyed(document.getElementById("released"), makeReleased);
    this.summary = document.getElementById("blocks-count");
    this.empty = document.getElementById("blocks-empty");
    this.more = document.getElementById("blocks-more");
    this.tally = document.getElementById("released-tally");
    this.none = document.getElementById("released-empty");
    this.more.addEventListener("click", () => {
      this.all = !this.all;
      this.draw();
    });
    ticking(() => this.rows.each((block) => block.tick()));
  }

  show(section) {
    this.section = section;
    this.draw();
  }

  draw() {
    if (!this.section) return;
    const { blocks, released, total, in_force: inForce } = this.section;
    this.rows.show(this.all ? blocks : blocks.slice(0, shownFirst), (b) => `${b.rule} ${b.source.subject}`);
    set(this.summary, total ? `${count(inForce)} in force${total > inForce ? `, ${count(total - inForce)} of demoted rules` : ""}` : "");
    this.empty.hidden = total > 0;
    set(this.empty, this.section.stale && !this.section.stale.since ? `${this.section.stale.store} does not answer.` : "Nobody is blocked.");
    this.more.hidden = blocks.length <= shownFirst;
    set(this.more, this.all ? `Show the newest ${shownFirst}` : `Show ${count(blocks.length)}${total > blocks.length ? ` of ${count(total)}` : ""}`);
    this.released.show(released, (r) => `${r.rule} ${r.source.subject}`);
    set(this.tally, this.section.release_total ? count(this.section.release_total) : "");
    this.none.hidden = released.length > 0;
  }
}
