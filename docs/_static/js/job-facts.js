/** What follows from the fields of a job: the properties of srunbook.generate.JobSpecification, and its connections. */

const WORD = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** GPUs on each node, 0 without. */
export function gpusOf(job) {
  return job.gpus_per_node === null ? 0 : Number(String(job.gpus_per_node).split(":").at(-1));
}

/** Processes on each node. */
export function processesOf(job) {
  return job.processes_per_node ?? (gpusOf(job) || 1);
}

/** Tasks on each node: one for torchrun, which starts the processes itself. */
export function tasksOf(job) {
  return job.framework === "torchrun" ? 1 : processesOf(job);
}

/** Devices on all nodes together. */
export function devicesOf(job) {
  if (gpusOf(job)) return job.nodes * gpusOf(job);
  if (job.framework !== "jax") return job.nodes * processesOf(job);
  return job.nodes * processesOf(job) * (job.devices_per_process ?? Math.floor(job.cpus_per_node / processesOf(job)));
}

/** The name of the job, or one made from that of the program. */
export function jobName(job) {
  const stem = job.script.split("/").at(-1).replace(/\.py$/, "").replace(/[^A-Za-z0-9._-]/gu, "_");
  return job.name ?? (WORD.test(stem) ? stem : "job");
}

/** The signal, such as SIGUSR1, and the seconds before the time limit; 60 is Slurm's default. */
export function stopOf(job) {
  const [name, seconds] = (job.signal ?? "").split(":").at(-1).split("@");
  return { name: `SIG${name.replace(/^SIG/, "")}`, seconds: Number(seconds || 60) };
}

/** The folder that the script makes for the log, or nothing, and what Slurm is told. */
export function fileOf({ linked }, job) {
  const [, folder, file] = new RegExp(`^(?:${linked})$`, "u").exec(job.output) ?? [];
  return { folder: folder ?? "", file: file ?? job.output };
}

/** Count the TCP connections of each process of JAX on CPUs, each an open file; 0 where devices do not connect so. */
export function connectionsOf(job, devices = devicesOf(job) / (job.nodes * processesOf(job))) {
  const processes = job.nodes * processesOf(job);
  if (job.framework !== "jax" || job.platform !== "cpu" || processes === 1) return 0;
  return devices * (processes * devices - 1) + devices * (processes - 1);
}

/** Say what to do about too many connections; null if there are few enough. */
export function adviceOf({ limits }, job) {
  const left = limits.files - limits.other_files;
  if (connectionsOf(job) <= left) return null;
  const share = Math.floor(job.cpus_per_node / processesOf(job));
  for (let devices = share; devices > 0; devices--) {
    const count = connectionsOf(job, devices);
    if (share % devices === 0 && count <= left) return `--set devices_per_process=${devices} makes it ${count}`;
  }
  return "take fewer processes, or have the limit raised (ulimit -Hn)";
}

/** Warn about a job whose processes would open too many files; null if there are few enough. */
export function warningOf(rules, job) {
  const advice = adviceOf(rules, job);
  const told = { count: connectionsOf(job), files: rules.limits.files, advice };
  return advice && rules.warning.replace(/\{(\w+)\}/g, (_, name) => told[name]);
}
