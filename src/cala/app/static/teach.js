// Teach: each photo is sent and looked at by itself, then the class is taught by naming them.

import { call, face, newKey, words } from "./api.js";
import { changed } from "./changes.js";
import { byId, el, fill, percent, photosOf, picture, say, show } from "./dom.js";
import { dropPlace } from "./drop.js";
import { classCalled, suggestNames } from "./names.js";
import { mayTeach, photoForm, sender, state, tooLarge } from "./state.js";
import { t } from "./texts.js";

let photos = []; // {file, tile, note, id, error}
let target = null; // the class that photos are added to, or null for a new one
let key = newKey(); // of this teaching; kept when it has to be tried again

export function teach() {
  const name = byId("teach-name");
  dropPlace(byId("teach-drop"), {
    id: "teach", text: t("drop.of-class"), take: (files) => files.forEach(({ file }) => addPhoto(file)),
  });
  suggestNames(name);
  let typing = 0;
  name.addEventListener("input", () => {
    target = null;
    key = newKey();
    clearTimeout(typing);
    typing = setTimeout(lookUp, 200);
    update();
  });
  byId("teach-form").addEventListener("submit", (event) => { event.preventDefault(); go(); });
  document.addEventListener("cala-model", () => {
    byId("teach-locked").hidden = mayTeach();
    byId("teach-form").hidden = !mayTeach();
    hint();
  });
}

export function teachClass(row) {
  byId("teach-name").value = row.name;
  target = row;
  hint();
  update();
  byId("teach-files").focus();
}

function hint() {
  byId("teach-hint").textContent = target ? t("teach.known", { n: target.photos }) : "";
}

// A name that is known means more photos of that class.
async function lookUp() {
  const name = byId("teach-name").value.normalize("NFC").trim();
  if (name) {
    try {
      const found = await classCalled(name);
      if (name === byId("teach-name").value.normalize("NFC").trim()) target = found;
    } catch { /* teaching itself will say what is wrong */ }
  }
  hint();
  update();
}

const look = sender(async (photo) => {
  try {
    const large = tooLarge(photo.file);
    if (large) throw new Error(large);
    const found = await call("POST", "/v1/predict?top=1&unknown=report", {
      form: photoForm(photo.file),
      progress: (share) => { photo.note.textContent = share < 1 ? t("teach.sending", { share: percent(share) }) : t("teach.looking"); },
    });
    const answer = found.predictions[0];
    photo.id = answer.id;
    smallCopy(photo);
    if (photos.some((other) => other !== photo && other.id === photo.id)) throw new Error(t("teach.same"));
    photo.note.textContent = answer.unknown ? t("teach.ready-unknown") : t("teach.ready", { name: answer.best });
  } catch (error) {
    photo.error = words(error).replace(`${photo.file.name}: `, "");
    photo.tile.classList.add("bad");
    photo.note.textContent = photo.error;
    say(`${photo.file.name}: ${photo.error}`);
    if (error.code === "lost") {
      photo.tile.append(el("button", { type: "button", class: "small", onclick: (event) => { event.target.remove(); again(photo); } }, t("try-again")));
    }
  }
  update();
});

function again(photo) {
  photo.error = "";
  photo.tile.classList.remove("bad");
  look(photo);
  update();
}

function addPhoto(file) {
  const note = el("div", {}, t("teach.waiting"));
  const photo = { file, note, id: "", error: "", url: URL.createObjectURL(file), blank: null };
  const image = picture(photo.url, file.name, {
    alt: t("teach.photo", { name: file.name }), instead: (blank) => { photo.blank = blank; smallCopy(photo); },
  });
  photo.tile = el("li", {}, image, el("b", {}, file.name), note,
    el("button", { type: "button", class: "small", "aria-label": t("remove.named", { name: file.name }), onclick: () => removePhoto(photo) }, t("remove")));
  photos.push(photo);
  key = newKey();
  byId("teach-photos").append(photo.tile);
  look(photo);
  update();
}

function smallCopy(photo) {
  if (!photo.id || !photo.blank) return;
  photo.blank.replaceWith(face(photo.id, photo.file.name));
  photo.blank = null;
}

function removePhoto(photo) {
  photos = photos.filter((other) => other !== photo);
  photo.tile.remove();
  URL.revokeObjectURL(photo.url);
  key = newKey();
  update();
  byId("teach-files").focus();
}

