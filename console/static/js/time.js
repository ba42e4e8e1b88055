// The server's clock: countdowns must not depend on how the viewer's one is set.

let ahead = 0;
const listeners = [];

export function hear(serverTime) {
  ahead = Date.parse(serverTime) - Date.now();
}

export const now = () => Date.now() + ahead;

// until is the time left to an instant, in milliseconds.
export const until = (text) => Date.parse(text) - now();

// ticking calls back several times a second; each only changes the texts that are another one by then.
export function ticking(call) {
  listeners.push(call);
}

setInterval(() => {
  if (!document.hidden) for (const call of listeners) call();
}, 250);
