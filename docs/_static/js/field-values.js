/** What a field of a configuration takes, by its JSON Schema, and what a wrong value may have meant. */

import { closeMatches } from "./wording.js";

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
 * @param {{fields: object, control: string}} rules
 * @param {string} key
 * @param {unknown} value
 * @returns {string} A sentence and a space, or nothing.
 */
export function hint(rules, key, value) {
  const field = rules.fields[key];
  if (typeof value !== "string") {
    const textIsMeant = !choices(field).length && !kinds(field).some((kind) => ["integer", "boolean"].includes(kind));
    return textIsMeant && (value === null || typeof value !== "object") ? "Put it in quotes. " : "";
  }
  if (/^[\s\x1c-\x1f\x85]|[\s\x1c-\x1f\x85]$/u.test(value) || new RegExp(`[${rules.control}]`, "u").test(value)) {
    return "It has a blank at an end, the end of a line or another control character. ";
  }
  const [meant] = closeMatches([...value].slice(0, 80).join(""), choices(field));
  return meant ? `Did you mean ${meant}? ` : "";
}

/** List the types that a field takes. */
export function kinds(field) {
  return (field.anyOf ?? [field]).map(({ type }) => type);
}

/** List the words of which a field takes one; none if it takes any. */
export function choices(field) {
  return (field.anyOf ?? [field]).flatMap((one) => one.enum ?? []);
}
