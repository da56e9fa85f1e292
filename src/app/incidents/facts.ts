import type { Container, PodSandbox } from '../../../nri/index.ts';
import type { StoredDevice } from '../../driver/state/index.ts';
import { isKubeError, KubeError } from '../../framework/kube/index.ts';
import type { AllocatedClaim } from '../../framework/kubeletplugin/plugin.ts';
import { defined } from '../../lib/defined.ts';
import { explain, NetdraError } from '../../lib/errors.ts';
import { NetlinkError } from '../../node/netlink/index.ts';
import type { RecordedClaim, RecordedContainer, RecordedDevice, RecordedError, RecordedSandbox } from './entry.ts';

// What is recorded of the arguments of calls: plain data, with references to what is not changed any more.

export function claimFacts({ identity, podUids, results, object }: AllocatedClaim, driver: string): RecordedClaim {
  const own = results.filter((result) => result.driver === driver);
  const config = object.status?.allocation?.devices?.config ?? [];
  return {
    ...{ ...identity, podUids },
    results: own.map(({ request, device, adminAccess }) => ({ request, device, ...defined({ adminAccess }) })),
    config: config.filter(({ opaque }) => opaque?.driver === driver),
  };
}

export function sandboxFacts({ id, uid, namespace, name, namespaces }: PodSandbox): RecordedSandbox {
  const netns = namespaces.find(({ type }) => type === 'network')?.path ?? '';
  return { id, podUid: uid, podNamespace: namespace, podName: name, netns };
}

export function containerFacts({ id, podSandboxId, name, state, cdiDevices, cpu }: Container): RecordedContainer {
  const { cpus, shares } = cpu;
  return { id, sandboxId: podSandboxId, name, state, cdiDevices: cdiDevices.length, cpus, shares };
}

export function deviceFacts({ name, pciAddress, pfAddress, before }: StoredDevice): RecordedDevice {
  return { name, pciAddress, ...defined({ pfAddress, before }) };
}

export function errorFacts(error: unknown): RecordedError {
  const { errno } = error instanceof NetlinkError ? error : {};
  const { httpStatus } = error instanceof KubeError ? error : {};
  const { code } = error instanceof NetdraError ? error : {};
  return { ...defined({ code, errno, httpStatus }), text: explain(error) };
}

/** Whether the world has refused nothing: the caller has given up, or has asked for what is not there. */
export function isOrdinary(error: unknown, args: readonly unknown[]): boolean {
  if (args.some((each) => (each as { signal?: AbortSignal } | undefined)?.signal?.aborted)) return true;
  if (args.some((each) => each instanceof AbortSignal && each.aborted)) return true;
  return isKubeError(error, 'api-not-found') || isKubeError(error, 'api-conflict');
}
