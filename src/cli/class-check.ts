import type { ClassConfig } from '../driver/api/class-config.ts';
import { findMissing, findMissingVlan } from '../driver/api/class-rules.ts';
import { parseCni } from '../driver/api/config.ts';
import { findContradictions } from '../driver/api/config-rules.ts';
import { type ClaimField, type ClosedField, fieldOf, mergeVfConfigs, type VfConfig } from '../driver/model/index.ts';
import type { AllocatedConfiguration } from '../framework/kube/index.ts';
import { explain } from '../lib/errors.ts';
import { CniError } from '../node/cni/index.ts';
import { selectedKind, selectedLinkType } from './selected-kind.ts';

/** One configuration of a class or a claim. */
export type ConfigEntry = Omit<AllocatedConfiguration, 'source'>;

/** A DeviceClass in a file. Its configurations are valid by themselves. */
export interface FileClass {
  /** Configurations of the class for the driver. */
  configs: ConfigEntry[];
  /** Whether the class has a configuration for the driver, or a selector that mentions it. */
  isOurs: boolean;
  /** CEL of the class's selectors; empty if no selector is known. */
  selectors: string;
  /** Extended resource name: any YAML value, unchecked. Pods that request it get claims without a configuration. */
  extendedResourceName?: unknown;
}

/**
 * Checks a class as the driver checks its claims at prepare, except for settings that a claim can change: `overridable` ones,
 * and those that the class does not set and the driver opens to claims.
 * @returns reasons for which the driver refuses all claims of the class, or all claims for its extended resource
 */
export function checkFileClass(file: FileClass, openClaimFields: readonly ClosedField[]): string[] {
  const settings = file.configs.map(({ opaque }) => opaque?.parameters as ClassConfig);
  const merged = settings.reduce<VfConfig>(mergeVfConfigs, {});
  const open = new Set<ClaimField>([
    ...settings.flatMap(({ overridable = [] }) => overridable),
    ...openClaimFields.filter((field) => fieldOf(merged, field) === undefined),
  ]);
  const haveVlans = selectedKind(file.selectors) === 'vf' && selectedLinkType(file.selectors) === 'ethernet';
  const missing = [...findMissing(merged), ...(haveVlans ? findMissingVlan(merged, settings) : [])];
  const ofClaims = [...missing.filter(isFinal(open)), ...finalProblems(merged, file, open)];
  const { extendedResourceName: name } = file;
  const ofResource = [...missing, ...finalProblems(merged, file, new Set()), ...keyProblems(merged)];
  const only = (typeof name === 'string' && name !== '' ? ofResource : []).filter(
    (problem) => !ofClaims.includes(problem),
  );
  return [...ofClaims, ...only.map((problem) => `claims for extended resource ${name} cannot set a field: ${problem}`)];
}

/** Finds problems that a claim cannot solve, since it can set only the open fields. */
function finalProblems(config: VfConfig, { selectors }: FileClass, open: ReadonlySet<ClaimField>): string[] {
  const isOfVfs = config.keepHostConfig === true && !open.has('keepHostConfig') && selectedKind(selectors) === 'vf';
  return [
    ...(open.has('driver') || open.has('attach') ? [] : findContradictions(config).filter(isFinal(open))),
    ...(isOfVfs ? ['keepHostConfig: is for whole NICs, and the class selects VFs'] : []),
    ...(['cni', 'ipam'] as const).filter((field) => !open.has(field)).flatMap((field) => cniProblems(config, field)),
  ];
}

/** Returns whether a problem mentions no open field. */
function isFinal(open: ReadonlySet<string>): (problem: string) => boolean {
  return (problem) => !problem.split(/[^\w.]+/).some((word) => open.has(word));
}

function cniProblems(config: VfConfig, field: 'cni' | 'ipam'): string[] {
  try {
    parseCni('the DeviceClass', { [field]: config[field] });
    return [];
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    return [`${field}: ${explain(error)}`];
  }
}

/** Finds the fault of an address pool without a key, which serves only claims from templates, for pods of a StatefulSet. */
function keyProblems({ addressPool }: VfConfig): string[] {
  if (addressPool === undefined || addressPool.key !== undefined) return [];
  return ['addressPool.key: is needed, since these claims are not from a template: leave extendedResourceName out'];
}
