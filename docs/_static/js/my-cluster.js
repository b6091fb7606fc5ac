/**
 * "My cluster": readers say once what their cluster is like, and every job script of the site shows it.
 *
 * The values are fields of `srunbook generate --config`, null for "I need none". They stay in the browser.
 */
const KEY = "srunbook.cluster";
const WORD = "[^\\s\"'\\\\#]+";
const PATH = "(~|\\$\\w+)?[\\w.\\/+@%:=\\-]+";
const DIRECTIVES = ["partition", "account", "qos", "constraint"];
/** Label, what is allowed, and its pattern. */
const FIELDS = {
  partition: ["Partition", "sinfo lists them", WORD],
  account: ["Account", "who is charged; “none” drops the line", WORD],
  qos: ["QOS", "quality of service", WORD],
  constraint: ["Constraint", "features of the nodes; “none” drops the line", WORD],
  gpus_per_node: ["GPUs of a node", "4, or a100:4 with their type, or 0", "0|([^\\s\"'\\\\#:,=]+:)?[1-9]\\d{0,3}"],
  cpus_per_node: ["CPUs of a node", "a whole number", "[1-9]\\d{0,3}"],
  place: ["Where it is", "a path without blanks; with conda, it has /envs/ in it", PATH],
  modules_to_load: ["Modules to load", "in this order; “none” drops the lines", "[\\w.\\/+@:=][\\w.\\/+@:= \\-]*"],
};
const KINDS = {
  virtual_environment: ["a virtual environment", "~/torch-env"],
  conda_environment: ["conda", "~/miniforge3/envs/torch-env"],
  container_image: ["a container", "$SCRATCH/torch.sif"],
};

let memory = null; // holds until the page is left, where the browser keeps nothing

/** What the reader has said of the cluster; null for nothing. @returns {Record<string, any>|null} */
export function load() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY));
    if (typeof found === "object" && !Array.isArray(found)) return found ?? memory;
  } catch {
    // Forbidden, or not written by this page: as if nothing were there.
  }
  return memory;
}

/** Keep values, or forget them with null; return whether the next page will know them. */
function save(config) {
  memory = config;
  let kept = true;
  try {
    localStorage.removeItem(KEY); // if there is no room for the new values, the old ones must not win
    if (config) localStorage.setItem(KEY, JSON.stringify(config));
  } catch {
    kept = false;
  }
  window.dispatchEvent(new StorageEvent("storage", { key: KEY }));
  return kept;
}

/** Call a function after each change, in another tab too. @param {() => void} listener */
export function onChange(listener) {
  window.addEventListener("storage", (event) => [KEY, null].includes(event.key) && listener());
}

