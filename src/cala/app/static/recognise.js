// Recognise: a card for each photo with its answer, corrected in one click; many photos are a grid.

import { call, face, newKey, words } from "./api.js";
import { changed, trouble } from "./changes.js";
import { bar, byId, el, fill, percent, photosOf, picture, say, sure } from "./dom.js";
import { dropPlace } from "./drop.js";
import { drop, keepAnswer, keepPhoto, keptPhotos } from "./kept.js";
import { live, openLive } from "./live.js";
import { suggestNames } from "./names.js";
import { save, table, zip } from "./saving.js";
import { mayTeach, photoForm, remember, sender, state, tooLarge } from "./state.js";
import { number, t } from "./texts.js";

const TOP = 9; // one for each key
const GRID = 3; // more photos than that are a grid
const TOGETHER = 50; // photos that are named in one request
const UNSURE = 0.7; // below it an answer is uncertain
const ASK = `/v1/predict?top=${TOP}`;
const NONE = ""; // what a photo of none of the classes is called
const UNKNOWN = "unknown"; // as the service calls it, and no class

let items = []; // {file, name, id, answer, version, error, said, node, body, box}, newest first

export function recognise() {
  dropPlace(byId("recognise-drop"), {
    id: "recognise", text: t("drop.photos"), live: openLive,
    take: (files) => add(files.map(({ file, path }) => ({ file, name: path }))),
  });
  byId("filter").addEventListener("change", arrange);
  byId("sort").addEventListener("change", arrange);
  byId("save-csv").addEventListener("click", saveTable);
  byId("save-zip").addEventListener("click", saveFolders);
  byId("clear").addEventListener("click", () => { remove(items); byId("recognise-files").focus(); });
  byId("sample-go").addEventListener("click", trySamples);
  byId("recognise-results").addEventListener("keydown", keys);
  picking();
  live();
  document.addEventListener("cala-model", () => { byId("sample").hidden = !state.model.sample || items.length > 0; again(); });
  document.addEventListener("cala-model", restore, { once: true });
}

// Photos arrive, are sent two at a time, and stay for a reload.

function add(files) {
  const fresh = files.map((one) => card({ id: "", answer: null, version: 0, said: null, ...one, error: "" }));
  items = [...fresh.slice().reverse(), ...items];
  byId("recognise-results").prepend(...fresh.map((item) => item.node).reverse());
  for (const item of fresh) {
    if (item.key === undefined) keepPhoto(item);
    if (item.answer) tell(item);
    else send(item);
  }
  summary();
}

async function restore() {
  const found = await keptPhotos();
  if (!found.length) return;
  add(found);
  again();
}

const send = sender(async (item) => {
  const count = el("p", { class: "hint" }, t("recognise.waiting"));
  const progress = el("progress", { max: 1, value: 0, "aria-label": t("recognise.sending-one", { name: item.name }) });
  fill(item.body, progress, count);
  item.error = "";
  try {
    const large = tooLarge(item.file);
    if (large) throw new Error(large);
    const found = await call("POST", ASK, {
      form: photoForm(item.file),
      progress: (share) => {
        progress.value = share;
        count.textContent = share < 1 ? t("recognise.sending", { share: percent(share) }) : t("recognise.looking");
      },
    });
    answered(item, found.predictions[0], found.version);
    if (items.length <= GRID) say(`${item.name}: ${spoken(item.answer)}`);
  } catch (error) { failed(item, error); }
  summary();
  if (!items.some((one) => !one.answer && !one.error)) { // all are answered
    if (byId("sort").value === "unsure") arrange();
    sumUp();
    if (items.length > GRID) say(byId("recognise-summary").textContent);
  }
});

function failed(item, error) {
  item.box.checked = false;
  item.node.classList.add("waiting");
  item.error = words(error);
  const again = ["bad_image", "file_too_large"].includes(error.code) || !error.code ? null
    : el("button", { type: "button", onclick: () => { send(item); summary(); } }, t("try-again"));
  fill(item.body,
    el("p", { class: "error", role: "alert" }, item.error),
    el("div", { class: "row" }, again,
      el("button", { type: "button", "aria-label": t("remove.named", { name: item.name }), onclick: () => remove([item]) }, t("remove"))));
}

