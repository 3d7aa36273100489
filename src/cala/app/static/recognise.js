// Recognise: the answer large, the likeliest five as bars, what the adapter changed, and why.

import { call, face, words } from "./api.js";
import { bar, byId, el, fill, percent, say, signed } from "./dom.js";
import { dropPlace } from "./drop.js";
import { mayTeach, photoForm, remember, sender, state, tooLarge } from "./state.js";

const MOST = 50;
const cards = new Map(); // what is shown: {id, file, version} by its place

export function recognise(teachThis) {
  document.addEventListener("cala-model", () => again(teachThis));
  const results = byId("recognise-results");
  const send = sender(async ({ file, body, card }) => {
    const count = el("p", { class: "hint" }, "Waiting …");
    const progress = el("progress", { max: 1, value: 0, "aria-label": `Sending ${file.name}` });
    fill(body, progress, count);
    try {
      const large = tooLarge(file);
      if (large) throw new Error(`${file.name}: ${large}`);
      const found = await call("POST", "/v1/predict?top=5", {
        form: photoForm(file),
        progress: (share) => {
          progress.value = share;
          count.textContent = share < 1 ? `Sending, ${percent(share)}` : "Looking at it …";
        },
      });
      const answer = found.predictions[0];
      remember(answer.id, file, answer);
      cards.set(body, { id: answer.id, file, version: found.version });
      tell(body, answer, file, teachThis);
      say(`${file.name}: ${spoken(answer)}`);
    } catch (error) {
      if (error.code === "bad_image") card.querySelector("img").hidden = true;
      fill(body,
        el("p", { class: "error", role: "alert" }, words(error)),
        el("div", { class: "row" },
          el("button", { type: "button", onclick: () => send({ file, body, card }) }, "Try again"),
          el("button", { type: "button", onclick: () => card.remove() }, "Remove")));
    }
  });
  dropPlace(byId("recognise-drop"), {
    id: "recognise", text: "Drop photos here", choose: "Choose photos",
    take: (files) => {
      for (const { file } of files) {
        const body = el("div");
        const image = el("img", { alt: `Your photo ${file.name}` });
        image.src = URL.createObjectURL(file);
        image.addEventListener("error", () => { image.hidden = true; });
        const card = el("article", { class: "card answer", "aria-label": file.name }, image, body);
        results.prepend(card);
        while (results.children.length > MOST) {
          cards.delete(results.lastChild.lastChild);
          URL.revokeObjectURL(results.lastChild.querySelector("img").src);
          results.lastChild.remove();
        }
        send({ file, body, card });
      }
    },
  });
}

// Answers that are on the page follow the model, as far as the service remembers the photos.
async function again(teachThis) {
  const version = state.model.version;
  const old = [...cards].filter(([body, card]) => body.isConnected && card.version !== version);
  if (!old.length) return;
  let answers = [];
  try {
    const ids = [...new Set(old.map(([, card]) => card.id))];
    answers = (await call("POST", "/v1/predict?top=5", { json: { images: ids.map((id) => ({ id })) } })).predictions;
  } catch { /* all forgotten: each says from when it is */ }
  const found = new Map(answers.map((answer) => [answer.id, answer]));
  for (const [body, card] of old) {
    const answer = found.get(card.id);
    if (answer) {
      card.version = version;
      tell(body, answer, card.file, teachThis);
    } else if (!body.querySelector(".note")) {
      body.prepend(el("p", { class: "note" }, "The model has changed since this answer."));
    }
  }
}

export const spoken = (answer) => (answer.label === answer.best
  ? `${answer.label}, ${percent(answer.probability)}` : `unknown, closest is ${answer.best}`);

function tell(body, answer, file, teachThis) {
  const unknown = answer.label !== answer.best;
  fill(body,
    el("p", { class: "big" }, unknown ? "Unknown" : answer.label),
    el("p", {}, unknown ? `Nothing fits well. The closest is ${answer.best}; the bars only compare the classes with each other.`
      : `${percent(answer.probability)} against the other classes${answer.unknown ? " (perhaps unknown)" : ""}`),
    answer.changed ? el("div", { class: "two" },
      el("div", {}, el("small", {}, "with the adapter"), answer.best),
      el("div", {}, el("small", {}, "without it"), answer.without_adapter)) : null,
    el("ul", { class: unknown ? "bars unsure" : "bars", "aria-label": "Likeliest classes" }, answer.top.map((one) => el("li", {},
      el("span", { class: "name", title: one.label }, one.label),
      bar(one.probability, kindOf(answer, one)),
      el("span", { class: "share" }, percent(one.probability))))),
    why(answer, unknown),
    el("p", { class: "file" }, file.name),
    mayTeach() ? el("button", { type: "button", class: "small", onclick: () => teachThis(file) }, "Teach this as …") : null);
}

function kindOf(answer, one) {
  const found = answer.closest.find((near) => near.class_id === one.class_id);
  return found ? found.kind : "known";
}

function why(answer, open) {
  const fits = answer.familiarity;
  return el("details", { open },
    el("summary", {}, "Why?"),
    fits === null ? el("p", {}, "This model has too few photos to tell what is unknown.")
      : el("p", {}, `${percent(fits)} of genuine photos look as strange as this one, or stranger.`),
    el("ul", { class: "near", "aria-label": "Closest classes" }, answer.closest.map((near) => el("li", {},
      face(near.thumbnail, near.label),
      el("b", {}, near.label), el("br"),
      `similarity ${near.cosine.toFixed(2)}`,
      near.kind === "new" ? [el("br"), `adapter ${signed(near.shift)}`] : null))));
}