/** Give a line another beginning; a comment behind it keeps its column where there is room. */
function withStart(line, start) {
  const [, before, gap, comment] = line.match(/^(.*\S)( {2,})(#.*)$/) ?? [];
  return comment ? start.padEnd(Math.max(start.length + 2, before.length + gap.length)) + comment : start;
}

/** A path in quotes, in which bash still expands ~ or a variable. */
const quoted = (path) => `"${path.replace(/^~/, "$HOME")}"`;

/**
 * Fit a job script to a cluster.
 * @param {string} text the script
 * @param {Record<string, any>|null} cluster
 * @returns {Map<string, string[]>} each line that changes, and the lines that are there instead
 */
export function fit(text, cluster) {
  const changes = new Map();
  if (!cluster) return changes;
  const lines = text.split("\n");
  const directive = /^#SBATCH --([\w-]+)(?:=(\S+))?/;
  const asked = Object.fromEntries(lines.map((line) => [directive.exec(line)?.[1], line]).filter(([name]) => name));
  const value = (name) => directive.exec(asked[name])?.[2];
  const change = (line, ...fresh) => (fresh.length === 1 && fresh[0] === line) || changes.set(line, fresh);
  const add = (line, before, after) => change(line, ...before, ...(changes.get(line) ?? [line]), ...after);
  const give = (name, to, as = name) => change(asked[name], withStart(asked[name], `#SBATCH --${as}=${to}`));

  const added = [];
  for (const name of DIRECTIVES.filter((one) => one in cluster)) {
    if (asked[name]) cluster[name] === null ? change(asked[name]) : give(name, cluster[name]);
    else if (cluster[name] !== null) added.push(`#SBATCH --${name}=${cluster[name]}`);
  }
  let tasks = Number(value("ntasks-per-node") ?? 1);
  let cpus = cluster.cpus_per_node;
  const option = ["gpus-per-node", "gres"].find((name) => /(^|:)\d+$/.test(value(name)));
  if (option && cluster.gpus_per_node === null) change(asked[option]);
  else if (option && cluster.gpus_per_node) {
    const [, type, all] = String(cluster.gpus_per_node).match(/^(?:(.*):)?(\d+)$/);
    const before = Number(value(option).match(/\d+$/)[0]);
    const count = before === 1 ? 1 : Number(all); // a script for one GPU stays one
    if (type) give(option, `gpu:${type}:${count}`, "gres");
    else give(option, count, "gpus-per-node");
    if (tasks === before && asked["ntasks-per-node"]) give("ntasks-per-node", (tasks = count));
    cpus = cpus && Math.floor((cpus * count) / all);
  }
  if (cpus && asked["cpus-per-task"]) give("cpus-per-task", Math.max(1, Math.floor(cpus / tasks)));
  add(lines.findLast((line) => directive.test(line)) ?? lines[0], [], added);
  fitEnvironment(lines, cluster, change, add);
  return changes;
}

/** Fit the lines that load modules and choose a Python. A script with a container stays in one, any other without. */
function fitEnvironment(lines, cluster, change, add) {
  const images = lines.filter((line) => /^(export )?image=/i.test(line));
  const loads = lines.filter((line) => /^module load /.test(line));
  const first = lines.find((line) => !/^(#|set |trap |umask |ulimit |shopt |$)/.test(line));
  const fresh = [];
  const image = cluster.container_image;
  if (image) images.forEach((line) => change(line, withStart(line, line.match(/^.*?=/) + quoted(image))));
  if (cluster.modules_to_load) {
    const left = [...cluster.modules_to_load];
    loads.forEach((line, place) => {
      const mine = left.splice(0, place === loads.length - 1 ? left.length : 1);
      change(line, ...(mine.length ? [withStart(line, `module load ${mine.join(" ")}`)] : []));
    });
    fresh.push(...left.map((name) => `module load ${name}`));
  }
  const [conda, name] = cluster.conda_environment?.split("/envs/") ?? [];
  const folder = cluster.virtual_environment ?? cluster.conda_environment;
  if (folder && !images.length) {
    const base = conda?.endsWith("/.conda") ? "$(conda info --base)" : (conda ?? folder); // the site's conda, or your own
    const activation = `source ${quoted(`${base}/bin/activate`)}${conda ? ` ${name}` : ""}`;
    const folders = lines.filter((line) => /^VENV=/.test(line));
    const sources = lines.filter((line) => /^source \S+\/bin\/activate"/.test(line));
    for (const line of folders) change(line, withStart(line, `VENV=${quoted(folder)}`));
    for (const line of sources) if (conda || !line.includes("$VENV")) change(line, withStart(line, activation));
    if (folders.length || sources.length) return add(first, fresh, []);
    if (!loads.length) fresh.push(activation);
    else add(loads.at(-1), [], [activation]);
  }
  return add(first, fresh, []);
}

/** A job script, fitted. @param {string} text @param {Record<string, any>|null} cluster @returns {string} */
export function fitted(text, cluster) {
  const changes = fit(text, cluster);
  return text.split("\n").flatMap((line) => changes.get(line) ?? [line]).join("\n");
}

const make = (tag, values) => Object.assign(document.createElement(tag), values);
const link = (box) => box.querySelector(":scope > .code-file-caption a.download");
const boxes = globalThis.document?.querySelectorAll("article .code-file") ?? [];
const scripts = [...boxes].filter((box) => link(box)?.href.endsWith(".sbatch"));
const markups = new Map(); // of each block as the page came

/** Put changed lines into the markup of a block. Tags that span lines stay; those within a line end in it. */
function marked(markup, changes) {
  const plain = document.createElement("template");
  return markup.split("\n").map((line, place, all) => {
    const [tags] = line.match(/^(<\/(ins|del|span)>|<(ins|del)>|<span( class="(hll|diff-gap)"| hidden="")?>)*/);
    plain.innerHTML = line.slice(tags.length);
    const fresh = tags.endsWith("<del>") ? null : changes.get(plain.content.textContent);
    if (!fresh) return place < all.length - 1 ? `${line}\n` : line;
    const mark = make("mark", { className: "fitted", title: "fitted to your cluster" });
    mark.textContent = `${fresh.join("\n")}\n`;
    return fresh.length ? tags + mark.outerHTML : tags;
  }).join("");
}

/** Show a script as it fits a cluster, or the original for null; return how many lines change. */
async function show(box, cluster) {
  const { dataset } = link(box);
  const address = (dataset.original ??= link(box).href); // a page may show a part of a script, and this is all of it
  const answer = cluster && (await fetch(address));
  if (answer && !answer.ok) throw Error(answer.statusText);
  const text = answer ? await answer.text() : "";
  const changes = fit(text, cluster);
  for (const pre of [...box.querySelectorAll("pre")].filter((one) => one.closest(".code-file") === box)) {
    if (!markups.has(pre)) markups.set(pre, pre.innerHTML);
    pre.innerHTML = marked(markups.get(pre), changes);
  }
  const blob = new Blob([fitted(text, cluster)], { type: "text/x-shellscript" });
  link(box).download = address.replace(/.*\//, "");
  link(box).href = changes.size ? URL.createObjectURL(blob) : address;
  return changes.size;
}

/** Show a script as it fits, and say so above it and in its stamp, with the way back. */
async function present(box) {
  const cluster = load();
  const count = await show(box, cluster).catch(() => -1);
  box.querySelectorAll(":scope > .fit-bar, :scope > .badge-line > .fit-stamp").forEach((old) => old.remove());
  if (!cluster) return;
  const none = count ? "Not fitted: the script could not be loaded." : "No line changes for your cluster.";
  const text = count > 0 ? `Fitted to your cluster: ${count} ${count > 1 ? "lines" : "line"}.` : none;
  const bar = make("div", { className: "fit-bar", textContent: text });
  link(box).closest(".code-file-caption").after(bar);
  if (count < 1) return;
  const toggle = make("button", { type: "button", className: "fit-toggle", textContent: "Show the original" });
  toggle.onclick = async () => {
    const back = toggle.textContent === "Show the original";
    await show(box, back ? null : load());
    toggle.textContent = back ? "Show it fitted" : "Show the original";
  };
  bar.append(toggle);
  const said = " That was the original; your version has not run here.";
  box.querySelector(":scope > .badge-ran")?.append(make("span", { className: "fit-stamp", textContent: said }));
}

/** Lines may be wider than the window afterwards, so tell site.js. */
const presentAll = () => Promise.all(scripts.map(present)).then(() => window.dispatchEvent(new Event("resize")));

let dialog = null;
let form = null;

/** The values in the form, as fields of a configuration. */
function read() {
  const typed = Object.fromEntries([...new FormData(form)].map(([name, text]) => [name, text.trim()]));
  const config = {};
  for (const name of DIRECTIVES) if (typed[name]) config[name] = typed[name] === "none" ? null : typed[name];
  const { gpus_per_node: gpus, cpus_per_node: cpus, modules_to_load: modules } = typed;
  if (gpus === "0") Object.assign(config, { platform: "cpu", gpus_per_node: null });
  else if (gpus) Object.assign(config, { platform: "gpu", gpus_per_node: Number(gpus) || gpus });
  if (cpus) config.cpus_per_node = Number(cpus);
  if (typed.kind) config[typed.kind] = typed.place;
  if (modules) config.modules_to_load = modules === "none" ? [] : modules.split(/\s+/);
  return config;
}

function write(config) {
  const kind = Object.keys(KINDS).find((name) => config[name]) ?? "";
  const modules = config.modules_to_load && (config.modules_to_load.join(" ") || "none");
  const values = { ...config, kind, place: config[kind], modules_to_load: modules };
  if (config.gpus_per_node === null) values.gpus_per_node = "0";
  const typed = (name) => (values[name] === null ? "none" : values[name] ?? "");
  for (const name of [...Object.keys(FIELDS), "kind"]) form[name].value = typed(name);
  chooseKind();
}

function chooseKind() {
  const [, example = ""] = KINDS[form.kind.value] ?? [];
  const pattern = form.kind.value === "conda_environment" ? `${PATH}\\/envs\\/[\\w.+@%=\\-]+` : PATH;
  Object.assign(form.place, { disabled: !example, required: Boolean(example), placeholder: example, pattern });
}

function build() {
  const row = (name, label, hint, control) => `<div class="fit-field"><label for="fit-${name}">${label}</label>
    <span class="fit-hint" id="fit-${name}-hint">${hint}</span>${control}</div>`;
  const fields = Object.entries(FIELDS).map(([name, [label, hint, pattern]]) => {
    const allowed = `pattern="${pattern.replaceAll('"', "&quot;")}" title="${label}: ${hint}"`;
    const more = `autocomplete="off" autocapitalize="off" spellcheck="false" aria-describedby="fit-${name}-hint"`;
    return row(name, label, hint, `<input id="fit-${name}" name="${name}" ${allowed} ${more}>`);
  });
  const kinds = { "": ["what each script has"], ...KINDS };
  const options = Object.entries(kinds).map(([name, [text]]) => `<option value="${name}">${text}</option>`).join("");
  fields.splice(-2, 0, row("kind", "Python comes from", "", `<select id="fit-kind" name="kind">${options}</select>`));
  dialog = make("dialog", { className: "fit-dialog", innerHTML: `<form class="fit-form" method="dialog">
    <div class="fit-head"><h2 id="fit-title">My cluster</h2>
      <button type="button" class="fit-close" aria-label="Close">×</button></div>
    <p>Fill in what you know. Every job script on these pages then shows your values, ready to copy and download.
      They stay in this browser.</p>
    ${fields.join("")}<p class="fit-status" role="status"></p>
    <div class="fit-buttons"><button class="fit-main">Fit the scripts</button>
      <button type="button" class="fit-forget">Forget everything</button></div></form>` });
  dialog.setAttribute("aria-labelledby", "fit-title");
  document.body.append(dialog);
  form = dialog.querySelector("form");
  form.kind.onchange = chooseKind;
  const tell = (text) => (dialog.querySelector(".fit-status").textContent = text);
  dialog.querySelector(".fit-close").onclick = () => dialog.close();
  dialog.querySelector(".fit-forget").onclick = () => {
    save(null);
    write({});
    tell("Forgotten. The pages show the original scripts.");
  };
  form.onsubmit = (event) => {
    const config = read();
    const kept = save(Object.keys(config).length ? config : null);
    if (!kept) event.preventDefault();
    tell(kept ? "" : "This browser keeps nothing, so your values hold until you leave this page.");
  };
}

function open() {
  if (!dialog) build();
  write(load() ?? {});
  dialog.showModal();
}

const button = (textContent, ariaLabel, className) =>
  make("button", { textContent, ariaLabel, className, type: "button", ariaHasPopup: "dialog", onclick: open });

if (globalThis.document) {
  const said = "My cluster: fill in your partition, account and GPUs";
  document.querySelector(".content-icon-container")?.prepend(button("My cluster", said, "fit-open fit-open-page"));
  for (const box of scripts) {
    const label = `Fit ${box.querySelector(".code-file-name").textContent} to my cluster`;
    link(box).closest(".code-file-download").before(button("Fit to my cluster", label, "fit-open"));
  }
  if (load()) presentAll();
  onChange(presentAll);
}
