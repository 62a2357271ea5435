// YAML of an object, a line at a time, with the managers that own each line (metadata.managedFields).

const SAFE = /^[A-Za-z_/][\w./@+-]*(:[\w./@+-]+)*( [\w./@+()-]+)*$/;
// eslint-disable-next-line no-control-regex
const UNSEEN = /[\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;
const KEY_MAX = 1000; // YAML takes longer ones in a form of their own alone
const WORDS = new Set(["true", "false", "null", "yes", "no", "on", "off", "y", "n", "~", "nan", "inf"]);

function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  return SAFE.test(value) && !WORDS.has(value.toLowerCase()) ? value : quoted(value);
}

function quoted(text) {
  // JSON is YAML but for separators, controls and marks of direction, which JSON leaves as they are.
  return JSON.stringify(text).replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function isBlock(text) {
  // eslint-disable-next-line no-control-regex
  return (
    text.includes("\n") &&
    !/[\u0000-\u0008\u000b-\u001f]|^\s|[ \t]\n|\n\n$/.test(text) &&
    text.search(UNSEEN) < 0 &&
    /\S\n?$/.test(text)
  );
}

const LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration";

/** Return an object whose secret values are hidden, if it has any: those of Secrets. */
export function withoutSecrets(object) {
  if (object.kind !== "Secret" || object.apiVersion !== "v1") return object;
  const hidden = (values) => values && Object.fromEntries(Object.keys(values).map((key) => [key, "hidden"]));
  const annotations = object.metadata.annotations && { ...object.metadata.annotations };
  if (annotations?.[LAST_APPLIED]) annotations[LAST_APPLIED] = "hidden"; // it has the values, too
  return {
    ...object,
    metadata: { ...object.metadata, annotations },
    data: hidden(object.data),
    stringData: hidden(object.stringData),
  };
}

/** Return an object as YAML, as it is edited. */
export function yamlText(object) {
  return `${yamlLines(object)
    .map((each) => each.text)
    .join("\n")}\n`;
}

/** Return the lines of an object: [{text, managers}], sorted and without managedFields, as kubectl prints it. */
export function yamlLines(object) {
  const managers = (object.metadata?.managedFields || [])
    .filter((each) => each.fieldsV1)
    .map((each) => ({ name: each.manager + (each.subresource ? `/${each.subresource}` : ""), node: each.fieldsV1 }));
  const metadata = { ...object.metadata };
  delete metadata.managedFields;
  const lines = [];
  members({ ...object, metadata }, "", managers, lines);
  return lines;
}

function owners(managers) {
  return [...new Set(managers.map((each) => each.name))];
}

function below(managers, key) {
  return managers
    .filter((each) => each.node && key in each.node)
    .map((each) => ({ name: each.name, node: each.node[key] }));
}

function members(value, indent, managers, lines, first = indent) {
  let lead = first;
  for (const name of Object.keys(value).sort()) {
    const member = value[name];
    if (member === undefined) continue;
    const key = scalar(name);
    const isLong = key.length > KEY_MAX;
    if (isLong) lines.push({ text: `${lead}? ${key}`, managers: [] });
    entry(isLong ? `${indent}:` : `${lead}${key}:`, member, indent, below(managers, `f:${name}`), lines);
    lead = indent;
  }
}

function entry(head, value, indent, managers, lines) {
  if (Array.isArray(value) && value.length) {
    lines.push({ text: head, managers: [] });
    for (const item of value) {
      const owned = itemOwners(managers, item);
      if (item && typeof item === "object" && !Array.isArray(item) && Object.keys(item).length) {
        members(item, `${indent}  `, owned, lines, `${indent}- `);
      } else {
        entry(`${indent}-`, item, `${indent}  `, owned.length ? owned : managers, lines);
      }
    }
  } else if (value && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length) {
    lines.push({ text: head, managers: [] });
    members(value, `${indent}  `, managers, lines);
  } else if (typeof value === "string" && isBlock(value)) {
    const body = value.endsWith("\n") ? value.slice(0, -1) : value;
    lines.push({ text: `${head} ${value.endsWith("\n") ? "|" : "|-"}`, managers: owners(managers) });
    for (const line of body.split("\n")) lines.push({ text: line && `${indent}  ${line}`, managers: [] });
  } else {
    lines.push({ text: `${head} ${scalar(value)}`, managers: owners(managers) });
  }
}

function itemOwners(managers, item) {
  const found = [];
  for (const each of managers) {
    for (const [key, node] of Object.entries(each.node || {})) {
      if (matches(key, item)) found.push({ name: each.name, node });
    }
  }
  return found;
}

function matches(key, item) {
  try {
    if (key.startsWith("v:")) return JSON.stringify(JSON.parse(key.slice(2))) === JSON.stringify(item);
    if (!key.startsWith("k:") || !item || typeof item !== "object") return false;
    return Object.entries(JSON.parse(key.slice(2))).every(([name, value]) => item[name] === value);
  } catch {
    return false; // a key that is not JSON owns nothing
  }
}
