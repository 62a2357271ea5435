// Questions to the user: a dialog of the browser, which keeps the focus, closes by Esc and gives the
// focus back.
//
//     const answer = await ask("Scale web", [{ name: "replicas", label: "Replicas", value: 2, type: "number" }], "Scale");
//     if (answer) … answer.replicas        null: the user left it

import { el, fill } from "./elements.js";

let count = 0;

/** Open a dialog; build(close) returns what is in it. */
export function openDialog(title, build, onClose = () => undefined) {
  const heading = el("h2", { id: `dialog${(count += 1)}` }, title);
  const dialog = el("dialog", {
    "aria-labelledby": heading.id,
    onclose: () => {
      dialog.remove();
      onClose();
    },
  });
  fill(
    dialog,
    heading,
    build(() => dialog.close()),
  );
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("[autofocus]")?.focus();
  return dialog;
}

/** Ask for some values; fields: [{name, label, value, type, options, text}]. Resolves to null if the user leaves. */
export function ask(title, fields, verb, { isBad = false, about = "" } = {}) {
  return new Promise((resolve) => {
    let answer = null;
    openDialog(
      title,
      (close) => {
        const inputs = fields.map((each, index) => [each, input(each, index === 0)]);
        return el(
          "form",
          {
            onsubmit: (event) => {
              event.preventDefault();
              answer = Object.fromEntries(
                inputs.map(([each, made]) => [each.name, each.type === "checkbox" ? made.checked : made.value]),
              );
              close();
            },
          },
          about && el("p", {}, about),
          inputs.map(([each, made]) =>
            el(
              "label",
              { class: "field" },
              each.type === "checkbox" ? [made, ` ${each.label}`] : [el("span", {}, each.label), made],
            ),
          ),
          el(
            "div",
            { class: "bar" },
            el("button", { id: "confirm", class: isBad ? "bad" : "good", autofocus: fields.length === 0 }, verb),
            el("button", { type: "button", onclick: close }, "Cancel"),
          ),
        );
      },
      () => resolve(answer),
    );
  });
}

function input({ type = "text", value = "", options, min, max, name }, isFirst) {
  if (options) {
    const made = el(
      "select",
      { name, autofocus: isFirst },
      options.map((each) => el("option", { value: each }, each)),
    );
    made.value = value || options[0];
    return made;
  }
  const made = el("input", {
    name,
    type,
    min,
    max,
    autofocus: isFirst,
    autocomplete: "off",
    checked: type === "checkbox" && value,
  });
  if (type !== "checkbox") made.value = value;
  return made;
}
