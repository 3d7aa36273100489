// The first time: there is no model, so photos of the classes that it is to know are sent, and it is made.

import { call, words } from "./api.js";
import { labelledPhotos } from "./labelled.js";
import { byId, counted, el, fill, percent, say, show } from "./dom.js";
import { dropPlace } from "./drop.js";

const TOGETHER = 8;
const FEW = 5; // classes or photos, below which little can be learned about new ones

export async function begin() {
  document.querySelector("nav").hidden = true;
  document.querySelectorAll("main > [role=tabpanel]").forEach((panel) => { panel.hidden = true; });
  byId("about").textContent = "knows nothing yet";
  byId("start").hidden = false;
  dropPlace(byId("start-drop"), {
    id: "start", text: "Drop a folder or a zip file of photos here", folder: true, zip: true, camera: false, take: send,
  });
  byId("start-go").addEventListener("click", () => step(() => call("POST", "/v1/start")));
  byId("start-again").addEventListener("click", () => step(() => call("DELETE", "/v1/start/photos")));
  await step(() => call("GET", "/v1/start"));
}

async function step(work) {
  show(byId("start-error"), "");
  try { tell(await work()); } catch (error) { show(byId("start-error"), words(error)); }
}

async function send(files) {
  show(byId("start-error"), "");
  const bar = progress();
  const bad = [];
  try {
    const zip = files.length === 1 && /\.zip$/i.test(files[0].path) ? files[0].file : null;
    if (zip) {
      const form = new FormData();
      form.append("archive", zip, "archive.zip");
      bad.push(...(await call("POST", "/v1/start/photos", {
        form, progress: (share) => bar(share < 1 ? share : null, share < 1 ? `Sending the archive, ${percent(share)}` : "Looking at its photos …"),
      })).errors);
    } else {
      const photos = labelledPhotos(files);
      for (let start = 0; start < photos.length; start += TOGETHER) {
        bar(start / photos.length, `${start} of ${counted(photos.length, "photo")} sent`);
        const form = new FormData();
        for (const { file, label } of photos.slice(start, start + TOGETHER)) {
          form.append("images", file, file.name);
          form.append("labels", label);
        }
        bad.push(...(await call("POST", "/v1/start/photos", { form })).errors);
      }
    }
  } catch (error) { show(byId("start-error"), words(error)); }
  if (bad.length) show(byId("start-error"), `${counted(bad.length, "photo")} cannot be used. ${bad[0].detail}`);
  try { tell(await call("GET", "/v1/start")); } catch { byId("start-progress").hidden = true; }
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
  byId("start-progress").hidden = !learning;
  byId("start-drop").hidden = learning || now.right !== "teach";
  byId("start-locked").hidden = now.right === "teach";
  byId("start-again").hidden = learning || !names.length;
  byId("start-go").hidden = learning || !names.length || now.right !== "teach";
  byId("start-go").disabled = learning || names.length < 2;
  fill(byId("start-classes"), names.sort().map((name) => el("li", {}, el("b", {}, name), ` ${counted(now.classes[name], "photo")}`)));
  const small = names.filter((name) => now.classes[name] < FEW).length;
  const few = (names.length < FEW ? " It takes at least five known classes to judge each new one by itself." : "")
    + (small ? ` ${counted(small, "class", "classes")} with fewer than five photos: what is learned about them is uncertain.` : "");
  byId("start-hint").textContent = names.length
    ? `${counted(now.photos, "photo")} of ${counted(names.length, "class", "classes")}.${names.length < 2 ? " At least two classes are needed." : few}` : "";
  if (now.error) show(byId("start-error"), now.error.fix ? `${now.error.detail} – ${now.error.fix}` : now.error.detail);
  if (now.state === "ready") { // the model's own service answers now
    say("The model is ready.");
    location.reload();
  } else if (learning) watch(now);
}

async function watch(now) {
  const bar = progress();
  const share = now.total ? now.done / now.total : null;
  const looked = now.total && now.done === now.total;
  bar(looked ? null : share, looked ? "All looked at. Working out how far new classes are to be favoured …" : now.total ? `Learning: ${now.done.toLocaleString("en")} of ${counted(now.total, "image")} looked at, mixed ones included` : "Learning …");
  await new Promise((resolve) => setTimeout(resolve, 500));
  try {
    tell(await call("GET", "/v1/start"));
  } catch (error) {
    if (error.code === "lost") setTimeout(() => watch(now), 2000);
    else show(byId("start-error"), words(error));
  }
}
