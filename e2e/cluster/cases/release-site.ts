import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'vitest';
import { driverNamespace, type InstalledDriver } from '../node/driver.ts';
import type { RealNode } from '../node/real-node.ts';

export const waitArguments = ['--wait', '--timeout', '2m'];

interface HolderOptions {
  /** Name of the claim; default: that of the pod. */
  claim?: string;
  /** The VFConfig of its request, without its version. */
  config?: object;
}

/** A node without the driver, and what is needed to install the chart and the image. */
export class ReleaseSite {
  readonly node: RealNode;
  readonly driver: InstalledDriver;

  constructor(node: RealNode, driver: InstalledDriver) {
    this.node = node;
    this.driver = driver;
  }

  /** Helm 3; Helm 4 runs the commands of the operators' pages. @throws CommandError */
  helm(...args: string[]): string {
    return this.driver.helm(args, 'helm-3');
  }

  /** Runs kubectl in the driver's namespace. @returns its output; on failure, the error text */
  kubectl(...args: string[]): string {
    return this.node.kubectl('--namespace', driverNamespace, ...args).trim();
  }

  /** @throws SyntaxError with kubectl's output if there is no such object */
  find<T>(kind: string, name: string): T {
    return JSON.parse(this.kubectl('get', kind, name, '--output', 'json')) as T;
  }

  /** @returns kubectl's output */
  apply(name: string, content: object): string {
    const path = join(this.node.dir, `${name}.json`);
    writeFileSync(path, JSON.stringify(content));
    return this.kubectl('apply', '--filename', path);
  }

  /** Creates a pod that keeps a VF by a claim of its own, both of this name. */
  hold(name: string, config?: object): void {
    this.apply(name, this.holder(name, config === undefined ? {} : { config }));
  }

  /** `hold`, and waits until the pod runs. */
  holdReady(name: string, config?: object): void {
    this.hold(name, config);
    expect(this.kubectl('wait', `pod/${name}`, '--for=condition=Ready', '--timeout=60s')).toContain('condition met');
  }

  /** A pod that keeps a VF and may change its addresses, with its claim. */
  holder(name: string, { claim = name, config }: HolderOptions = {}) {
    const { driver, classes, consumerImage: image } = this.driver.target;
    const requests = [{ name: 'vf', exactly: { deviceClassName: classes.kernel } }];
    const parameters = { apiVersion: 'netdra.dev/v1alpha1', kind: 'VFConfig', ...config };
    const devices = { requests, ...(config && { config: [{ opaque: { driver, parameters } }] }) };
    const container = {
      name: 'main',
      image,
      command: ['sleep', '3600'],
      resources: { claims: [{ name: 'nic' }] },
      securityContext: { capabilities: { add: ['NET_ADMIN'] } },
    };
    const spec = {
      resourceClaims: [{ name: 'nic', resourceClaimName: claim }],
      containers: [container],
      terminationGracePeriodSeconds: 1,
    };
    const items = [
      { apiVersion: 'resource.k8s.io/v1', kind: 'ResourceClaim', metadata: { name: claim }, spec: { devices } },
      { apiVersion: 'v1', kind: 'Pod', metadata: { name }, spec },
    ];
    return { apiVersion: 'v1', kind: 'List', items };
  }

  /** Removes pods that were made by `hold`, if they exist, and their claims. */
  release(...names: string[]): void {
    for (const kind of ['pod', 'resourceclaim'])
      this.kubectl('delete', kind, ...names, '--ignore-not-found', '--timeout=60s');
  }
}
