/** The lines of the environment: `srunbook.adapt.environment`. */
import { variable } from "./adapt-gpus.js";
import { addLine, commandText, loadedWords, removeLine, requirePlain } from "./adapt-lines.js";
import { condaActivation, quote, quotePlace } from "./quoting.js";

/**
 * @typedef {import("./adapt-plan.js").Plan} Plan
 * @typedef {import("./adapt-script.js").Command} Command
 * @typedef {{field: string, place: string, activation: string}} Target
 */

/** Plan the commands that load modules: each keeps its place and its comment, as far as there are enough modules. */
export function planModules(plan, wanted) {
  const field = "modules_to_load";
  const loads = plan.script.commands.map((one) => [one, loadedWords(plan, one)]).filter(([, places]) => places);
  for (const [command] of loads) {
    plan.seen.add(command.line);
    if (!command.plain) throw plan.refusal(command.line, "conditional", { what: "a module" });
  }
  const found = loads.flatMap(([one, [first, last]]) => one.words.slice(first, last + 1).map((word) => word.literal));
  if (found.length === wanted.length && found.every((name, place) => name === wanted[place])) return;
  let left = wanted;
  loads.forEach(([command, [first, last]], place) => {
    const mine = place === loads.length - 1 ? left : left.slice(0, 1);
    left = left.slice(mine.length);
    if (!mine.length) return removeLine(plan, command, field);
    const text = mine.map((name) => quote(plan.rules, name)).join(" ");
    const edit = { start: command.words[first].start, end: command.words[last].end, new: text };
    if (plan.script.text.slice(edit.start, edit.end) === text) return undefined;
    const after = plan.script.text.slice(command.start, edit.start) + text;
    return plan.change(edit, command.line, `${commandText(plan, command)} becomes ${after}`, field);
  });
  if (!loads.length) wanted.forEach((name) => addLine(plan, `module load ${quote(plan.rules, name)}`, field));
}

/** The environment of the configuration; null if it names none. @param {Plan} plan @returns {Target|null} */
export function target(plan) {
  const { virtual_environment: venv, conda_environment: conda } = plan.site.values;
  if (venv) {
    const activation = `source ${quotePlace(plan.rules, `${venv}/bin/activate`)}`;
    return { field: "virtual_environment", place: quotePlace(plan.rules, venv), activation };
  }
  if (conda) {
    const activation = `source ${condaActivation(plan.rules, conda)}`;
    return { field: "conda_environment", place: quotePlace(plan.rules, conda), activation };
  }
  return null;
}

/** Plan the lines that choose a Python, or add one where there is none. @param {Plan} plan @param {Target} wanted */
export function planPython(plan, wanted) {
  const folders = prefixes(plan);
  let activations = plan.script.commands.filter((command) => isActivation(plan, command));
  if (wanted.field === "virtual_environment") {
    const names = new Set(folders.map((folder) => folder.name)); // a folder in a variable decides what is activated
    activations = activations.filter((command) => !uses(command, names));
  }
  requirePlain(plan, folders, "an assignment of an environment");
  requirePlain(plan, activations, "the activation of an environment");
  for (const { name, value, line } of folders) {
    plan.seen.add(line);
    if (value.raw === wanted.place) continue;
    const edit = { start: value.start, end: value.end, new: wanted.place };
    plan.change(edit, line, `${name}=${value.raw} becomes ${wanted.place}`, wanted.field);
  }
  let changed = !folders.length && !activations.length;
  for (const command of activations) {
    plan.seen.add(command.line);
    const before = commandText(plan, command);
    if (before === wanted.activation) continue;
    const edit = { start: command.start, end: command.end, new: wanted.activation };
    plan.change(edit, command.line, `${before} becomes ${wanted.activation}`, wanted.field);
    changed = true;
  }
  for (const command of plan.script.commands) {
    if (activations.length && command.plain && isSetup(plan, command)) removeLine(plan, command, wanted.field);
  }
  if (!folders.length && !activations.length) addLine(plan, wanted.activation, wanted.field);
  if (changed && wanted.field === "conda_environment") warnOfUnsetVariables(plan);
}

/** Tell a person where `set -u` may end the job in the scripts of conda. */
function warnOfUnsetVariables(plan) {
  for (const command of plan.script.commands) {
    if (command.name === "set" && /^-[a-z]*u/.test(command.words[1]?.raw ?? "")) {
      plan.note(command.line, "if conda stops at an unbound variable, move -u below its activation");
    }
  }
}

