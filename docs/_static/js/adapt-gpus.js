/** How GPUs are asked for, how many of a node, and what depends on that number: `srunbook.adapt.directives`. */

/** @typedef {import("./adapt-plan.js").Plan} Plan */

/**
 * A job that asks for one GPU of a node keeps one; any other gets all of the node. Where there was one task for each
 * GPU, there is one for each GPU again.
 * @param {Plan} plan
 * @returns {{gpus: number|null, tasks: number|null}} of a node, in the end; null for what is not known
 */
export function planGpus(plan) {
  const there = plan.shape();
  const found = asked(plan);
  const { site } = plan;
  if (found === null) {
    if (site.gpus) plan.note(1, "the script asks for no GPUs, and gets none");
    return { gpus: null, tasks: there.tasks };
  }
  if (!("gpus_per_node" in site.values)) {
    if (site.platform === "cpu") plan.note(found.option.line, "asks for GPUs, and the configuration has platform: cpu");
    return { gpus: null, tasks: there.tasks };
  }
  if (site.gpus === null) {
    plan.takeAway(found.option, "gpus_per_node");
    return { gpus: null, tasks: there.tasks };
  }
  if (plan.rules.gpus.of_something_else.includes(found.option.name)) {
    return { gpus: planKind(plan, found, there), tasks: there.tasks };
  }
  if (found.count === 0) return { gpus: null, tasks: there.tasks };
  const count = found.count === 1 ? 1 : site.gpus;
  write(plan, found, count);
  if (count === found.count) return { gpus: count, tasks: there.tasks };
  planProcessCounts(plan, found.count, count);
  if (there.tasks !== found.count || there.option === null) return { gpus: count, tasks: there.tasks };
  const total = plan.rules.tasks.of_the_job.includes(there.option.name);
  plan.give(there.option, String(total ? count * (there.nodes || 1) : count), "gpus_per_node");
  return { gpus: count, tasks: count };
}

/** How the script asks for GPUs; null if it does not. */
function asked(plan) {
  const names = plan.rules.gpus;
  const asks = [...names.of_a_node, ...names.of_something_else]
    .map((name) => plan.script.last(name))
    .filter((option) => option)
    .map((option) => read(plan, option))
    .filter((one) => one);
  if (asks.length > 1) throw plan.refusal(asks[0].option.line, "gpus_twice", { other: asks[1].option.line });
  return asks[0] ?? null;
}

function read(plan, option) {
  const value = option.value ?? "";
  const names = plan.rules.gpus;
  const problem = plan.refusal(option.line, "gpus_form", { option: option.name, value });
  if (option.name === "gres" || option.name === "tres-per-task") {
    if (!value.includes("gpu")) return null;
    const entries = value.split(",");
    const matches = entries.map((entry) => entry.match(new RegExp(names.entry)));
    const mine = matches.find((match) => match);
    if (option.name !== "gres" || entries.filter((entry) => entry.includes("gpu")).length !== 1 || !mine) throw problem;
    const others = entries.map((entry, place) => (matches[place] ? null : entry));
    return { option, kind: mine.groups.kind ?? null, count: Number(mine.groups.count || 1), entries: others };
  }
  const match = value.match(new RegExp(names.number));
  if (!match) throw problem;
  return { option, kind: match.groups.kind ?? null, count: Number(match.groups.count), entries: [] };
}

/** Ask for so many GPUs of a node as `srunbook generate` writes it. */
function write(plan, found, count) {
  const { kind } = plan.site;
  const typed = kind ? `${kind}:${count}` : String(count);
  if (found.entries.length > 1) {
    const value = found.entries.map((entry) => entry || `gpu:${typed}`).join(",");
    plan.give(found.option, value, "gpus_per_node"); // the other resources stay in their option
  } else if (kind) plan.give(found.option, `gpu:${typed}`, "gpus_per_node", "gres");
  else plan.give(found.option, typed, "gpus_per_node", "gpus-per-node");
}

/** Plan the type of GPUs that are counted for each task or for the whole job; their number stays. */
function planKind(plan, found, there) {
  const { option } = found;
  const { kind, gpus } = plan.site;
  plan.give(option, kind ? `${kind}:${found.count}` : String(found.count), "gpus_per_node");
  let ofANode = null;
  if (option.name === "gpus-per-task") ofANode = there.tasks && there.tasks * found.count;
  if (option.name === "gpus") ofANode = there.nodes && Math.ceil(found.count / there.nodes);
  if (ofANode && gpus && ofANode > gpus) {
    throw plan.refusal(option.line, "gpus_too_many", { found: ofANode, most: gpus });
  }
  return ofANode;
}

/** Plan the numbers that tell a launcher how many processes to start on a node, where they were the GPUs. */
function planProcessCounts(plan, before, after) {
  const seen = new Set();
  for (const word of counts(plan)) {
    if (word.literal !== String(before) || seen.has(word.start)) continue;
    seen.add(word.start);
    const edit = { start: word.start, end: word.end, new: word.raw.replaceAll(String(before), String(after)) };
    const text = `processes of a node: ${before} becomes ${after}`;
    plan.change(edit, plan.script.lineAt(word.start), text, "gpus_per_node");
  }
}

/** The words that say how many processes a launcher starts, also where a variable says it. */
function counts(plan) {
  const { script, rules } = plan;
  const found = [];
  for (const words of [...script.commands.map((command) => command.words), ...script.arrays]) {
    words.forEach((word, place) => {
      const sign = word.raw.indexOf("=");
      const name = sign < 0 ? word.raw : word.raw.slice(0, sign);
      if (!rules.process_count.includes(name)) return;
      if (sign >= 0) found.push(script.shellWord(word.start + sign + 1, word.end));
      else if (place + 1 < words.length) found.push(words[place + 1]);
    });
  }
  const variables = new Set(found.map((word) => variable(word.raw)).filter((name) => name));
  const given = script.assignments.filter((one) => variables.has(one.name) && one.plain).map((one) => one.value);
  return [...found, ...given];
}

/** The name of the variable that a word is, as in `"${NAME}"`; null for any other word. @param {string} raw */
export function variable(raw) {
  const match = raw.match(/^"?\$\{?(\w+)\}?"?$/);
  return match && match[1];
}
