/**
 * Between the panel's fields and a configuration as `srunbook generate --config` reads it.
 *
 * @typedef {{cluster: string, partition: string, account: string, qos: string, constraint: string, gpus: string,
 *   gpu_type: string, cpus: string, modules: string, kind: string, place: string, platform: string,
 *   network_interface: string,
 *   none: Record<string, boolean>}} Fields
 *   texts as they are typed; `none` has what the cluster does not want, `kind` the field of the environment
 */

/** Fields with a line of text each. */
export const WORDS = ["partition", "account", "qos", "constraint"];

/** Kinds of environment. */
export const KINDS = ["virtual_environment", "conda_environment", "container_image"];

/** The input of the panel in which a field of a configuration is typed. */
export const INPUT_OF = {
  gpus_per_node: "gpus",
  platform: "gpus",
  cpus_per_node: "cpus",
  processes_per_node: "cpus",
  modules_to_load: "modules",
  ...Object.fromEntries(KINDS.map((kind) => [kind, "place"])),
};

const whole = (text) => (/^[0-9]{1,9}$/.test(text) ? Number(text) : text);

/** @param {Fields} fields @returns {Record<string, any>} */
export function toConfig(fields) {
  /** @type {Record<string, any>} */
  const config = {};
  if (fields.cluster) config.cluster = fields.cluster;
  for (const name of WORDS) {
    const text = fields[name].trim();
    if (fields.none[name]) config[name] = null;
    else if (text) config[name] = text;
  }
  const [count, type, cpus] = [fields.gpus.trim(), fields.gpu_type.trim(), fields.cpus.trim()];
  if (fields.none.gpus) Object.assign(config, { platform: "cpu", gpus_per_node: null });
  else if (count || type) {
    Object.assign(config, { platform: "gpu", gpus_per_node: type ? `${type}:${count}` : whole(count) });
  } else if (fields.platform) config.platform = fields.platform;
  if (cpus) config.cpus_per_node = whole(cpus);
  const modules = fields.modules.split(/[\s,]+/).filter((name) => name);
  if (fields.none.modules) config.modules_to_load = [];
  else if (modules.length) config.modules_to_load = modules;
  if (fields.kind) config[fields.kind] = fields.place.trim();
  if (fields.network_interface.trim()) config.network_interface = fields.network_interface.trim();
  return config;
}

/** @param {Record<string, any>} config one that is allowed @returns {Fields} */
export function toFields(config) {
  const text = (value) => (value === undefined || value === null ? "" : String(value));
  const kind = KINDS.find((name) => config[name]) ?? "";
  const [, type, count] = text(config.gpus_per_node).match(/^(?:(.*):)?(.*)$/);
  const none = Object.fromEntries(WORDS.map((name) => [name, config[name] === null]));
  const modules = config.modules_to_load;
  return {
    ...Object.fromEntries(WORDS.map((name) => [name, text(config[name])])),
    cluster: text(config.cluster),
    gpus: count,
    gpu_type: text(type),
    cpus: text(config.cpus_per_node),
    modules: (modules ?? []).join(" "),
    kind,
    place: kind ? config[kind] : "",
    network_interface: text(config.network_interface),
    platform: "gpus_per_node" in config ? "" : text(config.platform),
    none: {
      ...none,
      gpus: config.gpus_per_node === null,
      modules: modules === null || (Array.isArray(modules) && !modules.length),
    },
  };
}
