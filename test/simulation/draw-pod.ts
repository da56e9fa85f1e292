import type { Attach, ClaimPlan, PodPlan } from './plan.ts';
import type { Tape } from './tape.ts';

/** The pod's first claim has two VFs, mostly in requests of their own; in some pods both leave it. */
export function drawSeveral(tape: Tape, pod: PodPlan): PodPlan {
  const [first, ...others] = pod.claims as [ClaimPlan, ...ClaimPlan[]];
  if (first.isBond || first.isBroken || first.attach === 'observe') return pod;
  // What only one VF can have.
  const {
    interfaceName: _1,
    macAddress: _2,
    addresses: _3,
    routes: _4,
    rules: _5,
    neighbors: _6,
    addressPool: _7,
    ...config
  } = first.config as Record<string, unknown>;
  const isOneRequest = tape.chance(0.2, 'several');
  const leaves = tape.chance(0.5, 'several')
    ? { vfLeavesTo: tape.pick(['own', 'host'] as const, 'several'), leavesTwice: tape.chance(0.7, 'several') }
    : {};
  return { ...pod, ...leaves, claims: [{ ...first, vfs: 2, isOneRequest, config }, ...others] };
}

/** Members of a bond may have names, too. */
export function drawNames(tape: Tape, pod: PodPlan): PodPlan {
  const claims = pod.claims.map((claim) => {
    const isNamed = claim.isBond && claim.isOneRequest && tape.chance(0.5, 'several');
    return isNamed ? { ...claim, config: { ...claim.config, interfaceName: 'member%d' } } : claim;
  });
  return { ...pod, claims };
}

/** Pods are deleted by force, and their successors have claims of the same names: for a time the driver has both. */
export function drawReuse(tape: Tape, pods: PodPlan[]): PodPlan[] {
  const [first] = pods as [PodPlan, ...PodPlan[]];
  let earliestMs = 0;
  return (pods.length === 1 ? [first, { ...first }] : pods).map((pod) => {
    const arrivesAtMs = Math.max(earliestMs, pod.arrivesAtMs % 6_000);
    const deletedAfterMs = 200 + tape.below(6_000, 'name');
    earliestMs = arrivesAtMs + deletedAfterMs + tape.below(1_500, 'name');
    return { ...pod, arrivesAtMs, deletedAfterMs, isForced: tape.chance(0.7, 'name'), takesOver: false };
  });
}

/** Some claims ask for more of what only the PF can set. */
export function drawProperties(tape: Tape, pods: PodPlan[]): PodPlan[] {
  if (!tape.chance(0.15, 'vf')) return pods;
  return pods.map((pod) => ({
    ...pod,
    claims: pod.claims.map((claim, index) => {
      if (claim.attach === 'observe' || claim.isBroken) return claim;
      const vf = {
        ...(claim.config as { vf?: object }).vf,
        ...(tape.chance(0.5, 'vf') ? { trust: true } : {}),
        ...(tape.chance(0.5, 'vf') ? { spoofCheck: false } : {}),
        ...(tape.chance(0.3, 'vf') ? { linkState: 'enable' } : {}),
      };
      const { addresses } = claim.config as { addresses?: string[] };
      const hasRoute = claim.attach === 'netlink' && addresses !== undefined && tape.chance(0.5, 'vf');
      const settings = {
        routes: [{ destination: `198.51.${100 + index}.0/24`, gateway: '192.0.2.1', table: 100, metric: 7 }],
        rules: [{ priority: 100, source: '192.0.2.7/32', table: 100 }],
        neighbors: [{ address: '192.0.2.9', macAddress: '02:00:00:00:00:09' }],
        allMulticast: true,
        ethtool: { rings: { rx: 512 } },
      };
      return { ...claim, config: { ...claim.config, vf, ...(hasRoute && settings) } };
    }),
  }));
}

