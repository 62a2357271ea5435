// Editing an object as YAML. The server tries it first if asked (a dry run), and takes it only if the
// object is still the one that was read: its resourceVersion stays in the text. If somebody else was
// faster, what they changed is shown beside what is to be saved, and nothing is lost or overwritten.

import { el, fill, toast } from "../parts/elements.js";
import { visible } from "../text/plain.js";
import { around, difference } from "../text/difference.js";
import { withoutSecrets, yamlText } from "../text/yaml.js";

const DIFFERENCE_MAX = 400;
const LINE_MAX = 500;
const VERSION = /^( {2}resourceVersion: ).*$/m;

export function edit(app, body, { object, path, reload }) {
  const isHidden = withoutSecrets(object) !== object;
  if (!isHidden) return editor(app, body, object, path, reload);
  fill(
    body,
    el("p", {}, "The values of this Secret are shown if you edit it."),
    el(
      "button",
      { type: "button", id: "reveal", onclick: () => editor(app, body, object, path, reload) },
      "Show and edit",
    ),
  );
  return undefined;
}

function editor(app, body, object, path, reload) {
  let base = object;
  const text = el("textarea", {
    class: "editor",
    spellcheck: "false",
    autocomplete: "off",
    wrap: "off",
    "aria-label": "YAML",
  });
  text.value = yamlText(object);
  const problem = el("p", { class: "bad", role: "alert", id: "problem" });
  const compared = el("div", { id: "difference" });
  const send = async (isTrial) => {
    fill(problem);
    try {
      const made = await app.server.write(
        "PUT",
        `${path}?fieldValidation=Strict${isTrial ? "&dryRun=All" : ""}`,
        text.value,
        "application/yaml",
      );
      if (isTrial) {
        toast("The server would take it.", "good");
        fill(compared, shown("What would change", yamlText(base), yamlText(withVersion(made, base))));
      } else {
        toast("Saved.", "good");
        await reload();
      }
    } catch (error) {
      fill(problem, error.message);
      if (error.code === 409) await conflict();
    }
  };

  /** Show what somebody else has changed, and let the user go on with their version. */
  async function conflict() {
    const theirs = await app.server.get(path, { isPresent: true });
    fill(
      compared,
      shown("What somebody else changed since you began", yamlText(base), yamlText(theirs)),
      el(
        "p",
        {},
        "Your text is as it was. To save it all the same, take over what you want of the above, then go on from their version. ",
        el(
          "button",
          {
            type: "button",
            id: "rebase",
            onclick: () => {
              base = theirs;
              // resourceVersion alone is changed: what the user wrote stays.
              text.value = text.value.replace(VERSION, (_, head) => `${head}"${theirs.metadata.resourceVersion}"`);
              fill(problem);
              fill(compared, shown("What you change of theirs", yamlText(theirs), text.value));
            },
          },
          "Go on from their version",
        ),
      ),
    );
  }

  fill(
    body,
    el(
      "div",
      { class: "bar" },
      el("button", { type: "button", id: "try", onclick: () => send(true) }, "Dry run"),
      el("button", { type: "button", id: "save", class: "good", onclick: () => send(false) }, "Save"),
      el(
        "button",
        {
          type: "button",
          id: "compare",
          onclick: () => fill(compared, shown("What you change", yamlText(base), text.value)),
        },
        "Compare",
      ),
      el("button", { type: "button", onclick: () => reload() }, "Begin again"),
    ),
    problem,
    compared,
    text,
  );
  text.setSelectionRange(0, 0);
  text.focus();
  text.scrollTop = 0;
  return undefined;
}

function withVersion(made, base) {
  return { ...made, metadata: { ...made.metadata, resourceVersion: base.metadata.resourceVersion } };
}

/** Return two texts as what differs. */
export function shown(title, before, after) {
  const lines = around(difference(before, after));
  const signs = { "+": "good", "-": "bad", " ": "", "…": "quiet" };
  return [
    el("h2", {}, title),
    lines.length
      ? el(
          "pre",
          { class: "difference", tabindex: "0" },
          lines
            .slice(0, DIFFERENCE_MAX)
            .map(({ sign, text }) => el("div", { class: signs[sign] }, `${sign} ${visible(text.slice(0, LINE_MAX))}`)),
          lines.length > DIFFERENCE_MAX && `… and ${lines.length - DIFFERENCE_MAX} lines more`,
        )
      : el("p", { class: "quiet" }, "nothing"),
  ];
}
