// One way to the service: a token if there is one, problems as errors, progress of uploads.

import { byId, show } from "./dom.js";
import { hasText, t } from "./texts.js";

let token = sessionStorage.getItem("cala-token") || "";
let askToken = async () => "";
let lost = false;

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || t("error.status", { status }));
    Object.assign(this, { status, code: body.code || "error", field: body.field, fix: body.fix, image: body.image });
  }
  // Known codes have words of their own; what the service says besides is meant for programs too.
  get words() {
    const known = `error.${this.code}`;
    if (hasText(known)) return t(known, { detail: this.message });
    return this.fix ? `${this.message} – ${this.fix}` : this.message;
  }
}

export class Lost extends Error {
  constructor() { super(t("lost")); this.code = "lost"; }
}

export const words = (error) => error.words || String(error.message || error);

export function setToken(value) {
  token = value;
  if (value) sessionStorage.setItem("cala-token", value);
  else sessionStorage.removeItem("cala-token");
}

export const currentToken = () => token;

export function whenTokenIsNeeded(ask) { askToken = ask; }

export async function call(method, path, { json, form, key, progress, signal, blob } = {}) {
  for (;;) {
    const answer = await once(method, path, { json, form, key, progress, signal, blob });
    if (answer.status === 401) {
      const given = await askToken(Boolean(token));
      if (!given) throw new Problem(401, answer.body);
      setToken(given);
      continue;
    }
    if (answer.status >= 400) throw new Problem(answer.status, answer.body);
    return answer.body;
  }
}

function once(method, path, { json, form, key, progress, signal, blob }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method, path);
    request.responseType = blob ? "blob" : "text";
    if (token) request.setRequestHeader("Authorization", `Bearer ${token}`);
    if (key) request.setRequestHeader("Idempotency-Key", key);
    if (json !== undefined) request.setRequestHeader("Content-Type", "application/json");
    if (progress) {
      request.upload.addEventListener("progress", (event) => {
        if (event.lengthComputable) progress(event.loaded / event.total);
      });
    }
    request.addEventListener("load", () => {
      connected();
      let body = request.response;
      if (!blob) {
        try { body = JSON.parse(request.response || "{}"); } catch { body = { detail: t("error.unreadable") }; }
      }
      resolve({ status: request.status, body: blob && request.status >= 400 ? {} : body });
    });
    const gone = () => { disconnected(); reject(new Lost()); };
    request.addEventListener("error", gone);
    request.addEventListener("timeout", gone);
    request.addEventListener("abort", () => reject(new DOMException("stopped", "AbortError")));
    if (signal) signal.addEventListener("abort", () => request.abort());
    request.send(json !== undefined ? JSON.stringify(json) : form);
  });
}

// While the service is away a banner says so, and goes by itself.
function disconnected() {
  if (lost) return;
  lost = true;
  show(byId("lost"), t("lost.banner"));
  const again = async () => {
    try {
      await fetch("/healthz", { cache: "no-store" });
      connected();
    } catch { setTimeout(again, 2000); }
  };
  setTimeout(again, 2000);
}

function connected() {
  if (!lost) return;
  lost = false;
  show(byId("lost"), "");
  document.dispatchEvent(new CustomEvent("cala-back"));
}

// crypto.randomUUID is not there on plain http beyond this machine.
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

// Small copies need the token too, so they are fetched, not linked; each once.
const pictures = new Map();
const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    watcher.unobserve(entry.target);
    load(entry.target);
  }
}, { rootMargin: "300px" });

async function load(node) {
  const digest = node.dataset.digest;
  try {
    if (!pictures.has(digest)) {
      pictures.set(digest, call("GET", `/v1/thumbnails/${digest}`, { blob: true }).then((b) => URL.createObjectURL(b)));
    }
    const image = document.createElement("img");
    image.alt = "";
    image.className = "face";
    image.src = await pictures.get(digest);
    node.replaceWith(image);
  } catch { pictures.delete(digest); } // the letter stays
}

export function face(digest, name) {
  const node = document.createElement("div");
  node.className = "face";
  node.setAttribute("aria-hidden", "true");
  node.textContent = Array.from(name)[0].toUpperCase();
  if (digest) {
    node.dataset.digest = digest;
    watcher.observe(node);
  }
  return node;
}
