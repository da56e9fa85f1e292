import type { FieldError, FieldErrorReason } from './api-server-status.ts';
import { isJsonObject } from './api-server-types.ts';

const dnsLabel = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const dnsSubdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

export const isDnsLabel = (text: unknown): text is string =>
  typeof text === 'string' && text.length <= 63 && dnsLabel.test(text);
export const isDnsSubdomain = (text: unknown, maxLength = 253): text is string =>
  typeof text === 'string' && text.length <= maxLength && dnsSubdomain.test(text);

/** Collects what is wrong, so that one answer names all of it. */
export class FieldErrors {
  readonly list: FieldError[] = [];

  add(reason: FieldErrorReason, field: string, detail = '', value?: unknown): void {
    this.list.push({ reason, field, detail, ...(value === undefined ? {} : { value }) });
  }

  /** @returns whether there is a non-empty value */
  require(object: unknown, name: string, field: string): boolean {
    const value = isJsonObject(object) ? object[name] : undefined;
    const isMissing = value === undefined || value === null || value === '';
    if (isMissing) this.add('required', field === '' ? name : `${field}.${name}`);
    return !isMissing;
  }

  atMost(list: unknown, max: number, field: string): void {
    const count = Array.isArray(list) ? list.length : isJsonObject(list) ? Object.keys(list).length : 0;
    if (count > max) this.add('tooMany', field, `must have at most ${max} items`, count);
  }
}
