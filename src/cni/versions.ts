/**
 * Versions of the CNI specification that we speak, oldest first. All have chains of plugins and the same shape of
 * results; before 1.0 each address also says which IP version it is.
 */
export const cniVersions = ['0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0'] as const;
export type CniVersion = (typeof cniVersions)[number];

export function isCniVersion(text: string): text is CniVersion {
  return cniVersions.some((version) => version === text);
}

/** Whether a version is the same as another or a later one. */
export function isAtLeast(version: CniVersion, other: CniVersion): boolean {
  return cniVersions.indexOf(version) >= cniVersions.indexOf(other);
}

/** The latest of those that we speak. */
export function latestOf(versions: string[]): CniVersion | undefined {
  return cniVersions.findLast((version) => versions.includes(version));
}

/** Why a version is not one of ours, and which are. */
export function describeUnknownVersion(version: unknown): string {
  const tooOld = typeof version === 'string' && /^0\.[12]\./.test(version) ? ' is too old' : ' is not known';
  return `${JSON.stringify(version)}${tooOld}: use one of ${cniVersions.join(', ')}`;
}
