/** Which network interface the programs of a script use between the nodes: `srunbook.adapt.environment`. */
import { addLine, requirePlain } from "./adapt-lines.js";

const FIELD = "network_interface";

/**
 * Plan the variables that name the interface: those that the script names, also in a comment, or else all.
 * @param {import("./adapt-plan.js").Plan} plan @param {string} wanted
 */
export function planInterfaces(plan, wanted) {
  const known = plan.rules.environment.interfaces;
  const named = known.filter((name) => plan.script.text.includes(name));
  for (const name of named.length ? named : known) {
    const given = plan.script.assignments.filter((one) => one.name === name);
    requirePlain(plan, given, `an assignment of ${name}`);
    for (const { value, line } of given) {
      plan.seen.add(line);
      if (value.literal === wanted) continue;
      const edit = { start: value.start, end: value.end, new: wanted };
      plan.change(edit, line, `${name}=${value.raw} becomes ${wanted}`, FIELD);
    }
    if (!given.length) addLine(plan, `export ${name}=${wanted}`, FIELD);
  }
}