function remove(some) {
  items = items.filter((item) => !some.includes(item));
  some.forEach((item) => { URL.revokeObjectURL(item.url); item.node.remove(); });
  drop(some);
  summary();
}

// Answers follow the model, as far as the service remembers the photos; the others are sent again.
let asking = false;
async function again() {
  if (asking) return;
  asking = true;
  try {
    for (;;) {
      const version = state.model.version;
      const old = items.filter((item) => item.answer && item.version !== version).slice(0, TOGETHER);
      if (!old.length) break;
      let found = { predictions: [] };
      const ids = [...new Set(old.map((item) => item.id))];
      try {
        found = await call("POST", ASK, { json: { images: ids.map((id) => ({ id })) } });
      } catch (error) { if (error.code !== "photo_gone") break; }
      const answers = new Map(found.predictions.map((answer) => [answer.id, answer]));
      for (const item of old) {
        const answer = answers.get(item.id);
        if (answer) answered(item, answer, Math.max(version, found.version));
        else { item.answer = null; send(item); }
      }
    }
  } finally { asking = false; }
  summary();
}

// One card.

function card(item) {
  item.url = URL.createObjectURL(item.file);
  const image = picture(item.url, item.name, {
    alt: t("recognise.photo", { name: item.name }), loading: "lazy", instead: (blank) => { item.blank = blank; smallCopy(item); },
  });
  item.body = el("div", { class: "body" });
  item.box = el("input", { type: "checkbox", "aria-label": t("recognise.select", { name: item.name }) });
  item.box.addEventListener("change", picked);
  item.frame = el("div", { class: "frame" }, image, el("label", { class: "select" }, item.box));
  item.node = el("article", { class: "card answer waiting", tabindex: "0", "aria-label": item.name }, item.frame, item.body);
  return item;
}

// Browsers do not show every format; the service has a small copy of what it could read.
function smallCopy(item) {
  if (!item.answer || !item.blank) return;
  item.blank.replaceWith(face(item.id, item.name));
  item.blank = null;
}

function answered(item, answer, version) {
  const before = item.answer;
  Object.assign(item, { id: answer.id, answer, version, error: "" });
  remember(answer.id, item.file, answer);
  keepAnswer(item);
  if (before && before.label !== answer.label) item.was = before.label;
  smallCopy(item);
  // What is being typed or read is not taken away.
  if (item.body.contains(document.activeElement) && item.body.querySelector("form") && before) item.stale = true;
  else tell(item);
}

export const spoken = (answer) => (isUnknown(answer) ? `${t("unknown")}, ${t("looks-like", { name: answer.best })}` : `${answer.label}, ${sure(answer.probability)}`);
const isUnknown = (answer) => answer.label !== answer.best;
const isUnsure = (item) => item.answer && item.said === null && (isUnknown(item.answer) || item.answer.probability < UNSURE);
const called = (item) => (item.said === null ? item.answer.label : item.said || UNKNOWN);
const shownName = (label) => (label === UNKNOWN ? t("unknown") : label);

function tell(item) {
  const { answer } = item;
  const unknown = isUnknown(answer);
  const open = item.body.querySelector("details[open]");
  const said = item.said === null ? null
    : el("p", { class: "said" }, item.said === NONE ? t("recognise.you-said-none") : t("recognise.you-said", { name: item.said }));
  item.node.setAttribute("aria-label", `${item.name}: ${item.said === null ? spoken(answer) : shownName(called(item))}`);
  item.node.classList.toggle("done", item.said !== null);
  item.node.classList.remove("waiting");
  fill(item.body,
    el("p", { class: "big" }, item.said || (unknown ? t("unknown.title") : answer.label)),
    said || el("p", { class: "hint" }, unknown ? t("recognise.nothing-fits", { name: answer.best }) : sure(answer.probability)),
    item.was && item.was !== answer.label && !said ? el("p", { class: "hint" }, t("recognise.before", { name: shownName(item.was) })) : null,
    mayTeach() ? verdict(item, unknown) : null,
    why(item, unknown, Boolean(open)),
    el("p", { class: "file" }, item.name));
  item.stale = false;
}

