/** The panel's values as the file that `srunbook generate --config` and `srunbook adapt --config` read, and back. */
import { ConfigError, site } from "./adapt-site.js";

const HEAD = "# yaml-language-server: $schema=https://srunbook.readthedocs.io/en/latest/_static/job.schema.json";
const MAX = 1 << 20;

/** Texts that YAML takes for themselves: a path or a word, and neither a number nor true. */
const PLAIN = /^(?!(?:null|true|false|yes|no|on|off|y|n)$)(?:[A-Za-z/]|~\/)[\w./@+-]*$/i;

/** @param {Record<string, any>} config @returns {string} */
export function write(config) {
  const text = (value) => (typeof value === "string" && PLAIN.test(value) ? value : JSON.stringify(value));
  const lines = Object.entries(config).map(([key, value]) => {
    return `${key}: ${Array.isArray(value) ? `[${value.map(text).join(", ")}]` : text(value)}\n`;
  });
  return `${HEAD}\n${lines.join("")}`;
}

/**
 * Read a file; what it says of a job, and not of the cluster, is left out.
 * @param {string} text
 * @param {string} name its name, for messages
 * @param {any} jsyaml the library js-yaml
 * @param {import("./adapt-site.js").Known} known
 * @returns {{config: Record<string, any>, left: string[]}} the values, and the fields that were left out
 * @throws {ConfigError}
 */
export function read(text, name, jsyaml, known) {
  const refuse = (problem) => new ConfigError([{ field: null, text: `${name}${problem}` }]);
  if (text.length > MAX) throw refuse(`: larger than ${MAX} bytes, too large for a configuration file`);
  let found;
  try {
    found = jsyaml.load(text, { schema: jsyaml.CORE_SCHEMA });
  } catch (error) {
    const line = error.mark ? `:${error.mark.line + 1}` : "";
    throw refuse(`${line}: not YAML: ${String(error.reason ?? error.message).slice(0, 300)}`);
  }
  if (found === null || typeof found !== "object" || Array.isArray(found)) {
    const kind = Array.isArray(found) ? "a list" : "no keys";
    throw refuse(`: found ${kind}; a configuration is keys and values, as in partition: gpu`);
  }
  site(found, known, name);
  const fields = ["cluster", "platform", ...known.rules.fields];
  const entries = Object.entries(found);
  const config = Object.fromEntries(entries.filter(([key]) => fields.includes(key)));
  if (!Object.keys(config).length) {
    throw refuse(": says nothing of a cluster. Write at least one of its fields, as in partition: gpu");
  }
  return { config, left: entries.map(([key]) => key).filter((key) => !fields.includes(key)) };
}