/** Some claims have the addresses of a pool in place of their own. */
export function drawPool(tape: Tape, pods: PodPlan[]): PodPlan[] {
  if (!tape.chance(0.2, 'pool')) return pods;
  return pods.map((pod) => ({
    ...pod,
    claims: pod.claims.map((claim) => {
      const { addresses, ...config } = claim.config as { addresses?: string[]; ipam?: object };
      const isPooled = claim.attach === 'netlink' && claim.vfs === 1 && config.ipam === undefined && !claim.isBond;
      return isPooled && tape.chance(0.9, 'pool') ? { ...claim, config: { ...config, addressPool: {} } } : claim;
    }),
  }));
}

/** On some nodes a router announces addresses, for which some claims wait. */
export function drawSlaac(tape: Tape, pods: PodPlan[], hasIpv6: boolean): PodPlan[] {
  if (!hasIpv6) return pods;
  return pods.map((pod) => ({
    ...pod,
    claims: pod.claims.map((claim) => {
      const slaac = claim.attach === 'netlink' && !claim.isBroken && tape.chance(0.5, 'router');
      return slaac
        ? { ...claim, config: { ...claim.config, slaac: { waitSeconds: tape.pick([5, 1], 'router') } } }
        : claim;
    }),
  }));
}

/** The interfaces of some pods are in one VRF, which has their routes. */
export function drawVrfs(tape: Tape, pods: PodPlan[]): PodPlan[] {
  if (!tape.chance(0.12, 'vrf')) return pods;
  return pods.map((pod) => ({
    ...pod,
    claims: pod.claims.map((claim) => {
      if (claim.attach !== 'netlink' || claim.isBroken || tape.chance(0.2, 'vrf')) return claim;
      const { rules: _rules, routes = [], ...config } = claim.config as { rules?: object; routes?: object[] };
      // Interfaces outside of the VRF may have table 100.
      const vrf = { name: 'red', table: 101 };
      const itsRoutes = routes.map((route) => ({ ...route, table: vrf.table }));
      return { ...claim, config: { ...config, ...(routes.length > 0 && { routes: itsRoutes }), vrf } };
    }),
  }));
}

/** Some pods get CPUs of their own, on either socket or on both. */
export function drawCpus(tape: Tape, pods: PodPlan[]): PodPlan[] {
  if (!tape.chance(0.15, 'numa')) return pods;
  return pods.map((pod) => ({
    ...pod,
    cpus: tape.pick([[], [0, 1], [2], [1, 2]], 'numa'),
    claims: pod.claims.map((claim) => {
      const numa = tape.pick([undefined, 'require', 'report'], 'numa');
      return numa === undefined ? claim : { ...claim, config: { ...claim.config, numa } };
    }),
  }));
}

export function drawMoreOfPod(tape: Tape, pod: PodPlan, index: number): PodPlan {
  const [first, ...others] = pod.claims as [ClaimPlan, ...ClaimPlan[]];
  const isObserver = tape.chance(0.3, 'more');
  const shares = index > 0 && !pod.takesOver && tape.chance(0.3, 'more');
  const isOnHost = tape.chance(0.2, 'more');
  const vfLeavesTo = tape.chance(0.3, 'more') ? tape.pick(['host', 'own'] as const, 'more') : undefined;
  const claims = isObserver ? pod.claims.map((claim) => ({ ...claim, adminAccess: true })) : pod.claims;
  const isBroken = others.length > 0 && !isObserver && tape.chance(0.6, 'more');
  if (!isBroken) return { ...pod, claims, shares, isOnHost, vfLeavesTo };
  const cni = { cniVersion: '1.0.0', name: 'net', type: 'sriov', isBroken };
  const broken: ClaimPlan = { ...first, attach: 'cni', ipam: false, isBroken, config: { attach: 'cni', cni } };
  return { ...pod, claims: [broken, ...others], shares, isOnHost, vfLeavesTo };
}

