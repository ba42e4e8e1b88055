// The evidence of one hit, fetched when it is opened.

import { command, el, source, visible } from "./dom.js";
import { clock, count, saturating, span } from "./format.js";

function facts(pairs) {
  return el("dl", "facts", ...pairs.filter(([, what]) => what !== "").map(([name, what]) => el("div", "", el("dt", "", name), el("dd", "tabular", what))));
}

function event(sample) {
  const line = el("p", "event-line", el("time", "", clock(sample.time)));
  const path = [sample.method, (sample.host ?? "") + (sample.path ?? "")].filter(Boolean).join(" ");
  if (path) line.append(el("code", "", ...visible(path)));
  if (sample.status) line.append(el("span", "tabular", String(sample.status)));
  for (const field of ["ip", "device", "user", "session", "api_key", "gateway", "id"]) {
    if (!sample[field]) continue;
    line.append(el("span", "source pair", el("span", "field", field.replace("_", " ")), el("span", "value", ...visible(sample[field]))));
  }
  const box = el("li", "event", line);
  if (sample.user_agent) box.append(el("p", "agent", ...visible(sample.user_agent)));
  if (sample.attrs) box.append(el("p", "agent", el("code", "", ...visible(sample.attrs))));
  return box;
}

export function evidence(hit) {
  const out = document.createDocumentFragment();
  const holds = el("span", "source");
  if (hit.block_source) source(holds, hit.block_source);
  const phase = { open: "just began", update: "goes on", closed: "has ended" }[hit.phase] ?? hit.phase;
  out.append(facts([
    ["First over the limit", `${clock(hit.first)} UTC`],
    ["Last over the limit", `${clock(hit.last)} UTC`],
    ["Events between these", hit.at_least ? `at least ${count(hit.count)}: some came late` : count(hit.count)],
    ["Rule", `more than ${count(hit.limit)} in ${span(hit.window_ms)}, version ${hit.rule_version}`],
    ["The episode", phase + (hit.cut ? ", cut after 24 h" : "") + (hit.reason === "reset" ? ": its count was reset" : "")],
    ["Distinct users, devices", `${saturating(hit.users)}, ${saturating(hit.devices)}`],
    ["A block holds", hit.grouped ? "nobody: a field of the key is missing" : hit.block_source ? holds : "nobody: the rule names no block"],
    ["Block id", el("code", "", hit.block_id)],
    ["Opened by", `requests/${hit.partition}, offset ${hit.offset}`],
  ]));
  out.append(el("h4", "", hit.events.length ? "First events over the limit" : "No event was kept"));
  out.append(el("ul", "events", ...hit.events.map(event)));
  out.append(el("h4", "", "On the command line"), el("div", "commands", ...hit.commands.map(command)));
  return out;
}

export async function fetchEvidence(id) {
  const answer = await fetch(`/api/v1/hits/${encodeURIComponent(id)}`);
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error);
  return body;
}
