/** The command `srunbook generate` for a job: its words, its layers, and what people type in one line. */

import { kinds } from "./field-values.js";
import { defaults } from "./field-values.js";
import { merge } from "./job-specification.js";
import { joined } from "./quoting.js";
import { printable, repr } from "./wording.js";

const OPTIONS = ["profile", "cluster", "framework", "script"];

/**
 * Return the values that a command has to name: those that differ from what the profile and the cluster give.
 *
 * @param {object} rules
 * @param {Object<string, any>} wanted A value for each field; null for none.
 */
export function changesOf(rules, wanted) {
  const base = baseOf(rules, wanted);
  const named = Object.keys(rules.fields).filter((key) => {
    if (OPTIONS.includes(key)) return wanted[key] !== null;
    return JSON.stringify(wanted[key] ?? null) !== JSON.stringify(base[key] ?? null);
  });
  const values = Object.fromEntries(named.map((key) => [key, wanted[key] ?? null]));
  for (const [one, other] of [...rules.pairs, ...rules.pairs.map(([one, other]) => [other, one])]) {
    if ((values[one] ?? null) !== null && values[other] === null) delete values[other]; // taken back by itself
  }
  return values;
}

/** Return what each field is for a profile and a cluster, where nothing else is said. */
export function baseOf(rules, { profile, cluster }) {
  const layers = [rules.profiles[profile], rules.clusters[cluster]].filter(Boolean);
  return { ...defaults(rules.fields), ...merge(rules, layers.map((values) => ({ place: "", values }))).values };
}

/**
 * Return the command that renders a job with these values.
 *
 * @param {Object<string, any>} values
 */
export function commandOf(values) {
  const words = ["srunbook", "generate"];
  for (const name of OPTIONS) if ((values[name] ?? null) !== null) words.push(`--${name}`, values[name]);
  for (const text of settingsOf(values)) words.push("--set", text);
  if (values.arguments?.length) words.push("--", ...values.arguments);
  return joined(words);
}

/** Return the layers that the command makes of its options, with the places that its messages name. */
export function layersOf(rules, values) {
  const layers = OPTIONS.filter((name) => (values[name] ?? null) !== null).map((name) => ({
    place: `--${name}`,
    values: { [name]: values[name] },
  }));
  if (values.arguments?.length) layers.push({ place: "after --", values: { arguments: values.arguments } });
  for (const option of settingsOf(values)) {
    const key = option.split("=", 1)[0];
    const text = option.slice(key.length + 1);
    const short = printable(option) && [...option].length <= 80;
    const place = short ? `--set ${option}` : `--set ${repr([...key].slice(0, 40).join(""))}`;
    const name = key.startsWith("env_vars.") ? key.slice("env_vars.".length) : null;
    const value = name === null ? { [key]: text ? valueOf(rules, key, text) : null } : { env_vars: { [name]: text } };
    layers.push({ place, values: value });
  }
  return layers;
}

/** List what follows each `--set`. */
function settingsOf(values) {
  return Object.entries(values).flatMap(([key, value]) => {
    if (OPTIONS.includes(key) || key === "arguments") return [];
    if (key === "env_vars") return Object.entries(value ?? {}).map(([name, text]) => `env_vars.${name}=${text}`);
    return [`${key}=${Array.isArray(value) ? value.join(",") : (value ?? "")}`];
  });
}

/** Read a text as the kind of value that its field takes; leave it a text if that fails. */
export function valueOf(rules, key, text) {
  const allowed = kinds(rules.fields[key]);
  if (allowed.includes("boolean") && ["true", "false"].includes(text)) return text === "true";
  if (allowed.includes("integer") && /^[0-9]{1,9}$/.test(text)) return Number(text);
  return allowed.includes("array") ? text.split(",") : text;
}

/**
 * Split a line into words as a shell would: spaces separate, quotes and backslashes keep together.
 *
 * @param {string} line
 * @returns {string[] | null} None if a quote is not closed.
 */
export function splitWords(line) {
  const words = [];
  let word = null;
  let quote = "";
  for (let place = 0; place < line.length; place++) {
    const letter = line[place];
    const escapes = letter === "\\" && quote !== "'" && (!quote || '"\\'.includes(line[place + 1] ?? " "));
    if (escapes) {
      if (++place === line.length) return null;
      word = (word ?? "") + line[place];
    } else if (quote) {
      if (letter === quote) quote = "";
      else word += letter;
    } else if (letter === "'" || letter === '"') {
      quote = letter;
      word ??= "";
    } else if (/[ \t\r\n]/.test(letter)) {
      if (word !== null) words.push(word);
      word = null;
    } else {
      word = (word ?? "") + letter;
    }
  }
  if (quote) return null;
  return word === null ? words : [...words, word];
}
