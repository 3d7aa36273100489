// Names of classes to choose from while one types: asked of the service, so that a thousand are no burden.

import { call } from "./api.js";
import { byId, el, fill } from "./dom.js";

let turn = 0;

const LIST = "class-names";

// A dialog that asks for other things too takes the list away.
export const offerNames = (input, on) => (on ? input.setAttribute("list", LIST) : input.removeAttribute("list"));

export function suggestNames(input) {
  offerNames(input, true);
  input.setAttribute("autocomplete", "off");
  const look = async () => {
    if (!input.hasAttribute("list")) return;
    const mine = ++turn;
    try {
      const query = new URLSearchParams({ search: input.value, newest: "true", limit: "30" });
      const found = await call("GET", `/v1/classes?${query}`);
      if (mine === turn) fill(byId(LIST), found.classes.map((row) => el("option", { value: row.name })));
    } catch { /* typing works without suggestions */ }
  };
  input.addEventListener("focus", look);
  input.addEventListener("input", look);
  return input;
}

export async function classCalled(name) {
  const plain = name.normalize("NFC").trim();
  const found = await call("GET", `/v1/classes?limit=1000&search=${encodeURIComponent(plain.slice(0, 200))}`);
  return found.classes.find((row) => row.name === plain) || null;
}
