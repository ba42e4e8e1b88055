// What has become of an over-limit source, as a pill that counts down.

import { classes, el, set } from "./dom.js";
import { left } from "./format.js";
import { until } from "./time.js";

export class Outcome {
  constructor() {
    this.node = el("span", "pill");
  }

  show(outcome) {
    this.outcome = outcome;
    this.tick();
  }

  tick() {
    let { kind } = this.outcome;
    const rest = this.outcome.until ? until(this.outcome.until) : 0;
    if ((kind === "held" || kind === "would") && rest <= 0) kind = "passed"; // until the server says so, too
    classes(this.node, "pill pill-" + kind);
    const words = { held: "held ", would: "would hold ", released: "released", passed: "not held" };
    set(this.node, words[kind] + (kind === "held" || kind === "would" ? left(rest) : ""));
  }
}
