// Classes: a page of them at a time, so that a thousand are no more work than fifty.

import { call, face, words } from "./api.js";
import { changed, trouble } from "./changes.js";
import { ask } from "./dialogs.js";
import { byId, classesOf, el, fill, photosOf, show } from "./dom.js";
import { dropPlace } from "./drop.js";
import { happened } from "./history.js";
import { classCalled, suggestNames } from "./names.js";
import { mayTeach, refresh, state } from "./state.js";
import { localTime, t } from "./texts.js";

const PAGE = 60;
const CHANGES = 10;
const FEW = 5; // photos, below which a class is known too little
let shown = 0;
let changes = 0;
let looks = 0;
let turn = 0; // answers to an older search are thrown away
let addPhotos = () => {};
let doubts = { version: 0, of: new Map(), count: new Map() };
const opened = new Set(); // classes whose photos are shown

export function classes(teachClass) {
  addPhotos = teachClass;
  let typing = 0;
  byId("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(list, 150); });
  byId("order").addEventListener("change", list);
  byId("classes-more").addEventListener("click", () => more(true));
  byId("history-more").addEventListener("click", older);
  byId("undo").addEventListener("click", () => step("undo"));
  byId("redo").addEventListener("click", () => step("redo"));
  suggestNames(byId("ask-input"));
  byId("refit-go").addEventListener("click", async () => {
    byId("refit-go").disabled = true;
    await act(t("classes.refitted"), () => call("POST", "/v1/refit"));
    byId("refit-go").disabled = false;
  });
  dropPlace(byId("reject-drop"), { id: "reject", text: t("drop.photos"), take: reject });
  new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting) && !byId("classes-more").hidden) more(false);
  }, { rootMargin: "400px" }).observe(byId("classes-more"));
  document.addEventListener("cala-model", () => { if (!byId("classes").hidden) openClasses(); });
}

export function openClasses() {
  byId("undo").disabled = !mayTeach() || !state.model.can_undo;
  byId("redo").disabled = !mayTeach() || !state.model.can_redo;
  byId("reject").hidden = !mayTeach();
  byId("refit").hidden = !mayTeach() || !state.model.refit_pays;
  list();
  judge();
  changes = 0;
  looks += 1;
  older();
}

// What to expect, and which photos are doubtful: worked out once for each version.
async function judge() {
  if (doubts.version === state.model.version) return;
  let found;
  try { found = await call("GET", "/v1/estimate"); } catch { return; }
  doubts = { version: found.version, of: new Map(), count: new Map() };
  for (const one of found.doubtful) {
    doubts.of.set(one.sha256, one.answer === one.label ? t("classes.unlike") : t("classes.looks-like", { name: one.answer }));
    doubts.count.set(one.label, (doubts.count.get(one.label) || 0) + 1);
  }
  const { right, photos, accuracy, low, high, enough } = found.all;
  const whole = (share) => Math.min(99, Math.round(100 * share));
  const expected = right === photos ? t("classes.expect-all", { low: Math.floor(100 * low) })
    : t("classes.expect", { share: whole(accuracy), low: whole(low), high: whole(high) });
  show(byId("expect"), [
    enough ? expected : "",
    ...found.confused.slice(0, 3).map((pair) => t("classes.confused", pair)),
    found.doubtful.length ? t("classes.doubtful", { n: found.doubtful.length }) : "",
  ].filter(Boolean).join(" "));
  list();
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
    const nothing = search ? t("classes.nothing", { search })
      : order === "new" ? t("classes.no-new") : "";
    byId("classes-count").textContent = !found.found ? nothing
      : found.found < found.total ? t("classes.some", { found: classesOf(found.found), total: found.total }) : classesOf(found.found);
  } catch (error) {
    if (mine === turn) byId("classes-count").textContent = words(error);
  } finally { if (loading === mine) loading = null; }
}

function card(row) {
  const change = mayTeach() ? el("div", { class: "row changes" },
    button(t("classes.add-photos"), row, () => addPhotos(row)),
    button(t("classes.rename"), row, () => rename(row)),
    button(t("classes.merge"), row, () => merge(row)),
    button(t("classes.forget"), row, () => forget(row))) : null;
  const like = t("looks-like", { name: row.closest.name });
  const doubtful = doubts.count.get(row.name) || 0;
  return landing(row, el("li", {},
    face(row.thumbnails[0], row.name),
    el("div", { class: "grow" },
      el("strong", { tabindex: "-1" }, row.name),
      row.kind === "new" ? el("span", { class: "tag new" }, t("classes.new")) : null,
      doubtful ? el("span", { class: "tag doubt" }, t("classes.doubts", { n: doubtful })) : null,
      el("div", { class: "hint" }, row.photos < FEW ? t("classes.few", { like }) : like)),
    change,
    photos(row)));
}

// A photo of another class can be dragged here; "It is …" does the same without a mouse.
const DRAGGED = "application/x-cala-photo";

