export type MethodCall<T> = {
  [Name in keyof T]-?: NonNullable<T[Name]> extends (...args: infer Args) => infer Result
    ? { readonly name: Name; readonly args: Args /** Makes the call. */; readonly next: () => Result }
    : never;
}[keyof T];

/**
 * Copies an object so that an interceptor gets every call of a method, including methods that its type does not declare or that
 * its class's prototype holds.
 * @param around makes the call by `next`, and returns the result for the caller
 */
export function intercept<T extends object>(target: T, around: (call: MethodCall<T>) => unknown): T {
  const copy: Record<string, unknown> = {};
  for (let level: object = target; level !== Object.prototype; level = Object.getPrototypeOf(level)) {
    for (const name of Object.getOwnPropertyNames(level)) {
      const method = (target as Record<string, unknown>)[name];
      if (name in copy || name === 'constructor' || typeof method !== 'function') continue;
      copy[name] = (...args: unknown[]) =>
        around({ name, args, next: () => method.apply(target, args) } as MethodCall<T>);
    }
  }
  return copy as T;
}