/** The assignments of variables that hold the folder of an environment: the script uses their `bin`. */
function prefixes(plan) {
  const known = plan.rules.environment.prefix;
  const used = new Set();
  for (const [name, end] of plan.script.expansions) {
    const match = plan.script.text.slice(end, end + 40).match(new RegExp(known.behind));
    if (!match) continue;
    const named = new RegExp(known.names).test(name.toLowerCase());
    if (named || known.programs.includes(match.groups.program)) used.add(name);
  }
  return plan.script.assignments.filter((one) => used.has(one.name));
}

const unquoted = (text) => text.replace(/^["']+|["']+$/g, "");

/** Tell whether a command activates an environment: `source X/bin/activate`, `conda activate X` and their like. */
function isActivation(plan, command) {
  const known = plan.rules.environment;
  const { words } = command;
  if (known.conda.commands.includes(command.name)) return words.length > 1 && words[1].literal === "activate";
  if (!known.activate.commands.includes(command.name) || words.length < 2) return false;
  const file = unquoted(words[1].raw);
  return file.endsWith(known.activate.file) || file === "activate";
}

/** Tell whether a command makes `conda activate` known to the shell. */
function isSetup(plan, command) {
  const known = plan.rules.environment;
  const text = command.words.slice(1).map((word) => word.raw).join(" ");
  if (command.name === "eval") return known.conda.setup_words.some((word) => text.includes(word));
  return known.activate.commands.includes(command.name) && unquoted(text).endsWith(known.conda.setup_file);
}

/** Tell whether a command activates what one of these variables says. */
function uses(command, names) {
  const match = command.words[1].raw.match(/^"?\$\{?(\w+)\}?"?\/bin\//);
  return command.words.length === 2 && match !== null && names.has(match[1]);
}

/** Refuse a script that runs its programs in a container. */
export function refuseContainer(plan, inside, wanted) {
  if (inside.length) throw plan.refusal(inside[0].line, "out_of_container", { field: wanted.field });
}

/** The commands that run a program in a container, also through srun. @param {Plan} plan @returns {Command[]} */
export function containers(plan) {
  const known = plan.rules.environment.container;
  const found = [];
  for (const command of plan.script.commands) {
    if (command.words.some((word) => word.raw.startsWith(known.of_srun))) {
      throw plan.refusal(command.line, "other_container", { what: known.of_srun });
    }
    if (command.words.some((word) => known.commands.includes(word.literal))) found.push(command);
  }
  const option = plan.script.last(known.of_srun.replace(/^--/, ""));
  if (option) throw plan.refusal(option.line, "other_container", { what: known.of_srun });
  return found;
}

/** Plan the image of each command that runs a container. */
export function planContainer(plan, commands, image) {
  const text = quotePlace(plan.rules, image);
  const running = commands.map((one) => [one, imageOf(plan, one)]).filter(([, word]) => word);
  if (!running.length) {
    const { steps } = plan.script;
    throw plan.refusal(steps.length ? plan.script.lineAt(steps.at(-1)[0]) : 1, "into_container");
  }
  const variables = new Set();
  for (const [command, word] of running) {
    const name = variable(word.raw);
    if (name && plan.script.assignments.some((one) => one.name === name)) variables.add(name);
    else replace(plan, word, command.line, text);
  }
  for (const name of [...variables].sort()) {
    const given = plan.script.assignments.filter((one) => one.name === name);
    requirePlain(plan, given, `an assignment of ${name}`);
    replace(plan, given[0].value, given[0].line, text);
  }
}

/** The word that names the image; null for a command that runs no image, such as `singularity pull`. */
function imageOf(plan, command) {
  const known = plan.rules.environment.container;
  const words = [...command.words];
  while (words.length && !known.commands.includes(words[0].literal)) words.shift();
  const name = words.shift();
  while (words.length && words[0].raw.startsWith("-")) words.shift();
  if (!words.length || !known.verbs.includes(words.shift().literal)) return null;
  while (words.length && words[0].raw.startsWith("-")) {
    words.splice(0, known.with_argument.includes(words[0].raw) ? 2 : 1);
  }
  const rest = words.map((word) => word.raw);
  const array = rest[0]?.includes("[@]");
  const unclear = !rest.length || array || rest[1]?.startsWith("-") || holdsOptions(rest, known.images);
  if (unclear) throw plan.refusal(command.line, "other_container", { what: name.raw });
  return words[0];
}

/** Tell whether a variable in the place of the image holds options, or nothing: the image itself follows it. */
function holdsOptions(words, ends) {
  return words[0].startsWith("$") && words.slice(1).some((word) => ends.some((end) => unquoted(word).endsWith(end)));
}

function replace(plan, word, line, text) {
  plan.seen.add(line);
  if (word.raw === text) return;
  plan.change({ start: word.start, end: word.end, new: text }, line, `${word.raw} becomes ${text}`, "container_image");
}
