/** Add and remove whole lines of the shell, and refuse what runs only under a condition: `srunbook.adapt.environment`. */

/**
 * @typedef {import("./adapt-plan.js").Plan} Plan
 * @typedef {import("./adapt-script.js").Command} Command
 */

/** Require at most one of its kind, which runs exactly once. */
export function requirePlain(plan, found, what) {
  const hidden = found.find((one) => !one.plain);
  if (hidden) throw plan.refusal(hidden.line, "conditional", { what });
  if (found.length > 1) throw plan.refusal(found[0].line, "several", { what, other: found[1].line });
}

/** Plan to remove the line of a command. @param {Plan} plan @param {Command} command @param {string} field */
export function removeLine(plan, command, field) {
  const { script } = plan;
  const [start, end] = [script.lineSpan(command.start)[0], script.lineSpan(command.end)[1]];
  const before = script.text.slice(start, command.start).trim();
  const after = script.text.slice(command.end, end).trim();
  const text = commandText(plan, command);
  if (before || (after && !after.startsWith("#")) || !command.plain) {
    throw plan.refusal(command.line, "own_line", { what: text });
  }
  plan.change({ start, end, new: "" }, command.line, `${text} is removed`, field);
}

/** A command as the script has it, for a message. */
export function commandText(plan, command) {
  return plan.script.text.slice(command.start, command.end);
}

/** Plan a new line before the first statement that is not one like `set -e`; after modules where there are some. */
export function addLine(plan, text, field) {
  const { script, rules } = plan;
  const loads = script.commands.filter((command) => loadedWords(plan, command) && command.plain);
  const steps = script.steps.filter(([, name]) => !rules.environment.before.includes(name));
  let place = steps.length ? script.lineSpan(steps[0][0])[0] : script.text.length;
  if (loads.length && field !== "modules_to_load") place = script.lineSpan(loads.at(-1).end)[1];
  const newline = script.text.includes("\r\n") ? "\r\n" : "\n";
  const last = place === script.text.length && !script.text.endsWith("\n");
  plan.edits.push({ start: place, end: place, new: last ? newline + text : text + newline });
  const line = script.lineAt(place);
  plan.changes.push({ line, text: `${text} is added before this line`, field, origin: plan.site.origins[field] });
}

/** The first and the last place of the modules among the words of a command; null if it loads none. */
export function loadedWords(plan, command) {
  const known = plan.rules.environment.modules;
  if (!known.commands.includes(command.name)) return null;
  const { words } = command;
  let place = 1;
  while (place < words.length && words[place].raw.startsWith("-")) place += 1;
  const verb = place < words.length ? words[place].literal : null;
  if (known.load.includes(verb)) place += 1;
  else if (command.name === "module" || known.other.includes(verb)) return null;
  return place < words.length ? [place, words.length - 1] : null;
}
