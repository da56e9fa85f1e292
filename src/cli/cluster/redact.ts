import { maxJsonDepth } from '../../lib/json-depth.ts';

const removed = '[removed]';

const names = 'passw(?:or)?d|passphrase|pwd|secret|token|credential|private_?key|api_?key|access_?key';
const secretName = new RegExp(`${names}|authorization`, 'i');
/** Pattern of a command-line flag, such as `--token`, after which the next argument is a secret. */
const secretFlag = new RegExp(`^(?=-[\\w-]*(?:${names}))[\\w-]+$`, 'i');
/** Fields of pods that only name a Secret and therefore stay. */
const references = ['imagePullSecrets', 'secretKeyRef', 'secretRef', 'secretRefs'];

/**
 * Returns a pattern from an opening quote to the closing quote, which has as many backslashes before it. If the text was cut,
 * the match extends to its end.
 */
const quoted = (group: number) => `(\\\\*["'])[^\\n]*?(?:(?<!\\\\)\\${group}|$)`;
/**
 * Pattern of a whole word that contains one of the names. Matches start only at the beginning of a word, and the lookahead does
 * not remember the position of the name: otherwise each name in a long word would be tried with the rest of the word, in
 * quadratic time.
 */
const named = `(?<![\\w-])(?=[\\w-]*(?:${names}))[\\w-]+`;
const flag = `(?<![\\w-])(?=-[\\w-]*(?:${names}))[\\w-]+`;

/** Patterns of secrets with a recognizable form. */
const patterns: [RegExp, string][] = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?!-----BEGIN)[\s\S])*?-----END [A-Z ]*PRIVATE KEY-----/g, removed],
  // JSON Web Tokens: header, content and signature.
  [/(?<![\w-])(?=[\w-]*\beyJ)[\w-]+\.[\w-]+\.[\w-]+/g, removed],
  [/\b(Bearer|Basic) +[\w.~+/=-]+/gi, `$1 ${removed}`],
  // User and password in a URL.
  [/(\/\/)[^\s/@"'\\]+@/g, `$1${removed}@`],
  // `--token …`, and `"--token", "…"` in a list of arguments.
  [new RegExp(`(${flag} +)(?!-)[^\\s"'\\\\,;]+`, 'gi'), `$1${removed}`],
  [new RegExp(`(${flag}\\\\*["']\\s*,\\s*)${quoted(2)}`, 'gim'), `$1$2${removed}$2`],
  // `"name": "DB_PASSWORD", "value": "…"` of an environment variable.
  [
    new RegExp(
      `(name\\\\*["']\\s*:\\s*\\\\*["'](?=[\\w.-]*(?:${names}))[\\w.-]+\\\\*["']\\s*,\\s*\\\\*["']value\\\\*["']\\s*:\\s*)${quoted(2)}`,
      'gim',
    ),
    `$1$2${removed}$2`,
  ],
  // `password=…`, and `"password": "…"`, also in JSON nested in a string.
  [new RegExp(`((?:${named}|authorization)\\\\*["']?\\s*[=:]\\s*)${quoted(2)}`, 'gim'), `$1$2${removed}$2`],
  [
    new RegExp(`(${named}\\\\*["']?\\s*[=:]\\s*)(?:\\[[^\\]\\n]*(?:\\]|$)|\\{[^}\\n]*(?:\\}|$))`, 'gim'),
    `$1"${removed}"`,
  ],
  [new RegExp(`(${named}\\s*[=:]\\s*)(?!\\[removed)[^\\s"'\\\\,;&{}[\\]]+`, 'gi'), `$1${removed}`],
];

/** Removes text that looks like a secret. */
export function redactText(text: string): string {
  return patterns.reduce((left, [pattern, replacement]) => left.replace(pattern, replacement), text);
}

/**
 * Removes values from an object that look like secrets: by the name of their field, flag or environment variable, or by their
 * form. Texts that are JSON are searched as objects. Deep nesting is cut off, so that no object of a tenant keeps other objects
 * out of a bundle.
 * @param isSecret whether the value is that of a secret field: then all text and numbers in it are removed
 */
export function redactObject(value: unknown, depth = 0, isSecret = false): unknown {
  if (isSecret && (typeof value === 'string' || typeof value === 'number')) return removed;
  if (typeof value === 'string') return redactString(value, depth);
  if (typeof value !== 'object' || value === null) return value;
  if (depth === maxJsonDepth) return removed;
  if (Array.isArray(value)) {
    const isAfterFlag = (index: number) => typeof value[index - 1] === 'string' && secretFlag.test(value[index - 1]);
    return value.map((each, index) => redactObject(each, depth + 1, isSecret || isAfterFlag(index)));
  }
  const { name } = value as { name?: unknown };
  const isSecretEntry = typeof name === 'string' && secretName.test(name);
  return Object.fromEntries(
    Object.entries(value).map(([key, each]) => {
      const isNamed = (secretName.test(key) && !references.includes(key)) || (isSecretEntry && key === 'value');
      return [key, redactObject(each, depth + 1, isSecret || isNamed)];
    }),
  );
}

/**
 * Removes secrets from a text. A text that is JSON is treated as an object, such as that in the annotation
 * `kubectl.kubernetes.io/last-applied-configuration`.
 */
function redactString(text: string, depth: number): string {
  if (!/^\s*[[{]/.test(text)) return redactText(text);
  try {
    return JSON.stringify(redactObject(JSON.parse(text), depth + 1));
  } catch {
    return redactText(text);
  }
}
