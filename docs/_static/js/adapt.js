/**
 * Fit a job script to a site, letter for letter as `srunbook adapt` does, by the same rules (rules.json).
 *
 * Tests compare both on drawn configurations (tests/site/test_adapt_engines.py): the text, each change, each note, and
 * the words of each refusal.
 *
 * @typedef {{line: number, text: string, field: string, origin: string}} Change
 * @typedef {{text: string, changes: Change[], notes: [number, string][]}} Adapted
 * @typedef {import("./adapt-site.js").Site} Site
 */
import { containers, planContainer, planModules, planPython, refuseContainer, target } from "./adapt-environment.js";
import { planGpus } from "./adapt-gpus.js";
import { planInterfaces } from "./adapt-interfaces.js";
import { Plan } from "./adapt-plan.js";
import { Refusal, Script, apply } from "./adapt-script.js";

const ENVIRONMENT = [
  "modules_to_load", "virtual_environment", "conda_environment", "container_image", "network_interface",
];

/**
 * @param {any} facts what the build says of a script (docs/_ext/script_facts.py)
 * @param {Site} site
 * @param {any} rules src/srunbook/adapt/rules.json
 * @returns {Adapted}
 * @throws {Refusal} something in the script is not understood, or cannot be had at the site
 */
export function adapt(facts, site, rules) {
  if (facts.error) throw new Refusal(facts.error.line, facts.error.problem);
  const script = new Script(facts);
  const plan = new Plan(script, site, rules);
  script.text.split("\n").forEach((line, place) => {
    if (/^#(PBS|BSUB) /.test(line)) throw plan.refusal(place + 1, "pbs");
  });
  planDirectives(plan);
  if (ENVIRONMENT.some((field) => field in site.values)) {
    if (!script.bash) throw plan.refusal(1, "shell");
    planEnvironment(plan);
  }
  tellTheRest(plan);
  const changes = plan.changes.sort((one, other) => one.line - other.line);
  const order = (one, other) => (one < other ? -1 : Number(one > other));
  const notes = plan.notes.sort(([line, text], [other, words]) => line - other || order(text, words));
  return { text: apply(script.text, plan.edits), changes, notes };
}

/** @param {Plan} plan */
function planDirectives(plan) {
  const { values } = plan.site;
  for (const [field, name] of Object.entries(plan.rules.directives)) {
    if (!(field in values)) continue;
    const option = plan.script.last(name);
    if (values[field] === null) {
      plan.script.options.filter((found) => found.name === name).forEach((found) => plan.takeAway(found, field));
    } else if (option === null) plan.add(name, values[field], field);
    else plan.give(option, values[field], field);
  }
  planCpus(plan, planGpus(plan));
}

/**
 * Plan the CPUs of each task: those of the node divided by its tasks, or the part that goes with the job's GPUs.
 * @param {Plan} plan @param {{gpus: number|null, tasks: number|null}} asked of a node; null for what is not known
 */
function planCpus(plan, { gpus, tasks }) {
  const names = plan.rules.cpus;
  const whole = plan.site.values.cpus_per_node ?? null;
  if (whole === null) return;
  const allGpus = plan.site.gpus;
  const ofAGpu = plan.script.last(...names.of_a_gpu);
  if (ofAGpu && allGpus) {
    plan.give(ofAGpu, String(Math.max(1, Math.floor(whole / allGpus))), "cpus_per_node");
    return;
  }
  const option = plan.script.last(...names.of_a_task);
  if (option === null && gpus === null) return; // Slurm gives each task one CPU, and the script may mean that
  if (tasks === null) {
    plan.note(option ? option.line : 1, "the tasks of a node are not known, so the CPUs of each stay as they are");
    return;
  }
  const part = gpus && allGpus ? Math.floor((whole * gpus) / allGpus) : whole;
  if (part < tasks) {
    const asked = plan.shape().option;
    throw plan.refusal(asked ? asked.line : 1, "cpus_too_few", { tasks, cpus: part });
  }
  if (option) plan.give(option, String(Math.floor(part / tasks)), "cpus_per_node");
  else plan.add("cpus-per-task", String(Math.floor(part / tasks)), "cpus_per_node");
}

/** @param {Plan} plan */
function planEnvironment(plan) {
  if (plan.script.problem) throw plan.refusal(plan.script.problem, "syntax");
  const { values } = plan.site;
  if ("modules_to_load" in values) planModules(plan, values.modules_to_load ?? []);
  const python = target(plan);
  const image = values.container_image;
  if (python || image) {
    const inside = containers(plan);
    if (image) planContainer(plan, inside, image);
    if (python) {
      refuseContainer(plan, inside, python);
      planPython(plan, python);
    }
  }
  if (values.network_interface) planInterfaces(plan, values.network_interface);
}

/** Note what the configuration says nothing about, and what the script asks for by itself. @param {Plan} plan */
function tellTheRest(plan) {
  if (plan.script.text.includes("\r\n")) plan.note(1, "lines end as in DOS, which sbatch refuses");
  const { mark } = plan.rules;
  const marked = new RegExp(`#[^\\n]*\\b${mark}\\b`);
  plan.script.text.split("\n").forEach((line, place) => {
    if (marked.test(line) && !plan.seen.has(place + 1)) {
      plan.note(place + 1, `marked ${mark}, and the configuration does not name it`);
    }
  });
  for (const command of plan.script.commands) {
    const own = command.name === "srun" ? ownOptions(command, plan.rules.of_srun) : [];
    if (own.length) plan.note(command.line, `srun asks for ${own.join(" ")} itself`);
  }
}

/** The options of srun whose values are written out, and were perhaps right at another site. */
function ownOptions(command, names) {
  const words = command.words.slice(1).map((word) => word.raw);
  const found = [];
  while (words.length && words[0].startsWith("-")) {
    const [, name, sign, rest] = words.shift().match(/^([^=]*)(=?)([^]*)$/);
    if (!names.includes(name)) continue;
    const value = sign || !words.length ? rest : words.shift();
    if (!value.includes("$")) found.push(`${name}${sign || " "}${value}`);
  }
  return found;
}
