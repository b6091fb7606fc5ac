/**
 * The template's language, a small part of Jinja: values, ifs that stand alone on a line, and a comment with the reason for the next line.
 *
 * @typedef {{text: string, reason: string, fields: string[]}} Line
 * @typedef {Object<string, string | number | boolean | null | undefined>} Context
 */

const TAG = /^\{% (?:if (?<name>[a-z_]+)|(?<word>else|endif)) %\}$/;
const NOTE = /^\{# (?<fields>[a-z_, ]+): (?<reason>.*) #\}$/;
const VALUE = /\{\{ ([a-z_]+) \}\}/g;
const OTHER = /\{[%#]|[%#]\}|\{\{(?! [a-z_]+ \}\})/;

/**
 * Render a template line by line.
 *
 * @param {string} template
 * @param {Context} context
 * @returns {Line[]}
 */
export function rendered(template, context) {
  const lines = [];
  let fields = [];
  let reason = "";
  for (const line of chosen(template, context)) {
    const note = NOTE.exec(line);
    if (note) {
      fields = note.groups.fields.split(", ").filter((name) => name !== "always");
      reason = filled(note.groups.reason, context);
      continue;
    }
    for (const text of filled(line, context).split("\n")) lines.push({ text, reason, fields });
    fields = [];
    reason = "";
  }
  return lines;
}

/** Choose the lines of a template, as its ifs say. */
function* chosen(template, context) {
  const asked = [];
  for (const line of template.replace(/\n$/, "").split("\n")) {
    const tag = TAG.exec(line)?.groups;
    if (tag?.name) asked.push(Boolean(value(tag.name, context)));
    else if (tag && !asked.length) throw new Error(`the template has '${line}' without its if`);
    else if (tag?.word === "else") asked.push(!asked.pop());
    else if (tag) asked.pop();
    else if (!NOTE.test(line) && OTHER.test(line)) throw new Error(`the template's line '${line}' is not in its language`);
    else if (asked.every(Boolean)) yield line;
  }
  if (asked.length) throw new Error("the template has an if without its endif");
}

/** Put values into a line; what stands in a value is never a tag. */
function filled(line, context) {
  return line.replace(VALUE, (_, name) => {
    const found = value(name, context);
    if (found === null || found === undefined || typeof found === "boolean") {
      throw new Error(`the template shows '${name}', which is ${found}: ask for it with an if`);
    }
    return String(found);
  });
}

function value(name, context) {
  if (!(name in context)) throw new Error(`the template names '${name}', which has no value`);
  return context[name];
}
