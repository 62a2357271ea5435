// The page begins.

import { el, fill } from "./parts/elements.js";
import { App } from "./shell/app.js";

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // what stands behind # is a route
  document.getElementById("view").focus();
});

const app = new App();
app.start().catch((error) => {
  console.error(error);
  fill(
    app.view,
    el("p", { class: "bad", role: "alert" }, error.message),
    el("button", { onclick: () => location.reload() }, "Try again"),
  );
});