export function drawPod(tape: Tape, index: number): PodPlan {
  const arrivesAtMs = 1_000 + (index === 0 ? 0 : tape.below(15_000));
  const claimCount = tape.weighted([
    [4, 1],
    [1, 2],
  ]);
  const claims = Array.from({ length: claimCount }, (_, number) => drawClaim(tape, number));
  return {
    arrivesAtMs,
    claims,
    takesOver: index > 0 && tape.chance(0.2),
    shares: false,
    isOnHost: false,
    vfLeavesTo: undefined,
    restartPolicy: tape.chance(0.5) ? 'Never' : 'Always',
    deletedAfterMs: tape.chance(0.6) ? 200 + Math.floor(20_000 * tape.fraction() ** 2) : undefined,
    isForced: tape.chance(0.1),
    mutations: tape.weighted([
      [7, 0],
      [2, 1],
      [1, 3],
    ]),
    exits: tape.weighted([
      [8, 0],
      [2, 1],
    ]),
    cpus: [],
  };
}

/** The pod's first claim has a bond, of VFs of two PFs. */
export function drawBond(tape: Tape, pod: PodPlan): PodPlan {
  const [first, ...others] = pod.claims as [ClaimPlan, ...ClaimPlan[]];
  const ipam = tape.chance(0.2, 'bond');
  const config = {
    bond: { name: 'bond0' },
    ...(tape.chance(0.5, 'bond') ? { addresses: ['192.0.2.7/24'] } : {}),
    ...(tape.chance(0.3, 'bond') ? { mtu: 4000 } : {}),
    ...(tape.chance(0.3, 'bond') ? { vf: { vlan: 100 } } : {}),
    ...(ipam ? { ipam: { type: 'ipam' } } : {}),
  };
  const isOneRequest = tape.chance(0.3, 'bond');
  const { isBroken: _isBroken, ...usual } = first;
  return {
    ...pod,
    claims: [{ ...usual, attach: 'netlink', vfs: 2, isOneRequest, isBond: true, ipam, config }, ...others],
  };
}

function drawClaim(tape: Tape, number: number): ClaimPlan {
  const attach = tape.weighted<Attach>([
    [6, 'netlink'],
    [2, 'cni'],
    [2, 'user-space'],
    [1, 'observe'],
  ]);
  const vfs = tape.weighted([
    [5, 1],
    [1, 2],
  ]);
  const ipam = (attach === 'netlink' || attach === 'user-space') && tape.chance(0.4);
  const adminAccess = tape.chance(0.05);
  const isOneRequest = vfs === 1 || tape.chance(0.5);
  const config = drawConfig(tape, attach, vfs === 1 ? `fast${number}` : `fast${number}x%d`, ipam);
  if (!isOneRequest) delete config.interfaceName;
  return { attach, vfs, isOneRequest, ipam, adminAccess, config };
}

function drawConfig(tape: Tape, attach: Attach, interfaceName: string, ipam: boolean): { interfaceName?: string } {
  const isSingle = !interfaceName.endsWith('%d');
  const withName = tape.chance(0.4);
  const withMac = isSingle && tape.chance(0.3);
  const withAddress = isSingle && attach === 'netlink' && tape.chance(0.4);
  const withMtu = attach === 'netlink' && tape.chance(0.3);
  const withVlan = attach !== 'observe' && tape.chance(0.3);
  return {
    ...(attach === 'cni' ? { attach, cni: { cniVersion: '1.0.0', name: 'net', type: 'sriov', vlan: 40 } } : {}),
    ...(attach === 'observe' ? { attach } : {}),
    ...(attach === 'user-space' ? { driver: 'vfio-pci' } : {}),
    ...(ipam ? { ipam: { type: 'ipam' } } : {}),
    ...(withName && attach !== 'user-space' && attach !== 'observe' ? { interfaceName } : {}),
    ...(withMac && attach !== 'observe' ? { macAddress: '02:11:22:33:44:55' } : {}),
    ...(withAddress ? { addresses: ['192.0.2.7/24'] } : {}),
    ...(withMtu ? { mtu: 4000 } : {}),
    ...(withVlan ? { vf: { vlan: 100 } } : {}),
  };
}
