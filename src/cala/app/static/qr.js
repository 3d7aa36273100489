// A link as a QR code: version 5 (37 × 37), error correction L, one block; as long as 106 bytes.

import { t } from "./texts.js";

const SIDE = 37;
const DATA = 108; // codewords
const CHECK = 26;
const FORMAT = 0b111011111000100; // level L, mask 0: where row + column is even
const SVG = "http://www.w3.org/2000/svg";

function multiply(a, b) { // in GF(256) of QR codes
  let product = 0;
  for (let bit = 7; bit >= 0; bit -= 1) {
    product = (product << 1) ^ (product >> 7 ? 0x11d : 0);
    if ((b >> bit) & 1) product ^= a;
  }
  return product;
}

function checksum(data) { // Reed-Solomon
  let generator = [1];
  for (let n = 0, root = 1; n < CHECK; n += 1, root = multiply(root, 2)) {
    const next = [...generator, 0];
    generator.forEach((value, place) => { next[place + 1] ^= multiply(value, root); });
    generator = next;
  }
  const rest = [...data, ...new Array(CHECK).fill(0)];
  for (let place = 0; place < data.length; place += 1) {
    const lead = rest[place];
    if (lead) generator.forEach((value, n) => { rest[place + n] ^= multiply(value, lead); });
  }
  return rest.slice(data.length);
}

function codewords(text) {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length > DATA - 2) return null;
  const nibbles = [4, bytes.length >> 4, bytes.length & 15, ...Array.from(bytes, (byte) => [byte >> 4, byte & 15]).flat(), 0];
  const data = Array.from({ length: nibbles.length / 2 }, (_, n) => (nibbles[2 * n] << 4) | nibbles[2 * n + 1]);
  for (let n = 0; data.length < DATA; n += 1) data.push(n % 2 ? 0x11 : 0xec);
  return [...data, ...checksum(data)];
}

// Rows of true for dark and false for light; null where the text is too long.
export function qrCode(text) {
  const words = codewords(text);
  if (!words) return null;
  const cells = Array.from({ length: SIDE }, () => new Array(SIDE).fill(null));
  const set = (row, column, dark) => { if (row >= 0 && column >= 0 && row < SIDE && column < SIDE) cells[row][column] = Boolean(dark); };
  const square = (row, column, reach, dark) => {
    for (let y = -reach; y <= reach; y += 1) for (let x = -reach; x <= reach; x += 1) set(row + y, column + x, dark(Math.max(Math.abs(x), Math.abs(y))));
  };
  for (const [row, column] of [[3, 3], [3, SIDE - 4], [SIDE - 4, 3]]) square(row, column, 4, (far) => far !== 2 && far !== 4);
  square(SIDE - 7, SIDE - 7, 2, (far) => far !== 1);
  for (let n = 8; n < SIDE - 8; n += 1) { set(6, n, n % 2 === 0); set(n, 6, n % 2 === 0); }
  for (let n = 0; n < 15; n += 1) {
    const dark = (FORMAT >> n) & 1;
    if (n < 8) { set(n < 6 ? n : n + 1, 8, dark); set(8, SIDE - 1 - n, dark); }
    else { set(8, n === 8 ? 7 : 14 - n, dark); set(SIDE - 15 + n, 8, dark); }
  }
  set(SIDE - 8, 8, true);
  let bit = 0;
  for (let right = SIDE - 1, up = true; right > 0; right -= 2, up = !up) {
    if (right === 6) right = 5;
    for (let step = 0; step < SIDE; step += 1) {
      const row = up ? SIDE - 1 - step : step;
      for (const column of [right, right - 1]) {
        if (cells[row][column] !== null) continue;
        const dark = bit < 8 * words.length && (words[bit >> 3] >> (7 - (bit & 7))) & 1;
        cells[row][column] = Boolean(dark) !== ((row + column) % 2 === 0);
        bit += 1;
      }
    }
  }
  return cells;
}

// Black on white in light and dark: some cameras read nothing else.
export function qrPicture(text) {
  const cells = qrCode(text);
  if (!cells) return null;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `-4 -4 ${SIDE + 8} ${SIDE + 8}`);
  svg.setAttribute("class", "qr");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", t("shared.code"));
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", cells.flatMap((row, y) => row.map((dark, x) => (dark ? `M${x} ${y}h1v1h-1z` : ""))).join(""));
  svg.append(path);
  return svg;
}
