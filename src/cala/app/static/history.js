// Changes of the model in the words of the page.

import { classesOf, photosOf } from "./dom.js";
import { t } from "./texts.js";

const several = (counts) => ({
  classes: classesOf(Object.keys(counts).length),
  photos: photosOf(Object.values(counts).reduce((sum, count) => sum + count, 0)),
});

const WORDS = {
  fit: ({ classes }) => t("history.fit", several(classes)),
  add({ classes }) {
    const [name, ...others] = Object.keys(classes);
    return others.length ? t("history.add-several", several(classes)) : t("history.add", { name, photos: photosOf(classes[name]) });
  },
  forget: (one) => t(one.photo ? "history.forget-photo" : "history.forget", one),
  merge: (one) => t("history.merge", one),
  refit: () => t("history.refit"),
  reject: ({ photos }) => t("history.reject", { photos: photosOf(photos) }),
  rename: (one) => t("history.rename", one),
  tune: (one) => t(one.reject === undefined ? "history.tune" : "history.tune-reject"),
  undo: (one) => t("history.undo", { what: happened(one.about) }),
  redo: (one) => t("history.redo", { what: happened(one.about) }),
};

// one : a line of /v1/history. What it lacks words for is as the service says it.
export function happened(one) {
  try { return one.also ? one.text : WORDS[one.action](one); } catch { return one.text; }
}
