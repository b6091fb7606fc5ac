/** "My cluster": readers say once what their cluster is like, and every job script of the site shows it. */
import { DIRECTIVES, fit, fitted, load, onChange, save } from "./fit.js";

const SITES = new URL("../sites.json", import.meta.url); // what the build knows of some sites
const WORD = "[^\\s\"'\\\\#]+";
const PATH = "(~|\\$\\w+)?[\\w.\\/+@%:=\\-]+";
/** Label, what is allowed, and its pattern. */
const FIELDS = {
  partition: ["Partition", "sinfo lists them", WORD],
  account: ["Account", "who is charged", WORD],
  qos: ["QOS", "quality of service", WORD],
  constraint: ["Constraint", "features of nodes", WORD],
  gpus_per_node: ["GPUs of a node", "4, a100:4, or 0", "0|([^\\s\"'\\\\#:,=]+:)?[1-9]\\d{0,3}"],
  cpus_per_node: ["CPUs of a node", "a whole number", "[1-9]\\d{0,3}"],
  memory_per_node: ["Memory of a node", "480G, or 0 for all of it", "0|[1-9]\\d*[MG]"],
  nodes: ["Nodes", "for scripts on several nodes", "[1-9]\\d{0,4}"],
  time_limit: ["Time limit", "24:00:00, or 2-00:00:00", "(\\d+-)?\\d+(:\\d\\d){2}"],
  script: ["Your program", "its file, such as train.py", "[\\w.\\/][\\w.\\/+@%:=\\-]*"],
  place: ["Where it is", "a path; of conda, also a name", PATH],
  modules_to_load: ["Modules to load", "in this order", "[\\w.\\/+@:=][\\w.\\/+@:= \\-]*"],
};
const KINDS = {
  virtual_environment: ["a virtual environment", "~/torch-env"],
  conda_environment: ["conda", "torch-env, or ~/miniforge3/envs/torch-env"],
  container_image: ["a container", "$SCRATCH/torch.sif"],
};

const make = (tag, values) => Object.assign(document.createElement(tag), values);
const link = (box) => box.querySelector(":scope > .code-file-caption .code-file-download a");
const boxes = document.querySelectorAll("article .code-file");
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
  for (const pre of [...box.querySelectorAll("pre")].filter((block) => block.closest(".code-file") === box)) {
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
  const stamp = " That was the original; your version has not run here.";
  box.querySelector(":scope > .badge-ran")?.append(make("span", { className: "fit-stamp", textContent: stamp }));
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
  if (typed.nodes) config.nodes = Number(typed.nodes);
  for (const name of ["memory_per_node", "time_limit", "script"]) if (typed[name]) config[name] = typed[name];
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
  const pattern = form.kind.value === "conda_environment" ? `(${PATH}\\/envs\\/)?[\\w.+@%=\\-]+` : PATH;
  Object.assign(form.place, { disabled: !example, required: Boolean(example), placeholder: example, pattern });
}

/** Offer the sites. A choice fills in what is known of one, and keeps what only the reader knows. */
function offer(sites) {
  const select = form["fit-site"];
  select.append(...["another one", ...Object.keys(sites)].map((name) => new Option(name)));
  select.onchange = () => {
    const { account, nodes, time_limit, script } = read();
    write({ account, nodes, time_limit, script, ...sites[select.value] });
  };
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
  fields.unshift(row("site", "Known site", "fills in what is known of it", `<select id="fit-site"></select>`));
  dialog = make("dialog", { className: "fit-dialog", innerHTML: `<form class="fit-form" method="dialog">
    <div class="fit-head"><h2 id="fit-title">My cluster</h2>
      <button type="button" class="fit-close" aria-label="Close">×</button></div>
    <p>Fill in what you know; “none” drops a line that your site doesn't need. Every job script on these pages then
      shows your values, ready to copy and download. They stay in this browser.</p>
    ${fields.join("")}<p class="fit-status" role="status"></p>
    <div class="fit-buttons"><button class="fit-main">Fit the scripts</button>
      <button type="button" class="fit-forget">Forget everything</button></div></form>` });
  dialog.setAttribute("aria-labelledby", "fit-title");
  document.body.append(dialog);
  form = dialog.querySelector("form");
  form.kind.onchange = chooseKind;
  fetch(SITES).then((answer) => answer.json()).then(offer).catch(() => form["fit-site"].closest("div").remove());
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

const label = "My cluster: fill in your partition, account and GPUs";
document.querySelector(".content-icon-container")?.prepend(button("My cluster", label, "fit-open fit-open-page"));
for (const box of scripts) {
  const name = box.querySelector(".code-file-name").textContent;
  link(box).closest(".code-file-download").before(button("Fit to my cluster", `Fit ${name} to my cluster`, "fit-open"));
}
if (load()) presentAll();
onChange(presentAll);
