// A place for photos: dropped, chosen, taken, pasted. Folders keep the paths of what is in them.

import { el } from "./dom.js";
import { hasCamera, takePhoto } from "./dialogs.js";
import { t } from "./texts.js";

const KINDS = "image/*,.heic,.heif,.avif,.jp2";

const byHand = matchMedia("(pointer: coarse)").matches && !matchMedia("(any-pointer: fine)").matches;

export function dropPlace(place, { id, text, folder = false, zip = false, camera = true, live = null, take }) {
  const given = (files) => { const list = Array.from(files); if (list.length) take(list); };
  const pick = (suffix, label, set) => {
    const input = el("input", { type: "file", id: `${id}-${suffix}`, ...set });
    input.addEventListener("change", () => {
      given(Array.from(input.files, (file) => ({ file, path: file.webkitRelativePath || file.name })));
      input.value = "";
    });
    return [input, el("label", { class: "pick", for: `${id}-${suffix}` }, label)];
  };
  const box = el("div", { class: "drop" },
    byHand ? null : el("p", {}, text),
    el("div", { class: "row" },
      folder ? pick("folder", t("drop.choose-folder"), { webkitdirectory: true, multiple: true }) : pick("files", t("drop.choose"), { accept: KINDS, multiple: true }),
      zip ? pick("zip", t("drop.choose-zip"), { accept: ".zip,application/zip" }) : [],
      camera && hasCamera() ? el("button", {
        type: "button", id: `${id}-camera`,
        onclick: async () => { const file = await takePhoto(); if (file) given([{ file, path: file.name }]); },
      }, t("drop.take")) : [],
      live && hasCamera() ? el("button", { type: "button", id: `${id}-live`, onclick: live }, t("drop.live")) : [],
      camera && !hasCamera() ? pick("capture", t("drop.take"), { accept: "image/*", capture: "environment" }) : []));
  place.replaceChildren(box);
  box.addEventListener("dragover", (event) => { event.preventDefault(); box.classList.add("over"); });
  box.addEventListener("dragleave", () => box.classList.remove("over"));
  box.addEventListener("drop", async (event) => {
    event.preventDefault();
    box.classList.remove("over");
    given(await dropped(event.dataTransfer));
  });
  return box;
}

// Entries must be asked for before the first pause, then they can be walked.
async function dropped(transfer) {
  const entries = Array.from(transfer.items || [], (item) => item.webkitGetAsEntry && item.webkitGetAsEntry());
  if (!entries.some((entry) => entry && entry.isDirectory)) {
    return Array.from(transfer.files, (file) => ({ file, path: file.name }));
  }
  const found = [];
  for (const entry of entries) if (entry) await walk(entry, "", found);
  return found;
}

async function walk(entry, above, found) {
  const path = above ? `${above}/${entry.name}` : entry.name;
  if (entry.isFile) {
    found.push({ file: await new Promise((resolve, reject) => entry.file(resolve, reject)), path });
    return;
  }
  const reader = entry.createReader();
  for (;;) { // a reader gives a hundred at a time
    const part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!part.length) return;
    for (const inner of part) await walk(inner, path, found);
  }
}
