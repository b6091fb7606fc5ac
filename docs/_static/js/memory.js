/** The form that says how much memory a model takes on each GPU, in place of one command and what it printed. */

import { answer, choices } from "./memory-need.js";

const FIELDS = {
  count: { label: "Parameters", help: "7B, 350M or 124439808", start: "7B" },
  gpus: { label: "GPUs of all nodes", start: "16", numeric: true },
  sharing: { label: "GPUs that share one copy", help: "empty: all; with HSDP, those of a node", start: "", numeric: true },
  optimizer: { label: "Optimizer", start: "adamw" },
  precision: { label: "Precision", start: "mixed" },
};
const WORDS = {
  sgd: "SGD",
  momentum: "SGD with momentum",
  adamw: "Adam or AdamW",
  float32: "32 bits",
  mixed: "mixed: 16 bits, kept in 32",
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
  const options = words.map((word) => make("option", { value: word, textContent: WORDS[word] ?? word }));
  const select = make("select", { id }, ...options);
  select.value = start;
  return select;
}

function build(root) {
  const words = choices();
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

  function show() {
    const values = Object.fromEntries(Object.entries(controls).map(([key, { value }]) => [key, value]));
    const result = answer(values);
    for (const [key, field] of Object.entries(controls)) {
      if (result.field === key) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
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
        ...cells.map((text, at) => {
          const cell = make("td", { textContent: text });
          cell.dataset.head = head[at + 1];
          return cell;
        }),
      ),
    );
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...lines));
    const command = make("p", {}, "The same in a terminal: ", make("code", { textContent: result.command }));
    output.replaceChildren(table, command);
  }

  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  root.replaceChildren(form, output);
  show();
}

document.querySelectorAll(".memory-calculator").forEach(build);
