// The stream: five meters with their curves.

import { el, set, svg } from "./dom.js";
import { count, rate } from "./format.js";

const width = 120;
const height = 36;

class Meter {
  constructor(name) {
    this.number = document.createTextNode("–");
    this.unit = el("span", "meter-unit");
    this.note = el("p", "meter-note", "\u00a0");
    this.area = svg("path", { class: "area" });
    this.trace = svg("path", { class: "trace" });
    const curve = svg("svg", {
      class: "curve", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true",
    }, this.area, this.trace);
    this.node = el("div", "meter", el("h3", "meter-name", name), el("p", "meter-value", this.number, this.unit), this.note, curve);
  }

  show(number, unit, note, series) {
    if (this.number.data !== number) this.number.data = number;
    set(this.unit, unit);
    set(this.note, note);
    this.draw(series);
  }

  // draw puts the newest value at the right edge; least keeps a quiet curve quiet.
  draw(series, least = 1) {
    const top = Math.max(least, ...series) * 1.1;
    const step = width / (Math.max(30, series.length) - 1); // a curve that has just begun is drawn wider
    const points = series.map((v, i) => {
      const x = width - (series.length - 1 - i) * step;
      return `${x.toFixed(2)} ${(height - 1 - (v / top) * (height - 3)).toFixed(2)}`;
    });
    const line = points.length > 1 ? "M" + points.join("L") : "";
    this.trace.setAttribute("d", line);
    this.area.setAttribute("d", line && `${line}L${width} ${height}L${points[0].split(" ")[0]} ${height}Z`);
  }
}

export class Meters {
  constructor(parent) {
    this.events = new Meter("Events");
    this.keyed = new Meter("Keyed records");
    this.hits = new Meter("Hits");
    this.blocks = new Meter("Blocks written");
    this.lag = new Meter("Lag");
    for (const m of [this.events, this.keyed, this.hits, this.blocks, this.lag]) parent.append(m.node);
  }

  show(pulse) {
    const flow = (m, c) => m.show(rate(c.rate), "/s", `${count(c.total)} so far`, c.series);
    const acts = (m, c) => m.show(count(c.total), "so far", `${count(c.minute)} in the last minute`, c.series);
    flow(this.events, pulse.events);
    flow(this.keyed, pulse.keyed);
    acts(this.hits, pulse.hits);
    acts(this.blocks, pulse.blocks);
    const { records, stages, series } = pulse.lag;
    const worst = stages.reduce((a, b) => (b.records > a.records ? b : a), { records: 0 });
    this.lag.show(count(records), records === 1 ? "record" : "records", stages.length === 0 ? "No stage runs here"
      : worst.records === 0 ? "All stages keep up" : `Most in ${worst.stage}: ${count(worst.records)}`, series);
    this.lag.node.classList.toggle("meter-warn", records > 10000);
  }
}
