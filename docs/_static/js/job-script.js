/** From a job to the text of its script, and to the reasons of its lines: srunbook.generate.script in the browser. */

import { adviceOf, connectionsOf, devicesOf, fileOf, gpusOf, jobName, processesOf, stopOf, tasksOf } from "./job-facts.js";
import { TORCHRUN_SIGNALS } from "./job-contradictions.js";
import { condaActivation, quote, quotePlace } from "./quoting.js";
import { JobError } from "./job-specification.js";
import { rendered } from "./job-template.js";
import { shown } from "./wording.js";

const PROGRAMS = { jax: "JAX", torchrun: "torchrun", lightning: "Lightning", gloo: "torch.distributed over gloo" };

/**
 * Render the lines of a job script.
 *
 * @param {object} rules
 * @param {object} job What `specify` returned.
 * @param {string | null} madeBy The command that makes the script again, for a comment.
 * @returns {import("./job-template.js").Line[]}
 * @throws {JobError} `madeBy` has a control character.
 */
export function render(rules, job, madeBy = null) {
  return rendered(rules.template, context(rules, job, madeBy));
}

/** Return the text of lines; it ends with the end of a line. */
export function textOf(lines) {
  return lines.map(({ text }) => `${text}\n`).join("");
}

/** Give each name in the template its value. */
function context(rules, job, madeBy) {
  if (madeBy !== null && !(madeBy.isWellFormed() && new RegExp(`^[^${rules.control}]*$`, "u").test(madeBy))) {
    const text = `made by ${shown(madeBy)}: a comment has one line of UTF-8, and this has a control character or other bytes`;
    throw new JobError([{ field: "script", place: null, text }]);
  }
  const { folder, file } = fileOf(rules, job);
  const column = (option) => option.padEnd(rules.limits.comment_column + 2);
  const { framework } = job;
  return {
    ...Object.fromEntries(rules.plain_fields.map((name) => [name, job[name]])),
    summary: summary(job),
    made_by: madeBy,
    // Slurm
    job_name: jobName(job),
    output_file: file,
    no_requeue: job.requeue === false,
    signal: job.signal && column(`--signal=${job.signal}`),
    gpus: gpuOption(job),
    tasks: column(`--ntasks-per-node=${tasksOf(job)}`),
    tasks_are: tasksAre(job),
    cpus: column(`--cpus-per-task=${Math.floor(job.cpus_per_node / tasksOf(job))}`),
    cpus_are: framework === "torchrun" ? "for all processes of a node together" : "of each process",
    // the shell
    log_folder: folder,
    log_file: file.replaceAll("%j", () => "${SLURM_JOB_ID}").replaceAll("%x", () => "${SLURM_JOB_NAME}"),
    modules: job.modules_to_load.map((name) => `module load ${quote(rules, name)}`).join("\n"),
    venv: job.virtual_environment && quotePlace(rules, job.virtual_environment),
    conda: job.conda_environment && condaActivation(rules, job.conda_environment),
    image: job.container_image && quotePlace(rules, job.container_image),
    exports: Object.entries(job.env_vars)
      .map(([name, text]) => `export ${name}=${quote(rules, text)}`)
      .join("\n"),
    // the framework
    ...Object.fromEntries(Object.keys(PROGRAMS).map((name) => [name, framework === name])),
    jax_on_cpu: framework === "jax" && job.platform === "cpu",
    torch_under_srun: framework === "lightning" || framework === "gloo",
    rendezvous: framework === "torchrun" || framework === "gloo",
    devices: job.devices_per_process ?? '"$SLURM_CPUS_PER_TASK"',
    connections_are: connectionsAre(rules, job),
    processes: processesOf(job),
    processes_are: gpusOf(job) === processesOf(job) ? "on each node: one for each GPU" : "on each node",
    torchrun_signals: framework === "torchrun" && Boolean(job.signal) && !job.older_torchrun,
    signals: signals(job),
    grace: Math.max(1, Math.floor((stopOf(job).seconds * 3) / 4)),
    program: [job.script, ...job.arguments].map((word) => quote(rules, word)).join("\n  "),
    early: early(job),
    launcher: launcher(job),
  };
}

/** Ask for GPUs, if any. */
function gpuOption(job) {
  const parts = String(job.gpus_per_node).split(":");
  const kind = parts.length > 1 ? `${parts[0]}:` : "";
  const option = job.gpu_option ?? (kind ? "gres" : "gpus-per-node");
  if (!gpusOf(job) || option === "none") return null;
  const count = option === "gpus-per-task" ? Math.floor(gpusOf(job) / tasksOf(job)) : gpusOf(job);
  return `--${option}=${option === "gres" ? "gpu:" : ""}${kind}${count}`;
}

function tasksAre(job) {
  if (job.framework === "torchrun") return "one torchrun on each node, which starts the processes";
  if (gpusOf(job) === processesOf(job)) return "one process for each GPU";
  return processesOf(job) === 1 ? "one process on each node" : "processes on each node";
}

function connectionsAre(rules, job) {
  const count = connectionsOf(job);
  const advice = adviceOf(rules, job);
  const told = count ? `; so each process has about ${count} connections, each an open file` : "";
  return advice ? `${told}, and many systems allow 1024: ${advice}` : told;
}

/** Say in one line what the job is. */
function summary(job) {
  const gpus = gpusOf(job);
  const count = job.nodes * processesOf(job);
  const many = (number, word, ending = "s") => `${number} ${word}${number > 1 ? ending : ""}`;
  const each = gpus ? many(gpus, "GPU") : many(job.cpus_per_node, "CPU");
  const devices = job.framework === "jax" ? `, ${many(devicesOf(job), "device")}` : "";
  return `${PROGRAMS[job.framework]} on ${many(job.nodes, "node")} of ${each}: ${many(count, "process", "es")}${devices}.`;
}

/** List the signals that torchrun passes on: those it knows by itself, and the job's own. */
function signals(job) {
  const own = stopOf(job).name;
  return `"${[...TORCHRUN_SIGNALS, ...(TORCHRUN_SIGNALS.includes(own) ? [] : [own])].join(",")}"`;
}

/** The signal of the job if it ends a program that does not listen yet, and if nobody else sends it. */
function early(job) {
  return ["USR1", "USR2"].find((name) => stopOf(job).name === `SIG${name}`) ?? null;
}

/** Return what srun starts, before the program. */
function launcher(job) {
  const words = early(job) ? ['"${EARLY[@]}"'] : [];
  if (job.framework === "gloo") words.push('bash -c "$AS_RANK" bash');
  if (job.container_image) words.push(`singularity run${gpusOf(job) ? " --nv" : ""} "$IMAGE"`);
  words.push(job.framework === "torchrun" ? 'torchrun "${TORCHRUN_ARGS[@]}"' : "python");
  return words.join(" ");
}
