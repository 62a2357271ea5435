// Texts of the cluster as a person may see them: whatever was written into a name, an annotation or
// a log, it cannot move the cursor, turn the direction of the line or hide what stands beside it.

// eslint-disable-next-line no-control-regex
const ESCAPES =
  /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])/g;
// Controls but tab and newline; marks that turn the direction of text; what has no width.
// eslint-disable-next-line no-control-regex
const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** Return a text of a log: escape sequences are left out, other invisible characters are shown. */
export function plain(text) {
  return visible(text.replace(ESCAPES, "").replace(/\r$/, ""));
}

/** Return a text with each invisible character as ⟨U+202E⟩. */
export function visible(text) {
  return text.replace(INVISIBLE, (one) => `⟨U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** Return at most so many characters of a text, and how many are left out. */
export function short(text, max) {
  return text.length > max ? `${text.slice(0, max)}… (${text.length - max} characters more)` : text;
}
