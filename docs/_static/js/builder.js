/**
 * The page on which a job script appears while its reader chooses.
 *
 * To fill in values that are known from elsewhere, such as those of the reader's cluster, send the event `fill` with an
 * object of fields, as in a file for `srunbook generate --config`:
 * `document.querySelector(".script-builder").dispatchEvent(new CustomEvent("fill", { detail: { partition: "gpu" } }))`
 */

import { JobForm, make } from "./builder-form.js";
import { ScriptView } from "./builder-script.js";
import { baseOf, changesOf, commandOf, layersOf } from "./job-command.js";
import { warningOf } from "./job-facts.js";
import { render, textOf } from "./job-script.js";
import { JobError, specify } from "./job-specification.js";
import { load, onChange } from "./my-cluster.js";

const NO_GPUS = { platform: "cpu", gpus_per_node: null };

/** Tell whether the framework that was chosen leaves GPUs alone, whatever the cluster has. */
const onCpus = (form) => form.texts().framework === "gloo";

/**
 * Put the form and its script in place of the plain script.
 *
 * @param {HTMLElement} root
 */
export function build(root) {
  const data = (name) => JSON.parse(root.querySelector(`.script-builder-${name}`).textContent);
  const rules = data("rules");
  const form = new JobForm(rules);
  const view = new ScriptView((values) => fill(values));
  let base = {};

  const update = () => {
    const { values: wanted, problems } = form.read();
    const values = changesOf(rules, wanted);
    const command = commandOf(values);
    try {
      if (problems.length) throw new JobError(problems);
      const job = specify(rules, layersOf(rules, values));
      const lines = render(rules, job, command);
      form.complain([]);
      view.show(lines, textOf(lines), command, warningOf(rules, job));
    } catch (error) {
      if (!(error instanceof JobError)) throw error;
      view.refuse(form.complain(error.problems));
    }
  };

  /** Take over what a profile and a cluster give, but for the fields that the reader has changed. */
  const rebase = () => {
    const { values } = form.read();
    const next = baseOf(rules, values);
    const same = (key) => JSON.stringify(values[key] ?? null) === JSON.stringify(base[key] ?? null);
    const other = (key) => rules.pairs.filter((pair) => pair.includes(key)).flat().filter((one) => one !== key);
    const right = (key) => JSON.stringify(values[key] ?? null) === JSON.stringify(next[key] ?? null);
    const kept = (key) => right(key) || !same(key) || other(key).some((one) => (values[one] ?? null) !== null && !same(one));
    const given = Object.keys(rules.fields).filter((key) => !["profile", "cluster"].includes(key) && !kept(key));
    form.write(Object.fromEntries(given.map((key) => [key, next[key] ?? null])));
    base = next;
  };

  const fill = (values) => {
    form.write({ profile: values.profile ?? form.texts().profile, cluster: values.cluster ?? form.texts().cluster });
    rebase();
    form.write(values);
    update();
  };

  form.element.addEventListener("input", ({ target }) => {
    if (target.name === "profile" || target.name === "cluster") rebase();
    if (target.name === "framework" && target.value === "gloo") form.write({ platform: "cpu" });
    if (target.name === "platform" && target.value === "gpu" && !form.texts().gpus_per_node) {
      form.write({ gpus_per_node: 4 });
    }
    update();
    view.mark(target.name);
  });
  form.element.addEventListener("focusin", ({ target }) => view.mark(target.name));
  root.addEventListener("fill", ({ detail }) => fill(detail));
  root.querySelector(".script-builder-plain").replaceWith(form.element, view.element);
  base = baseOf(rules, {});
  form.write(base);
  fill(data("start"));

  const told = "Your cluster is filled in as “My cluster”, at the top of this page, has it.";
  const note = make("p", { className: "builder-help", hidden: true, textContent: told });
  form.element.prepend(note);
  const takeOver = () => {
    const config = load();
    note.hidden = config === null;
    if (config !== null) fill(onCpus(form) ? { ...config, ...NO_GPUS } : config);
  };
  takeOver();
  onChange(takeOver);
}

for (const root of document.querySelectorAll(".script-builder")) build(root);