function landing(row, node) {
  const carries = (event) => event.dataTransfer.types.includes(DRAGGED);
  node.addEventListener("dragover", (event) => node.classList.toggle("over", carries(event)));
  node.addEventListener("dragleave", () => node.classList.remove("over"));
  node.addEventListener("drop", (event) => {
    node.classList.remove("over");
    if (!carries(event)) return;
    const [digest, from] = JSON.parse(event.dataTransfer.getData(DRAGGED));
    if (from !== row.name) act(t("classes.moved", { from, to: row.name }), () => relabel(row.name, digest));
  });
  return node;
}

const relabel = (name, digest) => call("POST", "/v1/photos", { json: { name, images: [{ id: digest }] } });

// All photos of a class, with what can be done about one that is wrong.
function photos(row) {
  const tiles = el("ul", { class: "tiles small" });
  const fillIn = async () => {
    if (tiles.firstChild) return;
    try {
      const found = await call("GET", `/v1/classes/${encodeURIComponent(row.id)}`);
      fill(tiles, found.digests.map((digest, place) => tile(row, digest, place)));
    } catch (error) { trouble(error); }
  };
  const node = el("details", { class: "photos", open: opened.has(row.id) }, el("summary", {}, photosOf(row.photos)), tiles);
  node.addEventListener("toggle", () => {
    if (node.open) opened.add(row.id); else opened.delete(row.id);
    if (node.open) fillIn();
  });
  if (node.open) fillIn();
  return node;
}

function tile(row, digest, place) {
  const doubt = doubts.of.get(digest);
  const about = t("classes.photo", { n: place + 1, name: row.name });
  const small = (text, run) => el("button", { type: "button", class: "small", "aria-label": t("classes.about", { what: text, name: about }), onclick: run }, text);
  const drag = (event) => event.dataTransfer.setData(DRAGGED, JSON.stringify([digest, row.name]));
  return el("li", { class: doubt ? "doubtful" : "", draggable: mayTeach() ? "true" : null, ondragstart: drag }, face(digest, row.name), doubt ? el("span", { class: "doubt" }, doubt) : null,
    mayTeach() ? [
      small(t("classes.it-is"), () => move(row, digest)),
      row.photos > 1 ? small(t("remove"), () => act(t("classes.removed", { name: row.name }), () => call("DELETE", `/v1/classes/${encodeURIComponent(row.id)}/photos/${digest}`))) : null] : null);
}

const button = (text, row, run) => el("button", { type: "button", class: "small", "aria-label": t("classes.about", { what: text, name: row.name }), onclick: run }, text);

async function act(text, work) {
  try {
    await work();
    await changed(text);
  } catch (error) { trouble(error); }
}

async function move(row, digest) {
  const done = await ask({
    title: t("classes.move-title"), label: t("classes.move-name"), names: true, yes: t("classes.move-go"),
    act: (name) => relabel(name, digest),
  });
  if (done) await changed(t("classes.moved", { from: row.name, to: done.name }));
}

async function merge(row) {
  const done = await ask({
    title: t("classes.merge-title", { name: row.name }), text: t("classes.merge-text", { name: row.name }),
    label: t("classes.merge-other"), names: true, yes: t("classes.merge"),
    act: async (name) => {
      const into = await classCalled(name);
      if (!into) throw new Error(t("classes.no-such", { name }));
      await call("POST", `/v1/classes/${encodeURIComponent(row.id)}/merge`, { json: { into: into.id } });
      return into;
    },
  });
  if (done) await changed(t("classes.merged", { from: row.name, to: done.name }));
}

async function rename(row) {
  const done = await ask({
    title: t("classes.rename-title", { name: row.name }), label: t("classes.rename-name"), value: row.name, names: true, yes: t("classes.rename"),
    act: async (name) => {
      try {
        return await call("PATCH", `/v1/classes/${encodeURIComponent(row.id)}`, { json: { name } });
      } catch (error) {
        throw error.code === "class_exists" ? new Error(t("classes.rename-taken", { name })) : error;
      }
    },
  });
  if (done) await changed(t("classes.renamed", { name: done.class.name }));
}

const forget = (row) => act(t("classes.forgotten", { name: row.name }), () => call("DELETE", `/v1/classes/${encodeURIComponent(row.id)}`));

async function reject(files) {
  const form = new FormData();
  files.forEach(({ file }) => form.append("images", file, file.name));
  byId("reject-said").textContent = t("classes.reject-looking");
  await act(t("rejected", { n: files.length }), () => call("POST", "/v1/reject", { form }));
  byId("reject-said").textContent = "";
}

async function step(which) {
  const node = byId(which);
  node.disabled = true;
  try {
    await call("POST", `/v1/${which}?version=${state.model.version}`);
    await refresh();
  } catch (error) {
    trouble(error);
    await refresh();
  }
}

async function older() {
  const start = changes;
  const mine = looks;
  try {
    const found = await call("GET", `/v1/history?offset=${start}&limit=${CHANGES}`);
    if (mine !== looks || start !== changes) return; // a newer look, or one that was quicker
    if (start === 0) fill(byId("history"));
    changes += found.changes.length;
    byId("history").append(...found.changes.map((one) => el("li", { value: one.version }, happened(one),
      el("time", { datetime: one.time }, localTime(one.time)))));
    byId("history-more").hidden = changes >= found.total;
  } catch { /* the banner says it */ }
}
