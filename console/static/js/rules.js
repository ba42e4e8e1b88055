// Rules in shadow beside rules that block.

import { Keyed, command, el, set, source } from "./dom.js";
import { atLeast, clock, count, plural, span, stamp } from "./format.js";
import { Outcome } from "./outcome.js";
import { ticking } from "./time.js";

function makeTop() {
  const who = el("span", "source");
  const times = el("span", "times");
  const outcome = new Outcome();
  const node = el("li", "", who, times, outcome.node);
  node.update = (top) => {
    source(who, top.source);
    set(times, `+${count(top.count)}`);
    times.title = `${plural(top.count, "event")} past the limit; first over the limit ${clock(top.first)}, last ${clock(top.last)} UTC`;
    outcome.show(top.outcome);
  };
  node.tick = () => outcome.tick();
  return node;
}

// says words a rule: More than 20 in 1 min per ip and device, on POST /oauth/token.
function says(rule) {
  const key = rule.key.length ? ` per ${rule.key.join(" and ")}` : " in all";
  const what = [rule.methods.join(", "), rule.path].filter(Boolean).join(" ");
  const parts = ["More than ", el("b", "tabular", count(rule.limit)), ` in ${span(rule.window_ms)}${key}, on `,
    what ? el("code", "", what) : "all requests", ". "];
  if (!rule.block_ttl_ms) return [...parts, "It names no block."];
  const verb = rule.mode === "block" ? "Holds" : "Would hold";
  return [...parts, `${verb} ${rule.block_key.join(" and ") || "the source"} for ${span(rule.block_ttl_ms)}.`];
}

function figure(kind) {
  const dt = el("dt");
  const dd = el("dd");
  return { node: el("div", kind, dd, dt), show: (text, label) => { set(dd, text); set(dt, label); } };
}

// act is the button that shows the command which changes a rule's mode.
function act(shell) {
  const button = el("button", "button");
  button.type = "button";
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => {
    shell.hidden = !shell.hidden;
    button.setAttribute("aria-expanded", String(!shell.hidden));
  });
  return button;
}

// makePending is the version of a rule that waits for its promotion, with the command that promotes it and no other one.
function makePending() {
  const says = el("p", "pending-says");
  const diff = el("ul", "pending-diff");
  const shell = command("");
  shell.hidden = true;
  const button = act(shell);
  const node = el("div", "pending", says, el("div", "pending-foot", diff, button), shell);
  node.hidden = true;
  let said = "";
  node.show = (rule) => {
    const p = rule.pending;
    node.hidden = !p;
    const now = JSON.stringify([rule.id, rule.version, p]);
    if (!p || now === said) return;
    said = now;
    says.replaceChildren(el("b", "", `Version ${p.version} is pending`), ` since ${stamp(p.since).slice(0, 16)}, by ${p.by || "unknown"}${p.reason ? `: ${p.reason}` : ""}. `,
      `Counted beside version ${rule.version}, never enforced${p.warming ? `; warming until ${stamp(p.warming).slice(0, 16)}` : ""}.`);
    diff.replaceChildren(...p.diff.map((line) => el("li", "", el("code", "", line))));
    set(button, `Promote version ${p.version}`);
    button.setAttribute("aria-label", `Promote version ${p.version} of ${rule.id}: show the command`);
    shell.show(p.command);
  };
  return node;
}

function makeRule() {
  const name = el("h4", "rule-name");
  const owner = el("span", "rule-owner quiet");
  const sentence = el("p", "rule-says");
  const [chief, sources, events] = [figure("chief"), figure("minor"), figure("minor")];
  const list = el("ul", "tops");
  const nobody = el("li", "nobody", "Nobody was over the limit.");
  const tops = new Keyed(list, makeTop);
  const since = el("p", "quiet since");
  const shell = command("");
  shell.hidden = true;
  const button = act(shell);
  const pending = makePending();
  const node = el("article", "panel rule", el("div", "rule-head", name, owner), sentence,
    el("div", "rule-body", el("dl", "figures", chief.node, sources.node, events.node), list), el("div", "rule-foot", since, button), shell, pending);
  let said = "";
  node.update = (rule) => {
    set(name, rule.id);
    set(owner, `${rule.owner} · version ${rule.version}`);
    const now = JSON.stringify([rule.version, rule.mode]);
    if (now !== said) sentence.replaceChildren(...says(rule));
    said = now;
    if (rule.mode === "block") chief.show(count(rule.holds), "held now");
    else if (rule.block_ttl_ms) chief.show(atLeast(rule.would_hold, rule.more), "would be held");
    else chief.show("–", "names no block");
    chief.node.classList.toggle("none", !rule.block_ttl_ms);
    sources.show(atLeast(rule.sources, rule.more), "over limit");
    events.show(atLeast(rule.events, rule.more), "events over");
    if (rule.top.length) nobody.remove();
    tops.show(rule.top, (t) => t.hit);
    if (!rule.top.length) list.append(nobody);
    const word = { block: "Blocking", shadow: "In shadow", off: "Off" }[rule.mode] ?? rule.mode;
    set(since, `${word} since ${stamp(rule.changed).slice(0, 16)}, by ${rule.changed_by || "unknown"}${rule.reason ? `: ${rule.reason}` : ""}`);
    since.title = since.textContent;
    button.hidden = !rule.command;
    const promote = rule.pending ? `Promote version ${rule.version}` : "Promote";
    set(button, { shadow: promote, block: "Demote" }[rule.mode] ?? "Count again");
    button.setAttribute("aria-label", `${button.textContent} ${rule.id}: show the command`);
    shell.show(rule.command);
    pending.show(rule);
  };
  node.tick = () => tops.each((top) => top.tick());
  return node;
}

class Column {
  constructor(prefix, thing, empty) {
    this.tally = document.getElementById(`${prefix}-tally`);
    this.box = document.getElementById(`${prefix}-rules`);
    this.thing = thing;
    this.empty = el("div", "empty", ...empty.map((line) => el("p", "", ...line)));
    this.rules = new Keyed(this.box, makeRule);
    this.box.append(el("div", "empty", el("p", "", "Waiting for the first reading.")));
  }

  show(rules) {
    if (!this.rules.nodes.size) this.box.replaceChildren();
    this.empty.remove();
    this.rules.show(rules, (r) => r.id);
    if (!rules.length) this.box.append(this.empty);
    set(this.tally, plural(rules.length, "rule"));
  }
}

export class Rules {
  constructor() {
    this.shadow = new Column("shadow", "shadow", [["No rule is in shadow."], ["A new rule starts here when it is applied."]]);
    this.block = new Column("block", "block", [["No rule blocks: nobody is held back."], ["Look at what a rule in shadow would hold before you promote it."]]);
    ticking(() => {
      for (const column of [this.shadow, this.block]) column.rules.each((rule) => rule.tick());
    });
  }

  show(section) {
    this.shadow.show(section.rules.filter((r) => r.mode !== "block"));
    this.block.show(section.rules.filter((r) => r.mode === "block"));
  }
}
