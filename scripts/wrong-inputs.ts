/** Something that a user gets wrong, and what the command answers: docs/reference.md has them, and a test runs each. */
export interface WrongInput {
  /** As a clause: `a kind with a slip`. */
  what: string;
  /** Arguments of `netdra`; `FILE` is a file with the text. */
  args: readonly string[];
  /** Content of FILE. */
  text?: string;
  /** Run as `kubectl netdra`. */
  isPlugin?: true;
  exitCode: 1 | 2;
  /** A part of its output, without the name of the file. */
  message: string;
}

const object = (apiVersion: string, kind: string, rest: string) =>
  `apiVersion: ${apiVersion}\nkind: ${kind}\nmetadata: { name: x }\n${rest}`;
const opaque = (fields: string, driver = 'sriov.netdra.dev') =>
  `config: [{ opaque: { driver: ${driver}, parameters: { apiVersion: netdra.dev/v1alpha1, kind: VFConfig, ${fields} } } }]`;
const classWith = (fields: string) => object('resource.k8s.io/v1', 'DeviceClass', `spec: { ${opaque(fields)} }`);
const claimWith = (fields: string, driver?: string) =>
  object(
    'resource.k8s.io/v1',
    'ResourceClaim',
    `spec:\n  devices:\n    requests: [{ name: vf, exactly: { deviceClassName: x } }]\n    ${opaque(fields, driver)}`,
  );
const policyWith = (rules: string) =>
  object('netdra.dev/v1alpha1', 'InventoryPolicy', rules).replace('metadata: { name: x }\n', '');

type Answer = [exitCode: 1 | 2, message: string];
const inFile = (what: string, text: string, [exitCode, message]: Answer, ...flags: string[]): WrongInput => {
  return { what, args: ['validate', ...flags, 'FILE'], text, exitCode, message };
};
const onLine = (what: string, args: string, [exitCode, message]: Answer): WrongInput => {
  return { what, args: args.split(' '), exitCode, message };
};

