// The words of the page: texts/en.json or texts/de.json, as the browser prefers or the switch says.

const CHOSEN = "cala-language";
const LANGUAGES = ["en", "de"];
const preferred = [localStorage.getItem(CHOSEN) || "", ...navigator.languages];

export const language = preferred.map((one) => one.slice(0, 2)).find((one) => LANGUAGES.includes(one)) || LANGUAGES[0];
// With the region, as far as the browser says one: numbers of Zurich are not those of Berlin.
const locale = preferred.find((one) => one.slice(0, 2) === language) || language;
const texts = await (await fetch(`/static/texts/${language}.json`)).json();
const plural = new Intl.PluralRules(locale);

export const number = (value, digits = 0) => value.toLocaleString(locale, { minimumFractionDigits: digits, maximumFractionDigits: digits });
export const localTime = (time) => new Date(time).toLocaleString(locale);

// Values stand for {their names}; where a text has forms, n decides between them.
export function t(key, values = {}) {
  const found = texts[key];
  const text = typeof found === "string" ? found : found[plural.select(values.n)];
  return text.replace(/\{(\w+)\}/g, (_, name) => (typeof values[name] === "number" ? number(values[name]) : values[name]));
}

export const hasText = (key) => key in texts;

// What stands between backticks is marked.
export function marked(text, tag = "code") {
  return text.split("`").map((part, place) => {
    if (place % 2 === 0) return part;
    const node = document.createElement(tag);
    node.textContent = part;
    return node;
  });
}

export function translatePage() {
  document.documentElement.lang = language;
  for (const node of document.querySelectorAll("[data-text]")) node.replaceChildren(...marked(t(node.dataset.text), node.dataset.mark));
  for (const node of document.querySelectorAll("[data-placeholder]")) node.placeholder = t(node.dataset.placeholder);
  for (const node of document.querySelectorAll("[data-label]")) node.setAttribute("aria-label", t(node.dataset.label));
}

export function switchLanguage() {
  localStorage.setItem(CHOSEN, LANGUAGES.find((one) => one !== language));
  location.reload();
}
