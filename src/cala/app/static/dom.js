// Text only ever becomes text: nothing that a server or a file says is read as HTML.

import { number, t } from "./texts.js";

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

export const percent = (share) => (share === null || Number.isNaN(share) ? "–" : `${number(100 * share, 1)} %`);
// Nothing is ever certain: 99 is the most.
export const sure = (share) => (share > 0.99 ? t("sure.very") : t("sure", { n: Math.round(100 * share) }));
export const photosOf = (count) => t("photos", { n: count });
export const classesOf = (count) => t("classes", { n: count });

// A photo of the user's; where the browser cannot draw its format, what it is and its name.
export function picture(url, name, { alt = "", instead = () => {}, ...set } = {}) {
  const image = el("img", { alt, ...set });
  image.addEventListener("error", () => {
    const kind = /\.(\w{1,5})$/.exec(name);
    const blank = el("div", { class: "face blank", "aria-hidden": "true" }, kind ? kind[1].toUpperCase() : "?", el("small", {}, name));
    image.replaceWith(blank);
    instead(blank);
  });
  image.src = url;
  return image;
}

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
