/** The form: its controls, the values that they have, and the problems that are shown beside them. */

import { GROUPS, SWITCHES } from "./builder-fields.js";
import { choices } from "./field-values.js";
import { splitWords, valueOf } from "./job-command.js";
import { joined } from "./quoting.js";

const ALL = GROUPS.flatMap(({ fields }) => fields);

/** Make an element with properties and children. */
export function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/** A form that asks for the values of a job. */
export class JobForm {
  /** @param {object} rules */
  constructor(rules) {
    this.rules = rules;
    /** @type {Map<string, {control: HTMLElement, row: HTMLElement, problem: HTMLElement}>} */
    this.rows = new Map();
    this.element = make("form", { className: "builder-form", noValidate: true });
    this.element.setAttribute("aria-label", "Your job");
    this.element.addEventListener("submit", (event) => event.preventDefault());
    for (const group of GROUPS) this.element.append(this.group(group));
    this.element.append(make("a", { className: "builder-jump", href: "#your-script", textContent: "See your script" }));
  }

  group({ title, folded, fields }) {
    const rows = fields.map((field) => this.row(field));
    if (folded) return make("details", {}, make("summary", { textContent: title }), ...rows);
    return make("fieldset", {}, make("legend", { textContent: title }), ...rows);
  }

  row(field) {
    const { key, label, help } = field;
    const control = this.control(field);
    control.id = `builder-${key}`;
    const problem = make("p", { className: "builder-problem", id: `${control.id}-problem`, hidden: true });
    const parts = [make("label", { htmlFor: control.id, textContent: label }), control];
    if (help) parts.push(make("p", { className: "builder-help", id: `${control.id}-help`, textContent: help }));
    const described = [...(help ? [`${control.id}-help`] : []), problem.id].join(" ");
    control.setAttribute("aria-describedby", described);
    const row = make("div", { className: "builder-row" }, ...parts, problem);
    this.rows.set(key, { control, row, problem });
    return row;
  }

  control({ key, words, empty, several }) {
    const field = this.rules.fields[key];
    const known = words ? Object.keys(words) : field ? choices(field) : [];
    if (known.length) {
      const select = make("select", { name: key });
      if (empty) select.add(new Option(empty, ""));
      for (const word of known) select.add(new Option(words?.[word] ?? this.describe(key, word), word));
      return select;
    }
    const plain = { name: key, spellcheck: false, autocomplete: "off", autocapitalize: "off" };
    if (several) return make("textarea", { ...plain, rows: 2 });
    const example = (field.anyOf ?? [field]).some(({ type }) => type === "string") ? field.examples[0] : "";
    return make("input", { ...plain, type: "text", placeholder: field.required ? "" : example });
  }

  describe(key, word) {
    const profile = key === "profile" && this.rules.profiles[word];
    if (!profile) return word;
    return `${word}: ${profile.nodes} node${profile.nodes > 1 ? "s" : ""}, ${profile.time_limit}`;
  }

  /** Return what is chosen and typed, by the name of the control. */
  texts() {
    return Object.fromEntries([...this.rows].map(([key, { control }]) => [key, control.value]));
  }

  /**
   * Return a value for each field of a job, null where there is none, and the problems of lines that cannot be read.
   *
   * @returns {{values: Object<string, any>, problems: {field: string, text: string}[]}}
   */
  read() {
    const texts = this.texts();
    const values = Object.fromEntries(Object.keys(this.rules.fields).map((key) => [key, null]));
    const problems = [];
    for (const { key, when } of ALL) {
      const shown = !when || when(texts);
      this.rows.get(key).row.hidden = !shown;
      if (!shown || key in SWITCHES) continue;
      const [value, problem] = this.parse(key, texts[key]);
      const chosen = Object.values(SWITCHES).some((keys) => keys.includes(key));
      if (chosen && !texts[key]) problems.push({ field: key, text: this.missing(key) });
      values[key] = value;
      if (problem) problems.push({ field: key, text: problem });
    }
    return { values, problems };
  }

  missing(key) {
    const { description, example } = this.rules.fields[key];
    return `Nothing is here yet. ${description} Example: ${example}`;
  }

  /** Return the value of a text, and what is wrong with it if it cannot be read. */
  parse(key, text) {
    if (key === "arguments") {
      const words = splitWords(text);
      return words ? [words] : [[], `a quote in ${text} is not closed. Example: --name 'my run'`];
    }
    if (key === "modules_to_load") return [text.split(/[ ,]+/).filter(Boolean)];
    if (key === "env_vars") {
      const lines = text.split("\n").filter((line) => line.trim());
      const wrong = lines.find((line) => line.indexOf("=") < 1);
      const pairs = lines.map((line) => [line.split("=", 1)[0], line.slice(line.indexOf("=") + 1)]);
      return wrong === undefined
        ? [Object.fromEntries(pairs)]
        : [{}, `${wrong} is not a name and a value. Write NAME=VALUE. Example: OMP_NUM_THREADS=8`];
    }
    return [text ? valueOf(this.rules, key, text) : null];
  }

  /**
   * Put values into the controls; fields that are not named stay.
   *
   * @param {Object<string, any>} values
   */
  write(values) {
    for (const [key, value] of Object.entries(values)) {
      if (this.rows.has(key)) this.rows.get(key).control.value = textOf(key, value);
    }
    for (const [name, keys] of Object.entries(SWITCHES)) {
      const touched = keys.filter((key) => key in values);
      const chosen = touched.find((key) => values[key] !== null);
      const { control } = this.rows.get(name);
      if (chosen || touched.includes(control.value)) control.value = chosen ?? "";
    }
    for (const details of this.element.querySelectorAll("details")) details.open ||= Boolean(this.filled(details));
  }

  filled(details) {
    return details.querySelector("textarea")?.value;
  }

  /**
   * Show problems beside their controls.
   *
   * @param {{field: string, text: string}[]} problems
   * @returns {string[]} Those whose control is not shown.
   */
  complain(problems) {
    for (const [key, { control, row, problem }] of this.rows) {
      const own = problems.filter(({ field }) => field === key);
      problem.hidden = !own.length;
      problem.textContent = own.map(({ text }) => text).join("\n");
      if (own.length) {
        control.setAttribute("aria-invalid", "true");
        const details = row.closest("details");
        if (details) details.open = true;
      } else control.removeAttribute("aria-invalid");
    }
    return problems.filter(({ field }) => this.rows.get(field)?.row.hidden ?? true).map(({ text }) => text);
  }
}

function textOf(key, value) {
  if (value === null || value === undefined) return "";
  if (key === "arguments" && Array.isArray(value)) return joined(value);
  if (key === "env_vars" && typeof value === "object") return Object.entries(value).map(([name, text]) => `${name}=${text}`).join("\n");
  return Array.isArray(value) ? value.join(" ") : String(value);
}
