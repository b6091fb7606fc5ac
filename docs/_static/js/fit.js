/**
 * Job scripts of this site, fitted to the reader's cluster. What other programs of the site may use:
 *
 *     import { adaptedText } from "./fit.js";
 *     const script = await adaptedText("slurm/torchrun/ddp.sbatch");
 *     script.text        // what to show, copy, download or put into a zip
 *     script.changes     // what was changed: [{line, text, field, origin}]
 *     script.refusal     // {line, problem} where the script cannot be fitted; `text` is the original then
 *
 *     import { clusterConfig, onClusterChange } from "./fit.js";
 *     clusterConfig()                // fields of `srunbook generate --config`, or null
 *     onClusterChange(() => ...)     // called after each change, also in another tab
 *
 * Paths are those of the repository: every script in slurm/, and every other .sbatch file that a page shows. Without a
 * configuration, `text` is the original. Data comes from `_static/adapt/`, beside this folder.
 */
import { adapt } from "./adapt.js";
import { Refusal } from "./adapt-script.js";
import { site } from "./adapt-site.js";
import { load, onChange } from "./panel-store.js";

export { load as clusterConfig, onChange as onClusterChange };

/** What messages call the values of the panel. */
export const PLACE = "my cluster";

/** @type {Map<string, Promise<any>>} */
const fetched = new Map();

function data(name) {
  if (!fetched.has(name)) {
    const address = new URL(`../adapt/${name}`, import.meta.url);
    const answer = fetch(address, { cache: "no-cache" }).then((response) => {
      if (!response.ok) throw Error(`${address}: ${response.status}`);
      return response.json();
    });
    answer.catch(() => fetched.delete(name)); // the next call tries again
    fetched.set(name, answer);
  }
  return fetched.get(name);
}

/**
 * The rules, the schema of a configuration, and the known sites.
 * @returns {Promise<import("./adapt-site.js").Known>}
 */
export const known = () => data("rules.json");

/**
 * @typedef {{text: string, original: string, changes: import("./adapt.js").Change[], notes: [number, string][],
 *   refusal: {line: number, problem: string}|null}} Fitted
 * @param {string} path path of the script in the repository
 * @returns {Promise<Fitted>}
 * @throws if there is no such script, or the values kept are not allowed (`ConfigError`)
 */
export async function adaptedText(path) {
  const facts = await data(`${path}.json`);
  const same = { text: facts.text, original: facts.text, changes: [], notes: [], refusal: null };
  const config = load();
  if (config === null) return same;
  const rules = await known();
  const there = site(config, rules, PLACE);
  try {
    return { ...same, ...adapt(facts, there, rules.rules) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { ...same, refusal: { line: error.line, problem: error.problem } };
  }
}
