// Check: labelled photos are sent a few at a time, judged together, and every operating point can be tried.

import { call, face, words } from "./api.js";
import { byId, counted, el, fill, percent, say, show } from "./dom.js";
import { dropPlace } from "./drop.js";
import { labelledPhotos } from "./labelled.js";
import { mayTeach, refresh, tooLarge } from "./state.js";
import { curve, judge, points, pointOf } from "./trade_off.js";

const MOST = 2000; // more go as a zip file
const TOGETHER = 4;
const WRONG = 24; // photos that went wrong, shown at a time
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
  const found = labelledPhotos(files);
  let labelled = found.photos;
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
    answers.predictions.forEach((answer) => named.push({ id: answer.id, label: part[Number(answer.image)].label, name: part[Number(answer.image)].file.name }));
    bad.push(...answers.errors.map((error) => ({ ...error, image: part[Number(error.image)].file.name })));
  }
  if (!named.length) throw new Error(`None of the ${labelled.length} photos can be read.`);
  progress(1, "Judging …");
  const judged = await call("POST", "/v1/evaluate", { json: { images: named }, signal });
  judged.errors.push(...bad);
  judged.others = found.others;
  return judged;
}

function tell(found) {
  const result = byId("check-result");
  const notes = [];
  if (found.learned_from) notes.push(`${counted(found.learned_from, "photo")} of these taught the model: the numbers are too good.`);
  if (found.errors.length) notes.push(`${counted(found.errors.length, "photo")} could not be read, such as ${found.errors[0].image}.`);
  if (found.others) notes.push(`${counted(found.others, "file")} left out, not photos.`);
  const strange = found.unknown.strange_photos;
  fill(result,
    el("h3", {}, counted(found.photos + strange, "photo")),
    notes.map((text) => el("p", { class: "note" }, text)),
    el("div", { id: "check-live" }),
    strange ? el("p", {}, `None of your classes: ${named(found.strangers)}. ${percent(found.unknown.strange)} of these ${counted(strange, "photo")} are called unknown, as they should be.`) : null,
    el("details", {}, el("summary", {}, "Every class"),
      el("div", { class: "scroll" }, table(["class", "photos", "right"], found.classes.map((one) => [one.name, one.photos, percent(one.right / one.photos)])))));
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
  const tested = data.true.some((place) => place >= data.n_known);
  const start = pointOf(all, data.delta);
  const numbers = el("div", { class: "numbers", role: "group", "aria-label": "Accuracy" });
  const confusion = el("div");
  const favours = el("p", { id: "check-words", role: "status" });
  let more = WRONG;
  const drawing = curve(data, all);
  const slider = el("input", { type: "range", id: "check-slider", min: 0, max: all.length - 1, step: 1, "aria-describedby": "check-words" });
  slider.value = start;
  const before = judge(data, data.delta);
  const keep = el("button", { type: "button", class: "main", disabled: true }, "Keep this");
  const said = el("p", { class: "hint", role: "status" });
  const draw = () => {
    const place = Number(slider.value);
    const now = judge(data, place === start ? data.delta : all[place]);
    fill(numbers, tile("all photos right", now.all), tested ? [tile("of old classes", now.known), tile("of new classes", now.new)] : null);
    fill(confusion, wrong(data, now, more, () => { more += WRONG; draw(); }),
      now.mistakes.length ? el("details", {}, el("summary", {}, "Most frequent mistakes"),
        el("div", { class: "scroll" }, table(["photos of", "taken for", "how often"], now.mistakes))) : null);
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
      byId("check-kept").textContent = "Kept. It was chosen on these photos, so expect a little less on others; Undo is under Classes.";
      byId("check-slider").focus();
    } catch (error) { said.textContent = words(error); }
  });
  said.id = "check-kept";
  const movable = all.length > 1 && tested;
  fill(byId("check-live"), numbers,
    movable ? el("div", { class: "card" },
      el("label", { for: "check-slider" }, "Favour old or new classes"), slider,
      el("div", { class: "ends" }, el("span", {}, "old classes"), el("span", {}, "new classes")),
      favours, mayTeach() ? keep : null, said,
      el("details", {}, el("summary", {}, "As a curve"), drawing.node))
      : el("p", { class: "hint" }, data.classes.length === data.n_known ? "Once you have taught new classes, you can choose here how far to favour them."
        : "None of these photos shows a new class, so there is nothing to choose between old and new ones."),
    confusion);
  draw();
}

const tile = (name, share) => el("div", {}, el("b", {}, percent(share)), el("small", {}, name));

// What moving the slider means, counted in photos.
function inWords(moved, before, now) {
  if (!moved) return "As the model is now.";
  const more = (kind, name) => {
    const gain = now.cells[kind][0] - before.cells[kind][0];
    return gain ? `${counted(Math.abs(gain), "photo")} of ${name} classes ${gain > 0 ? "more" : "fewer"} right` : "";
  };
  const parts = [more("new", "new"), more("known", "old")].filter(Boolean);
  return `Favours ${moved > 0 ? "new" : "old"} classes more than now: ${parts.join(", ") || "the same number of photos right"}.`;
}

// The photos that went wrong, as pictures: one sees whether the label or the answer is wrong.
function wrong(data, now, most, showMore) {
  if (!now.wrong.length) return el("p", {}, "No photo went wrong.");
  return [el("h3", {}, `${counted(now.wrong.length, "photo")} went wrong`),
    el("ul", { class: "tiles", id: "check-wrong" }, now.wrong.slice(0, most).map(([photo, taken]) => el("li", {},
      face(data.id[photo], data.classes[data.true[photo]]),
      el("span", {}, "taken for ", el("b", {}, data.classes[taken])), el("br"),
      el("span", {}, `labelled ${data.classes[data.true[photo]]}`), el("br"),
      el("span", { class: "file" }, data.image[photo])))),
    now.wrong.length > most ? el("button", { type: "button", onclick: showMore }, "Show more") : null];
}
