// Check: labelled photos are sent a few at a time, judged together, and every operating point can be tried.

import { call, face, words } from "./api.js";
import { byId, el, fill, percent, photosOf, say, show } from "./dom.js";
import { dropPlace } from "./drop.js";
import { labelledPhotos } from "./labelled.js";
import { mayTeach, refresh, tooLarge } from "./state.js";
import { number, t } from "./texts.js";
import { certain, curve, judge, points, pointOf } from "./trade_off.js";

const MOST = 2000; // more go as a zip file
const TOGETHER = 4;
const WRONG = 24; // photos that went wrong, shown at a time
const FEW = 20; // photos, below which nothing can be told, as for `cala fit`
let stop = null;

export function check() {
  dropPlace(byId("check-drop"), {
    id: "check", text: t("drop.labelled"), folder: true, zip: true, camera: false, take: run,
  });
  byId("check-stop").addEventListener("click", () => stop && stop.abort());
}

async function run(files) {
  if (stop) stop.abort();
  const mine = new AbortController();
  stop = mine;
  show(byId("check-error"), "");
  fill(byId("check-result"));
  byId("check-progress").hidden = false;
  try {
    const zip = files.length === 1 && /\.zip$/i.test(files[0].path) ? files[0].file : null;
    const found = zip ? await sendZip(zip, mine.signal) : await sendPhotos(files, mine.signal);
    tell(found);
  } catch (error) {
    if (error.name !== "AbortError") show(byId("check-error"), words(error));
  } finally {
    if (stop === mine) byId("check-progress").hidden = true;
  }
}

function progress(share, text) {
  if (share === null) byId("check-bar").removeAttribute("value");
  else byId("check-bar").value = share;
  byId("check-count").textContent = text;
}

function sendZip(file, signal) {
  const form = new FormData();
  form.append("archive", file, "archive.zip");
  progress(0, t("check.sending-zip", { share: percent(0) }));
  return call("POST", "/v1/evaluate", {
    form, signal,
    progress: (share) => (share < 1 ? progress(share, t("check.sending-zip", { share: percent(share) })) : progress(null, t("check.looking"))),
  });
}

async function sendPhotos(files, signal) {
  const found = labelledPhotos(files);
  let labelled = found.photos;
  if (labelled.length > MOST) throw new Error(t("check.most", { n: labelled.length, most: MOST }));
  const named = [];
  const bad = labelled.filter((one) => tooLarge(one.file)).map((one) => ({ image: one.file.name }));
  labelled = labelled.filter((one) => !tooLarge(one.file));
  for (let start = 0; start < labelled.length; start += TOGETHER) {
    const part = labelled.slice(start, start + TOGETHER);
    progress(start / labelled.length, t("check.looked", { done: start, photos: photosOf(labelled.length) }));
    const form = new FormData();
    part.forEach((one, place) => form.append("images", one.file, String(place)));
    let answers = { predictions: [], errors: [] };
    try {
      answers = await call("POST", "/v1/predict?top=1&unknown=off", { form, signal });
    } catch (error) {
      if (!["bad_image", "file_too_large"].includes(error.code)) throw error;
      bad.push(...part.map((one) => ({ image: one.file.name, detail: words(error) })));
    }
    answers.predictions.forEach((answer) => named.push({ id: answer.id, label: part[Number(answer.image)].label, name: part[Number(answer.image)].file.name }));
    bad.push(...answers.errors.map((error) => ({ ...error, image: part[Number(error.image)].file.name })));
  }
  if (!named.length) throw new Error(t("check.none-read", { n: labelled.length }));
  progress(1, t("check.judging"));
  const judged = await call("POST", "/v1/evaluate", { json: { images: named }, signal });
  judged.errors.push(...bad);
  judged.others = found.others;
  return judged;
}

function tell(found) {
  const result = byId("check-result");
  const notes = [];
  if (found.learned_from) notes.push(t("check.learned-from", { n: found.learned_from }));
  if (found.errors.length) notes.push(t("check.unread", { n: found.errors.length, name: found.errors[0].image }));
  if (found.others) notes.push(t("files-left-out", { n: found.others }));
  const strange = found.unknown.strange_photos;
  if (found.photos && found.photos < FEW) notes.push(t("check.few", { n: found.photos }));
  fill(result,
    el("h3", {}, photosOf(found.photos + strange)),
    notes.map((text) => el("p", { class: "note" }, text)),
    el("div", { id: "check-live" }),
    strange ? el("p", {}, t("check.strangers", { names: named(found.strangers), share: percent(found.unknown.strange), n: strange })) : null,
    el("details", {}, el("summary", {}, t("check.every-class")),
      el("div", { class: "scroll" }, table([t("check.class"), t("check.photos"), t("check.right")], found.classes.map((one) => [one.name, one.photos, percent(one.right / one.photos)])))));
  live(found.trade_off);
  refresh().catch(() => {}); // others may have taught meanwhile
  say(t("check.said", { photos: photosOf(found.photos), share: percent(found.accuracy) }));
  result.focus();
}

function named(strangers) {
  const some = Object.entries(strangers).slice(0, 10).map(([name, count]) => `${name} (${number(count)})`);
  return some.join(", ") + (Object.keys(strangers).length > 10 ? ", …" : "");
}

