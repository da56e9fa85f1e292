const objectMembers = Object.getOwnPropertyNames(Object.prototype).length;
const arrayMembers = Object.getOwnPropertyNames(Array.prototype).length;

/** What an input has left on the prototypes that all objects share, which is taken off again. */
export function findPollution(): Error | undefined {
  for (const [shared, members] of [
    [Object.prototype, objectMembers],
    [Array.prototype, arrayMembers],
  ] as const) {
    const names = Object.getOwnPropertyNames(shared);
    if (names.length === members) continue;
    const added = names.slice(members);
    for (const name of added) delete (shared as unknown as Record<string, unknown>)[name];
    return new Error(`shared prototype got ${added.join(', ')}`);
  }
  return undefined;
}

export function textOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : `not an error: ${String(error)}`;
}

/** Errors of the same class from the same place are one finding. */
export function signatureOf(error: unknown): string {
  if (!(error instanceof Error)) return `thrown ${typeof error}`;
  const place = error.stack?.split('\n').find((line) => /\/(src|nri|test)\//.test(line)) ?? '';
  return `${error.constructor.name} ${error.name === 'OracleError' ? error.message : place.trim()}`;
}

/** An announced error without what is only quoted from the input. */
export function outcomeOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error;
  const text = error.message.replaceAll(/"(?:[^"\\]|\\.)*"/g, '""').replaceAll(/\d+/g, '0');
  return `${error.constructor.name} ${text.slice(0, 120)}`;
}
