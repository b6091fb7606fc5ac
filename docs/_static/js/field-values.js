/** What a field of a configuration takes, by its JSON Schema, and what a wrong value may have meant. */

import { closeMatches, shown } from "./wording.js";

/** Tell whether a JSON Schema allows a value. The published one uses no other words than these. */
export function fits(schema, value) {
  if (schema.anyOf) return schema.anyOf.some((one) => fits(one, value));
  if (schema.enum && !schema.enum.includes(value)) return false;
  if (schema.const !== undefined) return schema.const === value;
  if (schema.type === "integer") {
    return Number.isInteger(value) && value >= (schema.minimum ?? -Infinity) && value <= (schema.maximum ?? Infinity);
  }
  if (schema.type === "null") return value === null;
  if (schema.type === "boolean") return typeof value === "boolean";
  if (schema.type !== "string" || typeof value !== "string" || !value.isWellFormed()) return false;
  if ([...value].length > (schema.maxLength ?? Infinity)) return false;
  return !schema.pattern || new RegExp(schema.pattern, "u").test(value);
}

/** Return what fields have that nobody gives a value, by their JSON Schemas; those that a job must have are left out. */
export function defaults(fields) {
  const empty = { array: [], object: {} };
  const found = Object.entries(fields).filter(([, field]) => !field.required);
  return Object.fromEntries(found.map(([key, field]) => [key, field.default ?? empty[field.type] ?? null]));
}

/**
 * Guess what led to a wrong value.
 *
 * @param {{fields: object, unseen: string}} rules
 * @param {string} key
 * @param {unknown} value
 * @param {string} place
 * @returns {string} A sentence and a space, or nothing.
 */
export function hint(rules, key, value, place) {
  const field = rules.fields[key];
  if (typeof value !== "string") {
    if (key === "time_limit" && typeof value === "number") {
      return "A number could be seconds or minutes: write it in quotes. ";
    }
    const scalar = value === null || typeof value !== "object";
    return ["env_vars", "arguments"].includes(key) && scalar ? "Write it in quotes. " : "";
  }
  if (/[\0-\x1f\x7f-\x9f]/.test(value)) return "It contains a control character, such as the end of a line. ";
  if (key === "script" && value.startsWith("-")) {
    return `Python would take it for an option: write ${shown(`./${value}`)}. `;
  }
  if (key === "script" && value.startsWith("~")) {
    return "The ~ is not expanded here: write the path from the folder in which you submit, or the whole path. ";
  }
  if (new RegExp(`^[${rules.unseen}]|[${rules.unseen}]$`, "u").test(value)) {
    return "It begins or ends with a space or an invisible character. ";
  }
  const [meant] = closeMatches([...value].slice(0, 80).join(""), choices(field));
  if (meant) return `Did you mean ${meant}? `;
  if (kinds(field).includes("integer") && /^\p{Decimal_Number}+$/u.test(value.trim()) && !place.startsWith("--")) {
    return "It is a text: write it without quotes. ";
  }
  return "";
}

/** List the types that a field takes. */
export function kinds(field) {
  return (field.anyOf ?? [field]).map(({ type }) => type);
}

/** List the words of which a field takes one; none if it takes any. */
export function choices(field) {
  return (field.anyOf ?? [field]).flatMap((one) => one.enum ?? []);
}
