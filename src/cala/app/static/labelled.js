// Photos in folders that are called after their classes.

const PHOTO = /\.(jpe?g|jpe|jfif|png|webp|bmp|gif|tiff?|jp2|j2k|jpf|jpx|avif|hei[cf]|hif)$/i;
const SYSTEM = /^(\.|@eaDir$|__MACOSX$|thumbs\.db$|desktop\.ini$)/i;

// photos: [{file, label}]; others: how many files are not photos
export function labelledPhotos(files) {
  const own = files.filter(({ path }) => !path.split("/").some((part) => SYSTEM.test(part)));
  const photos = own.filter(({ path }) => PHOTO.test(path)).map(({ file, path }) => ({ file, label: path.split("/").slice(-2, -1)[0] || "" }));
  if (!photos.length) throw new Error("There is no photo in it: give a folder with one folder of photos for each class.");
  if (photos.some((one) => !one.label)) throw new Error("These photos are not in a folder: give a folder with one folder of photos for each class.");
  return { photos, others: own.length - photos.length };
}