function verdict(item, unknown) {
  const place = el("div");
  const no = el("button", {
    type: "button", class: "small", "aria-expanded": "false",
    onclick: () => {
      const open = !place.firstChild;
      fill(place, open ? correction(item) : null);
      no.setAttribute("aria-expanded", String(open));
      if (open) place.querySelector("input").focus();
      else if (item.stale) tell(item);
    },
  }, item.said !== null ? t("recognise.change") : unknown ? t("recognise.it-is") : t("recognise.no-it-is"));
  const right = item.said !== null ? null : unknown
    ? el("button", { type: "button", class: "small", onclick: () => none([item]) }, t("recognise.none"))
    : el("button", { type: "button", class: "small yes", onclick: () => name([item], item.answer.label) }, t("recognise.right"));
  return [el("div", { class: "row verdict" }, unknown ? [no, right] : [right, no]), place];
}

function correction(item) {
  const input = suggestNames(el("input", { maxlength: 200, required: true, placeholder: t("recognise.its-name"), "aria-label": t("recognise.what-is", { name: item.name }) }));
  const unknown = isUnknown(item.answer);
  return el("form", {
    class: "correct",
    onsubmit: (event) => { event.preventDefault(); name([item], input.value); },
  },
  el("div", { class: "chips" }, item.answer.top.slice(0, 4).map((one, place) => (place || unknown || item.said !== null
    ? el("button", { type: "button", class: "small", onclick: () => name([item], one.label) }, el("kbd", {}, String(place + 1)), ` ${one.label}`) : null))),
  el("div", { class: "row tight" }, el("div", { class: "grow" }, input), el("button", { class: "small", type: "submit" }, t("recognise.ok"))),
  unknown && item.said === null ? null
    : el("button", { type: "button", class: "small", onclick: () => none([item]) }, t("recognise.none")));
}

// The photos themselves say best why: those that it learned and that look most like this one.
function why(item, unknown, open) {
  const { answer } = item;
  const place = el("div", { class: "like" });
  const node = el("details", { open }, el("summary", {}, t("recognise.why")));
  const bars = () => [
    el("ul", { class: unknown ? "bars unsure" : "bars", "aria-label": t("recognise.likeliest") }, answer.top.slice(0, 5).map((one) => el("li", {},
      el("span", { class: "name", title: one.label }, one.label), bar(one.probability),
      el("span", { class: "share" }, `${number(Math.min(99, 100 * one.probability))} %`)))),
    unknown ? el("p", { class: "hint" }, t("recognise.bars")) : ""];
  const fillIn = async () => {
    item.node.classList.toggle("open", node.open);
    if (!node.open || place.parentNode) return;
    node.append(place, ...bars());
    let near = answer.top.slice(0, 4).map((one) => ({ id: one.thumbnail, label: one.label }));
    try {
      const found = await call("POST", `${ASK}&similar=6`, { json: { images: [{ id: item.id }] } });
      if (found.predictions[0].similar.length) near = found.predictions[0].similar;
    } catch { /* the classes' own pictures then */ }
    fill(place, el("p", {}, t("looks-like.photos")),
      el("ul", { class: "near" }, near.map((one) => el("li", {}, face(one.id, one.label), one.label))));
  };
  node.addEventListener("toggle", fillIn);
  if (open) fillIn();
  return node;
}

// Corrections: photos get a name, or are none of the classes; then the next one waits.

async function name(some, given) {
  const label = given.normalize("NFC").trim();
  if (!label) return;
  busy(some, true);
  try {
    const images = some.map((item) => ({ id: item.id, name: item.name }));
    const key = newKey();
    let taught;
    try {
      taught = await call("POST", "/v1/photos", { json: { name: label, images }, key });
    } catch (error) {
      if (error.code !== "photo_gone") throw error;
      const form = new FormData();
      form.append("name", label);
      some.forEach((item) => form.append("images", item.file, item.name));
      taught = await call("POST", "/v1/photos", { form, key });
    }
    const undo = settled(some, taught.name);
    const fresh = taught.kind === "new" && taught.photos === taught.added;
    await changed(t(fresh ? "learned.new" : "learned", { name: taught.name, n: some.length }), undo);
    if (taught.alike) trouble(new Error(t("alike", { name: taught.alike })));
  } catch (error) { trouble(error); busy(some, false); }
}

