/**
 * What readers say of their cluster, and job scripts that fit it. The panel asks for the values; this needs no page.
 *
 * The values are fields of `srunbook generate --config`, null for "I need none". They stay in the browser.
 */
const KEY = "srunbook.cluster";
export const DIRECTIVES = ["partition", "account", "qos", "constraint"];

let memory = null; // holds until the page is left, where the browser keeps nothing

/** What the reader has said of the cluster; null for nothing. @returns {Record<string, any>|null} */
export function load() {
  try {
    const stored = JSON.parse(localStorage.getItem(KEY));
    if (typeof stored === "object" && !Array.isArray(stored)) return stored ?? memory;
  } catch {
    // Forbidden, or not written by this page: as if nothing were there.
  }
  return memory;
}

/** Keep values, or forget them with null; return whether the next page will know them. */
export function save(config) {
  memory = config;
  let kept = true;
  try {
    localStorage.removeItem(KEY); // if saving fails below, forget the old values too
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
  for (const name of DIRECTIVES.filter((option) => option in cluster)) {
    if (asked[name]) cluster[name] === null ? change(asked[name]) : give(name, cluster[name]);
    else if (cluster[name] !== null) added.push(`#SBATCH --${name}=${cluster[name]}`);
  }
  let tasks = Number(value("ntasks-per-node") ?? 1);
  let cpus = cluster.cpus_per_node;
  let memory = cluster.memory_per_node;
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
    memory = memory?.replace(/^\d+/, (size) => Math.floor((size * count) / all)); // and gets its GPU's share
    for (const line of lines) if (line.startsWith(`PROCESSES=${before} `)) change(line, withStart(line, `PROCESSES=${count}`));
  }
  if (cpus && asked["cpus-per-task"]) give("cpus-per-task", Math.max(1, Math.floor(cpus / tasks)));
  fitSize(lines, { ...cluster, memory_per_node: memory }, asked, give, change);
  add(lines.findLast((line) => directive.test(line)) ?? lines[0], [], added);
  fitEnvironment(lines, cluster, change, add);
  const origin = lines.findIndex((line) => line.startsWith("# Made by: srunbook generate "));
  if (changes.size && origin > 0) lines.slice(origin - 1, origin + 1).forEach((line) => change(line)); // no longer true
  return changes;
}

/**
 * Fit nodes, memory, time and program, where readers are meant to change them: in lines with EDIT, and in scripts that
 * run any program. In others, such as those of failures, they are part of what the script shows.
 */
function fitSize(lines, cluster, asked, give, change) {
  const start = lines.indexOf("PROGRAM=(");
  const open = (name) => asked[name] && (start >= 0 || asked[name].includes("# EDIT"));
  const { nodes, memory_per_node: memory, time_limit: time, script } = cluster;
  if (nodes && open("nodes") && !/--nodes=1\b/.test(asked.nodes)) give("nodes", nodes); // one for one node stays one
  if (time && open("time")) give("time", time);
  if (memory) for (const name of ["mem", "mem-per-cpu"].filter(open)) give(name, memory, "mem");
  if (!script) return;
  for (const line of lines) if (/\$\{@:-[^}]+\}/.test(line)) change(line, line.replace(/(?<=\$\{@:-)[^}]+/, script));
  if (start >= 0 && lines[start + 2] === ")") change(lines[start + 1], `  ${script}`); // a program without arguments
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
  const [, conda = "", name] = cluster.conda_environment?.match(/^(?:(.*)\/envs\/)?(.*)$/) ?? [];
  const site = /^$|\/\.conda$/.test(conda); // the environment is one of the conda that modules load, not of your own
  const inSite = name && !conda ? `$(conda info --base)/envs/${name}` : cluster.conda_environment;
  const folder = cluster.virtual_environment ?? inSite;
  if (folder && !images.length) {
    const base = name ? (site ? "$(conda info --base)" : conda) : folder;
    const activation = `source ${quoted(`${base}/bin/activate`)}${name ? ` ${name}` : ""}`;
    const folders = lines.filter((line) => /^VENV=/.test(line));
    const sources = lines.filter((line) => /^source \S+\/bin\/activate"/.test(line));
    for (const line of folders) change(line, withStart(line, `VENV=${quoted(folder)}`));
    for (const line of sources) if (name || !line.includes("$VENV")) change(line, withStart(line, activation));
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
