// Creating objects from YAML: each document is tried by a dry run of the server before the first is made.

import { kindOf, pathOf } from "../server/kinds.js";
import { el, fill, toast } from "../parts/elements.js";

const DOCUMENTS_MAX = 100;
const BYTES_MAX = 3 * 1024 * 1024;

export function create(app, view) {
  const text = el("textarea", {
    class: "editor",
    id: "manifest",
    spellcheck: "false",
    wrap: "off",
    "aria-label": "YAML",
  });
  text.value = `apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: example\n  namespace: ${app.route.namespace || "default"}\ndata: {}\n`;
  const file = el("input", {
    type: "file",
    "aria-label": "File",
    onchange: async () => {
      if (file.files[0]) text.value = await file.files[0].text();
    },
  });
  const problem = el("p", { class: "bad", role: "alert", id: "problem" });
  const results = el("ul", { class: "plain", id: "results" });
  const run = async (isTrialOnly) => {
    fill(problem);
    fill(results);
    try {
      const documents = split(text.value).map((each) => ({ text: each, ...about(each) }));
      for (const each of documents) await send(each, true);
      if (isTrialOnly) toast("The server would take it.", "good");
      else for (const each of documents) await send(each, false);
    } catch (error) {
      fill(problem, error.message);
    }
  };

  async function send(each, isTrial) {
    const kind = kindOf(app.kinds, each.apiVersion, each.kind);
    if (!kind) throw new Error(`this cluster has no kind ${each.kind || "?"} of ${each.apiVersion || "?"}`);
    const namespace = kind.namespaced ? each.namespace || app.route.namespace || "default" : "";
    // The version of the document counts, not the preferred one.
    const version = each.apiVersion.split("/").at(-1);
    const path = `${pathOf({ ...kind, version }, namespace)}?fieldValidation=Strict${isTrial ? "&dryRun=All" : ""}`;
    const made = await app.server.write("POST", path, each.text, "application/yaml");
    if (!isTrial)
      results.append(
        el(
          "li",
          {},
          app.link(kind, namespace, made.metadata.name, `${each.kind} ${made.metadata.name}`),
          " is created",
        ),
      );
  }

  fill(
    view,
    el("h1", {}, "Create"),
    el(
      "div",
      { class: "bar" },
      file,
      el("button", { type: "button", id: "try", onclick: () => run(true) }, "Dry run"),
      el("button", { type: "button", id: "make", class: "good", onclick: () => run(false) }, "Create"),
    ),
    problem,
    results,
    text,
  );
  text.focus();
}

/** Return the documents of a text. */
export function split(text) {
  if (text.length > BYTES_MAX) throw new Error(`the text has ${text.length} characters, of ${BYTES_MAX} at most`);
  const found = text.split(/^---(?:[ \t].*)?$/m).filter((each) => /^[^#\s]/m.test(each));
  if (!found.length) throw new Error("there is no document in the text");
  if (found.length > DOCUMENTS_MAX)
    throw new Error(`the text has ${found.length} documents, of ${DOCUMENTS_MAX} at most`);
  return found;
}

/** Return what says where a document goes; the server reads the rest. */
export function about(text) {
  const unquoted = (value) => value?.trim().replace(/^(["'])(.*)\1$/, "$2");
  if (/^\s*\{/.test(text)) {
    const { apiVersion, kind, metadata = {} } = JSON.parse(text);
    return { apiVersion, kind, namespace: metadata.namespace };
  }
  const top = (name) => unquoted(new RegExp(`^${name}:[ \\t]*([^#\\n]*)`, "m").exec(text)?.[1]);
  const metadata = /^metadata:[ \t]*(?:\{([^}]*)\}|\n((?:[ \t]+.*\n?|\n)*))/m.exec(text);
  const inside = metadata?.[1]?.replaceAll(",", "\n") ?? metadata?.[2] ?? "";
  const indent = /^[ \t]*/.exec(inside)[0];
  const namespace = unquoted(
    new RegExp(`^${metadata?.[1] ? "[ \\t]*" : indent}namespace:[ \\t]*([^#\\n]*)`, "m").exec(inside)?.[1],
  );
  return { apiVersion: top("apiVersion"), kind: top("kind"), namespace };
}
