// Keeps a page up to date: when the stream tells that something has changed, the page is asked for again, and what differs is put in
// place of what is shown. So a page says with a script what it says without one.

const waits = [500, 1000, 2000, 4000, 8000];
const silence = 10000; // a server sends once a second; a connection that is quiet for so long is dead
const pause = 1000; // between two readings of the page

export function follow({ on, heard, changed }) {
  const link = document.getElementById("link");
  let stream;
  let tries = 0;
  let guard;
  let asked = false; // something has changed since the page was read
  let reading = false;
  let paused = false; // the pause after a reading

  const say = (state, text) => {
    link.hidden = false;
    if (link.dataset.state !== state) {
      link.dataset.state = state;
      link.textContent = text;
    }
  };

  // quiet is whether a person is doing something within a part, so that it stays as it is.
  const quiet = (node) => !node.contains(document.activeElement) && !node.querySelector("details[open]") && !(getSelection().rangeCount && !getSelection().isCollapsed && node.contains(getSelection().anchorNode));

  function replace(old, fresh) {
    if (old.isEqualNode(fresh) || !quiet(old)) return;
    const node = document.importNode(fresh, true);
    old.replaceWith(node);
    changed(node);
  }

  // rows brings a list up to date row by row: those that a person reads stay where they are.
  function rows(old, fresh) {
    const known = new Map([...old.children].map((row) => [row.dataset.key, row]));
    let at = null;
    for (const row of fresh.children) {
      const there = known.get(row.dataset.key);
      known.delete(row.dataset.key);
      let node = there;
      if (!there) {
        node = document.importNode(row, true);
        changed(node);
      }
      const place = at ? at.nextElementSibling : old.firstElementChild;
      if (place !== node && (!there || quiet(there))) old.insertBefore(node, place);
      at = node;
      if (there && !there.querySelector(".copy") && !there.isEqualNode(row) && quiet(there)) {
        at = document.importNode(row, true);
        there.replaceWith(at);
        changed(at);
      }
    }
    for (const row of known.values()) if (quiet(row)) row.remove();
  }

  function take(page) {
    for (const old of document.querySelectorAll("[data-part]")) {
      const fresh = page.querySelector(`[data-part="${old.dataset.part}"]`);
      if (fresh) replace(old, fresh);
    }
    for (const old of document.querySelectorAll("[data-list]")) {
      const fresh = page.querySelector(`[data-list="${old.dataset.list}"]`);
      if (fresh) rows(old, fresh);
    }
    // A list that was empty, or has become so, is another paragraph: only the whole page says so.
    const lists = (d) => [...d.querySelectorAll("[data-list]")].map((l) => l.dataset.list).join();
    if (lists(document) !== lists(page) && quiet(document.getElementById("main"))) {
      const main = document.importNode(page.getElementById("main"), true);
      const evidence = document.getElementById("evidence");
      if (evidence) main.querySelector("#evidence")?.replaceWith(evidence);
      document.getElementById("main").replaceWith(main);
      changed(main);
    }
  }

  function read() {
    if (reading || paused || !asked || document.hidden) return;
    asked = false;
    reading = true;
    const request = new XMLHttpRequest(); // its responseType gives a document without a script making HTML of a text
    request.open("GET", location.href);
    request.setRequestHeader("X-Weir-Live", "1"); // evidence is gathered once: its minutes are over
    request.responseType = "document";
    request.timeout = 10000;
    request.onloadend = () => {
      reading = false;
      paused = true;
      setTimeout(() => { paused = false; read(); }, pause);
      if (request.status === 200 && request.response) take(request.response);
    };
    request.send();
  }

  function open() {
    stream = new EventSource("/api/v1/stream");
    stream.addEventListener("error", again);
    stream.addEventListener("pulse", (event) => {
      tries = 0;
      clearTimeout(guard);
      guard = setTimeout(again, silence);
      heard(JSON.parse(event.data).at);
      say("live", "Live");
    });
    for (const section of ["rules", "hits", "blocks"]) {
      stream.addEventListener(section, () => { asked = true; read(); });
    }
  }

  function again() {
    clearTimeout(guard);
    stream.close();
    say("lost", "Reconnecting");
    setTimeout(open, waits[Math.min(tries, waits.length - 1)] * (0.75 + Math.random() / 2));
    tries += 1;
  }

  if (!on) return;
  document.addEventListener("visibilitychange", read);
  open();
}
