import type { Container, PodSandbox } from '../../nri/index.ts';
import type { Store, StoredClaim } from '../driver/index.ts';
import type { ClaimIdentity } from '../metadata/index.ts';
import { SandboxError } from './errors.ts';
import { isServed } from './place.ts';

export interface ContainerGuardOptions {
  store: Store;
  /** Whether a path on the host could be a metadata file, of whatever claim. */
  isFilePlace: (path: string) => boolean;
  /** Whether it is a metadata file of a claim. */
  isFileOf: (claim: ClaimIdentity, path: string) => boolean;
  /** Whether a file is there. */
  exists: (path: string) => boolean;
  /** Why the sandbox is not served, as far as that is known. */
  reasonOf: (sandboxId: string) => string | undefined;
  /** Called when a container is refused because its claim is prepared for another pod: it may have passed to this one. */
  onOtherPod: () => void;
}

/**
 * Keeps a container from being made that would mount metadata of a claim whose VFs are not in its sandbox: the file of
 * an earlier sandbox of the pod, or one that is not there yet. The runtime would refuse the latter by itself, in words
 * that tell nobody why.
 */
export class ContainerGuard {
  readonly #options: ContainerGuardOptions;

  constructor(options: ContainerGuardOptions) {
    this.#options = options;
  }

  /**
   * Containers without metadata cost no look at the store, and are made even if that cannot be read.
   * @throws SandboxError `not-served` with the reason; DriverError `store-unusable`
   */
  check(pod: PodSandbox, container: Container): void {
    const { store, isFilePlace, isFileOf, exists, reasonOf, onOtherPod } = this.#options;
    const sources = container.mounts.map(({ source }) => source).filter(isFilePlace);
    if (sources.length === 0) return;
    const filesOf = ({ identity }: StoredClaim) => sources.filter((source) => isFileOf(identity, source));
    const isOpen = (claim: StoredClaim) => claim.devices.some((device) => !isServed(device, pod));
    // Not only claims of this pod: the kubelet prepares a claim once, and makes no call for a pod that it is reserved for later.
    const open = store.claims().find((claim) => {
      const files = filesOf(claim);
      return files.length > 0 && (isOpen(claim) || !files.every(exists));
    });
    if (open === undefined) return;
    const { namespace, name } = open.identity;
    const isOurs = open.podUids.includes(pod.uid);
    if (!isOurs) onOtherPod();
    const missing = isOpen(open) ? 'its devices are not in this sandbox yet' : 'it is not written yet';
    const reason = isOurs
      ? (reasonOf(pod.id) ?? missing)
      : 'its devices are prepared for another pod, and cannot be in two';
    throw new SandboxError(
      'not-served',
      `container ${container.name} cannot have the metadata of claim ${namespace}/${name}: ${reason}`,
      { claim: `${namespace}/${name}`, retriable: true },
    );
  }
}
