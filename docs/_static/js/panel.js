/**
 * The buttons that open the panel "My cluster": in each page's header and above every job script.
 *
 * This is all that a page loads by itself. The panel comes with a click, and what fits the scripts comes for a reader
 * who has filled it in.
 */
import { load, onChange } from "./panel-store.js";

const SCRIPT = ".code-file > .code-file-caption";

function button(text, label, className) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = className;
  made.textContent = text;
  made.setAttribute("aria-label", label);
  made.setAttribute("aria-haspopup", "dialog");
  made.addEventListener("click", async () => (await import("./panel-form.js")).open());
  return made;
}

async function fitAll() {
  (await import("./panel-blocks.js")).fitAll();
}

document.querySelector(".content-icon-container")?.prepend(
  button("My cluster", "My cluster: fill in your partition, account and GPUs", "fit-open fit-open-page"),
);
for (const caption of document.querySelectorAll(SCRIPT)) {
  const name = caption.querySelector(".code-file-name")?.textContent ?? "";
  const download = caption.querySelector(".code-file-download");
  if (name.endsWith(".sbatch") && download) {
    download.before(button("Fit to my cluster", `Fit ${name} to my cluster`, "fit-open"));
  }
}
let fitted = load() !== null;
if (fitted) fitAll();
onChange(() => {
  if (fitted || load() !== null) fitAll();
  fitted = true;
});
