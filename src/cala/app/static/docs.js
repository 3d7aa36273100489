// The OpenAPI document for people. Viewers that are usual for this load themselves from other hosts.

import { byId, el, fill } from "./dom.js";

byId("examples").textContent = byId("examples").textContent.replaceAll("http://127.0.0.1:8000", location.origin);
// Text of docstrings: what stands between backticks is code.
const prose = (text) => text.split("`").map((part, place) => (place % 2 ? el("code", {}, part) : part));

const document_ = await (await fetch("/openapi.json")).json();
const schemas = document_.components.schemas;

function shape(schema, depth = 0) {
  if (!schema) return "anything";
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return depth > 3 ? name : shape(schemas[name], depth);
  }
  if (schema.anyOf) return schema.anyOf.map((one) => shape(one, depth)).join(" | ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  if (schema.const) return JSON.stringify(schema.const);
  if (schema.type === "array") return `[${shape(schema.items, depth)}, …]`;
  if (schema.properties) {
    const pad = "  ".repeat(depth + 1);
    const lines = Object.entries(schema.properties).map(([name, one]) => `${pad}"${name}": ${shape(one, depth + 1)}${one.description ? `  — ${one.description}` : ""}`);
    return `{\n${lines.join("\n")}\n${"  ".repeat(depth)}}`;
  }
  return schema.format === "binary" ? "a file" : schema.type || "anything";
}

function operation(path, method, what) {
  const inputs = (what.parameters || []).map((one) => el("li", {}, el("code", {}, one.name), ` in the ${one.in}: ${shape(one.schema)}${one.description ? ` – ${one.description}` : ""}${one.required ? ", required" : ""}`));
  const bodies = Object.entries((what.requestBody || {}).content || {});
  const answers = Object.entries(what.responses).filter(([status]) => /^2/.test(status));
  return el("article", {},
    el("h2", {}, el("code", {}, `${method.toUpperCase()} ${path}`)),
    el("p", {}, prose(what.description || what.summary)),
    inputs.length ? el("ul", {}, inputs) : null,
    bodies.map(([kind, body]) => el("details", {}, el("summary", {}, `takes ${kind}`), el("pre", {}, shape(body.schema)))),
    answers.map(([status, answer]) => Object.entries(answer.content || {}).map(([kind, body]) => el("details", {}, el("summary", {}, `answers ${status}, ${kind}`), el("pre", {}, shape(body.schema))))));
}

fill(byId("operations"),
  el("p", {}, "Errors are application/problem+json with a stable ", el("code", {}, "code"), ", the ", el("code", {}, "field"), " that is wrong and the ", el("code", {}, "fix"), "."),
  Object.entries(document_.paths).map(([path, methods]) => Object.entries(methods).map(([method, what]) => operation(path, method, what))));
