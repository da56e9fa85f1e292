import type { ResourceType } from './api-server-resources.ts';
import { badRequest } from './api-server-status.ts';
import { type KubeObject, valueAt } from './api-server-types.ts';

export type Selector = (object: KubeObject) => boolean;

const everything: Selector = () => true;

/**
 * `fieldSelector`: `a=b`, `a==b`, `a!=b`, joined by commas.
 * @throws ApiStatusError 400 for a field that the resource cannot be selected by
 */
export function parseFieldSelector(text: string | null, type: ResourceType): Selector {
  if (text === null || text === '') return everything;
  const known = ['metadata.name', ...(type.namespaced ? ['metadata.namespace'] : []), ...type.selectableFields];
  const terms = text.split(',').map((term): Selector => {
    const parts = /^([^=!]+)(!=|==?)(.*)$/.exec(term);
    if (parts === null) throw badRequest(`invalid selector: '${text}'; can't understand '${term}'`);
    const [, field = '', operator, wanted = ''] = parts;
    if (!known.includes(field)) throw badRequest(`field label not supported: ${field}`);
    return (object) => (String(valueAt(object, field) ?? '') === wanted) === (operator !== '!=');
  });
  return (object) => terms.every((matches) => matches(object));
}

/** `labelSelector`: equality, `in (…)`, `notin (…)`, `key` and `!key`, joined by commas. */
export function parseLabelSelector(text: string | null): Selector {
  if (text === null || text.trim() === '') return everything;
  const terms = text.split(/,(?![^(]*\))/).map((term) => parseLabelTerm(term.trim()));
  return (object) => terms.every((matches) => matches(object.metadata.labels ?? {}));
}

function parseLabelTerm(term: string): (labels: Record<string, string>) => boolean {
  const set = /^(\S+)\s+(in|notin)\s*\(([^)]*)\)$/.exec(term);
  if (set !== null) {
    const [, key = '', operator, list = ''] = set;
    const values = list.split(',').map((value) => value.trim());
    return (labels) => {
      const value = labels[key];
      return operator === 'in'
        ? value !== undefined && values.includes(value)
        : value === undefined || !values.includes(value);
    };
  }
  const equality = /^([^=!\s]+)\s*(!=|==?)\s*(\S*)$/.exec(term);
  if (equality !== null) {
    const [, key = '', operator, wanted] = equality;
    return (labels) => (labels[key] === wanted) === (operator !== '!=');
  }
  const presence = /^(!?)\s*([^=!\s(),]+)$/.exec(term);
  if (presence === null) throw badRequest(`unable to parse requirement: '${term}'`);
  const [, not, key = ''] = presence;
  return (labels) => key in labels === (not === '');
}
