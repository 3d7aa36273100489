// Check: labelled photos are sent a few at a time, judged together, and every operating point can be tried.

import { call, words } from "./api.js";
import { byId, counted, el, fill, percent, say, show } from "./dom.js";
import { dropPlace } from "./drop.js";
import { labelledPhotos } from "./labelled.js";
import { mayTeach, refresh, tooLarge } from "./state.js";
import { curve, judge, points, pointOf } from "./trade_off.js";

const MOST = 2000; // more go as a zip file
const TOGETHER = 4;
let stop = null;

export function check() {
  dropPlace(byId("check-drop"), {
    id: "check", text: "Drop a folder or a zip file of labelled photos here", folder: true, zip: true, camera: false, take: run,
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
  progress(0, "Sending the archive …");
  return call("POST", "/v1/evaluate", {
    form, signal,
    progress: (share) => (share < 1 ? progress(share, `Sending the archive, ${percent(share)}`) : progress(null, "Looking at its photos …")),
  });
}

async function sendPhotos(files, signal) {
  let labelled = labelledPhotos(files);
  if (labelled.length > MOST) throw new Error(`There are ${labelled.length} photos. Give at most ${MOST}, or a zip file.`);
  const named = [];
  const bad = labelled.filter((one) => tooLarge(one.file)).map((one) => ({ image: one.file.name }));
  labelled = labelled.filter((one) => !tooLarge(one.file));
  for (let start = 0; start < labelled.length; start += TOGETHER) {
    const part = labelled.slice(start, start + TOGETHER);
    progress(start / labelled.length, `${start} of ${labelled.length} photos looked at`);
    const form = new FormData();
    part.forEach((one, place) => form.append("images", one.file, String(place)));
    let answers = { predictions: [], errors: [] };
    try {
      answers = await call("POST", "/v1/predict?top=1&unknown=off", { form, signal });
    } catch (error) {
      if (!["bad_image", "file_too_large"].includes(error.code)) throw error;
      bad.push(...part.map((one) => ({ image: one.file.name, detail: words(error) })));
    }
    answers.predictions.forEach((answer) => named.push({ id: answer.id, label: part[Number(answer.image)].label }));
    bad.push(...answers.errors.map((error) => ({ ...error, image: part[Number(error.image)].file.name })));
  }
  if (!named.length) throw new Error(`None of the ${labelled.length} photos can be read.`);
  progress(1, "Judging …");
  const found = await call("POST", "/v1/evaluate", { json: { images: named }, signal });
  found.errors.push(...bad);
  return found;
}

function tell(found) {
  const result = byId("check-result");
  const notes = [];
  if (found.learned_from) notes.push(`${counted(found.learned_from, "photo")} of these taught the model: the numbers are too good.`);
  if (found.errors.length) notes.push(`${counted(found.errors.length, "photo")} could not be read, such as ${found.errors[0].image}.`);
  const strange = found.unknown.strange_photos;
  fill(result,
    el("h3", {}, counted(found.photos + strange, "photo")),
    notes.map((text) => el("p", { class: "note" }, text)),
    el("div", { id: "check-live" }),
    strange ? el("p", {}, `No class of this model: ${named(found.strangers)}. ${percent(found.unknown.strange)} of these ${counted(strange, "photo")} are called unknown; so are ${percent(found.unknown.known)} of known and ${percent(found.unknown.new)} of new ones.`) : null,
    el("details", {}, el("summary", {}, "Every class"),
      el("div", { class: "scroll" }, table(["class", "kind", "photos", "right"], found.classes.map((one) => [one.name, one.kind, one.photos, percent(one.right / one.photos)])))));
  live(found.trade_off);
  refresh().catch(() => {}); // others may have taught meanwhile
  say(`Checked ${counted(found.photos, "photo")}: ${percent(found.accuracy)} right.`);
  result.focus();
}

function named(strangers) {
  const some = Object.entries(strangers).slice(0, 10).map(([name, count]) => `${name} (${count})`);
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
  const start = pointOf(all, data.delta);
  const numbers = el("div", { class: "numbers", role: "group", "aria-label": "Accuracy" });
  const confusion = el("div", { class: "scroll" });
  const drawing = curve(data, all);
  const slider = el("input", { type: "range", id: "check-slider", min: 0, max: all.length - 1, step: 1, "aria-describedby": "check-ends" });
  slider.value = start;
  const keep = el("button", { type: "button", class: "main", disabled: true }, "Keep this operating point");
  const said = el("p", { class: "hint", role: "status" });
  const draw = () => {
    const place = Number(slider.value);
    const now = judge(data, place === start ? data.delta : all[place]);
    fill(numbers, tile("all", now.all), tile("known classes", now.known), tile("new classes", now.new), tile("harmonic mean", now.hm));
    fill(confusion, el("h3", {}, "Known and new taken for each other"),
      table(["photos of", "right", "another known", "another new"], [
        ["known classes", ...now.cells.known.map(String)], ["new classes", ...now.cells.new.map(String)]]),
      now.mistakes.length ? [el("h3", {}, "Most frequent mistakes"), table(["photos of", "taken for", "how often"], now.mistakes)] : null);
    drawing.move(now);
    slider.setAttribute("aria-valuetext", `known ${percent(now.known)}, new ${percent(now.new)}`);
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
      byId("check-kept").textContent = "Kept. It was chosen on these photos, so expect a little less on others; Undo is under Classes.";
      byId("check-slider").focus();
    } catch (error) { said.textContent = words(error); }
  });
  said.id = "check-kept";
  const tested = data.true.some((place) => place >= data.n_known);
  const movable = all.length > 1 && tested;
  fill(byId("check-live"), numbers,
    movable ? [el("h3", {}, "Known against new"), drawing.node,
      el("label", { for: "check-slider" }, "Operating point"), slider,
      el("div", { class: "ends", id: "check-ends" }, el("span", {}, "favour known"), el("span", {}, "favour new")),
      mayTeach() ? keep : null, said]
      : el("p", { class: "hint" }, data.classes.length === data.n_known ? "There is nothing to trade yet: no class has been taught."
        : "There is nothing to trade: none of these photos shows a new class."),
    confusion);
  draw();
}

const tile = (name, share) => el("div", {}, el("b", {}, percent(share)), el("small", {}, name));
