// The YAML of an object with the field manager of each line beside it. Only lines in sight are
// elements: an object may have a million.

import { copies, el, fill } from "../parts/elements.js";
import { visible } from "../text/plain.js";
import { withoutSecrets, yamlLines, yamlText } from "../text/yaml.js";

const LINE_PX = 20;
const SPARE = 20;
const LINE_MAX = 2000;
const COLOURS = 6;

export function yamlTab(app, body, { object }) {
  const shown = withoutSecrets(object);
  const lines = yamlLines(shown);
  const names = [...new Set(lines.flatMap((each) => each.managers))];
  const times = new Map(
    (object.metadata.managedFields || []).map((each) => [
      each.manager + (each.subresource ? `/${each.subresource}` : ""),
      each.time,
    ]),
  );
  const about = (name) => `${name}${times.get(name) ? `, last at ${times.get(name)}` : ""}`;
  const space = el("div", { class: "grid-spacer", role: "presentation" });
  const blame = el(
    "div",
    { class: "blame", id: "yaml", tabindex: "0", role: "region", "aria-label": "YAML, with the manager of each line" },
    space,
  );
  space.style.height = `${lines.length * LINE_PX}px`;
  const draw = () => {
    const first = Math.max(0, Math.floor(blame.scrollTop / LINE_PX) - SPARE);
    const count = Math.ceil(blame.clientHeight / LINE_PX) + 2 * SPARE;
    fill(
      space,
      lines.slice(first, first + count).map((line, at) => drawn(line, first + at)),
    );
  };
  const drawn = ({ text, managers }, at) => {
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
  };
  const legend = el(
    "p",
    { class: "legend", id: "managers" },
    names.map((name, at) => el("span", { class: `chip m${at % COLOURS}`, title: about(name) }, name)),
  );
  fill(body, el("div", { class: "bar" }, legend, copies(yamlText(shown))), blame);
  blame.addEventListener("scroll", draw, { passive: true });
  const resizes = new ResizeObserver(draw);
  resizes.observe(blame);
  draw();
  return () => resizes.disconnect();
}
