// The YAML of an object with the field manager of each line beside it. Only lines in sight are
// elements: an object may have a million. What is copied and saved is what is shown: values of a Secret
// are in it once the user has asked for them.

import { copies, el, fill } from "../parts/elements.js";
import { saveFile } from "../parts/files.js";
import { visible } from "../text/plain.js";
import { withoutSecrets, yamlLines, yamlText } from "../text/yaml.js";

const LINE_PX = 20;
const SPARE = 20;
const LINE_MAX = 2000;
const COLOURS = 6;

const HIDDEN = "# The values are hidden: this is not the Secret itself.\n";

export function yamlTab(app, body, { object }) {
  const hidden = withoutSecrets(object);
  let close = () => undefined;
  const show = (shown) => {
    close();
    const isHidden = shown !== object;
    const reveal = el("button", { type: "button", id: "show-values", onclick: () => show(object) }, "Show values");
    const save = el(
      "button",
      {
        type: "button",
        id: "save-yaml",
        onclick: () => saveFile(fileOf(object), [isHidden ? HIDDEN : "", yamlText(shown)], "application/yaml"),
      },
      "Download",
    );
    close = lines(body, shown, isHidden && reveal, copies(yamlText(shown)), save);
  };
  show(hidden);
  return () => close();
}

function fileOf({ kind, metadata: { namespace, name } }) {
  return `${[kind.toLowerCase(), namespace, name].filter(Boolean).join("-")}.yaml`;
}

/** Show the lines of an object below buttons. */
function lines(body, shown, ...buttons) {
  const all = yamlLines(shown);
  const names = [...new Set(all.flatMap((each) => each.managers))];
  const about = aboutManagers(shown);
  const space = el("div", { class: "grid-spacer", role: "presentation" });
  const blame = el(
    "div",
    { class: "blame", id: "yaml", tabindex: "0", role: "region", "aria-label": "YAML, with the manager of each line" },
    space,
  );
  space.style.height = `${all.length * LINE_PX}px`;
  const draw = () => {
    const first = Math.max(0, Math.floor(blame.scrollTop / LINE_PX) - SPARE);
    const count = Math.ceil(blame.clientHeight / LINE_PX) + 2 * SPARE;
    fill(
      space,
      all.slice(first, first + count).map((line, at) => drawn(line, first + at, names, about)),
    );
  };
  const legend = el(
    "p",
    { class: "legend", id: "managers" },
    names.map((name, at) => el("span", { class: `chip m${at % COLOURS}`, title: about(name) }, name)),
  );
  fill(body, el("div", { class: "bar" }, legend, buttons), blame);
  blame.addEventListener("scroll", draw, { passive: true });
  const resizes = new ResizeObserver(draw);
  resizes.observe(blame);
  draw();
  return () => resizes.disconnect();
}

/** Return a function that says of a manager when it last wrote. */
function aboutManagers({ metadata }) {
  const times = new Map(
    (metadata.managedFields || []).map((each) => [
      each.manager + (each.subresource ? `/${each.subresource}` : ""),
      each.time,
    ]),
  );
  return (name) => `${name}${times.get(name) ? `, last at ${times.get(name)}` : ""}`;
}

function drawn({ text, managers }, at, names, about) {
  const left = text.length - LINE_MAX;
  const made = el(
    "div",
    { class: "line" },
    el(
      "span",
      { class: `manager m${names.indexOf(managers[0]) % COLOURS}`, title: managers.map(about).join("\n") },
      managers.join(", "),
    ),
    el(
      "code",
      {},
      visible(text.slice(0, LINE_MAX)) || "\u00a0",
      left > 0 && el("span", { class: "quiet" }, `… (${left} characters more)`),
    ),
  );
  made.style.top = `${at * LINE_PX}px`;
  return made;
}
