/**
 * From values to a job, or to the problems with them: the same that srunbook.generate.specify accepts and refuses.
 *
 * `rules` is what srunbook.generate.rules() returns. A layer has values from one place, and wins over those before it.
 *
 * @typedef {{place: string, values: Object<string, unknown>}} Layer
 * @typedef {{field: string, place: string | null, text: string}} Problem
 */

import { defaults, fits, hint } from "./field-values.js";
import { contradiction } from "./job-contradictions.js";
import { shown } from "./wording.js";

/** Values of a job are wrong; each problem names the field, the value and what is allowed. */
export class JobError extends Error {
  /** @param {Problem[]} problems */
  constructor(problems) {
    super(problems.map(({ place, text }) => (place ? `${place}: ${text}` : text)).join("\n"));
    this.problems = problems;
  }
}

/**
 * Make a job of layers; the profile and the cluster that they name lie below all of them.
 *
 * @param {object} rules
 * @param {Layer[]} layers
 * @returns {Object<string, any>} Values by field, the defaults too.
 * @throws {JobError}
 */
export function specify(rules, layers) {
  const named = merge(rules, layers).values;
  const bases = [];
  if (Object.hasOwn(rules.profiles, named.profile)) {
    bases.push({ place: `profile ${named.profile}`, values: rules.profiles[named.profile] });
  }
  if (Object.hasOwn(rules.clusters, named.cluster)) {
    bases.push({ place: `cluster ${named.cluster}`, values: rules.clusters[named.cluster] });
  }
  const merged = merge(rules, [...bases, ...layers]);
  const problems = Object.keys(rules.fields).flatMap((key) => problemsOf(rules, key, merged));
  if (problems.length) throw new JobError(problems);
  const job = { ...defaults(rules.fields), ...merged.values };
  const found = contradiction(rules, job);
  if (found) {
    const value = merged.values[found.field];
    const text = `${value === undefined ? found.field : `${found.field} ${shown(value)}`} ${found.text}`;
    throw new JobError([{ field: found.field, place: merged.origins.get(found.field) ?? null, text }]);
  }
  return job;
}

/**
 * Lay layers over each other.
 *
 * @param {object} rules
 * @param {Layer[]} layers
 * @returns {{values: Object<string, any>, origins: Map<string, string>}}
 */
export function merge(rules, layers) {
  const values = {};
  const origins = new Map();
  const remove = (key) => {
    delete values[key];
    for (const path of [...origins.keys()]) if (path === key || path.startsWith(`${key}.`)) origins.delete(path);
  };
  for (const { place, values: own } of layers) {
    for (const [one, other] of [...rules.pairs, ...rules.pairs.map(([one, other]) => [other, one])]) {
      if ((own[one] ?? null) !== null && (own[other] ?? null) === null) remove(other);
    }
    for (const [key, value] of Object.entries(own)) {
      if (!Object.hasOwn(rules.fields, key)) continue;
      if (key === "env_vars" && isMapping(value)) {
        values[key] = { ...(isMapping(values[key]) ? values[key] : {}), ...value };
        for (const name of Object.keys(value)) origins.set(`${key}.${name}`, place);
      } else {
        remove(key);
        if (value !== null && value !== undefined) values[key] = value;
      }
      origins.set(key, place);
    }
  }
  return { values, origins };
}

/** List what is wrong with one field. */
function problemsOf(rules, key, merged) {
  const field = rules.fields[key];
  const value = merged.values[key];
  if (value === undefined) return field.required ? [missing(key, field)] : [];
  const place = (path) => merged.origins.get(path) ?? merged.origins.get(key) ?? "default";
  const wrong = (name, what) => ({
    field: key,
    place: place(name),
    text: `${name} is ${shown(what)}. ${field.description} ${hint(rules, key, what)}Example: ${field.example}`,
  });
  if (key === "env_vars" && isMapping(value)) return variables(rules, value, wrong, place);
  if (field.type !== "array" || !Array.isArray(value)) {
    return fits(field, value) ? [] : [wrong(key, value)];
  }
  const items = value.map((item, index) => ({ item, name: `${key}[${index}]` }));
  return items.filter(({ item }) => !fits(field.items, item)).map(({ item, name }) => wrong(name, item));
}

function missing(key, field) {
  const text =
    key === "script"
      ? "no program is named: add --script, as in --script train.py, or script: train.py in the file"
      : `${key} is missing: choose a --profile, or add ${field.example}`;
  return { field: key, place: null, text };
}

/** List what is wrong with environment variables: their names, their values, and names that are taken. */
function variables(rules, value, wrong, place) {
  const key = "env_vars";
  const field = rules.fields[key];
  const names = Object.keys(value);
  const [[pattern, text]] = Object.entries(field.patternProperties);
  const problems = names.flatMap((name) => {
    if (!fits({ type: "string", pattern }, name)) {
      const said =
        `${shown(name)} in ${key} is not a name of a variable. A name has letters, digits and _, ` +
        "and does not begin with a digit, as in OMP_NUM_THREADS";
      return [{ field: key, place: place(`${key}.${name}`), text: said }];
    }
    return fits(text, value[name]) ? [] : [wrong(`${key}.${name}`, value[name])];
  });
  const name = problems.length ? undefined : names.find((name) => Object.hasOwn(rules.taken, name));
  if (name === undefined) return problems;
  const said = `the variable ${name} cannot be set in ${key}: ${rules.taken[name]}`;
  return [{ field: key, place: place(`${key}.${name}`), text: said }];
}

function isMapping(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
