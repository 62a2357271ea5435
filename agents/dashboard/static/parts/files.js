// Files that the user saves. They are made in the page: nothing but the browser sees them, and the
// page's policy, which has no source for frames or images of them, stays as it is.

import { el } from "./elements.js";

const KEPT_MS = 10_000; // the browser reads it meanwhile
const NAME_MAX = 200;

/** Save texts as one file; characters of its name that file systems or shells treat specially become _. */
export function saveFile(name, parts, type = "text/plain") {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  el("a", { href: url, download: fileName(name) }).click();
  setTimeout(() => URL.revokeObjectURL(url), KEPT_MS);
}

/** Return a name that is one file on every system. */
export function fileName(name) {
  const stem = name.replace(/\.[a-z]+$/, "");
  const safe = (text) => text.replace(/[^A-Za-z0-9._-]/g, "_");
  return `${safe(stem).slice(0, NAME_MAX).replace(/^\./, "_")}${name.slice(stem.length)}`;
}
