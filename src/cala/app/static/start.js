// The first time: name a class, give it a few photos, name the next one, try it. Folders work too.

import { call, Problem, words } from "./api.js";
import { labelledPhotos } from "./labelled.js";
import { byId, classesOf, el, fill, percent, photosOf, picture, say, show } from "./dom.js";
import { dropPlace } from "./drop.js";
import { offerShare } from "./state.js";
import { t } from "./texts.js";

const TOGETHER = 8;
const FEW = 5; // photos of a class, below which little can be learned about it
const FACES = 8;

let photos = []; // of the class that is being named: {file, url}
const faces = new Map(); // class -> its pictures {url, name}, as far as this page has seen them

export async function begin() {
  document.querySelector("nav").hidden = true;
  document.querySelectorAll("main > [role=tabpanel]").forEach((panel) => { panel.hidden = true; });
  byId("about").textContent = t("page.knows-nothing");
  byId("start").hidden = false;
  dropPlace(byId("start-drop"), {
    id: "start", text: t("drop.of-it"), take: given,
  });
  dropPlace(byId("start-folders"), {
    id: "start-all", text: t("drop.folders"), folder: true, zip: true, camera: false, take: sendAll,
  });
  byId("start-name").addEventListener("input", update);
  byId("start-form").addEventListener("submit", (event) => { event.preventDefault(); addClass(); });
  byId("start-go").addEventListener("click", () => step(() => call("POST", "/v1/start")));
  byId("start-sample").addEventListener("click", () => step(() => call("POST", "/v1/start/sample")));
  await step(async () => {
    const now = await call("GET", "/v1/start");
    offerShare(now.share);
    return now;
  });
  update();
}

async function step(work) {
  show(byId("start-error"), "");
  try { tell(await work()); } catch (error) { show(byId("start-error"), words(error)); }
}

// Folders and zip files that are dropped here are classes already.
function given(files) {
  if (files.some(({ path }) => path.includes("/") || /\.zip$/i.test(path))) { sendAll(files); return; }
  photos.push(...files.map(({ file }) => ({ file, url: URL.createObjectURL(file) })));
  update();
  if (!byId("start-name").value.trim()) byId("start-name").focus();
}

function update() {
  const name = byId("start-name").value.trim();
  fill(byId("start-photos"), photos.map((photo) => el("li", {}, picture(photo.url, photo.file.name, { alt: photo.file.name }),
    el("button", {
      type: "button", class: "small", "aria-label": t("remove.named", { name: photo.file.name }),
      onclick: () => { photos = photos.filter((other) => other !== photo); URL.revokeObjectURL(photo.url); update(); byId("start-files").focus(); },
    }, t("remove")))));
  byId("start-add").disabled = !name || !photos.length;
  byId("start-add").textContent = !photos.length ? t("start.add")
    : t(name ? "start.add-named" : "start.add-unnamed", { name, n: photos.length });
  byId("start-sample-line").hidden = photos.length > 0;
  byId("start-missing").textContent = photos.length && !name ? t("start.name-them") : "";
}

async function addClass() {
  const name = byId("start-name").value.trim();
  if (!name || !photos.length) return;
  const mine = photos;
  photos = [];
  const bad = await upload(mine.map(({ file }) => ({ file, label: name })));
  if (bad === null) { photos = [...mine, ...photos]; update(); return; } // the line says why
  const unusable = new Set(bad.map((one) => one.image.split("/").pop()));
  faces.set(name, [...(faces.get(name) || []), ...mine.filter(({ file }) => !unusable.has(file.name)).map(({ file, url }) => ({ url, name: file.name }))]);
  if (bad.length < mine.length) byId("start-name").value = "";
  update();
  await report(bad);
  byId("start-name").focus();
}

async function report(bad) {
  show(byId("start-error"), bad.length ? t("start.unusable", { n: bad.length, why: bad[0].detail }) : "");
  try { tell(await call("GET", "/v1/start")); } catch { byId("start-progress").hidden = true; }
}

