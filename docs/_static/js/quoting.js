/** Words that bash reads back exactly as they were given: `srunbook.generate.quote` and its kin. */

const PLAIN = /^(?:--[A-Za-z0-9][A-Za-z0-9_-]*=)?[A-Za-z0-9_./:@%+-]+$/;

function inQuotes(word) {
  return `'${word.replaceAll("'", () => `'"'"'`)}'`;
}

/** Quote a word where bash needs it; the rules list bash's keywords. */
export function quote({ keywords }, word) {
  if (!word) return '""';
  return PLAIN.test(word) && !keywords.includes(word) ? word : inQuotes(word);
}

/** Quote a path; bash still expands a `~` or a variable at its beginning. */
export function quotePlace(rules, place) {
  const match = /^(~|\$\w+|\$\{\w+\})(?:\/(.*))?$/.exec(place);
  if (!match) return PLAIN.test(place) ? `"${place}"` : quote(rules, place);
  const variable = match[1] === "~" ? "$HOME" : match[1];
  if (!match[2]) return `"${variable}"`;
  return PLAIN.test(match[2]) ? `"${variable}/${match[2]}"` : `"${variable}"/${quote(rules, match[2])}`;
}

/** Write the words after `source` that activate a conda environment. */
export function condaActivation(rules, environment) {
  const end = environment.lastIndexOf("/envs/");
  const [conda, name] = [environment.slice(0, end), environment.slice(end + "/envs/".length)];
  const own = conda.endsWith("/.conda"); // the conda itself belongs to the site
  const file = own ? '"$(conda info --base)/bin/activate"' : quotePlace(rules, `${conda}/bin/activate`);
  return `${file} ${quote(rules, name)}`;
}

/** Join the words of a command as Python's shlex.join does. */
export function joined(words) {
  return words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : inQuotes(word))).join(" ");
}
