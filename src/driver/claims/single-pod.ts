import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import { refusal } from '../model/index.ts';

/** Checks that a claim is reserved for one pod only. @throws DriverError `claim-shared` */
export function checkSinglePod(claim: AllocatedClaim): void {
  const pods = (claim.object.status?.reservedFor ?? []).filter(({ resource }) => resource === 'pods');
  if (pods.length <= 1) return;
  const names = pods.map((pod) => pod.name).sort();
  const problem = ` is reserved for ${pods.length} pods (${names.join(', ')}), but a VF can be in only one pod`;
  const hint = 'give each pod a claim of its own: a ResourceClaimTemplate creates them';
  throw refusal(claim, 'claim-shared', problem, { hint });
}
