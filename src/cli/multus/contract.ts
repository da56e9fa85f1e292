/**
 * What Multus expects of claims, their devices and their cluster, from multus-cni#1492 on: the facts that files and the API
 * server have in common.
 */

import { type DeviceKind, selectedKind } from '../selected-kind.ts';

export type MultusErrorCode =
  /** A class or claim with `attach: observe` selects devices without `k8s.cni.cncf.io/resourceName`: Multus fails their pods. */
  | 'multus-device-unnamed'
  /** No device has the resource name that a NetworkAttachmentDefinition asks for. */
  | 'multus-resource-unknown'
  /** network-resources-injector adds the device of a network to the pod's limits, although its claim has one. */
  | 'multus-injector'
  /** A pod names its claim itself. Multus sees only claims of templates and of extended resources. */
  | 'multus-claim-by-name'
  /** A pod has more networks of a resource name than its claims have devices. */
  | 'multus-too-few-devices';

/** Returns where a reader finds more about a finding. */
export function pageOf(code: MultusErrorCode): string {
  return `docs/errors.md#${code}`;
}

/** The devices of a network. Source: Kubernetes Network Custom Resource Definition De-facto Standard, v1.3, section 3.2.2. */
export const resourceAnnotation = 'k8s.v1.cni.cncf.io/resourceName';
/** The networks of a pod. Source: the same, section 4. */
const networksAnnotation = 'k8s.v1.cni.cncf.io/networks';

/** Parts of objects that matter to Multus; any value of YAML or of the API server. */
export type Fields = Readonly<Record<string, unknown>>;

export function fieldsOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {};
}

export function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function annotationOf({ metadata }: Fields, name: string): string | undefined {
  const value = fieldsOf(fieldsOf(metadata).annotations)[name];
  return typeof value === 'string' ? value : undefined;
}

/** Returns `namespace/name`. */
export function keyOf({ metadata }: Fields): string {
  const { namespace = 'default', name } = fieldsOf(metadata);
  return `${namespace}/${name}`;
}

/** Returns the resource name of a NetworkAttachmentDefinition; `undefined`: it has no device. */
export function resourceOf(definition: Fields): string | undefined {
  return annotationOf(definition, resourceAnnotation);
}

/** Returns the networks of a pod as `namespace/name`, in their order. Those that cannot be read are left out. */
export function networksOf(pod: Fields, namespace: string): string[] {
  const text = annotationOf(pod, networksAnnotation)?.trim() ?? '';
  if (!text.startsWith('[')) {
    const names = text.split(',').map((each) => each.trim().replace(/@.*$/, ''));
    return names.filter(Boolean).map((each) => (each.includes('/') ? each : `${namespace}/${each}`));
  }
  try {
    return listOf(JSON.parse(text)).map((each) => {
      const { name, namespace: own = namespace } = fieldsOf(each);
      return `${own}/${name}`;
    });
  } catch {
    // The API server takes any text, and Multus reports this one.
    return [];
  }
}

/** Returns whether a MutatingWebhookConfiguration is that of network-resources-injector, whatever it is called. */
export function isInjector({ metadata, webhooks }: Fields): boolean {
  const names = listOf(webhooks).flatMap((each) => {
    const { name, clientConfig } = fieldsOf(each);
    return [name, fieldsOf(fieldsOf(clientConfig).service).name];
  });
  return [fieldsOf(metadata).name, ...names].some((each) => `${each}`.includes('network-resources-injector'));
}

/** Returns the CEL of `selectors`, as one expression. */
export function selectorsOf({ selectors }: Fields): string {
  return bothOf(...listOf(selectors).map((each) => `${fieldsOf(fieldsOf(each).cel).expression}`));
}

/** Returns CEL for devices that meet all of these expressions. */
export function bothOf(...expressions: string[]): string {
  return expressions
    .filter(Boolean)
    .map((each) => `(${each})`)
    .join(' && ');
}

/** A class that a request names, and the CEL of the request itself. */
export interface Alternative {
  className: string;
  selectors: string;
}

/** Returns the alternatives of a request: those of `firstAvailable`, or one. That of v1beta1 is the request itself. */
export function alternativesOf(request: Fields): Alternative[] {
  const { exactly = request, firstAvailable } = request;
  const all = firstAvailable === undefined ? [exactly] : listOf(firstAvailable);
  return all.map(fieldsOf).map((each) => ({ className: `${each.deviceClassName}`, selectors: selectorsOf(each) }));
}

/** Returns whether an entry of `config` leaves the attachment to another component, such as Multus. */
export function isObserved({ opaque }: Fields, driver: string): boolean {
  const { driver: own, parameters } = fieldsOf(opaque);
  return own === driver && fieldsOf(parameters).attach === 'observe';
}

/** Returns whether a CEL expression selects devices by their resource name. */
export function selectsByResource(expression: string): boolean {
  return /\bresourceName\b/.test(expression);
}

/**
 * Returns whether CEL selects devices without a resource name, as far as it is known: one that selects by another attribute
 * than their kind may leave them out.
 * @param kind that of these devices; `undefined`: unknown
 */
export function selectsUnnamed(expression: string, kind: DeviceKind | undefined): boolean {
  if (selectsByResource(expression) || /\]\.(?!kind\b)\w/.test(expression)) return false;
  const wanted = selectedKind(expression);
  return wanted === undefined || kind === undefined || wanted === kind;
}
