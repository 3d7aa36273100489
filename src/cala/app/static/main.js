// Tabs, the token, and the first look at the model.

import { call, currentToken, setToken, whenTokenIsNeeded, words } from "./api.js";
import { ask } from "./dialogs.js";
import { byId, fill, show } from "./dom.js";
import { check } from "./check.js";
import { classes } from "./classes.js";
import { qrPicture } from "./qr.js";
import { recognise } from "./recognise.js";
import { refresh, state } from "./state.js";
import { begin } from "./start.js";
import { switchLanguage, t, translatePage } from "./texts.js";
import { teach, teachClass } from "./teach.js";

translatePage();
byId("language").addEventListener("click", switchLanguage);
const tabs = Array.from(document.querySelectorAll("[role=tab]"));

function open(name, focus = false) {
  for (const tab of tabs) {
    const on = tab.getAttribute("aria-controls") === name;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !on;
    if (on && focus) tab.focus();
  }
  // With a slash: the name alone would make the browser jump to the panel and mark it.
  if (location.hash !== `#/${name}`) history.replaceState(null, "", `#/${name}`);
  scrollTo({ top: 0 });
  if (name === "classes") refresh().catch(() => {});
}

tabs.forEach((tab, place) => {
  tab.addEventListener("click", () => open(tab.getAttribute("aria-controls")));
  tab.addEventListener("keydown", (event) => {
    const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    open(tabs[(to + tabs.length) % tabs.length].getAttribute("aria-controls"), true);
  });
});

// A link may carry the token behind the #, which browsers do not send and servers do not log.
const given = /^#token=(.+)$/.exec(location.hash);
if (given) {
  setToken(decodeURIComponent(given[1]));
  history.replaceState(null, "", "#/recognise");
}

let started = false; // the first look has led to the page of a model that is not there yet
let asking = null;
whenTokenIsNeeded((wrong) => {
  asking = asking || ask({
    title: t("token.title"), text: wrong ? t("token.wrong") : t("token.who"),
    label: t("token.label"), type: "password", yes: t("token.go"),
  }).finally(() => { asking = null; });
  return asking;
});

// Photos that miss their place are not opened instead of this page.
for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());

// Photos that were chosen and not yet taught are gone after a reload; those of Recognise are not.
addEventListener("beforeunload", (event) => {
  if (document.querySelector("#teach-photos > li, #start-photos > li")) event.preventDefault();
});

recognise();
teach();
classes((row) => { open("teach"); teachClass(row); });
check();
byId("share").addEventListener("click", () => {
  const link = `${state.share}/#token=${encodeURIComponent(currentToken())}`;
  fill(byId("shared-code"), qrPicture(link));
  byId("shared-link").textContent = link;
  byId("shared-link").href = link;
  byId("shared").showModal();
});
byId("where").textContent = t("page.stays", { host: location.host });
const start = location.hash.slice(2);
if (tabs.some((tab) => tab.getAttribute("aria-controls") === start)) open(start);

async function first() {
  if (started) return;
  try { await refresh(); } catch (error) {
    if (error.code === "no_model") { started = true; await begin(); return; }
    byId("about").textContent = "";
    if (error.code !== "lost") show(byId("lost"), words(error));
  }
}
document.addEventListener("cala-back", first);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh().catch(() => {}); });
first();
