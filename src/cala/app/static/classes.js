// Classes: a page of them at a time, so that a thousand are no more work than fifty.

import { call, face, words } from "./api.js";
import { ask } from "./dialogs.js";
import { byId, counted, el, fill, say, signed } from "./dom.js";
import { mayTeach, refresh, state } from "./state.js";

const PAGE = 60;
const CHANGES = 10;
let shown = 0;
let changes = 0;
let looks = 0;
let turn = 0; // answers to an older search are thrown away
let addPhotos = () => {};

export function classes(teachClass) {
  addPhotos = teachClass;
  let typing = 0;
  byId("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(list, 150); });
  byId("order").addEventListener("change", list);
  byId("classes-more").addEventListener("click", () => more(true));
  byId("history-more").addEventListener("click", older);
  byId("undo").addEventListener("click", () => step("undo"));
  byId("redo").addEventListener("click", () => step("redo"));
  new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting) && !byId("classes-more").hidden) more(false);
  }, { rootMargin: "400px" }).observe(byId("classes-more"));
  document.addEventListener("cala-model", () => { if (!byId("classes").hidden) openClasses(); });
}

export function openClasses() {
  byId("undo").disabled = !mayTeach() || !state.model.can_undo;
  byId("redo").disabled = !mayTeach() || !state.model.can_redo;
  list();
  changes = 0;
  looks += 1;
  older();
}

async function list() {
  shown = 0;
  turn += 1;
  await page(turn, true);
}

async function more(focus) {
  const last = byId("classes-list").lastElementChild;
  await page(turn, false);
  if (focus && last && last.nextElementSibling) last.nextElementSibling.querySelector("button, strong").focus();
}

let loading = null;
async function page(mine, fresh) {
  if (loading === mine && !fresh) return;
  loading = mine;
  const order = byId("order").value;
  const search = byId("search").value;
  const query = new URLSearchParams({ search, offset: String(shown), limit: String(PAGE) });
  if (order !== "arrival") query.set("newest", "true");
  if (order === "new" || order === "known") query.set("kind", order);
  try {
    const found = await call("GET", `/v1/classes?${query}`);
    if (mine !== turn) return;
    const rows = found.classes.map(card);
    if (fresh) fill(byId("classes-list"), rows);
    else byId("classes-list").append(...rows);
    shown += rows.length;
    byId("classes-more").hidden = shown >= found.found;
    const nothing = search ? `No class is called anything with “${search}”.`
      : order === "new" ? "No class has been taught yet: the tab Teach begins with one." : "";
    byId("classes-count").textContent = found.found ? `${counted(found.found, "class", "classes")}${found.found < found.total ? ` of ${found.total}` : ""}` : nothing;
  } catch (error) {
    if (mine === turn) byId("classes-count").textContent = words(error);
  } finally { if (loading === mine) loading = null; }
}

function card(row) {
  const change = mayTeach() ? el("div", { class: "row" },
    button("Add photos", row, () => addPhotos(row)),
    button("Rename", row, () => rename(row)),
    button("Forget", row, () => forget(row))) : null;
  return el("li", {},
    face(row.thumbnails[0], row.name),
    el("div", {},
      el("strong", { tabindex: "-1" }, row.name),
      el("span", { class: `tag ${row.kind}` }, row.kind),
      el("div", { class: "hint" }, `no. ${row.order + 1}, ${counted(row.photos, "photo")}${row.kind === "new" ? `, β ${signed(row.beta)}` : ""}; closest to ${row.closest.name} (${row.closest.cosine.toFixed(2)})`),
      change));
}

const button = (text, row, run) => el("button", { type: "button", class: "small", "aria-label": `${text}: ${row.name}`, onclick: run }, text);

async function rename(row) {
  const done = await ask({
    title: `Rename ${row.name}`, label: "New name", value: row.name, yes: "Rename",
    act: (name) => call("PATCH", `/v1/classes/${encodeURIComponent(row.id)}`, { json: { name } }),
  });
  if (done) await changed(`Renamed to ${done.class.name}`);
}

async function forget(row) {
  const done = await ask({
    title: `Forget ${row.name}?`, text: `The model will not know it any more. Undo brings it back.`, yes: "Forget",
    act: () => call("DELETE", `/v1/classes/${encodeURIComponent(row.id)}`),
  });
  if (done) await changed(`${row.name} forgotten`);
}

async function step(which) {
  const node = byId(which);
  node.disabled = true;
  try {
    await call("POST", `/v1/${which}?version=${state.model.version}`);
    await changed(which === "undo" ? "Undone" : "Done again");
  } catch (error) {
    byId("classes-count").textContent = words(error);
    await refresh();
  }
}

async function changed(text) {
  await refresh();
  say(text);
}

async function older() {
  const start = changes;
  const mine = looks;
  try {
    const found = await call("GET", `/v1/history?offset=${start}&limit=${CHANGES}`);
    if (mine !== looks || start !== changes) return; // a newer look, or one that was quicker
    if (start === 0) fill(byId("history"));
    changes += found.changes.length;
    byId("history").append(...found.changes.map((one) => el("li", { value: one.version }, one.text,
      el("time", { datetime: one.time }, new Date(one.time).toLocaleString()))));
    byId("history-more").hidden = changes >= found.total;
  } catch { /* the banner says it */ }
}