async function none(some) {
  busy(some, true);
  try {
    const images = some.map((item) => ({ id: item.id }));
    try {
      await call("POST", "/v1/reject", { json: { images } });
    } catch (error) {
      if (error.code !== "photo_gone") throw error;
      const form = new FormData();
      some.forEach((item) => form.append("images", item.file, item.name));
      await call("POST", "/v1/reject", { form });
    }
    const undo = settled(some, NONE);
    await changed(t("rejected", { n: some.length }), undo);
  } catch (error) { trouble(error); busy(some, false); }
}

function settled(some, said) {
  const shown = visible();
  const last = Math.max(...some.map((item) => shown.indexOf(item)));
  const before = new Map(some.map((item) => [item, item.said]));
  const say = (item, what) => { item.said = what; keepAnswer(item); tell(item); };
  some.forEach((item) => { item.box.checked = false; say(item, said); });
  const next = [...shown.slice(last + 1), ...shown].find((item) => item.answer && item.said === null);
  (next || some[0]).node.focus({ preventScroll: !byKey }); // who clicks stays where they are
  byKey = false;
  picked();
  summary();
  return (undone) => { some.forEach((item) => say(item, undone ? before.get(item) : said)); summary(); };
}

const busy = (some, on) => some.forEach((item) => item.body.querySelectorAll("button, input").forEach((node) => { node.disabled = on; }));

let byKey = false;
// 1 to 9 name the photo whose card has the focus as its first, second … likeliest class.
function keys(event) {
  if (event.target.closest("input:not([type=checkbox])") || event.ctrlKey || event.metaKey || event.altKey) return;
  const item = items.find((one) => one.node.contains(event.target));
  if (!item || !item.answer) return;
  const shown = visible();
  const to = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (to) {
    const next = shown[shown.indexOf(item) + to];
    if (next) next.node.focus();
    event.preventDefault();
  } else if (/^[1-9]$/.test(event.key) && mayTeach()) {
    const chosen = item.answer.top[Number(event.key) - 1];
    byKey = true;
    if (chosen) name([item], chosen.label);
    event.preventDefault();
  } else if (event.key === " " && event.target === item.node) {
    item.box.checked = !item.box.checked;
    picked();
    event.preventDefault();
  }
}

// Several at once.

const chosen = () => items.filter((item) => item.box.checked && item.answer);

function picking() {
  suggestNames(byId("picked-name"));
  byId("picked").addEventListener("submit", (event) => {
    event.preventDefault();
    if (chosen().length) name(chosen(), byId("picked-name").value);
    byId("picked-name").value = "";
  });
  byId("picked-none").addEventListener("click", () => none(chosen()));
  byId("picked-all").addEventListener("click", () => { visible().forEach((item) => { item.box.checked = Boolean(item.answer); }); picked(); });
  byId("picked-remove").addEventListener("click", () => { remove(chosen()); picked(); });
  byId("picked-clear").addEventListener("click", () => { items.forEach((item) => { item.box.checked = false; }); picked(); });
}

function picked() {
  const count = chosen().length;
  byId("picked").hidden = !count || !mayTeach();
  items.forEach((item) => item.node.classList.toggle("picked", item.box.checked));
  byId("picked-count").textContent = t("picked.count", { n: count });
}

// The list: what is in it, which of it is shown, in which order, and as files.

const visible = () => Array.from(byId("recognise-results").children, (node) => items.find((item) => item.node === node)).filter((item) => item && !item.node.hidden);

const FILTERS = {
  all: () => true,
  unsure: isUnsure,
  unknown: (item) => item.answer && called(item) === UNKNOWN,
  said: (item) => item.said !== null,
  failed: (item) => Boolean(item.error),
};
const test = (value) => (FILTERS[value] ? FILTERS[value] : (item) => item.answer && called(item) === value.slice(6));

