// Live: the camera is asked about again and again; the space bar teaches what it shows.

import { call, newKey, words } from "./api.js";
import { changed } from "./changes.js";
import { openCamera } from "./dialogs.js";
import { byId, el, photosOf, say, show, sure } from "./dom.js";
import { suggestNames } from "./names.js";
import { mayTeach, photoForm } from "./state.js";
import { t } from "./texts.js";

const SIDE = 640; // pixels: more is not looked at
const PAUSE = 150; // milliseconds between two questions

let stream = null;
let answer = null;

export function live() {
  suggestNames(byId("live-name"));
  byId("live-close").addEventListener("click", close);
  byId("live").addEventListener("cancel", close);
  byId("live-form").addEventListener("submit", (event) => { event.preventDefault(); learn(); });
}

export async function openLive() {
  const view = byId("live-view");
  show(byId("live-error"), "");
  show(byId("live-answer"), t("live.looking"));
  byId("live-sure").textContent = "";
  byId("live-said").textContent = "";
  byId("live-form").hidden = !mayTeach();
  answer = null;
  byId("live").showModal();
  try {
    stream = await openCamera(view);
  } catch (error) {
    show(byId("live-answer"), "");
    show(byId("live-error"), t("camera.broken", { why: error.message || error.name }));
    return;
  }
  if (!byId("live").open) { close(); return; }
  byId("live-learn").focus();
  const mine = stream;
  while (stream === mine) {
    await look(view);
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

function close() {
  if (stream) stream.getTracks().forEach((track) => track.stop());
  stream = null;
  byId("live-view").srcObject = null;
  if (byId("live").open) byId("live").close();
}

function frame(view) {
  const scale = Math.min(1, SIDE / Math.max(view.videoWidth, view.videoHeight));
  const canvas = el("canvas", { width: Math.round(view.videoWidth * scale), height: Math.round(view.videoHeight * scale) });
  canvas.getContext("2d").drawImage(view, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob((blob) => resolve(new File([blob], `camera-${Date.now()}.jpg`, { type: "image/jpeg" })), "image/jpeg", 0.9));
}

async function look(view) {
  try {
    const found = await call("POST", "/v1/predict?top=1", { form: photoForm(await frame(view)) });
    if (!stream) return;
    const before = answer && answer.label;
    [answer] = found.predictions;
    const unknown = answer.label !== answer.best;
    const shown = unknown ? t("unknown.title") : answer.label;
    show(byId("live-answer"), shown);
    byId("live-sure").textContent = unknown ? t("looks-like.class", { name: answer.best }) : sure(answer.probability);
    show(byId("live-error"), "");
    if (before !== answer.label) say(shown);
  } catch (error) {
    show(byId("live-error"), words(error));
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

// Without a name it is what the answer says.
async function learn() {
  const given = byId("live-name").value.trim();
  const name = given || (answer && answer.label === answer.best ? answer.label : "");
  if (!name) { byId("live-name").focus(); return; }
  try {
    const form = photoForm(await frame(byId("live-view")));
    form.append("name", name);
    const taught = await call("POST", "/v1/photos", { form, key: newKey() });
    byId("live-said").textContent = t("live.learned", { name: taught.name, photos: photosOf(taught.photos) });
    byId("live-learn").focus();
    await changed(t("live.changed", { name: taught.name }));
  } catch (error) { show(byId("live-error"), words(error)); }
}
