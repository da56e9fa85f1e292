import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { KubernetesObject, V1Pod } from '@kubernetes/client-node';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { resolveVfConfig } from '../../../src/driver/api/config.ts';
import { testDriver } from '../../doubles/objects.ts';
import { buildTimeoutMs, checkedTool } from './checked-tool.ts';
import { ContainerRoot, runProgram, vf } from './container-root.ts';
import {
  allocateClaim,
  claimSpecsOf,
  containersOf,
  exampleFiles,
  loadExample,
  podsOf,
  requestsOf,
} from './example-manifests.ts';

// Programs with sanitizers are slow on a machine with other work.
vi.setConfig({ testTimeout: 60_000 });

const kinds: Record<string, string> = {
  DeviceClass: 'resource.k8s.io/v1',
  Pod: 'v1',
  ResourceClaim: 'resource.k8s.io/v1',
  ResourceClaimTemplate: 'resource.k8s.io/v1',
  VirtualMachineInstance: 'kubevirt.io/v1',
};

/** What a claim asks for, as our driver understands it. */
function resolve(name: string, spec: Parameters<typeof allocateClaim>[1], request: string) {
  const object = allocateClaim(
    name,
    spec,
    requestsOf(spec).map((_request, index) => `dev-${index}`),
  );
  const { namespace, uid } = object.metadata;
  const claim = { identity: { namespace, name, uid }, podClaimName: undefined, results: [], podUids: [], object };
  return resolveVfConfig(testDriver, claim, request);
}

/** A pod and what it needs of its example; KubeVirt makes a pod of a VMI, with the same claims. */
function consumers(objects: KubernetesObject[]): V1Pod[] {
  return [...podsOf(objects), ...(objects.filter(({ kind }) => kind === 'VirtualMachineInstance') as V1Pod[])];
}

it('has the examples that the documentation promises', () => {
  expect(exampleFiles.sort()).toEqual([
    'device-classes.yaml',
    'dpdk-testpmd.yaml',
    'kernel-mode.yaml',
    'kubevirt-vmi.yaml',
    'multi-nic.yaml',
  ]);
});

describe.each(exampleFiles)('%s', (file) => {
  const objects = loadExample(file);

  it('has objects of known versions', () => {
    for (const { apiVersion, kind = '' } of objects)
      expect({ kind, apiVersion }).toEqual({ kind, apiVersion: kinds[kind] });
  });

  it('asks for what the driver understands, and a claim for nothing that only a class may', () => {
    for (const object of consumers(objects)) {
      const specs = claimSpecsOf(objects, object);
      expect(specs.size).toBeGreaterThan(0);
      for (const [name, spec] of specs) {
        for (const request of requestsOf(spec)) {
          const config = resolve(name, spec, request.name);
          const isDpdk = request.exactly?.deviceClassName === 'netdra-dpdk';
          expect(config.driver).toBe(isDpdk ? 'vfio-pci' : undefined);
        }
        const used = (spec.devices?.constraints ?? []).flatMap(({ requests }) => requests ?? []);
        expect(requestsOf(spec).map(({ name }) => name)).toEqual(expect.arrayContaining(used));
      }
    }
  });

  it('refers to what it has', () => {
    for (const pod of podsOf(objects)) {
      const specs = claimSpecsOf(objects, pod);
      const volumes = pod.spec?.volumes?.map(({ name }) => name) ?? [];
      for (const container of containersOf(pod)) {
        for (const { name } of container.volumeMounts ?? []) expect(volumes).toContain(name);
        for (const { name, request } of container.resources?.claims ?? []) {
          const requests = requestsOf(specs.get(name) ?? {}).map((each) => each.name);
          expect(requests.length, `claim ${name}`).toBeGreaterThan(0);
          if (request !== undefined) expect(requests).toContain(request);
        }
      }
    }
  });
});

describe('the commands of the examples', () => {
  let tool: string;
  beforeAll(() => {
    ({ tool } = checkedTool());
  }, buildTimeoutMs);

  /** Programs of the images that are not here: they say how they were called. */
  const programs = ['dpdk-testpmd', 'sleep'];

  /** Prepares a container's requests as they would be, and runs its command with the tool's paths in a root. */
  async function start(file: string, name: string) {
    using root = new ContainerRoot();
    const objects = loadExample(file);
    const [pod] = podsOf(objects);
    const container = containersOf(pod!).find((each) => each.name === name);
    const specs = claimSpecsOf(objects, pod!);
    let index = 0;
    for (const { name: claim, request: wanted } of container?.resources?.claims ?? []) {
      for (const { name: request } of requestsOf(specs.get(claim) ?? {})) {
        if (wanted !== undefined && wanted !== request) continue;
        const { driver = 'igbvf' } = resolve(claim, specs.get(claim)!, request);
        await root.prepare({ claim: `pod-${claim}-x`, podClaimName: claim, request, devices: [vf(++index, driver)] });
      }
    }
    const binDir = join(root.path, 'bin');
    mkdirSync(binDir, { recursive: true });
    for (const program of programs) {
      writeFileSync(join(binDir, program), '#!/bin/sh\necho "$(basename "$0") $*"\n');
      chmodSync(join(binDir, program), 0o755);
    }
    const [program, ...args] = [...(container?.command ?? []), ...(container?.args ?? [])];
    expect(program).toBe('/netdra/netdra-metadata');
    return runProgram(tool, ['--root', root.path, ...args], { ...process.env, PATH: `${binDir}:${process.env.PATH}` });
  }

  it('start testpmd on the VF of the claim', async () => {
    expect(await start('dpdk-testpmd.yaml', 'testpmd')).toEqual({
      exitCode: 0,
      stderr: '',
      stdout: 'dpdk-testpmd -l 0,1 -a 0000:3b:02.1 -- --auto-start --stats-period=10\n',
    });
  });

  it('give each container of the gateway its own VFs', async () => {
    const forwarder = await start('multi-nic.yaml', 'forwarder');
    expect(forwarder.stdout).toBe(
      'dpdk-testpmd -l 0,1 -a 0000:3b:02.1 -a 0000:3b:02.2 -- --forward-mode=mac --auto-start --stats-period=10\n',
    );
    const control = await start('multi-nic.yaml', 'control');
    expect(control.stdout).toBe('control plane on net1, 192.0.2.1\nsleep inf\n');
  });
});
