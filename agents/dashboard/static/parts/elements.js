// Elements. All text of the cluster passes through textContent: names, labels, events, log lines and
// YAML are written by others and may hold markup. The page's policy refuses any other way.

import { visible } from "../text/plain.js";

/** Make an element: el("a", {class: "x", href: "#/", onclick: f}, "text", child, …). */
export function el(tag, attributes = {}, ...children) {
  return fill(attributed(document.createElement(tag), attributes), ...children);
}

/** Make an element of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(attributed(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes), ...children);
}

function attributed(made, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : visible(String(value)));
  }
  return made;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(visible(String(child)));
}

/** Put children in the place of what an element holds. */
export function fill(parent, ...children) {
  const kept = children.flat(3).filter((child) => child !== undefined && child !== null && child !== false);
  parent.replaceChildren(...kept.map(asNode));
  return parent;
}

/** Show a message for a while; kind: "good", "bad" or "". */
export function toast(text, kind = "") {
  const shown = el("div", { class: `toast ${kind}`, role: kind === "bad" ? "alert" : "status" }, text);
  const all = document.getElementById("toasts");
  all.append(shown);
  while (all.childElementCount > 5) all.firstElementChild.remove();
  setTimeout(() => shown.remove(), kind === "bad" ? 12000 : 4000);
}

/** A section with a heading; nothing if there is nothing in it. */
export function section(title, ...children) {
  const kept = children.flat(3).filter((child) => child !== undefined && child !== null && child !== false);
  return kept.length ? el("section", { class: "part" }, el("h2", {}, title), kept) : null;
}

/** A plain table: rows of cells; heads: texts. */
export function table(heads, rows, attributes = {}) {
  return el(
    "div",
    { class: "scrolls" },
    el(
      "table",
      attributes,
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((each) => el("th", { scope: "col" }, each)),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((cells) =>
          el(
            "tr",
            {},
            cells.map((each) => el("td", {}, each)),
          ),
        ),
      ),
    ),
  );
}

/** A text in one of the tones. */
export function toned(kind, text) {
  return el("span", { class: kind }, text);
}

export function quiet(...children) {
  return el("p", { class: "quiet" }, ...children);
}

/** A button that copies a text. */
export function copies(text) {
  return el(
    "button",
    {
      type: "button",
      onclick: async () => {
        try {
          await navigator.clipboard.writeText(text);
          toast("Copied.", "good");
        } catch {
          toast("The browser does not let this page copy.", "bad");
        }
      },
    },
    "Copy",
  );
}