export const wrongInputs: readonly WrongInput[] = [
  inFile('a kind with a slip', object('resource.k8s.io/v1', 'DeviceClas', ''), [
    1,
    'kind: "DeviceClas" is not a kind of this API: use one of DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice',
  ]),
  inFile('a kind that netdra does not have', object('netdra.dev/v1alpha1', 'Policy', ''), [
    1,
    'kind: "Policy" is not a kind of this API: use one of InventoryPolicy, NetworkAddress, NetworkAddressLease, NetworkAddressPool, NetworkDevicePolicy, NodeNetworkDevices',
  ]),
  inFile(
    'a group with a slip',
    object('resource.k8.io/v1', 'ResourceClaim', ''),
    [1, 'apiVersion: "resource.k8.io/v1": is resource.k8s.io meant?'],
    '--strict',
  ),
  inFile(
    'a class in another group',
    object('apps/v1', 'DeviceClass', ''),
    [1, 'apiVersion: "apps/v1": is resource.k8s.io meant?'],
    '--strict',
  ),
  inFile(
    'a file without an object',
    'colour: red\n',
    [1, 'document: is not checked: it has no apiVersion and kind'],
    '--strict',
  ),
  inFile('a template without a claim', object('resource.k8s.io/v1', 'ResourceClaimTemplate', 'spec: { devices: {} }'), [
    1,
    'spec.spec: is missing: put the specification of the claim there',
  ]),
  inFile('an MTU that is no number', claimWith('mtu: big'), [1, 'mtu: a whole number is needed']),
  inFile('an MTU that is too small', claimWith('mtu: 12'), [1, 'mtu: must be at least 68']),
  inFile('an address without a prefix length', claimWith('addresses: [192.0.2.1]'), [
    1,
    'addresses.0: "192.0.2.1" is not an address with prefix length, such as 192.0.2.7/24',
  ]),
  inFile('an invalid address', claimWith('addresses: [192.0.2.300/24]'), [
    1,
    'addresses.0: "192.0.2.300/24" is not an address with prefix length, such as 192.0.2.7/24',
  ]),
  inFile('addresses that are not a list', claimWith('addresses: 192.0.2.1/24'), [1, 'addresses: a list is needed']),
  inFile(
    'a gateway of the other family',
    claimWith('routes: [{ destination: 192.0.2.0/24, gateway: "2001:db8::1" }]'),
    [1, 'routes.0.gateway: must be of the same IP version as the destination'],
  ),
  inFile('a route in a table of the kernel', claimWith('routes: [{ destination: 192.0.2.0/24, table: 255 }]'), [
    1,
    'routes.0.table: must be none of 253 to 255, the tables of the kernel',
  ]),
  inFile(
    'a source address that the interface does not have',
    classWith('addresses: [192.0.2.7/24], routes: [{ destination: 198.51.100.0/24, source: 192.0.2.8 }]'),
    [1, 'routes[0]: source is 192.0.2.8, but addresses has only 192.0.2.7'],
  ),
  inFile('a rule for all traffic', classWith('rules: [{ priority: 1, table: 100 }]'), [
    1,
    'rules.0: needs source or destination',
  ]),
  inFile('a route without a prefix length', claimWith('routes: [{ destination: 192.0.2.0 }]'), [
    1,
    'routes.0.destination: "192.0.2.0" is not a network with prefix length and no host bits, such as 0.0.0.0/0',
  ]),
  inFile('a field that is not there', claimWith('adresses: []'), [
    1,
    'parameters: there is no field "adresses" here; docs/vfconfig.md lists the fields',
  ]),
  inFile('a field that only classes have', claimWith('limits: {}'), [
    1,
    'parameters: there is no field "limits" here; docs/vfconfig.md lists the fields',
  ]),
  inFile('a name that no interface can have', claimWith('interfaceName: eth/0'), [
    1,
    'interfaceName: 1 to 15 bytes of ASCII, no blank, "/" or ":", "%" only in one "%d"; not "all" or "default"',
  ]),
  inFile('a name that is too long for an interface', claimWith('interfaceName: data-interface-0'), [
    1,
    'interfaceName: 1 to 15 bytes of ASCII, no blank, "/" or ":", "%" only in one "%d"; not "all" or "default"',
  ]),
  inFile('a VLAN above 4094', classWith('vf: { vlan: 5000 }'), [1, 'vf.vlan: must be at most 4094']),
  inFile('a mode that YAML reads as a number', classWith('deviceFiles: { mode: 0660 }'), [
    1,
    'deviceFiles.mode: must be octal digits in quotes, such as "0660"',
  ]),
  inFile('a MAC address that is too short', claimWith('macAddress: "02:00:00:00:01"'), [
    1,
    'macAddress: "02:00:00:00:01" is not six octets with colons, neither a multicast address nor zero',
  ]),
  inFile('a multicast MAC address', claimWith('macAddress: "01:00:5e:00:00:01"'), [
    1,
    'macAddress: "01:00:5e:00:00:01" is not six octets with colons, neither a multicast address nor zero',
  ]),
  inFile('a rate that is negative', classWith('vf: { maxTxRate: -1 }'), [1, 'vf.maxTxRate: must be at least 0']),
  inFile('a guarantee above the limit', classWith('vf: { minTxRate: 200, maxTxRate: 100 }'), [
    1,
    'vf.minTxRate: must not be above vf.maxTxRate',
  ]),
  inFile('a bond of VFs in user space', classWith('driver: vfio-pci, bond: { name: bond0, mode: active-backup }'), [
    1,
    'bond: bond0 cannot be combined with driver "vfio-pci"',
  ]),
  inFile(
    'sysctls of VFs in user space',
    classWith('driver: vfio-pci, sysctls: { net.ipv4.conf.IFNAME.arp_filter: "1" }'),
    [1, 'sysctls: needs an interface, and vfio-pci gives none'],
  ),
  inFile('an attach mode without its network', classWith('attach: cni'), [
    1,
    'attach: "cni" needs either cni or networkAttachmentDefinition, and has none',
  ]),
  inFile('an LACP rate without LACP', classWith('bond: { name: bond0, lacpRate: fast }'), [
    1,
    'bond.lacpRate: is for mode 802.3ad only',
  ]),
  inFile('a primary member without its modes', classWith('bond: { name: bond0, mode: broadcast, primary: left }'), [
    1,
    'bond.primary: is for mode active-backup, balance-tlb, balance-alb only',
  ]),
  inFile('a bond mode that is not there', classWith('bond: { name: bond0, mode: fastest }'), [
    1,
    'bond.mode: "balance-rr" or "active-backup" or "balance-xor" or "broadcast" or "802.3ad" or "balance-tlb" or "balance-alb" is needed',
  ]),
  inFile(
    'a VRF beside rules',
    classWith('vrf: { name: red, table: 10 }, rules: [{ priority: 7, source: 192.0.2.7/32, table: 100 }]'),
    [1, 'rules: rules[0] is 7: from 192.0.2.7/32 in table 100, and vrf red has table 10: use one of both'],
  ),
  inFile('IPv6 with an MTU below 1280', classWith('mtu: 1200, addresses: ["2001:db8::1/64"]'), [
    1,
    'addresses[0]: 2001:db8::1/64 is IPv6, which needs an mtu of at least 1280, and mtu is 1200',
  ]),
  inFile('a claim that differs from its class', `${classWith('mtu: 9000')}\n---\n${claimWith('mtu: 1500')}`, [
    1,
    'request vf: claim default/x sets mtu to 1500, but its DeviceClass sets it to 9000 (leave it out of the claim, or let an administrator list mtu in `overridable` of the DeviceClass)',
  ]),
  inFile('a closed field in a claim', `${classWith('mtu: 9000')}\n---\n${claimWith('vf: { vlan: 7 }')}`, [
    1,
    'request vf: claim default/x may not set vf.vlan (an administrator can set the field in the DeviceClass, list it in its field `overridable`, or open it to all claims with --open-claim-fields)',
  ]),
  inFile('a driver with a slip', claimWith('mtu: 1500', 'sriov.netdra.def'), [
    1,
    'the VFConfig is for driver "sriov.netdra.def", not sriov.netdra.dev (--driver-name): not checked',
  ]),
  inFile('a vendor by its name', policyWith('pfs: [{ select: { vendor: intel } }]'), [
    1,
    'pfs.0.select.vendor: four lower-case hexadecimal digits, such as 8086',
  ]),
  inFile('rules that are not a list', policyWith('pfs: all'), [1, 'pfs: a list is needed']),
  inFile('a number of VFs that is negative', policyWith('pfs: [{ select: {}, numVfs: -1 }]'), [
    1,
    'pfs.0.numVfs: must be at least 0',
  ]),
  inFile('a range of VFs the wrong way round', policyWith('pfs: [{ select: {}, vfs: 5-3 }]'), [
    1,
    'pfs.0.vfs: a range ends before it begins',
  ]),
  inFile('a PCI address without its domain', policyWith('nics: [{ select: { pciAddress: "3b:00.0" } }]'), [
    1,
    'nics.0.select.pciAddress: a PCI address with domain, such as 0000:3b:00.0',
  ]),
  inFile('a policy object for no node', object('netdra.dev/v1alpha1', 'NetworkDevicePolicy', 'spec: { pfs: [] }'), [
    1,
    'spec.nodeSelector: is missing',
  ]),
  inFile(
    'a policy in a ConfigMap with a fault',
    object(
      'v1',
      'ConfigMap',
      'data:\n  p.yaml: |\n    apiVersion: netdra.dev/v1alpha1\n    kind: InventoryPolicy\n    pfs: 3',
    ),
    [1, 'pfs: a list is needed'],
  ),
  inFile(
    'a ConfigMap whose policy has no kind',
    object('v1', 'ConfigMap', 'data: { p.yaml: "pfs: []" }'),
    [1, 'kind: "" is not a kind of this API: use one of InventoryPolicy'],
    '--strict',
  ),
  inFile('text that is not YAML', 'kind: [\n', [1, 'document: is not valid YAML: deficient indentation']),
  inFile('lists that are nested a thousand deep', `a: ${'['.repeat(1_000)}${']'.repeat(1_000)}\n`, [
    1,
    'document: is not valid YAML: nesting exceeded maxDepth (100)',
  ]),
  inFile('nothing to check', object('v1', 'Pod', ''), [
    1,
    'contains neither an inventory policy nor a VFConfig for sriov.netdra.dev',
  ]),
  inFile('an empty file', '', [1, 'contains neither an inventory policy nor a VFConfig for sriov.netdra.dev']),
  onLine('a file that is not there', 'validate missing.yaml', [
    1,
    `document: cannot be read: ENOENT: no such file or directory, open 'missing.yaml'`,
  ]),
  onLine('no file', 'validate', [2, `missing required argument 'file'`]),
  onLine('a command that is not there', 'inventry', [2, `unknown command 'inventry'`]),
  onLine('a flag with a slip', 'doctor --problem-only', [2, `unknown option '--problem-only'`]),
  onLine('a format that is not there', 'doctor -o xml', [
    2,
    `option '-o, --output <format>' argument 'xml' is invalid. Allowed choices are table, json, yaml.`,
  ]),
  onLine('a shell that is not there', 'completion tcsh', [
    2,
    `command-argument value 'tcsh' is invalid for argument 'shell'. Allowed choices are bash, zsh, fish.`,
  ]),
  onLine('a level that is not there', 'run --log-level loud', [
    2,
    `option '--log-level <level>' argument 'loud' is invalid. Allowed choices are trace, debug, info, warn, error, fatal, silent.`,
  ]),
  onLine('more simulated VFs than there can be', 'run --simulate 99x999', [
    2,
    `option '--simulate <vfs>' argument '99x999' is invalid. give VFS or PFSxVFS, with 1 to 8 PFs and 1 to 128 VFs for each, such as 8 or 2x4, optionally with the NUMA nodes of the PFs, as in 2x4@0:1`,
  ]),
  onLine('an address without a port', 'run --http-address 127.0.0.1', [
    2,
    `option '--http-address <address>' argument '127.0.0.1' is invalid. "127.0.0.1" is not an address to listen on`,
  ]),
  onLine('an interval that is no number', 'run --reconcile-interval often', [
    2,
    `option '--reconcile-interval <seconds>' argument 'often' is invalid. give seconds, from 0.1 to 86400`,
  ]),
  onLine('a relative path', 'run --cdi-dir cdi', [
    2,
    `option '--cdi-dir <path>' argument 'cdi' is invalid. an absolute path is needed`,
  ]),
  onLine('a layout that is not there', 'run --metadata-layouts v2', [
    2,
    `option '--metadata-layouts <names>' argument 'v2' is invalid. unknown: v2; known are v1, kep, attributes-json, downward-api`,
  ]),
  onLine('a metadata file that is not there', 'metadata ./missing.json', [
    1,
    './missing.json: not valid: cannot read metadata file ./missing.json: ENOENT: no such file or directory',
  ]),
  {
    what: 'a file without metadata',
    args: ['metadata', './FILE'],
    text: '{}',
    exitCode: 1,
    message: 'cannot be decoded: metadata object without apiVersion or kind',
  },
  onLine('a directory without a driver', 'claims --kubelet-plugins-dir /nonexistent', [
    1,
    'no driver has stored its state in /nonexistent/sriov.netdra.dev (run this on a node with the driver, with the same --driver-name and --state-dir as the driver)',
  ]),
  onLine('a log of no driver', 'log --kubelet-plugins-dir /nonexistent', [
    1,
    'no driver runs on this node (for the log of a driver that has ended: kubectl logs --previous)',
  ]),
  {
    what: 'a kubeconfig that is not there',
    args: ['status', '--kubeconfig', '/nonexistent'],
    isPlugin: true,
    exitCode: 1,
    message: `cannot load kubeconfig /nonexistent: ENOENT: no such file or directory, open '/nonexistent'`,
  },
];
