// Numbers, times and durations as the page writes them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (n) => (n < 100000 ? whole.format(n) : short.format(n));
export const rate = (n) => (n > 0 && n < 10 ? tenth.format(n) : count(Math.round(n)));
export const plural = (n, thing) => `${count(n)} ${thing}${n === 1 ? "" : "s"}`;

// atLeast is count, where there may be more.
export const atLeast = (n, more) => count(n) + (more ? "+" : "");

// saturating is a number that stops at 64.
export const saturating = (n) => (n >= 64 ? "64+" : count(n));

export const clock = (text) => (text ? text.slice(11, 19) : "");
export const stamp = (text) => (text ? `${text.slice(0, 10)} ${text.slice(11, 19)}` : "");

// span is a duration of a rule: 90 s, 5 min, 1 h.
export function span(ms) {
  for (const [unit, size] of [["d", 86400000], ["h", 3600000], ["min", 60000]]) {
    if (ms >= size && ms % size === 0) return `${ms / size} ${unit}`;
  }
  return ms % 1000 === 0 ? `${whole.format(ms / 1000)} s` : `${ms} ms`;
}

// left is a countdown: 4:07, 1:02:03, 2d 3h.
export function left(ms) {
  const s = Math.max(0, Math.ceil(ms / 1000));
  const two = (n) => String(n).padStart(2, "0");
  if (s >= 86400) return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
  if (s >= 3600) return `${Math.floor(s / 3600)}:${two(Math.floor((s % 3600) / 60))}:${two(s % 60)}`;
  return `${Math.floor(s / 60)}:${two(s % 60)}`;
}
