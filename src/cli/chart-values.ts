import { bothOf, fieldsOf, listOf } from './multus/contract.ts';

/** A configuration of a DeviceClass in values of the chart. */
export interface ValuesClass {
  /** Name of the class; absent for a class that the chart itself defines, since the values have only its `vf`. */
  name?: string;
  /** Fields of a VFConfig, to which the chart adds `apiVersion` and `kind`. */
  config: Record<string, unknown>;
  /** CEL of the selectors in the values; empty if there are none. */
  selectors: string;
  /** Extended resource name: any YAML value, unchecked. */
  extendedResourceName?: unknown;
  /** Path of `config` in the values. */
  path: PropertyKey[];
}

/**
 * Returns the configurations of DeviceClasses in values of the chart: of the classes in `deviceClasses.more`, and `vf` of the
 * chart's own classes.
 */
export function classesInValues({ deviceClasses }: Record<string, unknown>): ValuesClass[] {
  const { more, ...own } = fieldsOf(deviceClasses);
  const added = (Array.isArray(more) ? more : []).flatMap((each, index): ValuesClass[] => {
    const { name, vfConfig, selectors: expressions, extendedResourceName } = fieldsOf(each);
    const path = ['deviceClasses', 'more', index, 'vfConfig'];
    const selectors = bothOf(...listOf(expressions).map(String));
    return isSet(vfConfig)
      ? [{ name: String(name), config: fieldsOf(vfConfig), selectors, extendedResourceName, path }]
      : [];
  });
  const ofChart = ['kernel', 'dpdk'].flatMap((key): ValuesClass[] => {
    const { vf } = fieldsOf(own[key]);
    return isSet(vf) ? [{ config: { vf }, selectors: '', path: ['deviceClasses', key] }] : [];
  });
  return [...added, ...ofChart];
}

const isSet = (value: unknown) => value !== undefined && value !== null;
