import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { refusal } from '../model/index.ts';

/** Checks that a claim is reserved for one pod, and for nothing else, such as a PodGroup. @throws DriverError `claim-shared` */
export function checkSinglePod(claim: AllocatedClaim): void {
  const { reservedFor = [] } = claim.object.status ?? {};
  const hint = 'give each pod a claim of its own: a ResourceClaimTemplate creates them';
  const other = reservedFor.find(({ resource }) => resource !== 'pods');
  if (other !== undefined) {
    const kind = other.apiGroup ? `${other.resource}.${other.apiGroup}` : other.resource;
    const problem = ` is reserved for ${kind} ${other.name}, but a VF can be only in a pod that its claim is reserved for`;
    throw refusal(claim, 'claim-shared', problem, { hint });
  }
  if (reservedFor.length <= 1) return;
  const names = reservedFor.map((pod) => pod.name).sort();
  const problem = ` is reserved for ${reservedFor.length} pods (${names.join(', ')}), but a VF can be in only one pod`;
  throw refusal(claim, 'claim-shared', problem, { hint });
}