function table(heads, rows) {
  const number = (value) => (typeof value === "number" || /%$/.test(value) ? "number" : "");
  return el("table", {},
    el("thead", {}, el("tr", {}, heads.map((head, place) => el("th", { scope: "col", class: rows[0] ? number(rows[0][place]) : "" }, head)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value) => el("td", { class: number(value) }, String(value)))))));
}

// Everything below the slider follows from one number per photo: the shift from which on a new class wins.
function live(data) {
  const all = points(data);
  const tested = data.true.some((place) => place >= data.n_known);
  const start = pointOf(all, data.delta);
  const numbers = el("div", { class: "numbers", role: "group", "aria-label": t("check.accuracy") });
  const confusion = el("div");
  const favours = el("p", { id: "check-words", role: "status" });
  const drawing = curve(data, all);
  const slider = el("input", { type: "range", id: "check-slider", min: 0, max: all.length - 1, step: 1, "aria-describedby": "check-words" });
  slider.value = start;
  const before = judge(data, data.delta);
  const keep = el("button", { type: "button", class: "main", disabled: true }, t("check.keep"));
  const said = el("p", { class: "hint", role: "status" });
  const draw = () => {
    const place = Number(slider.value);
    const now = judge(data, place === start ? data.delta : all[place]);
    fill(numbers, tile(t("check.all-right"), now.all),
      tested ? [tile(t("check.of-old"), now.known), tile(t("check.of-new"), now.new)] : null,
      now.answered.right === now.all.right ? null : tile(t("check.answered"), now.answered));
    fill(confusion, wrong(data, now),
      now.mistakes.length ? el("details", {}, el("summary", {}, t("check.mistakes")),
        el("div", { class: "scroll" }, table([t("check.photos-of"), t("check.taken-for"), t("check.how-often")], now.mistakes))) : null);
    drawing.move(now);
    favours.textContent = inWords(place - start, before, now);
    slider.setAttribute("aria-valuetext", favours.textContent);
    keep.disabled = place === start || !mayTeach();
  };
  slider.addEventListener("input", draw);
  keep.addEventListener("click", async () => {
    keep.disabled = true;
    try {
      await call("PATCH", "/v1/model", { json: { delta: all[Number(slider.value)] } });
      data.delta = all[Number(slider.value)];
      await refresh();
      live(data);
      byId("check-kept").textContent = t("check.kept");
      byId("check-slider").focus();
    } catch (error) { said.textContent = words(error); }
  });
  said.id = "check-kept";
  const movable = all.length > 1 && tested;
  fill(byId("check-live"), numbers,
    movable ? el("div", { class: "card" },
      el("label", { for: "check-slider" }, t("check.favour")), slider,
      el("div", { class: "ends" }, el("span", {}, t("check.old")), el("span", {}, t("check.new"))),
      favours, mayTeach() ? keep : null, said,
      el("details", {}, el("summary", {}, t("check.curve")), drawing.node))
      : el("p", { class: "hint" }, data.classes.length === data.n_known ? t("check.no-new")
        : t("check.none-new")),
    confusion);
  draw();
}

function tile(name, count) {
  const { share, low, high } = certain(count);
  const likely = t("check.likely", { low: Math.floor(100 * low), high: Math.ceil(100 * high) });
  return el("div", {}, el("b", {}, percent(share)), el("small", {}, name), el("br"),
    el("small", {}, `${t("check.count", { right: count.right, n: count.photos })}${count.photos < FEW ? "" : `; ${likely}`}`));
}

// What moving the slider means, counted in photos.
function inWords(moved, before, now) {
  if (!moved) return t("check.as-now");
  const more = (kind, side) => {
    const gain = now.cells[kind][0] - before.cells[kind][0];
    return gain ? t(`check.${side}-${gain > 0 ? "more" : "fewer"}`, { n: Math.abs(gain) }) : "";
  };
  const parts = [more("new", "new"), more("known", "old")].filter(Boolean);
  return t(moved > 0 ? "check.favours-new" : "check.favours-old", { what: parts.join(", ") || t("check.same") });
}

// The photos that went wrong, as pictures: one sees whether the label or the answer is wrong.
function wrong(data, now) {
  const kinds = Object.entries(now.wrong).filter(([, photos]) => photos.length);
  if (!kinds.length) return el("p", {}, t("check.no-wrong"));
  return el("div", { id: "check-wrong" }, kinds.map(([kind, photos]) => {
    const tiles = el("ul", { class: "tiles" });
    const more = el("button", { type: "button", onclick: () => showMore() }, t("show-more"));
    const showMore = () => {
      const there = tiles.children.length;
      tiles.append(...photos.slice(there, there + WRONG).map((photo) => mistaken(data, kind, photo)));
      more.hidden = tiles.children.length === photos.length;
    };
    showMore();
    return [el("h3", {}, t(`check.wrong-${kind}`, { n: photos.length })), tiles, more];
  }));
}

const mistaken = (data, kind, [photo, taken]) => el("li", {},
  face(data.id[photo], data.label[photo]),
  kind === "unknown" ? null : [el("span", {}, `${t("check.taken-for")} `, el("b", {}, data.classes[taken])), el("br")],
  el("span", {}, t("check.photo-labelled", { name: data.label[photo] })), el("br"),
  el("span", { class: "file" }, data.image[photo]));
