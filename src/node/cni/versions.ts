/**
 * Supported versions of the CNI specification, oldest first. All have chains of plugins and the same form of results; before
 * 1.0, each address also states its IP version.
 */
export const cniVersions = ['0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0'] as const;
export type CniVersion = (typeof cniVersions)[number];

export function isCniVersion(text: string): text is CniVersion {
  return cniVersions.some((version) => version === text);
}

/** Returns whether a version equals another one or is later. */
export function isAtLeast(version: CniVersion, other: CniVersion): boolean {
  return cniVersions.indexOf(version) >= cniVersions.indexOf(other);
}

/** Returns the latest supported version among these; `undefined` if none is supported. */
export function latestOf(versions: string[]): CniVersion | undefined {
  return cniVersions.findLast((version) => versions.includes(version));
}

/** Explains why a version is not supported, and lists the supported ones. */
export function describeUnknownVersion(version: unknown): string {
  const tooOld = typeof version === 'string' && /^0\.[12]\./.test(version) ? ' is too old' : ' is not known';
  return `${JSON.stringify(version)}${tooOld}: use one of ${cniVersions.join(', ')}`;
}
