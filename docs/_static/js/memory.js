/** The form that says how much memory a model takes on each GPU, in place of one command and what it printed. */

import { answer } from "./memory-need.js";

const FIELDS = {
  shape: { label: "Model", start: "" },
  count: { label: "Parameters", help: "7B, 350M or 124,439,808", start: "7B" },
  layers: { label: "Layers", start: "32", numeric: true },
  width: { label: "Width (hidden size)", start: "4096", numeric: true },
  vocabulary: { label: "Vocabulary", start: "32000", numeric: true },
  tied: { label: "Embedding and head", start: "" },
  length: { label: "Tokens in a sequence", start: "4096", numeric: true },
  gpus: { label: "GPUs on all nodes", start: "16", numeric: true },
  sharing: { label: "GPUs that share one copy", help: "empty: all; with HSDP, those of a node", start: "", numeric: true },
  "gpu-memory": { label: "GB on a GPU", help: "as in its name: 80", start: "80", numeric: true },
  optimizer: { label: "Optimizer", start: "adamw" },
  precision: { label: "Precision", start: "mixed" },
};
const WORDS = {
  "": { shape: "another", tied: "two matrices" },
  tied: "one matrix (tied)",
  sgd: "SGD",
  momentum: "SGD with momentum",
  adamw: "Adam or AdamW",
  "adamw-8bit": "AdamW in 8 bits",
  float32: "32 bits",
  mixed: "mixed: 16 bits, kept in 32",
  master: "16 bits, and a copy in 32",
  bf16: "16 bits",
};

function make(tag, properties = {}, ...content) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...content);
  return element;
}

/** @param {string} key @param {string[]|undefined} words to choose from; without them, a text */
function control(key, words) {
  const id = `memory-${key}`;
  const { start, numeric } = FIELDS[key];
  if (!words) return make("input", { id, value: start, inputMode: numeric ? "numeric" : "text", autocomplete: "off" });
  const text = (word) => WORDS[word]?.[key] ?? WORDS[word] ?? word;
  const select = make("select", { id }, ...words.map((word) => make("option", { value: word, textContent: text(word) })));
  select.value = start;
  return select;
}

function build(root, formulas) {
  const words = {
    shape: ["", ...Object.keys(formulas.shapes)],
    tied: ["", "tied"],
    optimizer: Object.keys(formulas.optimizers),
    precision: Object.keys(formulas.precisions),
  };
  const controls = Object.fromEntries(Object.keys(FIELDS).map((key) => [key, control(key, words[key])]));
  const rows = Object.entries(FIELDS).map(([key, { label, help }]) => {
    const row = make("p", {}, make("label", { htmlFor: `memory-${key}`, textContent: label }), controls[key]);
    if (help) {
      row.append(make("span", { id: `memory-${key}-help`, className: "memory-help", textContent: help }));
      controls[key].setAttribute("aria-describedby", `memory-${key}-help`);
    }
    return row;
  });
  const form = make("form", { className: "memory-form" }, ...rows);
  const output = make("div", { className: "memory-answer" });
  output.setAttribute("aria-live", "polite");

  function fill() {
    const { tied, ...numbers } = formulas.shapes[controls.shape.value] ?? {};
    for (const [key, value] of Object.entries(numbers)) controls[key].value = value;
    if (tied !== undefined) controls.tied.value = tied ? "tied" : "";
  }

  function show(event) {
    if (event?.target === controls.shape) fill();
    else if (event && ["count", "layers", "width", "vocabulary", "tied"].some((key) => controls[key] === event.target)) {
      controls.shape.value = "";
    }
    const values = Object.fromEntries(Object.entries(controls).map(([key, { value }]) => [key, value]));
    const result = answer(formulas, values);
    for (const [key, field] of Object.entries(controls)) {
      field.toggleAttribute("aria-invalid", false);
      if (result.field === key) field.setAttribute("aria-invalid", "true");
    }
    if (result.problem) {
      output.replaceChildren(make("p", { className: "memory-problem", textContent: result.problem }));
      return;
    }
    const [head, ...body] = result.rows;
    const heads = head.map((text) => make("th", { scope: "col", textContent: text }));
    const lines = body.map(([name, ...cells]) =>
      make(
        "tr",
        {},
        make("th", { scope: "row", textContent: name }),
        ...cells.map((text) => make("td", { textContent: text })),
      ),
    );
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...lines));
    const said = make("p", { className: "memory-verdict", textContent: result.verdict });
    const command = make("p", {}, "The same in a terminal: ", make("code", { textContent: result.command }));
    output.replaceChildren(table, ...(result.verdict ? [said] : []), command);
  }

  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  root.replaceChildren(form, output);
  show();
}

const answered = await fetch(new URL("../memory.json", import.meta.url));
const formulas = await answered.json();
document.querySelectorAll(".memory-calculator").forEach((root) => build(root, formulas));
