// What the tabs share: the model as it was last seen, and the photos that were last asked about.

import { call } from "./api.js";
import { byId, el, fill } from "./dom.js";
import { t } from "./texts.js";

export const state = { model: null, share: null, last: [] }; // last: {id, file, answer}, newest first
const LAST = 12;

export function remember(id, file, answer) {
  state.last = [{ id, file, answer }, ...state.last.filter((one) => one.id !== id)].slice(0, LAST);
}

export function offerShare(link) {
  state.share = link;
  byId("share").hidden = !link;
}

export async function refresh() {
  const model = await call("GET", "/v1/model");
  state.model = model;
  offerShare(model.share);
  document.title = `${model.name} – cala`;
  byId("title").textContent = model.name;
  byId("about").textContent = t("page.knows", { n: model.classes });
  byId("notes").hidden = !model.notes.length;
  byId("notes-count").textContent = t("page.notes", { n: model.notes.length });
  fill(byId("notes-list"), model.notes.map((text) => el("li", { lang: "en" }, text)));
  document.dispatchEvent(new CustomEvent("cala-model"));
  return model;
}

export const mayTeach = () => state.model !== null && state.model.right === "teach";

// Photos are sent two at a time: each shows its own progress, and a slow line is not choked.
export function sender(work, lanes = 2) {
  const queue = [];
  let busy = 0;
  const next = async () => {
    if (busy >= lanes || !queue.length) return;
    busy += 1;
    try { await work(queue.shift()); } finally { busy -= 1; next(); }
  };
  return (item) => { queue.push(item); next(); };
}

export function tooLarge(file) {
  const most = state.model ? state.model.limits.file : Infinity;
  return file.size > most ? t("too-large", { name: file.name, n: Math.floor(most / 2 ** 20) }) : "";
}

export function photoForm(file) {
  const form = new FormData();
  form.append("images", file, file.name);
  return form;
}
