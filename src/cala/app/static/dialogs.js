// Questions in a dialog, and the camera.

import { byId, show } from "./dom.js";
import { words } from "./api.js";
import { offerNames } from "./names.js";
import { t } from "./texts.js";

// Resolves with what `act` gives (or the input, or true), or with null when cancelled. While `act` fails the
// dialog stays and says why. With `names` those of the classes are offered.
export function ask({ title, text = "", label = "", value = "", type = "text", names = false, yes, act }) {
  const dialog = byId("ask");
  const input = byId("ask-input");
  byId("ask-title").textContent = title;
  byId("ask-text").textContent = text;
  byId("ask-field").hidden = !label;
  byId("ask-label").textContent = label;
  byId("ask-yes").textContent = yes;
  show(byId("ask-error"), "");
  input.type = type;
  offerNames(input, names);
  input.value = value;
  input.required = Boolean(label);
  return new Promise((resolve) => {
    const stop = new AbortController();
    const end = (answer) => { stop.abort(); dialog.close(); resolve(answer); };
    const on = (node, event, run) => node.addEventListener(event, run, { signal: stop.signal });
    on(byId("ask-no"), "click", () => end(null));
    on(dialog, "cancel", (event) => { event.preventDefault(); end(null); });
    on(byId("ask-form"), "submit", async (event) => {
      event.preventDefault();
      byId("ask-yes").disabled = true;
      try {
        const given = label ? input.value : true;
        end(act ? await act(given) : given);
      } catch (error) {
        show(byId("ask-error"), words(error));
        input.focus();
      } finally { byId("ask-yes").disabled = false; }
    });
    dialog.showModal();
    if (label) { input.focus(); input.select(); } else byId("ask-no").focus();
  });
}

export const hasCamera = () => Boolean(navigator.mediaDevices && navigator.mediaDevices.getUserMedia);

// The stream that a video element shows.
export async function openCamera(view) {
  const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" }, audio: false });
  view.srcObject = stream;
  await view.play();
  return stream;
}

// One photo from the camera as a file, or null.
export async function takePhoto() {
  const dialog = byId("camera");
  const view = byId("camera-view");
  show(byId("camera-error"), "");
  byId("camera-yes").disabled = true;
  dialog.showModal();
  let stream = null;
  let ended = false;
  openCamera(view).then((given) => {
    stream = given;
    if (ended) { stream.getTracks().forEach((track) => track.stop()); return; }
    byId("camera-yes").disabled = false;
    byId("camera-yes").focus();
  }).catch((error) => show(byId("camera-error"), t("camera.choose", { why: error.message || error.name })));
  const file = await new Promise((resolve) => {
    const stop = new AbortController();
    const on = (node, event, run) => node.addEventListener(event, run, { signal: stop.signal });
    const end = (answer) => { stop.abort(); resolve(answer); };
    on(byId("camera-no"), "click", () => end(null));
    on(dialog, "cancel", () => end(null));
    on(byId("camera-yes"), "click", () => {
      const canvas = document.createElement("canvas");
      canvas.width = view.videoWidth;
      canvas.height = view.videoHeight;
      canvas.getContext("2d").drawImage(view, 0, 0);
      canvas.toBlob((blob) => end(new File([blob], `camera-${Date.now()}.jpg`, { type: "image/jpeg" })), "image/jpeg", 0.92);
    });
  });
  ended = true;
  if (stream) stream.getTracks().forEach((track) => track.stop());
  view.srcObject = null;
  if (dialog.open) dialog.close();
  return file;
}
