import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Container } from '../../../nri/index.ts';
import type { ClaimIdentity } from '../../../src/framework/metadata/index.ts';
import type { LinkChange } from '../../../src/node/netlink/index.ts';
import { type Directories, inHandlers, type Plant } from './plant.ts';

export function without({ ...change }: LinkChange, ...keys: (keyof LinkChange)[]): LinkChange {
  for (const key of keys) delete change[key];
  return change;
}

export function fileOf(claim: ClaimIdentity, { dataDir }: Directories, ...path: string[]): string {
  return join(dataDir, 'dra-device-metadata', `${claim.namespace}_${claim.name}`, ...path);
}

export function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

/** Changes what the runtime says of the CPUs of a new container. */
export function inContainers(change: (cpu: Container['cpu']) => Container['cpu']): Plant {
  return inHandlers((handlers) => ({
    async createContainer(pod, container, context) {
      await handlers.createContainer?.(pod, { ...container, cpu: change(container.cpu) }, context);
    },
  }));
}
