import type { AllocatedClaim } from '../../framework/kubeletplugin/index.ts';
import type { NetworkDevice } from '../../node/inventory/index.ts';
import { invalidConfig, refusal, type StoredClaim, type StoredDevice, type VfConfig } from '../model/index.ts';

/** Rates in Mbit/s. */
interface Rates {
  minTxRate?: number;
  maxTxRate?: number;
}

const rateFields = ['minTxRate', 'maxTxRate'] as const;

/**
 * Returns the configuration with the rates that the inventory policy guarantees the device. Claims cannot change them: with
 * other rates, the guarantees of the port's other VFs would not hold. A simulated VF has no rates.
 * @throws DriverError `config-invalid` if class or claim request other rates, or more than the port has
 */
export function withGuarantee(claim: AllocatedClaim, offered: NetworkDevice, config: VfConfig): VfConfig {
  const { minTxRate, maxTxRate } = config.vf ?? {};
  const asked: Rates = { ...(minTxRate && { minTxRate }), ...(maxTxRate && { maxTxRate }) };
  checkSpeed(claim, offered, asked);
  if (offered.kind !== 'vf' || offered.bandwidth === undefined) return config;
  const { guaranteedMbps, burst = false } = offered.bandwidth;
  const rates: Rates = burst ? { ...asked, minTxRate: guaranteedMbps } : { maxTxRate: guaranteedMbps };
  const problems = rateFields.flatMap((field) => {
    const value = asked[field];
    if (value === undefined || value === rates[field]) return [];
    return [`vf.${field}: ${value} Mbit/s are requested, but the inventory policy guarantees ${guaranteedMbps}`];
  });
  if (burst && maxTxRate && maxTxRate < guaranteedMbps)
    problems.push(
      `vf.maxTxRate: ${maxTxRate} Mbit/s are less than the ${guaranteedMbps} that the inventory policy guarantees`,
    );
  if (problems.length > 0) throw invalidConfig(claim, problems);
  return offered.simulated ? config : { ...config, vf: { ...config.vf, ...rates } };
}

/**
 * Checks rates against the port's speed, since kernel drivers refuse excessive rates without giving a reason. Skips ports
 * without a link, whose speed is unknown, and simulated VFs, which have no rates.
 */
function checkSpeed(claim: AllocatedClaim, { name, linkSpeedMbps = 0, simulated }: NetworkDevice, asked: Rates): void {
  if (linkSpeedMbps <= 0 || simulated) return;
  const problems = rateFields.flatMap((field) => {
    const value = asked[field] ?? 0;
    const limit = `the port of device ${name} has ${linkSpeedMbps}`;
    return value > linkSpeedMbps ? [`vf.${field}: ${value} Mbit/s are requested, but ${limit}`] : [];
  });
  if (problems.length > 0) throw invalidConfig(claim, problems);
}

/**
 * Checks that the guarantees of a port's VFs do not exceed its speed. The scheduler counts them, too, unless its counters are
 * off in the cluster or the policy has just changed.
 * @param others claims in the store
 * @throws DriverError `bandwidth-exceeded`
 */
export function checkGuarantees(
  claim: AllocatedClaim,
  devices: readonly StoredDevice[],
  others: () => readonly StoredClaim[],
): void {
  const guarantees = devices.flatMap(guaranteeOf);
  if (guarantees.length === 0) return;
  const taken = others()
    .filter(({ identity }) => identity.uid !== claim.identity.uid)
    .flatMap((each) => each.devices.flatMap(guaranteeOf));
  for (const { pfAddress, portMbps } of guarantees) {
    const sumOf = (list: typeof guarantees) =>
      list.filter((each) => each.pfAddress === pfAddress).reduce((sum, each) => sum + each.guaranteedMbps, 0);
    const [own, theirs] = [sumOf(guarantees), sumOf(taken)];
    if (own + theirs <= portMbps) continue;
    const problem = ` needs ${own} Mbit/s of the port of PF ${pfAddress}, but other claims have ${theirs} of its ${portMbps}`;
    const hint =
      'check that the feature gate DRAPartitionableDevices is on, so that the scheduler counts bandwidth; delete the pod, so that it is scheduled anew';
    throw refusal(claim, 'bandwidth-exceeded', problem, { retriable: true, hint });
  }
}

function guaranteeOf({ offered }: StoredDevice) {
  if (offered.kind !== 'vf' || offered.bandwidth === undefined) return [];
  return [{ pfAddress: offered.pfAddress, ...offered.bandwidth }];
}
