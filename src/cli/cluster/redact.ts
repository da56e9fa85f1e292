import { maxJsonDepth } from '../../lib/json-depth.ts';

const removed = '[removed]';

const secretName = /passw(or)?d|secret|token|credential|private_?key|api_?key|authorization/i;

/** Patterns of secrets with a recognizable form. */
const patterns: [RegExp, string][] = [
  [/-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----/g, removed],
  // JSON web tokens: header, content and signature.
  [/\beyJ[\w-]+\.[\w-]+\.[\w-]+/g, removed],
  [/\b(Bearer|Basic) +[\w.~+/=-]+/gi, `$1 ${removed}`],
  // User and password in a URL.
  [/(\/\/)[^\s/@:]+:[^\s/@]+@/g, `$1${removed}@`],
  // `password=…`, and `"password": "…"`, also in JSON nested in a string.
  [/((?:passw(?:or)?d|secret|token|api_?key)\\?["']?\s*[=:]\s*)(\\?["'])(?:(?!\2).)*\2/gi, `$1$2${removed}$2`],
  [/((?:passw(?:or)?d|secret|token|api_?key)\s*[=:]\s*)[^\s"'\\,;&}]+/gi, `$1${removed}`],
];

/** Removes what looks like a secret from a text. */
export function redactText(text: string): string {
  return patterns.reduce((left, [pattern, replacement]) => left.replace(pattern, replacement), text);
}

/**
 * Removes from an object what looks like a secret, by the name of a field or environment variable or by its form. Also cuts
 * deep nesting, so that no object of a tenant keeps other objects out of a bundle.
 */
export function redactObject(value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return redactText(value);
  if (typeof value !== 'object' || value === null) return value;
  if (depth === maxJsonDepth) return removed;
  if (Array.isArray(value)) return value.map((each) => redactObject(each, depth + 1));
  const { name } = value as { name?: unknown };
  const isSecretEntry = typeof name === 'string' && secretName.test(name);
  return Object.fromEntries(
    Object.entries(value).map(([key, each]) => {
      const isText = typeof each === 'string' || typeof each === 'number';
      const isSecret = isText && (secretName.test(key) || (isSecretEntry && key === 'value'));
      return [key, isSecret ? removed : redactObject(each, depth + 1)];
    }),
  );
}
