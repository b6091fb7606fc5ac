/** The fields of the form: in which group each is, what it is called, and when it is shown. */

/**
 * @typedef {object} Field
 * @property {string} key A field of the job; `environment` and `memory` choose between several of them.
 * @property {string} label
 * @property {Object<string, string>} [words] What the choices are called.
 * @property {string} [empty] What it means to choose nothing.
 * @property {boolean} [several] Whether it takes several lines.
 * @property {string} [help]
 * @property {(chosen: Object<string, string>) => boolean} [when] Whether it is shown, by what is chosen.
 */

const YES_NO = { true: "yes", false: "no" };

/** Controls that are no field of a job: each choice is the field that it shows. */
export const SWITCHES = {
  environment: ["virtual_environment", "conda_environment", "container_image"],
  memory: ["memory_per_cpu", "memory_per_node"],
};

const shownBy = (name, key) => (chosen) => chosen[name] === key;

/** @type {{title: string, folded?: boolean, fields: Field[]}[]} */
export const GROUPS = [
  {
    title: "Your program",
    fields: [
      {
        key: "framework",
        label: "Start it with",
        words: {
          torchrun: "torchrun (PyTorch)",
          lightning: "Lightning",
          jax: "JAX",
          gloo: "gloo (PyTorch on CPUs)",
        },
      },
      { key: "script", label: "Program", help: "Its path from the folder in which you submit." },
      { key: "arguments", label: "Arguments", help: "As in a shell: quotes keep words together." },
    ],
  },
  {
    title: "Size",
    fields: [
      { key: "profile", label: "Size to begin with", empty: "nothing" },
      { key: "nodes", label: "Nodes" },
      { key: "platform", label: "Compute on", words: { gpu: "GPUs", cpu: "CPUs" } },
      {
        key: "gpus_per_node",
        label: "GPUs on each node",
        help: "Put the type first if your site wants one: a100:4.",
        when: shownBy("platform", "gpu"),
      },
      {
        key: "gpu_option",
        label: "Ask for them with",
        empty: "what fits most sites",
        words: {
          "gpus-per-node": "--gpus-per-node",
          gres: "--gres",
          "gpus-per-task": "--gpus-per-task",
          none: "nothing: I get whole nodes",
        },
        when: shownBy("platform", "gpu"),
      },
      { key: "cpus_per_node", label: "CPUs on each node" },
      { key: "time_limit", label: "Time limit", help: "02:00:00 is two hours, 1-12:00:00 a day and a half." },
    ],
  },
  {
    title: "Python",
    fields: [
      {
        key: "environment",
        label: "Environment",
        empty: "what is active when I submit",
        words: { virtual_environment: "virtual environment", conda_environment: "conda", container_image: "container" },
      },
      { key: "virtual_environment", label: "Its folder", when: shownBy("environment", "virtual_environment") },
      {
        key: "conda_environment",
        label: "Its folder",
        help: "As conda env list shows it.",
        when: shownBy("environment", "conda_environment"),
      },
      { key: "container_image", label: "Image", when: shownBy("environment", "container_image") },
      { key: "modules_to_load", label: "Modules", help: "In this order, with spaces between." },
    ],
  },
  {
    title: "Your cluster",
    fields: [
      { key: "cluster", label: "Known cluster", empty: "another one" },
      { key: "partition", label: "Partition" },
      { key: "account", label: "Account" },
      { key: "qos", label: "QOS" },
      { key: "constraint", label: "Constraint" },
      {
        key: "network_interface",
        label: "Network interface",
        help: "Empty unless the wrong network is taken: NCCL and gloo choose one.",
      },
    ],
  },
  {
    title: "When the time is up",
    fields: [
      { key: "requeue", label: "Start the job again", empty: "as my site does", words: YES_NO },
      {
        key: "signal",
        label: "Signal before the end",
        help: "USR1@120 comes 120 seconds before. Your program has to save then.",
      },
      {
        key: "older_torchrun",
        label: "torchrun is older than PyTorch 2.13",
        words: YES_NO,
        when: shownBy("framework", "torchrun"),
      },
    ],
  },
  {
    title: "More",
    folded: true,
    fields: [
      { key: "name", label: "Name of the job" },
      { key: "output", label: "Log" },
      {
        key: "memory",
        label: "Memory",
        empty: "as my site does",
        words: { memory_per_cpu: "for each CPU", memory_per_node: "for each node" },
      },
      { key: "memory_per_cpu", label: "For each CPU", when: shownBy("memory", "memory_per_cpu") },
      { key: "memory_per_node", label: "For each node", when: shownBy("memory", "memory_per_node") },
      { key: "exclusive", label: "Nobody else on these nodes", words: YES_NO },
      { key: "processes_per_node", label: "Processes on each node", help: "Empty: one for each GPU, or one." },
      {
        key: "devices_per_process",
        label: "JAX devices of each process",
        help: "Empty: one for each CPU.",
        when: ({ framework, platform }) => framework === "jax" && platform === "cpu",
      },
      { key: "env_vars", label: "Environment variables", several: true, help: "NAME=VALUE, one on each line." },
      { key: "coordinator_port", label: "Port", help: "Empty: it follows from the job's number." },
    ],
  },
];