// What cannot be used of them; null where they could not be sent.
async function upload(labelled) {
  const bar = progress();
  const bad = [];
  try {
    for (let start = 0; start < labelled.length; start += TOGETHER) {
      bar(start / labelled.length, t("start.sent", { done: start, photos: photosOf(labelled.length) }));
      const form = new FormData();
      for (const { file, label } of labelled.slice(start, start + TOGETHER)) {
        form.append("images", file, file.name);
        form.append("labels", label);
      }
      bad.push(...(await call("POST", "/v1/start/photos", { form })).errors);
    }
    return bad;
  } catch (error) {
    show(byId("start-error"), words(error));
    byId("start-progress").hidden = true;
    return null;
  }
}

async function sendAll(files) {
  show(byId("start-error"), "");
  try {
    const archive = files.length === 1 && /\.zip$/i.test(files[0].path) ? files[0].file : null;
    let bad;
    let others = 0;
    if (archive) bad = await sendZip(archive);
    else {
      const found = labelledPhotos(files);
      others = found.others;
      bad = await upload(found.photos);
      const urls = (label) => found.photos.filter((one) => one.label === label).slice(0, FACES).map(({ file }) => ({ url: URL.createObjectURL(file), name: file.name }));
      if (bad) new Set(found.photos.map((one) => one.label)).forEach((label) => faces.set(label, urls(label)));
    }
    if (bad === null) return;
    await report(bad);
    if (others) byId("start-hint").textContent += ` ${t("files-left-out", { n: others })}`;
  } catch (error) {
    show(byId("start-error"), words(error));
    byId("start-progress").hidden = true;
  }
}

async function sendZip(file) {
  const bar = progress();
  const form = new FormData();
  form.append("archive", file, "archive.zip");
  return (await call("POST", "/v1/start/photos", {
    form, progress: (share) => bar(share < 1 ? share : null, share < 1 ? t("start.sending-zip", { share: percent(share) }) : t("start.looking")),
  })).errors;
}

function progress() {
  byId("start-progress").hidden = false;
  byId("start-go").disabled = true;
  return (share, text) => {
    if (share === null) byId("start-bar").removeAttribute("value");
    else byId("start-bar").value = share;
    byId("start-count").textContent = text;
  };
}

function tell(now) {
  byId("title").textContent = now.name || byId("title").textContent;
  const names = Object.keys(now.classes);
  const learning = now.state !== "collecting";
  const locked = now.right !== "teach";
  byId("start-progress").hidden = !learning;
  byId("start-form").hidden = learning || locked;
  byId("start-other").hidden = learning || locked;
  byId("start-locked").hidden = !locked;
  byId("start-go").hidden = learning || locked || !names.length;
  byId("start-go").disabled = learning || names.length < 2;
  byId("start-sample").hidden = names.length > 0;
  fill(byId("start-classes"), learning ? [] : names.map((name) => el("li", {},
    el("div", { class: "strip" }, (faces.get(name) || []).slice(0, FACES).map(({ url, name: file }) => picture(url, file))),
    el("div", { class: "head" }, el("span", {}, el("b", {}, name), ` ${photosOf(now.classes[name])}`),
      locked ? null : el("button", {
        type: "button", class: "small", "aria-label": t("remove.named", { name }),
        onclick: () => { faces.delete(name); step(() => call("DELETE", `/v1/start/photos?label=${encodeURIComponent(name)}`)); },
      }, t("remove"))))));
  const small = names.filter((name) => now.classes[name] < FEW).length;
  const have = t("start.have", { photos: photosOf(now.photos), classes: classesOf(names.length) });
  const more = names.length < 2 ? t("start.one-more") : small ? t("start.few", { n: small }) : "";
  byId("start-hint").textContent = names.length && !learning ? `${have} ${more}` : "";
  if (now.error) show(byId("start-error"), new Problem(now.error.status, now.error).words);
  if (now.state === "ready") { // the model's own service answers now
    say(t("start.ready"));
    fill(byId("start-photos"));
    location.reload();
  } else if (learning) watch(now);
}

async function watch(now) {
  const bar = progress();
  const share = now.total ? now.done / now.total : null;
  const looked = now.total && now.done === now.total;
  bar(looked ? null : share, looked ? t("start.almost") : now.total ? t("start.learning-share", { share: percent(share) }) : t("start.learning"));
  await new Promise((resolve) => setTimeout(resolve, 500));
  try {
    tell(await call("GET", "/v1/start"));
  } catch (error) {
    if (error.code === "lost") setTimeout(() => watch(now), 2000);
    else show(byId("start-error"), words(error));
  }
}
