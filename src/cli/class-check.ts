import type { ClassConfig } from '../driver/api/class-config.ts';
import { findMissing } from '../driver/api/class-rules.ts';
import { findContradictions } from '../driver/api/config-rules.ts';
import { type ClaimField, type ClosedField, fieldOf, mergeVfConfigs, type VfConfig } from '../driver/model/index.ts';
import type { AllocatedConfiguration } from '../framework/kube/index.ts';

/** One configuration of a class or a claim. */
export type ConfigEntry = Omit<AllocatedConfiguration, 'source'>;

/** A DeviceClass of a file, whose configurations are valid by themselves. */
export interface FileClass {
  /** The driver's configurations. */
  configs: ConfigEntry[];
  /** Whether the class has a configuration for the driver, or a selector that mentions it. */
  isOurs: boolean;
}

export interface ClassFindings {
  /** Reasons for which the driver refuses each claim of the class. */
  faults: string[];
  /** Fields that each claim has to set. */
  needed: string[];
}

/**
 * Checks a class as the driver checks a claim of it at prepare, except for what the claim can change: settings are final
 * unless they are `overridable`, or the class does not set them and the driver opens them.
 */
export function checkFileClass(file: FileClass, openClaimFields: readonly ClosedField[]): ClassFindings {
  const settings = file.configs.map(({ opaque }) => opaque?.parameters as ClassConfig);
  const merged = settings.reduce<VfConfig>(mergeVfConfigs, {});
  const open = new Set<ClaimField>([
    ...settings.flatMap(({ overridable = [] }) => overridable),
    ...openClaimFields.filter((field) => fieldOf(merged, field) === undefined),
  ]);
  const missing = findMissing(merged, settings);
  const contradictions = open.has('driver') || open.has('attach') ? [] : findContradictions(merged);
  return {
    faults: [...contradictions, ...missing].filter((problem) => isFinal(problem, open)),
    needed: missing.filter((problem) => !isFinal(problem, open)).map((problem) => problem.split(':')[0] ?? ''),
  };
}

/** Returns whether a problem mentions no open field. */
function isFinal(problem: string, open: ReadonlySet<string>): boolean {
  return !problem.split(/[^\w.]+/).some((word) => open.has(word));
}
