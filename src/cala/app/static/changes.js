// After every change: what happened, and the way back, without leaving the place.

import { call, words } from "./api.js";
import { byId, el, fill, say } from "./dom.js";
import { refresh } from "./state.js";
import { t } from "./texts.js";

const SHOWN = 20000; // milliseconds
let fade = 0;

// follow : called with true when it is undone, with false when it is done again
export async function changed(text, follow = () => {}) {
  const model = await refresh();
  told(text, t("undo"), async () => {
    await call("POST", `/v1/undo?version=${model.version}`);
    follow(true);
    const now = await refresh();
    told(t("change.undone", { what: text }), t("redo"), async () => {
      await call("POST", `/v1/redo?version=${now.version}`);
      follow(false);
      await changed(text, follow);
    });
  });
}

function shown(on) {
  byId("change").hidden = !on;
  byId("picked").classList.toggle("lifted", on); // the other bar at the foot of the page
}

function told(text, name, act) {
  const bar = byId("change");
  const button = el("button", {
    type: "button", class: "small",
    onclick: async () => {
      button.disabled = true;
      try { await act(); } catch (error) { told(words(error), "", null); refresh().catch(() => {}); }
    },
  }, name);
  fill(bar, el("span", {}, text), act ? button : null,
    el("button", { type: "button", class: "small", "aria-label": t("change.close"), onclick: () => shown(false) }, "×"));
  shown(true);
  clearTimeout(fade);
  fade = setTimeout(() => { if (!bar.contains(document.activeElement)) shown(false); }, SHOWN);
  say(act ? t("change.said", { what: text, button: name }) : text);
}

export const trouble = (error) => told(words(error), "", null);
