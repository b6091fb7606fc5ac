/** The panel "My cluster": a dialog with the fields that a cluster decides. */
import { ConfigError, site } from "./adapt-site.js";
import { PLACE, clusterConfig, known } from "./fit.js";
import { INPUT_OF, KINDS, WORDS, toConfig, toFields } from "./panel-config.js";
import { save } from "./panel-store.js";
import { read, write } from "./panel-yaml.js";

const FILE = "my_cluster.yaml";

const MARKUP = `
<form class="fit-form" method="dialog" novalidate aria-labelledby="fit-title">
  <div class="fit-head"><h2 id="fit-title">My cluster</h2>
    <button type="button" class="fit-close" aria-label="Close">×</button></div>
  <p>Fill in what you know. Every job script on these pages then shows your values, ready to copy and download.
    They stay in this browser.</p>
  <div class="fit-field"><label for="fit-cluster">Start from a known site</label>
    <select id="fit-cluster" name="cluster"><option value="">none of them</option></select></div>
  ${word("partition", "Partition", "<code>sinfo</code> lists them", "I need none")}
  ${word("account", "Account", "who is charged", "I need none")}
  ${word("qos", "QOS", "quality of service", "I need none")}
  ${word("constraint", "Constraint", "features of the nodes", "I need none")}
  <div class="fit-pair">
    ${field("gpus", "GPUs of a node", 'inputmode="numeric"')}
    ${field("gpu_type", "Type of the GPUs", 'placeholder="as in a100"')}
  </div>
  <p class="fit-asked" id="fit-asked" aria-live="polite"></p>
  ${none("gpus", "No GPUs")}
  ${field("cpus", "CPUs of a node", 'inputmode="numeric"')}
  <div class="fit-field"><label for="fit-kind">Python comes from</label>
    <select id="fit-kind" name="kind">
      <option value="">what each script has</option>
      <option value="virtual_environment">a virtual environment</option>
      <option value="conda_environment">conda</option>
      <option value="container_image">a container</option>
    </select></div>
  ${field("place", "Where it is", "")}
  ${field("modules", "Modules to load, in this order", "")}
  ${none("modules", "I need none")}
  ${field("network_interface", "Network interface between the nodes", "", "only where the wrong one is taken")}
  <p class="fit-problem" id="fit-problem" role="alert"></p>
  <p class="fit-status" role="status"></p>
  <div class="fit-buttons">
    <button type="submit" class="fit-main">Fit the scripts</button>
    <button type="button" data-do="forget">Forget everything</button>
    <button type="button" data-do="export">Save as ${FILE}</button>
    <label class="fit-import">Open a YAML file<input type="file" accept=".yaml,.yml" class="visually-hidden"></label>
  </div>
  <p class="fit-hint"><code>srunbook generate</code> and <code>srunbook adapt</code> read the same file with
    <code>--config</code>.</p>
</form>`;

function field(name, label, more, hint = "") {
  const explained = hint && ` <span class="fit-hint" id="fit-${name}-hint">${hint}</span>`;
  return `<div class="fit-field"><span class="fit-label"><label for="fit-${name}">${label}</label>${explained}</span>
    <input id="fit-${name}" name="${name}" autocomplete="off" autocapitalize="off" spellcheck="false" ${more}
      aria-describedby="${hint && `fit-${name}-hint `}fit-${name}-problem">
    <span class="fit-problem" id="fit-${name}-problem"></span></div>`;
}

function none(name, label) {
  return `<label class="fit-none"><input type="checkbox" name="none-${name}"> ${label}</label>`;
}

function word(name, label, hint, without) {
  const text = `${without}<span class="visually-hidden"> (${label})</span>`;
  return `<div class="fit-word">${field(name, label, "", hint)}${none(name, text)}</div>`;
}

const EXAMPLES = {
  "": "",
  virtual_environment: "~/torch-env",
  conda_environment: "~/miniforge3/envs/torch-env",
  container_image: "$SCRATCH/torch.sif",
};

/** @type {HTMLDialogElement|null} */
let dialog = null;
const input = (name) => dialog.querySelector(`[name="${name}"]`);

/** Open the panel with the values that are kept. */
export async function open() {
  const rules = await known();
  if (!dialog) build(rules);
  let config = clusterConfig() ?? {};
  try {
    site(config, rules, PLACE);
  } catch {
    config = {}; // kept by an older version of these pages
  }
  fill(toFields(config));
  tell("");
  complain([]);
  dialog.showModal();
}

function build(rules) {
  dialog = document.createElement("dialog");
  dialog.className = "fit-dialog";
  dialog.innerHTML = MARKUP;
  document.body.append(dialog);
  input("cluster").append(...Object.keys(rules.sites).map((name) => new Option(name, name)));
  dialog.addEventListener("input", () => show(rules));
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const config = judged(rules);
    if (!config) return;
    const kept = save(config);
    if (kept) dialog.close();
    else tell("The scripts on this page are fitted. This browser keeps nothing, so the next page asks again.");
  });
  dialog.querySelector(".fit-close").addEventListener("click", () => dialog.close());
  const actions = { forget, export: () => download(rules) };
  dialog.querySelectorAll("[data-do]").forEach((one) => one.addEventListener("click", actions[one.dataset.do]));
  dialog.querySelector("[type=file]").addEventListener("change", (event) => importFile(event.target, rules));
}