function tally() {
  const counts = new Map();
  items.filter((item) => item.answer).forEach((item) => counts.set(called(item), (counts.get(called(item)) || 0) + 1));
  return [...counts].sort((a, b) => (a[0] === UNKNOWN) - (b[0] === UNKNOWN) || b[1] - a[1]);
}

let due = 0;
// Many answers in a moment are summed up once.
function summary() {
  if (!due) due = setTimeout(() => { due = 0; sumUp(); }, items.length > 100 ? 250 : 0);
}

function sumUp() {
  byId("recognise-tools").hidden = items.length <= GRID;
  byId("sample").hidden = !state.model || !state.model.sample || items.length > 0;
  byId("recognise-results").classList.toggle("grid", items.length > GRID);
  const counts = tally();
  const waiting = items.filter((item) => !item.answer && !item.error).length;
  const bad = items.filter((item) => item.error).length;
  const some = counts.slice(0, 8).map(([label, count]) => `${number(count)} ${shownName(label)}`);
  if (counts.length > 8) some.push(t("recognise.more-classes", { n: counts.length - 8 }));
  if (bad) some.push(t("recognise.unread", { n: bad }));
  const photos = photosOf(items.length);
  const all = waiting ? t("recognise.still", { photos, n: waiting }) : photos;
  byId("recognise-summary").textContent = some.length ? `${all}: ${some.join(", ")}` : all;
  const select = byId("filter");
  const now = select.value || "all";
  const options = [
    ...Object.entries(FILTERS).map(([value, fits]) => [value, t(`filter.${value}`), items.filter(fits).length]),
    ...counts.filter(([label]) => label !== UNKNOWN).map(([label, count]) => [`class:${label}`, label, count])];
  fill(select, options.filter(([value, , count]) => value === "all" || count || value === now).map(([value, text, count]) => el("option", { value }, `${text} (${number(count)})`)));
  select.value = now;
  if (select.value !== now) { select.value = "all"; arrange(); }
}

// Unknown ones first, then those whose two likeliest classes are closest.
function certainty({ answer, said }) {
  if (!answer) return 3;
  const [first, second] = answer.top;
  return (said === null ? 0 : 2) + (isUnknown(answer) ? -1 : 0) + first.probability - (second ? second.probability : 0);
}

function arrange() {
  const fits = test(byId("filter").value);
  const order = byId("sort").value === "unsure" ? items.slice().sort((a, b) => certainty(a) - certainty(b)) : items;
  order.forEach((item) => { item.node.hidden = !fits(item); });
  byId("recognise-results").append(...order.map((item) => item.node));
}

function saveTable() {
  const yes = t("table.yes");
  const heads = ["photo", "class", "named", "probability", "unknown", "likeliest", "second"];
  const rows = items.filter((item) => !item.node.hidden).map((item) => (item.answer
    ? [item.name, shownName(called(item)), item.said === null ? "" : yes, item.answer.probability.toFixed(4), isUnknown(item.answer) ? yes : "", item.answer.best, (item.answer.top[1] || { label: "" }).label]
    : [item.name, "", "", "", "", "", item.error]));
  save(`${state.model.name}.csv`, table([heads.map((head) => t(`table.${head}`)), ...rows]));
}

async function saveFolders() {
  const button = byId("save-zip");
  button.disabled = true;
  try {
    const some = items.filter((item) => item.answer && !item.node.hidden);
    save(`${state.model.name}.zip`, await zip(some.map((item) => ({ folder: shownName(called(item)), name: item.name.split("/").pop(), file: item.file }))));
  } catch (error) { trouble(error); }
  button.disabled = false;
}

async function trySamples() {
  const button = byId("sample-go");
  button.disabled = true;
  try {
    const { samples } = await call("GET", "/v1/samples");
    const files = await Promise.all(samples.map(async ({ url }, place) => {
      const blob = await call("GET", url, { blob: true });
      const name = t("recognise.drawn", { n: place + 1 });
      return { file: new File([blob], name, { type: "image/jpeg" }), name };
    }));
    add(files);
  } catch (error) { trouble(error); }
  button.disabled = false;
}
