import { isDeepStrictEqual } from 'node:util';
import { isKubeError, type ResourceApi } from '../kube/index.ts';
import type { AllocatedClaim } from '../kubeletplugin/index.ts';
import { classOf } from './class-rules.ts';
import { entriesFor } from './config.ts';
import { DriverError } from './errors.ts';

/** The part of a resource.k8s.io/v1 DeviceClass that counts. */
interface DeviceClass {
  spec: { config?: { opaque?: { driver: string; parameters: unknown } }[] };
}

export interface AllocationCheckOptions {
  driver: string;
  resources: Pick<ResourceApi, 'request'>;
}

/**
 * Compares the configuration in an allocation with where it comes from: that of the class with the DeviceClass as it is
 * now, and that of the claim with its specification. Whoever can write the status of claims could put anything there, and
 * what a class says decides what runs as root. No cache: it happens once for each claim, which is read then, too.
 */
export class AllocationCheck {
  readonly #options: AllocationCheckOptions;
  /** Requests under way, by name: claims of one class often come together. */
  readonly #reading = new Map<string, Promise<DeviceClass>>();

  constructor(options: AllocationCheckOptions) {
    this.#options = options;
  }

  /** @throws DriverError `allocation-mismatch`, `class-unreadable` */
  async check(claim: AllocatedClaim): Promise<void> {
    const { driver } = this.#options;
    const requests = new Set(claim.results.filter((result) => result.driver === driver).map(({ request }) => request));
    for (const request of requests) {
      const className = classOf(claim, request);
      if (className === undefined) throw mismatch(claim, `has no request ${request} in its specification`);
      const { spec } = await this.#read(claim, className);
      const ofClass = (spec.config ?? []).flatMap(({ opaque }) =>
        opaque?.driver === driver ? [opaque.parameters] : [],
      );
      if (!isDeepStrictEqual(entriesFor(driver, claim, request, 'FromClass'), ofClass)) {
        throw mismatch(claim, `has a configuration of request ${request} that DeviceClass ${className} does not have`);
      }
      const written = (claim.object.spec.devices?.config ?? []).map((entry) => ({
        ...entry,
        source: 'FromClaim' as const,
      }));
      if (
        !isDeepStrictEqual(
          entriesFor(driver, claim, request, 'FromClaim'),
          entriesFor(driver, claim, request, 'FromClaim', written),
        )
      ) {
        throw mismatch(claim, `has a configuration of request ${request} that its specification does not have`);
      }
    }
  }

  async #read(claim: AllocatedClaim, name: string): Promise<DeviceClass> {
    const path = `deviceclasses/${encodeURIComponent(name)}`;
    let reading = this.#reading.get(name);
    if (reading === undefined) {
      reading = this.#options.resources.request<DeviceClass>({ method: 'GET', path });
      this.#reading.set(name, reading);
    }
    try {
      return await reading;
    } catch (cause) {
      const subject = subjectOf(claim);
      const isGone = isKubeError(cause, 'api-not-found');
      const message = `claim ${subject}: DeviceClass ${name} ${isGone ? 'does not exist any more' : 'cannot be read'}`;
      throw new DriverError('class-unreadable', message, {
        cause,
        claim: subject,
        retriable: true,
        hint: isGone
          ? 'create it again, or delete the pod and its claim'
          : 'the driver needs verb get for deviceclasses',
      });
    } finally {
      this.#reading.delete(name);
    }
  }
}

function mismatch(claim: AllocatedClaim, what: string): DriverError {
  const subject = subjectOf(claim);
  return new DriverError('allocation-mismatch', `the allocation of claim ${subject} ${what}`, {
    claim: subject,
    hint: 'if the class was changed since the claim was allocated, delete the pod and its claim; else find out who may write the status of claims',
  });
}

function subjectOf({ identity: { namespace, name } }: AllocatedClaim): string {
  return `${namespace}/${name}`;
}
