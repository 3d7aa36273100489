// Photos in folders that are called after their classes.

const PHOTO = /\.(jpe?g|png|webp|bmp|gif|tiff?)$/i;

export function labelledPhotos(files) {
  const photos = files.filter(({ path }) => PHOTO.test(path) && !path.split("/").some((part) => part.startsWith(".")));
  const labelled = photos.map(({ file, path }) => ({ file, label: path.split("/").slice(-2, -1)[0] || "" }));
  if (!labelled.length) throw new Error("There is no photo in it: give a folder with one folder of photos for each class.");
  if (labelled.some((one) => !one.label)) throw new Error("These photos lie in no folder: give a folder with one folder of photos for each class.");
  return labelled;
}
