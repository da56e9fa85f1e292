import { maxJsonDepth } from '../../lib/json-depth.ts';

const removed = '[removed]';

const names = 'passw(?:or)?d|passphrase|pwd|secret|token|credential|private_?key|api_?key|access_?key';
const secretName = new RegExp(`${names}|authorization`, 'i');
/** A flag of a command whose next argument is a secret. */
const secretFlag = new RegExp(`^(?=-[\\w-]*(?:${names}))[\\w-]+$`, 'i');
/** Fields of pods that only name a Secret. */
const references = ['imagePullSecrets', 'secretKeyRef', 'secretRef', 'secretRefs'];

/** Up to the closing quote, which has as many backslashes before it as the opening one; of a cut text, up to its end. */
const quoted = (group: number) => `(\\\\*["'])[^\\n]*?(?:(?<!\\\\)\\${group}|$)`;
/**
 * A whole word with such a name in it. Matches start only where a word does, and the lookahead does not remember where the
 * name is: otherwise each name in a long word would be tried with the rest of the word, in quadratic time.
 */
const named = `(?<![\\w-])(?=[\\w-]*(?:${names}))[\\w-]+`;
const flag = `(?<![\\w-])(?=-[\\w-]*(?:${names}))[\\w-]+`;

/** Patterns of secrets with a recognizable form. */
const patterns: [RegExp, string][] = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?!-----BEGIN)[\s\S])*?-----END [A-Z ]*PRIVATE KEY-----/g, removed],
  // JSON web tokens: header, content and signature.
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

/** Removes what looks like a secret from a text. */
export function redactText(text: string): string {
  return patterns.reduce((left, [pattern, replacement]) => left.replace(pattern, replacement), text);
}

/**
 * Removes from an object what looks like a secret, by the name of a field, flag or environment variable or by its form, also
 * in JSON in its texts. Also cuts deep nesting, so that no object of a tenant keeps other objects out of a bundle.
 * @param isSecret whether the value is that of a secret field: no text or number in it stays
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

/** Such as the annotation `kubectl.kubernetes.io/last-applied-configuration`, which has the object as JSON. */
function redactString(text: string, depth: number): string {
  if (!/^\s*[[{]/.test(text)) return redactText(text);
  try {
    return JSON.stringify(redactObject(JSON.parse(text), depth + 1));
  } catch {
    return redactText(text);
  }
}
