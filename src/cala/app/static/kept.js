// Photos that were looked at survive a reload: they stay in this browser, for this tab, and go with it.

const PHOTOS = "photos"; // {key, session, time, file, name}
const ANSWERS = "answers"; // {key, id, answer, version, said}: apart, so that a file is written once
const DAY = 24 * 3600 * 1000;
const session = sessionStorage.getItem("cala-session") || `${Date.now()}-${Math.random()}`;
sessionStorage.setItem("cala-session", session);

const opened = new Promise((resolve, reject) => {
  const request = indexedDB.open("cala", 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore(PHOTOS, { keyPath: "key", autoIncrement: true });
    request.result.createObjectStore(ANSWERS, { keyPath: "key" });
  };
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});
opened.catch(() => {}); // private windows may have none: then nothing is kept

async function run(mode, act) {
  const db = await opened;
  return new Promise((resolve, reject) => {
    const change = db.transaction([PHOTOS, ANSWERS], mode);
    const request = act(change.objectStore(PHOTOS), change.objectStore(ANSWERS));
    change.oncomplete = () => resolve(request && request.result);
    change.onerror = () => reject(change.error);
    change.onabort = () => reject(change.error);
  });
}

const quietly = (promise) => promise.catch(() => undefined);

// One step after the other: the first one gives the photo its key.
const after = (item, step) => { item.keeping = quietly((item.keeping || Promise.resolve()).then(step)); };

export const keepPhoto = (item) => after(item, async () => {
  const { file, name } = item;
  item.key = await run("readwrite", (photos) => photos.put({ session, time: Date.now(), file, name }));
});

export const keepAnswer = (item) => after(item, async () => {
  const { key, id, answer, version, said } = item;
  if (key !== undefined) await run("readwrite", (_, answers) => answers.put({ key, id, answer, version, said }));
});

// All in one step: a reload meanwhile brings back all of them, or none.
export async function drop(items) {
  await Promise.all(items.map((item) => item.keeping));
  const keys = items.map((item) => item.key).filter((key) => key !== undefined);
  await quietly(run("readwrite", (photos, answers) => { keys.forEach((key) => { photos.delete(key); answers.delete(key); }); }));
}

// Those of this tab, in order; those of tabs that were left a day ago are deleted.
export async function keptPhotos() {
  const all = await quietly(run("readonly", (photos) => photos.getAll())) || [];
  const answers = new Map((await quietly(run("readonly", (_, own) => own.getAll())) || []).map((one) => [one.key, one]));
  const old = all.filter((one) => one.session !== session && one.time < Date.now() - DAY);
  if (old.length) drop(old);
  return all.filter((one) => one.session === session).map(({ key, file, name }) => ({ key, file, name, ...answers.get(key) }));
}
