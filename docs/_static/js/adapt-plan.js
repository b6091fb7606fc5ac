/** What is to be changed in a script, and why: `srunbook.adapt.plan`. */
import { Refusal, addDirective, directive, remove, setValue } from "./adapt-script.js";

/** Changes to a script, collected one by one. */
export class Plan {
  /**
   * @param {import("./adapt-script.js").Script} script
   * @param {import("./adapt-site.js").Site} site
   * @param {any} rules
   */
  constructor(script, site, rules) {
    this.script = script;
    this.site = site;
    this.rules = rules;
    /** @type {import("./adapt-script.js").Edit[]} */
    this.edits = [];
    /** @type {import("./adapt.js").Change[]} */
    this.changes = [];
    /** @type {[number, string][]} */
    this.notes = [];
    /** Lines that the configuration says something about. @type {Set<number>} */
    this.seen = new Set();
  }

  /** Make an edit because of a field. */
  change(edit, line, text, field) {
    this.edits.push(edit);
    this.changes.push({ line, text, field, origin: this.site.origins[field] });
    this.seen.add(line);
  }

  /** Tell a person about a line that stays as it is. */
  note(line, text) {
    this.notes.push([line, text]);
  }

  /** Give an option a value, or write another one in its place; do nothing where it has that value. */
  give(option, value, field, name = null) {
    this.seen.add(option.line);
    if (option.value === value && (name === null || name === option.name)) return;
    const text = `${said(option)} becomes ${directive(name ?? option.name, value)}`;
    this.change(setValue(option, value, name), option.line, text, field);
  }

  /** Add a directive. */
  add(name, value, field) {
    const line = this.script.lines.length ? this.script.lines.at(-1).number : 1;
    this.edits.push(addDirective(this.script, name, value));
    const text = `${directive(name, value)} is added after this line`;
    this.changes.push({ line, text, field, origin: this.site.origins[field] });
  }

  /** Remove an option. */
  takeAway(option, field) {
    this.change(remove(this.script, option), option.line, `${said(option)} is removed`, field);
  }

  /** The error for a script that is not understood, in the words of the rules. */
  refusal(line, name, values = {}) {
    return new Refusal(line, this.rules.refusals[name].replace(/\{(\w+)\}/g, (_, key) => String(values[key])));
  }

  /** Nodes of the job, tasks of a node, and the option that they follow from; null for what is not known. */
  shape() {
    const names = this.rules.tasks;
    const nodes = number(this.script.last(...names.nodes));
    const ofANode = this.script.last(...names.of_a_node);
    const ofTheJob = this.script.last(...names.of_the_job);
    if (ofANode) return { nodes, tasks: number(ofANode) || null, option: ofANode };
    if (ofTheJob) {
      const count = number(ofTheJob) ?? 0;
      return { nodes, tasks: nodes && count && count % nodes === 0 ? count / nodes : null, option: ofTheJob };
    }
    return { nodes, tasks: 1, option: null };
  }
}

/** An option, for a message. */
function said(option) {
  return option.value === null ? `--${option.name}` : `--${option.name}=${option.value}`;
}

function number(option) {
  const text = option?.value ?? "";
  return /^[0-9]{1,9}$/.test(text) ? Number(text) : null;
}
