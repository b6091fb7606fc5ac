/** Fields of a job that contradict each other. The texts are those of the rules; each condition here bears its name. */

import { gpusOf, jobName, processesOf, stopOf } from "./job-facts.js";

/** Signals that any torchrun passes on to its processes. */
export const TORCHRUN_SIGNALS = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"];

const INTERFACES = ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"];

/** @type {Object<string, (job: object, facts: object) => boolean>} */
const BROKEN = {
  "no-type": (job) => String(job.gpus_per_node).toLowerCase().startsWith("gpu:"),
  "gpus-on-cpu": (job, { gpus }) => job.platform === "cpu" && gpus > 0,
  "no-gpus": (job, { gpus }) => job.platform === "gpu" && !gpus,
  "gloo-on-gpu": (job) => job.framework === "gloo" && job.platform === "gpu",
  "two-interfaces": (job) =>
    Boolean(job.network_interface) && INTERFACES.some((name) => Object.hasOwn(job.env_vars, name)),
  "uneven-cpus": (job, { processes }) => job.cpus_per_node % processes !== 0,
  "uneven-gpus": (job, { gpus, processes }) => gpus % processes !== 0,
  "devices-elsewhere": (job) =>
    job.devices_per_process !== null && (job.framework !== "jax" || job.platform === "gpu"),
  "many-devices": (job, { share }) => (job.devices_per_process ?? 0) > share,
  "interactive-name": (job) => job.framework === "lightning" && ["bash", "interactive"].includes(jobName(job)),
  "batch-shell-signal": (job) => /^R?B/.test(job.signal ?? ""),
  "older-torchrun": (job) =>
    job.framework === "torchrun" &&
    job.older_torchrun &&
    job.signal !== null &&
    !TORCHRUN_SIGNALS.includes(stopOf(job).name),
};

/**
 * Find the first rule that a job breaks.
 *
 * @param {object} rules
 * @param {object} job
 * @returns {{field: string, text: string} | null}
 */
export function contradiction(rules, job) {
  const facts = factsOf(job);
  for (const { name, field, text } of rules.contradictions) {
    const broken = BROKEN[name] ?? (() => name.split("-and-").every((key) => job[key])); // a job has only one of them
    if (broken(job, facts)) return { field, text: text.replace(/\{(\w+)\}/g, (_, fact) => facts[fact]) };
  }
  return null;
}

/** Return what the texts name. */
function factsOf(job) {
  const processes = processesOf(job);
  const share = Math.floor(job.cpus_per_node / processes);
  return {
    processes,
    cpus_per_node: job.cpus_per_node,
    even_cpus: Math.max(1, share) * processes,
    gpus: gpusOf(job),
    share,
  };
}
