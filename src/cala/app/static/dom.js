// Text only ever becomes text: nothing that a server or a file says is read as HTML.

export const byId = (id) => document.getElementById(id);

export function el(tag, set = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(set)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (value === true) node.setAttribute(name, "");
    else node.setAttribute(name, String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function fill(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

export const percent = (share) => (share === null || Number.isNaN(share) ? "–" : `${(100 * share).toFixed(1)} %`);
// Nothing is ever certain: 99 is the most.
export const sure = (share) => (share > 0.99 ? "over 99 % sure" : `${Math.round(100 * share)} % sure`);
export const counted = (count, noun, many = `${noun}s`) => `${count.toLocaleString("en")} ${count === 1 ? noun : many}`;

// Screen readers hear this; a message that is the same as before is heard again.
export function say(text) {
  const live = byId("say");
  live.textContent = "";
  setTimeout(() => { live.textContent = text; }, 50);
}

export function show(node, text) {
  node.textContent = text || "";
  node.hidden = !text;
}

export function bar(share) {
  const inner = el("div", { class: "fill" });
  inner.style.width = `${Math.round(1000 * share) / 10}%`;
  return el("div", { class: "track", "aria-hidden": "true" }, inner);
}
