import { isDeepStrictEqual } from 'node:util';
import type * as z from 'zod';
import type { ClassConfig, LabelSelector } from '../../driver/api/class-config.ts';
import type { networkDevicePolicySpec } from '../../driver/api/policy-object.ts';
import type { ConversionReport, InputObject } from './report.ts';

export type PfRule = NonNullable<z.infer<typeof networkDevicePolicySpec>['pfs']>[number];

/** A rule of a NetworkDevicePolicy, before rules are merged into policies. */
export interface RuleForNodes {
  of: InputObject;
  nodeSelector: LabelSelector;
  /** Order of the rule: lower numbers come first. Rules with equal numbers keep their order. */
  priority: number;
  rule: PfRule;
  /** Field of the original that only the class applies, since a policy has no equivalent. */
  narrowedBy?: string | undefined;
}

/** Settings of a class for the VFs of a resource. Several objects can contribute to them. */
export type ResourceConfig = Pick<ClassConfig, 'driver' | 'rdma' | 'vhost' | 'mtu'>;

/** Devices that pods request by one resource name. */
export interface Resource {
  /** Resource name: `openshift.io/dpdk`. */
  name: string;
  of: InputObject;
  config: ResourceConfig;
  /** CEL expressions that devices must satisfy in addition to having the resource name. */
  terms: string[];
}

/** A network to which pods are attached through a VF of a resource. */
export interface Network {
  of: InputObject;
  name: string;
  namespace: string;
  resourceName: string;
  config: Omit<ClassConfig, 'limits'>;
}

/** An object that is written unchanged. */
export interface OutputObject {
  of: InputObject;
  value: Record<string, unknown>;
}

/** Intermediate form of the input: rules and resources for devices, networks, and finished objects. */
export class Estate {
  readonly report: ConversionReport;
  readonly rules: RuleForNodes[] = [];
  readonly resources = new Map<string, Resource>();
  readonly networks: Network[] = [];
  readonly objects: OutputObject[] = [];

  constructor(report: ConversionReport) {
    this.report = report;
  }

  /** Adds settings for the VFs of a resource; reports contradictions between objects. */
  addResource(of: InputObject, name: string, config: ResourceConfig, terms: readonly string[] = []): void {
    const known = this.resources.get(name);
    if (known === undefined) {
      this.resources.set(name, { name, of, config, terms: [...terms] });
      return;
    }
    const fields = ['driver', 'rdma', 'vhost', 'mtu'] as const;
    const other = fields.find((field) => known.config[field] !== config[field]);
    if (other === undefined && isDeepStrictEqual(known.terms, [...terms])) return;
    const values = other && `${JSON.stringify(known.config[other])} and ${JSON.stringify(config[other])}`;
    const what = other === undefined ? 'is selected in two ways' : `would have ${other} ${values}`;
    const why = `resource ${name} ${what}: here, and in ${known.of.kind} ${known.of.name}`;
    this.report.lost(of, [], why, 'give one of them a resource name of its own, or convert them one by one');
  }
}

/** Returns a VFConfig as an entry of `config` in a class or claim. */
export function opaqueOf(driver: string, config: object) {
  return { opaque: { driver, parameters: { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...config } } };
}
