// Photos in folders that are called after their classes.

import { t } from "./texts.js";

const PHOTO = /\.(jpe?g|jpe|jfif|png|webp|bmp|gif|tiff?|jp2|j2k|jpf|jpx|avif|hei[cf]|hif)$/i;
const SYSTEM = /^(\.|@eaDir$|__MACOSX$|thumbs\.db$|desktop\.ini$)/i;

// photos: [{file, label}]; others: how many files are not photos
export function labelledPhotos(files) {
  const own = files.filter(({ path }) => !path.split("/").some((part) => SYSTEM.test(part)));
  const photos = own.filter(({ path }) => PHOTO.test(path)).map(({ file, path }) => ({ file, label: path.split("/").slice(-2, -1)[0] || "" }));
  if (!photos.length) throw new Error(t("drop.no-photo"));
  if (photos.some((one) => !one.label)) throw new Error(t("drop.no-folder"));
  return { photos, others: own.length - photos.length };
}
