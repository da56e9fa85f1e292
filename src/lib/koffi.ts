/**
 * Module that calls functions of the C library. Loaded on first use: a driver that never locks a file needs no native package.
 */
export type Koffi = typeof import('koffi')['default'];

let loading: Promise<Koffi> | undefined;

export function loadKoffi(): Promise<Koffi> {
  loading ??= import('koffi').then((module) => module.default);
  return loading;
}
