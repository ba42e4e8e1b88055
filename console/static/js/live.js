// The stream of sections. EventSource comes back by itself after a cut, but not after an answer other than 200, and it
// does not notice a server that is silent; both are seen to here.

const silence = 6000; // the pulse comes once a second
const waits = [1000, 2000, 4000, 8000];

export class Live {
  // on has a function per section, and state(name, text).
  constructor(url, on) {
    this.url = url;
    this.on = on;
    this.tries = 0;
    this.open();
  }

  open() {
    this.stream = new EventSource(this.url);
    this.watch();
    for (const section of ["pulse", "rules", "hits", "blocks"]) {
      this.stream.addEventListener(section, (event) => {
        this.tries = 0;
        this.watch();
        this.on.state("live", "Live");
        this.on[section](JSON.parse(event.data));
      });
    }
    this.stream.addEventListener("error", () => this.again());
  }

  watch() {
    clearTimeout(this.guard);
    this.guard = setTimeout(() => this.again(), silence);
  }

  again() {
    clearTimeout(this.guard);
    clearTimeout(this.retry);
    this.stream.close();
    this.on.state("lost", "Reconnecting");
    const wait = waits[Math.min(this.tries, waits.length - 1)];
    this.tries += 1;
    this.retry = setTimeout(() => this.open(), wait * (0.75 + Math.random() / 2));
  }
}
