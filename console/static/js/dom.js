// Elements without HTML: every text goes in as a text node, so that nothing a client sent can become markup. The page's
// Content-Security-Policy (trusted-types 'none') makes the browser refuse anything else.

// el makes <tag class="names"> with children: elements, or texts.
export function el(tag, names, ...children) {
  const node = document.createElement(tag);
  if (names) node.className = names;
  node.append(...children);
  return node;
}

// set changes an element's text only when it is another one, so that a selection in it survives.
export function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function classes(node, names) {
  if (node.className !== names) node.className = names;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// visible marks what the server wrote in place of characters that cannot be seen: \xNN and \u{HEX}.
export function visible(text) {
  return text.split(/(\\x[0-9a-f]{2}|\\u\{[0-9a-f]+\})/).map((part, i) => (i % 2 ? el("span", "odd", part) : part));
}

// source fills node with the fields of a source.
export function source(node, of) {
  if (node.dataset.subject === of.subject && node.firstChild) return;
  node.dataset.subject = of.subject;
  const fields = of.fields.flatMap((f) => [
    el("span", "pair", el("span", "field", f.field), f.missing ? el("span", "none", "missing") : el("span", "value", ...visible(f.value))),
    " ",
  ]);
  node.replaceChildren(...(fields.length ? fields : [el("span", "none", "everything that the rule matches")]));
  node.title = of.fields.map((f) => f.field + " " + (f.missing ? "missing" : f.value)).join(", ");
}

// command is a line for the shell with a button that copies it.
export function command(text) {
  const code = el("code", "", text);
  const button = el("button", "copy", "Copy");
  button.type = "button";
  button.setAttribute("aria-label", "Copy the command " + text);
  button.addEventListener("click", () => copy(text, button, code));
  const box = el("div", "command", code, button);
  box.show = (other) => {
    if (other === text) return;
    text = other;
    set(code, other);
    button.setAttribute("aria-label", "Copy the command " + other);
  };
  return box;
}

// copy puts text on the clipboard and says so on the button; where that is not allowed it selects the text instead.
export async function copy(text, button, shown) {
  const word = button.dataset.word ?? (button.dataset.word = button.textContent);
  try {
    await navigator.clipboard.writeText(text);
    set(button, "Copied");
  } catch {
    if (shown) getSelection().selectAllChildren(shown);
    set(button, shown ? "Selected" : "No access");
  }
  clearTimeout(button.timer);
  button.timer = setTimeout(() => set(button, word), 1600);
}

// keyed keeps one node per item of a list, in its order: nodes stay while their item does, and focus with them.
// make(item) gives a node with a method update(item).
export class Keyed {
  constructor(parent, make, { before = null } = {}) {
    this.parent = parent;
    this.make = make;
    this.before = before;
    this.nodes = new Map();
  }

  show(items, key) {
    const gone = new Set(this.nodes.keys());
    let at = null;
    for (const item of items) {
      const id = key(item);
      gone.delete(id);
      let node = this.nodes.get(id);
      if (!node) {
        node = this.make(item);
        this.nodes.set(id, node);
      }
      node.update(item);
      const place = at ? at.nextSibling : this.first();
      if (place !== node) this.parent.insertBefore(node, place);
      at = node;
    }
    for (const id of gone) {
      this.nodes.get(id).remove();
      this.nodes.delete(id);
    }
  }

  first() {
    return this.before ? this.before.nextSibling : this.parent.firstChild;
  }

  each(call) {
    for (const node of this.nodes.values()) call(node);
  }
}