/** @param {import("./panel-config.js").Fields} fields */
function fill(fields) {
  for (const [name, value] of Object.entries(fields)) {
    if (name === "none") Object.entries(value).forEach(([one, is]) => (input(`none-${one}`).checked = is));
    else if (name === "platform") dialog.dataset.platform = value;
    else input(name).value = value;
  }
  dialog.dispatchEvent(new Event("input"));
}

/** @returns {import("./panel-config.js").Fields} */
function fields() {
  const texts = [...WORDS, "cluster", "gpus", "gpu_type", "cpus", "modules", "kind", "place", "network_interface"];
  const without = [...WORDS, "gpus", "modules"];
  return {
    ...Object.fromEntries(texts.map((name) => [name, input(name).value])),
    platform: dialog.dataset.platform,
    none: Object.fromEntries(without.map((name) => [name, input(`none-${name}`).checked])),
  };
}

/** Show how GPUs are asked for, and what a known site has already. */
function show(rules) {
  const there = rules.sites[input("cluster").value] ?? {};
  const typed = fields();
  for (const name of [...WORDS, "gpus", "modules"]) input(name).disabled = typed.none[name];
  input("gpu_type").disabled = typed.none.gpus;
  for (const name of WORDS) input(name).placeholder = there[name] ?? "";
  const [, type, count] = String(there.gpus_per_node ?? "").match(/^(?:(.*):)?(.*)$/);
  input("gpus").placeholder = count;
  input("cpus").placeholder = there.cpus_per_node ?? "";
  const environment = KINDS.map((kind) => there[kind]).find((place) => place);
  input("kind").options[0].text = environment ? `what this site has: ${environment}` : "what each script has";
  input("place").placeholder = EXAMPLES[typed.kind];
  input("place").disabled = !typed.kind;
  const number = typed.gpus.trim() || (typed.gpu_type.trim() ? "" : count);
  const kind = typed.gpus.trim() ? typed.gpu_type.trim() : typed.gpu_type.trim() || type;
  const asked = kind ? `--gres=gpu:${kind}:${number}` : `--gpus-per-node=${number}`;
  dialog.querySelector("#fit-asked").textContent = number && !typed.none.gpus ? `Asked for as ${asked}` : "";
}

/** The configuration, if it is allowed; say what is wrong otherwise. */
function judged(rules) {
  const config = toConfig(fields());
  try {
    site(config, rules, PLACE);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    complain(error.problems);
    tell("");
    return null;
  }
  complain([]);
  return config;
}

function complain(problems) {
  for (const place of dialog.querySelectorAll(".fit-problem")) place.textContent = "";
  for (const place of dialog.querySelectorAll("[aria-invalid]")) place.removeAttribute("aria-invalid");
  for (const { field: name, text } of problems) {
    const place = dialog.querySelector(`#fit-${INPUT_OF[name] ?? name}-problem`);
    const said = text.startsWith(`${PLACE}: `) ? text.slice(PLACE.length + 2) : text;
    (place ?? dialog.querySelector("#fit-problem")).textContent += `${said} `;
    if (place) input(INPUT_OF[name] ?? name).setAttribute("aria-invalid", "true");
  }
  dialog.querySelector("[aria-invalid]")?.focus();
}

const tell = (text) => (dialog.querySelector(".fit-status").textContent = text);

function forget() {
  save(null);
  fill(toFields({}));
  complain([]);
  tell("Forgotten. The pages show the original scripts.");
}

function download(rules) {
  const config = judged(rules);
  if (!config) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([write(config)], { type: "application/yaml" }));
  link.download = FILE;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function importFile(chooser, rules) {
  const [file] = chooser.files;
  if (!file) return;
  complain([]);
  tell("");
  try {
    const { config, left } = read(await file.text(), file.name, await library(), rules);
    fill(toFields(config));
    const rest = left.length ? ` Left out, because each job decides it: ${left.join(", ")}.` : "";
    tell(`Read from ${file.name}.${rest} Press “Fit the scripts” to use it.`);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    complain(error.problems.map((problem) => ({ field: null, text: problem.text })));
    tell("Nothing was changed.");
  } finally {
    chooser.value = ""; // the same file may be chosen again
  }
}

/** Load the parser of YAML, which only an import needs. */
async function library() {
  if (!window.jsyaml) {
    await new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = new URL("../vendor/js-yaml.js", import.meta.url).href;
      script.onload = resolve;
      script.onerror = () => reject(Error(`${script.src} could not be loaded`));
      document.head.append(script);
    });
  }
  return window.jsyaml;
}
