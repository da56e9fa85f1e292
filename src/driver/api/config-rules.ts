import type { VfConfig } from '../state/index.ts';

/** Fields that netdra applies only if it moves the VF itself. */
const netlinkOnly = ['ipam', 'interfaceName', 'mtu', 'addresses', 'routes', 'sysctls'] as const;
/** Fields that need an interface that netdra sets up. */
const interfaceOnly = ['routes', 'sysctls', 'rdma'] as const;

/**
 * Finds combinations that are not allowed, although each field by itself is valid.
 * @returns problems as `field: what is needed`
 */
export function findContradictions(config: VfConfig): string[] {
  return [...attachProblems(config), ...driverProblems(config), ...bondProblems(config), ...propertyProblems(config)];
}

/** Finds what a VF without an interface cannot have. `driver` is the VF's, no matter what has bound it. */
export function findUserSpaceProblems(config: VfConfig, driver: string): string[] {
  const { attach = 'netlink' } = config;
  const problems = asked(config, interfaceOnly).map(
    (field) => `${field}: needs an interface, and ${driver} gives none`,
  );
  if (config.bond !== undefined) problems.push(`bond: ${config.bond.name} cannot be with driver "${driver}"`);
  if (attach !== 'netlink') problems.push(`attach: with ${driver} there is no interface that ${attach} could attach`);
  return problems;
}

function attachProblems(config: VfConfig): string[] {
  const { attach = 'netlink', cni, networkAttachmentDefinition } = config;
  const sources = [cni, networkAttachmentDefinition].filter((source) => source !== undefined).length;
  const problems: string[] = [];
  if (attach === 'cni' && sources !== 1) {
    problems.push(
      `attach: "cni" needs either cni or networkAttachmentDefinition, and has ${sources === 0 ? 'none' : 'both'}`,
    );
  }
  if (attach !== 'cni' && sources > 0) {
    const field = cni === undefined ? 'networkAttachmentDefinition' : 'cni';
    problems.push(`${field}: needs attach: cni, and attach is "${attach}"`);
  }
  if (attach === 'netlink') return problems;
  // CNI plugins get the interface name.
  const foreign = netlinkOnly.filter((field) => !(attach === 'cni' && field === 'interfaceName'));
  return [...problems, ...asked(config, foreign).map((field) => `${field}: does not go with attach "${attach}"`)];
}

function driverProblems(config: VfConfig): string[] {
  const { driver } = config;
  return driver === undefined || driver === 'kernel' ? [] : findUserSpaceProblems(config, driver);
}

function bondProblems({ bond, attach = 'netlink' }: VfConfig): string[] {
  return bond === undefined || attach === 'netlink' ? [] : [`bond: ${bond.name} cannot be with attach "${attach}"`];
}

function propertyProblems({ vf = {} }: VfConfig): string[] {
  const { vlan = 0, qos = 0, vlanProto, minTxRate = 0, maxTxRate = 0 } = vf;
  const problems: string[] = [];
  if (vlan === 0 && qos !== 0) problems.push('vf.qos: needs vf.vlan from 1 to 4094');
  if (vlan === 0 && vlanProto !== undefined) problems.push('vf.vlanProto: needs vf.vlan from 1 to 4094');
  if (maxTxRate !== 0 && minTxRate > maxTxRate) problems.push('vf.minTxRate: must not be above vf.maxTxRate');
  return problems;
}

/** The fields that ask for something. `false` and empty lists do not, so that a claim can undo what its class asks. */
function asked<Field extends keyof VfConfig>(config: VfConfig, fields: readonly Field[]): Field[] {
  return fields.filter((field) => {
    const value = config[field];
    return Array.isArray(value) ? value.length > 0 : value !== undefined && value !== false;
  });
}
