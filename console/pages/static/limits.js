// Says what another limit would have held while one moves the slider or types the number, from figures that the page has. Without this
// script the same form asks the server.

export function considerLimits(form) {
  const told = JSON.parse(form.dataset.limits); // [from, sources, requests], each true up to the next one
  const stops = form.dataset.stops.split(" ").map(Number);
  const number = form.querySelector("#limit");
  const slider = form.querySelector("#limit-slider");
  const output = form.querySelector("output");
  const [sources, requests] = output.querySelectorAll("b");
  const marks = form.parentElement.querySelectorAll(".considered");

  // nearest is the stop at or below a limit.
  const nearest = (limit) => Math.max(0, stops.findLastIndex((stop) => stop <= limit));

  function say(limit) {
    const known = Number.isSafeInteger(limit) && limit >= told[0][0];
    output.hidden = !known;
    if (!known) return;
    const [, held, refused] = told.findLast(([from]) => from <= limit);
    sources.textContent = held;
    requests.textContent = refused;
    slider.setAttribute("aria-valuetext", `limit ${limit}`);
    for (const mark of marks) {
      const { low, high, left, width } = mark.dataset;
      const at = Number(left) + Number(width) * Math.log(Math.min(Math.max(limit, low), high) / low) / Math.log(high / low);
      mark.toggleAttribute("hidden", limit === stops[0]);
      mark.querySelector("line").setAttribute("x1", at);
      mark.querySelector("line").setAttribute("x2", at);
      const text = mark.querySelector("text");
      const right = at > Number(left) + Number(width) * 0.7;
      text.setAttribute("text-anchor", right ? "end" : "start");
      text.setAttribute("x", at + (right ? -5 : 5));
      text.textContent = `considered ${limit}`;
    }
  }

  // remember puts the limit into the address, so that it can be sent to somebody, and stays when the page is read again.
  function remember() {
    if (output.hidden) return;
    const here = new URL(location.href);
    here.searchParams.set("limit", number.value);
    here.searchParams.delete("did");
    history.replaceState(null, "", here);
  }

  slider.addEventListener("input", () => { number.value = stops[slider.value]; say(stops[slider.value]); });
  number.addEventListener("input", () => { slider.value = nearest(number.valueAsNumber); say(number.valueAsNumber); });
  slider.addEventListener("change", remember);
  number.addEventListener("change", remember);
  form.addEventListener("submit", (event) => { event.preventDefault(); remember(); });
  slider.value = nearest(number.valueAsNumber);
  slider.hidden = false;
  form.querySelector("button").hidden = true;
}
