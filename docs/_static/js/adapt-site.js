/**
 * What a configuration says of a site, judged as `srunbook.adapt.site` does and refused in the same words.
 *
 * The allowed values come from the JSON Schema that `srunbook generate --config` publishes, so nothing that could end
 * a directive, a line or a quote gets into a script.
 *
 * @typedef {{rules: any, schema: any, sites: Record<string, any>, other_words: Record<string, string>,
 *   control: string, contradictions: {name: string, field: string, text: string}[]}} Known
 *   what the build writes into `adapt/rules.json`
 * @typedef {{values: Record<string, any>, origins: Record<string, string>, platform: string|null, gpus: number|null,
 *   kind: string|null}} Site
 *   `values` by field, null for what a script must not ask for; `gpus` of a node and their `kind`, null without
 */
import { defaults, fits, hint } from "./field-values.js";
import { contradiction as contradictionOf } from "./job-contradictions.js";
import { processesOf } from "./job-facts.js";
import { closeMatches, json, shown } from "./wording.js";

/** A configuration that is wrong. */
export class ConfigError extends Error {
  /** @param {{field: string|null, text: string}[]} problems */
  constructor(problems) {
    super(problems.map((one) => one.text).join("\n"));
    this.problems = problems;
  }
}

const MAX_PROBLEMS = 20;

/**
 * @param {Record<string, any>} config fields of a site; those of a job beside them are not looked at
 * @param {Known} known
 * @param {string} place what messages call the configuration
 * @returns {Site}
 * @throws {ConfigError}
 */
export function site(config, known, place) {
  const fields = [...known.rules.fields, "platform", "cluster"];
  const unknown = Object.keys(config).filter((key) => !Object.hasOwn(known.schema, key));
  const strange = unknown.map((key) => ({ field: null, text: `${place}: ${unknownKey(key, known)}` }));
  const { values, origins } = merged(config, known, place);
  const order = Object.keys(known.schema).filter((key) => fields.includes(key));
  const wrong = order.flatMap((key) => problemsOf(key, values, known, origins[key]));
  const problems = [...strange, ...(wrong.length ? wrong : contradiction(values, origins, fields, known))];
  if (problems.length) {
    const more = problems.length - MAX_PROBLEMS;
    const told = problems.slice(0, MAX_PROBLEMS);
    throw new ConfigError(more > 0 ? [...told, { field: null, text: `and ${more} more. Fix these first` }] : told);
  }
  const said = fields.slice(0, -2).filter((field) => field in origins);
  const gpus = values.gpus_per_node ?? null;
  const nothing = (field) => (field === "modules_to_load" ? [] : null);
  return {
    values: Object.fromEntries(said.map((field) => [field, values[field] ?? nothing(field)])),
    origins: Object.fromEntries(said.map((field) => [field, origins[field]])),
    platform: "platform" in origins ? values.platform ?? "cpu" : null,
    gpus: gpus === null ? null : Number(String(gpus).replace(/.*:/, "")),
    kind: gpus === null ? null : String(gpus).match(/^(.*):/)?.[1] || null,
  };
}

/** Of these fields a job has only one. */
const ENVIRONMENTS = ["container_image", "conda_environment", "virtual_environment"];

/** Lay the configuration over the cluster that it names. */
function merged(config, known, place) {
  const values = {};
  const origins = {};
  const { cluster } = config;
  const there = typeof cluster === "string" && Object.hasOwn(known.sites, cluster) ? known.sites[cluster] : {};
  for (const [layer, origin] of [[there, `cluster ${cluster}`], [config, place]]) {
    const chosen = ENVIRONMENTS.filter((field) => (layer[field] ?? null) !== null);
    for (const field of chosen.length ? ENVIRONMENTS : []) {
      if ((layer[field] ?? null) === null) {
        delete values[field];
        delete origins[field];
      }
    }
    for (const [key, value] of Object.entries(layer)) {
      if (value === null) delete values[key];
      else values[key] = value;
      origins[key] = origin;
    }
  }
  return { values, origins };
}

/** What is wrong with one field. */
function problemsOf(key, values, known, place) {
  const { schema } = known;
  const field = schema[key];
  const value = values[key];
  if (value === undefined && key === "cpus_per_node" && place) {
    return [{ field: key, text: `${key} is missing: choose a --profile, or add ${example(key, schema)}` }];
  }
  if (value === undefined) return [];
  const wrong = (name, what) => {
    const guess = hint({ fields: schema, control: known.control }, key, what);
    const allowed = `${field.description} ${guess}Example: ${example(key, schema)}`;
    return { field: key, text: `${place}: ${name} is ${shown(what)}. ${allowed}` };
  };
  if (Array.isArray(value) && field.items) {
    return value.flatMap((item, at) => (fits(field.items, item) ? [] : [wrong(`${key}[${at}]`, item)]));
  }
  return fits(field, value) ? [] : [wrong(key, value)];
}

/** A line of YAML that is right. @param {string} key @param {any} schema */
export function example(key, schema) {
  return `${key}: ${json((schema[key].examples ?? [""])[0])}`;
}

function unknownKey(key, { schema, other_words: words }) {
  const plain = [...key].slice(0, 80).join("").toLowerCase().replaceAll("-", "_");
  const [found] = closeMatches(plain.replace(/^[_ ]+|[_ ]+$/g, ""), [...Object.keys(schema), ...Object.keys(words)]);
  const advice = found ? `did you mean ${words[found] ?? found}?` : `the keys are ${Object.keys(schema).join(", ")}`;
  return `unknown key ${shown(key)}; ${advice}`;
}

/** The first rule about several fields that a site breaks, as a list of one: judged as a job that says nothing else. */
function contradiction(values, origins, fields, known) {
  const said = Object.entries(values).filter(([key]) => fields.includes(key));
  const job = { ...defaults(known.schema), script: "program.py", ...Object.fromEntries(said) };
  job.cpus_per_node ??= processesOf(job);
  const found = contradictionOf(known, job);
  if (!found) return [];
  const { field, text } = found;
  const named = values[field] === undefined ? field : `${field} ${shown(values[field])}`;
  return [{ field, text: field in origins ? `${origins[field]}: ${named} ${text}` : `${named} ${text}` }];
}
