// A page of which a module did not come, from a server that is too busy or over a connection that was
// lost, would stand still without a word: it says so and is loaded again.

const AGAIN_MS = 2000;

addEventListener(
  "error",
  (event) => {
    if (event.target.tagName !== "SCRIPT") return;
    document.querySelector("#view p").textContent = "The page did not come whole. It is loaded again.";
    setTimeout(() => location.reload(), AGAIN_MS);
  },
  true,
);
