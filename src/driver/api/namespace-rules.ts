import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { refusal } from '../model/index.ts';
import type { ClassConfig, LabelSelector } from './class-config.ts';

/** Reader of namespaces' labels from the API server. */
export interface NamespaceReader {
  /** Returns the labels of a namespace. @throws KubeError `api-not-found`, `api-forbidden`, … */
  readLabels(namespace: string, signal: AbortSignal): Promise<Record<string, string>>;
}

/**
 * Checks that claims of this namespace may use the class. Reads the namespace's labels only if its name is not allowed
 * already.
 * @throws DriverError `namespace-refused`; `namespace-unreadable`, which is retriable
 */
export async function checkNamespace(
  claim: AllocatedClaim,
  ofClass: readonly ClassConfig[],
  reader: NamespaceReader,
  signal: AbortSignal,
): Promise<void> {
  const { namespace } = claim.identity;
  for (const { limits } of ofClass) {
    const { allowedNamespaces } = limits ?? {};
    if (allowedNamespaces === undefined) continue;
    const { names = [], selector } = allowedNamespaces;
    if (names.includes(namespace)) continue;
    if (selector !== undefined) {
      const labels = await reader.readLabels(namespace, signal).catch((cause: unknown) => {
        throw refusal(claim, 'namespace-unreadable', ': the labels of its namespace cannot be read', {
          cause,
          retriable: true,
          hint: 'the DeviceClass has limits.allowedNamespaces.selector, for which the driver needs verb get for namespaces',
        });
      });
      if (matches(labels, selector)) continue;
    }
    throw refusal(claim, 'namespace-refused', `: its DeviceClass does not allow claims of namespace ${namespace}`, {
      hint: 'use another class, or let an administrator add the namespace to limits.allowedNamespaces of the DeviceClass',
    });
  }
}

/** Returns whether labels match a selector; an empty one matches everything. Source: meta/v1 `LabelSelector`. */
export function matches(labels: Record<string, string>, selector: LabelSelector): boolean {
  const { matchLabels = {}, matchExpressions = [] } = selector;
  const has = (key: string) => Object.hasOwn(labels, key);
  return (
    Object.entries(matchLabels).every(([key, value]) => has(key) && labels[key] === value) &&
    matchExpressions.every(({ key, operator, values = [] }) => {
      if (operator === 'Exists') return has(key);
      if (operator === 'DoesNotExist') return !has(key);
      const isListed = has(key) && values.includes(labels[key] ?? '');
      return operator === 'In' ? isListed : !isListed;
    })
  );
}
