// Recognise: the answer large, the likeliest five as bars, what the adapter changed, and why.

import { call, face, words } from "./api.js";
import { bar, byId, el, fill, percent, say, signed } from "./dom.js";
import { dropPlace } from "./drop.js";
import { mayTeach, photoForm, remember, sender, tooLarge } from "./state.js";

const MOST = 50;

export function recognise(teachThis) {
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
          URL.revokeObjectURL(results.lastChild.querySelector("img").src);
          results.lastChild.remove();
        }
        send({ file, body, card });
      }
    },
  });
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
    el("ul", { class: "bars", "aria-label": "Likeliest classes" }, answer.top.map((one) => el("li", {},
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
