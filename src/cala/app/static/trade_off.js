// What any operating point answers: photo i is taken for known[i], or for new[i] where δ > switch[i].

import { t } from "./texts.js";

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = 0.5;

// One δ inside each interval between two switches, where nothing changes.
export function points(data) {
  const at = [...new Set(data.switch.filter((value, i) => value !== null && data.true[i] >= 0))].sort((a, b) => a - b);
  if (!at.length) return [data.delta];
  const inner = at.slice(1).map((value, i) => (value + at[i]) / 2);
  return [at[0] - MARGIN, ...inner, at[at.length - 1] + MARGIN];
}

export function pointOf(all, delta) {
  let best = 0;
  all.forEach((value, i) => { if (Math.abs(value - delta) < Math.abs(all[best] - delta)) best = i; });
  return best;
}

export function judge(data, delta) {
  const cells = { known: [0, 0, 0], new: [0, 0, 0] };
  const pairs = new Map();
  const wrong = { taken: [], unknown: [], strange: [] }; // photos, by their places, and what they are taken for
  let answered = 0; // where unknown counts as wrong
  data.true.forEach((truth, i) => {
    const isNew = data.switch[i] !== null && delta > data.switch[i];
    const taken = isNew ? data.new[i] : data.known[i];
    if (data.unknown[i] ? truth >= 0 : taken !== truth) {
      wrong[truth < 0 ? "strange" : data.unknown[i] ? "unknown" : "taken"].push([i, taken]);
    }
    if (truth < 0) return;
    if (taken === truth && !data.unknown[i]) answered += 1;
    const row = cells[truth < data.n_known ? "known" : "new"];
    row[taken === truth ? 0 : taken < data.n_known ? 1 : 2] += 1;
    if (taken !== truth) {
      const pair = `${truth} ${taken}`;
      pairs.set(pair, (pairs.get(pair) || 0) + 1);
    }
  });
  const sum = (row) => row[0] + row[1] + row[2];
  const count = (row) => ({ right: row[0], photos: sum(row) });
  const [known, fresh] = [count(cells.known), count(cells.new)];
  const photos = known.photos + fresh.photos;
  const mistakes = [...pairs].sort((a, b) => b[1] - a[1]).slice(0, 10).map(([pair, count]) => {
    const [truth, taken] = pair.split(" ").map(Number);
    return [data.classes[truth], data.classes[taken], count];
  });
  return {
    cells, mistakes, wrong, known, new: fresh,
    all: { right: known.right + fresh.right, photos },
    answered: { right: answered, photos },
  };
}

// The share that is right, with a 95 % interval (Wilson), as `cala fit` gives it.
export function certain({ right, photos: n }) {
  const z = 1.96;
  const share = n ? right / n : NaN;
  const wide = z * Math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2);
  const ends = [-wide, wide].map((side) => (share + z * z / (2 * n) + side) / (1 + z * z / n));
  return { share, low: Math.max(0, ends[0]), high: Math.min(1, ends[1]) };
}

function node(tag, set) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(set)) made.setAttribute(name, value);
  return made;
}

// New against known accuracy; a dot is where the slider stands. The numbers beside it say the same.
export function curve(data, all) {
  const left = 62, top = 12, side = 240;
  const x = (share) => left + side * (Number.isNaN(share) ? 0 : share);
  const y = (share) => top + side * (1 - (Number.isNaN(share) ? 0 : share));
  const svg = node("svg", { viewBox: `0 0 ${left + side + 24} ${top + side + 40}`, class: "curve", role: "img", "aria-label": t("check.curve-label") });
  svg.append(node("rect", { x: left, y: top, width: side, height: side, class: "axis" }));
  for (const share of [0, 0.5, 1]) {
    const across = node("text", { x: x(share), y: top + side + 16, "text-anchor": "middle" });
    across.textContent = `${100 * share} %`;
    const up = node("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" });
    up.textContent = `${100 * share} %`;
    svg.append(across, up);
  }
  const known = node("text", { x: left + side / 2, y: top + side + 34, "text-anchor": "middle" });
  known.textContent = t("check.old-right");
  const fresh = node("text", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(${left - 50} ${top + side / 2}) rotate(-90)` });
  fresh.textContent = t("check.new-right");
  const step = Math.max(1, Math.floor(all.length / 200));
  const places = all.filter((_, i) => i % step === 0 || i === all.length - 1).map((delta) => judge(data, delta));
  svg.append(known, fresh, node("polyline", { class: "line", points: places.map((now) => `${x(certain(now.known).share)},${y(certain(now.new).share)}`).join(" ") }));
  const dot = node("circle", { r: 7, class: "now" });
  svg.append(dot);
  return { node: svg, move: (now) => { dot.setAttribute("cx", x(certain(now.known).share)); dot.setAttribute("cy", y(certain(now.new).share)); } };
}
