// Signing in: a token is pasted, tried, and kept in the page's memory alone.

import { el, fill } from "../parts/elements.js";

/** Show the form; onToken(token) resolves once the token was good, and fails with what is wrong. */
export function login(app, problem, onToken) {
  if (!isSecureContext) {
    fill(
      app.view,
      el(
        "div",
        { class: "login" },
        el("h1", {}, "kvstack"),
        el(
          "p",
          { class: "bad" },
          "This page came over plain HTTP. A token is not asked for here, as everybody on the way could read it: use https.",
        ),
      ),
    );
    return;
  }
  const token = el("input", {
    type: "password",
    id: "token",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
  });
  const wrong = el("p", { class: "bad", role: "alert", id: "wrong" }, problem);
  const button = el("button", { class: "good" }, "Sign in");
  const form = el(
    "form",
    {
      class: "login",
      onsubmit: async (event) => {
        event.preventDefault();
        button.disabled = true;
        try {
          await onToken(token.value.trim());
        } catch (error) {
          wrong.textContent = error.message;
          token.value = "";
          token.focus();
        } finally {
          button.disabled = false;
        }
      },
    },
    el("h1", {}, "kvstack"),
    el(
      "p",
      {},
      "Paste a token, for example of ",
      el("code", {}, "kubectl create token NAME"),
      ". It is kept in this page alone, and ends with it. Through ",
      el("code", {}, "kubectl proxy"),
      " none is needed.",
    ),
    el("label", { for: "token" }, "Token"),
    token,
    button,
    wrong,
  );
  fill(app.view, form);
  token.focus();
}
