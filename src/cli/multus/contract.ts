/**
 * Expectations of Multus about claims, their devices and their cluster, from multus-cni#1492 on. This file has the facts that
 * both files and the API server contain.
 */

import { type DeviceKind, selectedKind } from '../selected-kind.ts';

export type MultusErrorCode =
  /**
   * A class or claim with `attach: observe` selects devices without `k8s.cni.cncf.io/resourceName`: Multus fails their pods.
   */
  | 'multus-device-unnamed'
  /** No device has the resource name that a NetworkAttachmentDefinition asks for. */
  | 'multus-resource-unknown'
  /**
   * network-resources-injector adds the device of a network to the limits of a pod whose claim already has a device for the
   * network.
   */
  | 'multus-injector'
  /** A pod refers to its claim by name. Multus sees only claims from templates and claims of extended resources. */
  | 'multus-claim-by-name'
  /** A pod has more networks of a resource name than its claims have devices. */
  | 'multus-too-few-devices';

/** Returns the page with more about a finding. */
export function pageOf(code: MultusErrorCode): string {
  return `docs/errors.md#${code}`;
}

/**
 * Annotation of a network with the resource name of its devices. Source: Kubernetes Network Custom Resource Definition De-facto
 * Standard, v1.3, section 3.2.2.
 */
export const resourceAnnotation = 'k8s.v1.cni.cncf.io/resourceName';
/** Annotation of a pod with its networks. Source: the same, section 4. */
const networksAnnotation = 'k8s.v1.cni.cncf.io/networks';

/** Fields of an object from YAML or the API server, unchecked. */
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

/** Returns `namespace/name` of an object. */
export function keyOf({ metadata }: Fields): string {
  const { namespace = 'default', name } = fieldsOf(metadata);
  return `${namespace}/${name}`;
}

/** Returns the resource name of a NetworkAttachmentDefinition; `undefined` if its pods get no device. */
export function resourceOf(definition: Fields): string | undefined {
  return annotationOf(definition, resourceAnnotation);
}

/** Returns the networks of a pod as `namespace/name`, in their order; none if the annotation cannot be read. */
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
    // The API server accepts any text, and Multus reports that it is invalid.
    return [];
  }
}

/**
 * Returns whether a MutatingWebhookConfiguration is that of network-resources-injector: one of its names contains this name.
 */
export function isInjector({ metadata, webhooks }: Fields): boolean {
  const names = listOf(webhooks).flatMap((each) => {
    const { name, clientConfig } = fieldsOf(each);
    return [name, fieldsOf(fieldsOf(clientConfig).service).name];
  });
  return [fieldsOf(metadata).name, ...names].some((each) => `${each}`.includes('network-resources-injector'));
}

/** Returns the CEL of all `selectors` as one expression. */
export function selectorsOf({ selectors }: Fields): string {
  return bothOf(...listOf(selectors).map((each) => `${fieldsOf(fieldsOf(each).cel).expression}`));
}

/** Returns CEL for devices that meet all of the expressions. */
export function bothOf(...expressions: string[]): string {
  return expressions
    .filter(Boolean)
    .map((each) => `(${each})`)
    .join(' && ');
}

/** An alternative of a request: the class that it names, and its own CEL. */
export interface Alternative {
  className: string;
  selectors: string;
}

/**
 * Returns the alternatives of a request: those of `firstAvailable`, or a single one. In v1beta1 the request itself is the
 * single one.
 */
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
 * Returns whether CEL selects devices without a resource name, as far as can be known. CEL that selects by an attribute other
 * than `kind` may leave these devices out.
 * @param kind kind of these devices; `undefined`: unknown
 */
export function selectsUnnamed(expression: string, kind: DeviceKind | undefined): boolean {
  if (selectsByResource(expression) || /\]\.(?!kind\b)\w/.test(expression)) return false;
  const wanted = selectedKind(expression);
  return wanted === undefined || kind === undefined || wanted === kind;
}
