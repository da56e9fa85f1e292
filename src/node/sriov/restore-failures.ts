import { NetdraError } from '../../lib/errors.ts';
import type { RestoreFailure } from '../netlink/index.ts';
import { SriovError } from './errors.ts';

/** A property that could not be restored, as a path in `VfSnapshot`, with the error. */
export interface PropertyFailure {
  property: string;
  error: unknown;
}

export function toFailures(property: string, error: unknown): PropertyFailure[] {
  const named = error instanceof SriovError ? error.properties : [];
  return named.length === 0 ? [{ property, error }] : named.map((each) => ({ property: `${property}.${each}`, error }));
}

export function linkFailures(failures: RestoreFailure[]): PropertyFailure[] {
  return failures.map(({ property, error }) => ({
    property: property === 'link' ? 'link' : `link.${property}`,
    error,
  }));
}

export function incomplete(pciAddress: string, failures: PropertyFailure[]): SriovError {
  const properties = [...new Set(failures.map(({ property }) => property))];
  const errors = [...new Set(failures.map(({ error }) => error))];
  const text = (error: unknown) => (error instanceof Error ? error.message : String(error));
  const cause = errors.length === 1 ? errors[0] : new AggregateError(errors, errors.map(text).join('; '));
  return new SriovError('restore-incomplete', `${pciAddress} could not be restored: ${properties.join(', ')}`, {
    cause,
    device: pciAddress,
    properties,
    retriable: true,
    hint:
      (cause instanceof NetdraError ? cause.hint : undefined) ??
      'remove the causes that the message names; the next attempt restores the rest',
  });
}