function update() {
  const good = photos.filter((photo) => photo.id && !photo.error).length;
  const bad = photos.filter((photo) => photo.error).length;
  const done = good + bad;
  byId("teach-progress").hidden = !photos.length;
  byId("teach-bar").max = Math.max(1, photos.length);
  byId("teach-bar").value = done;
  byId("teach-count").textContent = [
    t("teach.looked", { done, photos: photosOf(photos.length) }),
    bad ? t("teach.unusable", { n: bad }) : "",
    good && !byId("teach-name").value.trim() ? t("teach.name-missing") : ""].join("");
  byId("teach-go").disabled = !good || done < photos.length || !byId("teach-name").value.trim();
  byId("teach-go").textContent = target ? (good ? t("teach.add-some", { n: good }) : t("teach.add")) : good ? t("teach.go-from", { n: good }) : t("teach.go");
}

async function go() {
  const name = byId("teach-name").value.trim();
  const good = photos.filter((photo) => photo.id && !photo.error);
  const path = target ? `/v1/classes/${encodeURIComponent(target.id)}/shots` : "/v1/classes";
  show(byId("teach-error"), "");
  byId("teach-go").disabled = true;
  byId("teach-go").textContent = t("teach.going");
  try {
    const before = state.last.slice();
    const taught = await post(path, name, good);
    photos.forEach((photo) => URL.revokeObjectURL(photo.url));
    photos = [];
    fill(byId("teach-photos"));
    byId("teach-name").value = "";
    target = null;
    key = newKey();
    await changed(t("learned", { name: taught.name, n: taught.added }));
    const row = await call("GET", `/v1/classes/${encodeURIComponent(taught.id)}`);
    tell(taught, row.relatives);
    await compare(before, taught);
  } catch (error) {
    show(byId("teach-error"), words(error));
    if (error.field === "name") byId("teach-name").focus();
  }
  hint();
  update();
}

// Photos are named; those that the service has forgotten meanwhile are sent again, all of them.
async function post(path, name, good) {
  const named = { images: good.map((photo) => ({ id: photo.id, name: photo.file.name })) };
  if (!target) named.name = name;
  try {
    return await call("POST", path, { json: named, key });
  } catch (error) {
    if (error.code !== "photo_gone") throw error;
    const form = new FormData();
    if (!target) form.append("name", name);
    good.forEach((photo) => form.append("images", photo.file, photo.file.name));
    return call("POST", path, { form, key });
  }
}

function tell(taught, relatives) {
  const result = byId("teach-result");
  fill(result, el("div", { class: "card" },
    el("h3", {}, t(taught.added ? "teach.learned" : "teach.nothing-new", { name: taught.name, n: taught.added })),
    taught.again ? el("p", {}, t("teach.again", { n: taught.again })) : null,
    taught.alike ? el("p", { class: "note" }, t("alike", { name: taught.alike })) : null,
    el("p", {}, t("teach.looks-like")),
    el("ul", { class: "near" }, relatives.map((near) => el("li", {},
      face(near.thumbnail, near.name), near.name))),
    el("div", { id: "teach-changes" })));
  result.focus();
}

// How the answers to the photos of the Recognise tab change, by what the service remembers of them.
async function compare(before, taught) {
  const place = byId("teach-changes");
  if (!before.length) {
    fill(place, el("p", { class: "hint" }, t("teach.no-last")));
    return;
  }
  let answers;
  try {
    const found = await call("POST", "/v1/predict?top=5", { json: { images: before.map((one) => ({ id: one.id })) } });
    answers = new Map(found.predictions.map((answer) => [answer.id, answer]));
  } catch { return; }
  const rows = before.filter((one) => answers.has(one.id)).map((one) => ({ ...one, now: answers.get(one.id) }));
  const changed = rows.filter((one) => one.now.label !== one.answer.label);
  rows.forEach((one) => { const kept = state.last.find((other) => other.id === one.id); if (kept) kept.answer = one.now; });
  fill(place,
    el("h4", {}, t("teach.last", {
      n: rows.length, what: changed.length ? t("teach.changes", { n: changed.length }) : t("teach.no-change"),
    })),
    el("ul", { class: "tiles" }, changed.map((one) => {
      const instead = (blank) => blank.replaceWith(face(one.id, one.file.name));
      const image = picture(URL.createObjectURL(one.file), one.file.name, { alt: one.file.name, instead });
      image.addEventListener("load", () => URL.revokeObjectURL(image.src));
      return el("li", {}, image, `${one.answer.label} → `, el("b", {}, one.now.label));
    })));
}
