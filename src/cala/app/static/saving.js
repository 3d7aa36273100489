// What was recognised, as a table or as a zip file with a folder for each class; made in the browser.

import { t } from "./texts.js";

const MOST_BYTES = 0xffffffff;
const MOST_FILES = 0xffff;

export function save(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// A cell that begins like a formula is not one.
const cell = (value) => `"${String(value).replace(/^([=+\-@\t])/, "'$1").replaceAll('"', '""')}"`;

export const table = (rows) => new Blob(["\ufeff", rows.map((row) => row.map(cell).join(",")).join("\r\n"), "\r\n"], { type: "text/csv" });

const plain = (name) => name.replace(/[\\/:*?"<>|\u0000-\u001f]/g, "_").replace(/^\.+|[. ]+$/g, "_") || "_";

let crcs = null;
function crc32(bytes) {
  crcs = crcs || Uint32Array.from({ length: 256 }, (_, n) => {
    let c = n;
    for (let bit = 0; bit < 8; bit += 1) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1;
    return c;
  });
  let crc = -1;
  for (let place = 0; place < bytes.length; place += 1) crc = crcs[(crc ^ bytes[place]) & 255] ^ (crc >>> 8);
  return (crc ^ -1) >>> 0;
}

function record(size, values) {
  const view = new DataView(new ArrayBuffer(size));
  for (const [place, value, bytes = 2] of values) {
    if (bytes === 4) view.setUint32(place, value, true);
    else view.setUint16(place, value, true);
  }
  return view.buffer;
}

// files: [{folder, name, file}]; nothing is compressed, since photos are already.
export async function zip(files, progress = () => {}) {
  if (files.length > MOST_FILES || files.reduce((sum, one) => sum + one.file.size, 0) > MOST_BYTES - 1e7) {
    throw new Error(t("zip.too-many"));
  }
  const parts = [];
  const list = [];
  const taken = new Set();
  let offset = 0;
  for (const [number, { folder, name, file }] of files.entries()) {
    const stem = plain(name).replace(/(\.[^.]*)?$/, "");
    const end = plain(name).slice(stem.length);
    let path = `${plain(folder)}/${stem}${end}`;
    for (let n = 2; taken.has(path.toLowerCase()); n += 1) path = `${plain(folder)}/${stem} (${n})${end}`;
    taken.add(path.toLowerCase());
    const encoded = new TextEncoder().encode(path);
    const crc = crc32(new Uint8Array(await file.arrayBuffer()));
    const common = [[0, 20], [2, 0x800], [4, 0], [8, 33], [10, crc, 4], [14, file.size, 4], [18, file.size, 4], [22, encoded.length]];
    const moved = (by) => common.map(([place, ...rest]) => [place + by, ...rest]);
    parts.push(record(30, [[0, 0x04034b50, 4], ...moved(4)]), encoded, file);
    list.push(record(46, [[0, 0x02014b50, 4], [4, 20], ...moved(6), [42, offset, 4]]), encoded);
    offset += 30 + encoded.length + file.size;
    progress((number + 1) / files.length);
  }
  const size = list.reduce((sum, one) => sum + one.byteLength, 0);
  const end = record(22, [[0, 0x06054b50, 4], [8, files.length], [10, files.length], [12, size, 4], [16, offset, 4]]);
  return new Blob([...parts, ...list, end], { type: "application/zip" });
}
