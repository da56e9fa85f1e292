import { join } from 'node:path';
import { packagedProgram } from './image/package-programs.ts';

/** Ports of the guest, each a unix socket of that name in the folder of the run. */
export const ports = ['control', 'stdin', 'stdout', 'stderr', 'terminal'] as const;
export type Port = (typeof ports)[number];

/** QEMU's own socket in that folder, on which it takes commands: its machine protocol, QMP. */
export const monitor = 'monitor';

export interface MachineOptions {
  /** Folder with the unpacked packages of QEMU. */
  qemuRoot: string;
  kernel: string;
  firstRoot: string;
  /** File with the root file system. Read-only. */
  disk: string;
  /** File with the file system of `node_modules`. Read-only. */
  modulesDisk: string;
  /** Read-only. */
  repository: string;
  /** Folder of this run: sockets, kernel log, and the files that the guest reads and writes. A short path. */
  runDir: string;
  /** File with a third file system, writable by the guest: `/dev/vdc`. */
  dataDisk?: string;
  /** A TAP interface of the host, connected to the management interface. Absent: not connected. */
  tap?: string;
}

/** Memory of each NUMA node. Each node has a processor and a network card with its VFs. */
const memoryMib = [2048, 1024];
const hugepages = 192;

/**
 * All features that can be emulated, except those that make the kernel and libc copy memory with `rep movsb`, which the
 * emulator executes byte by byte.
 */
const processor = 'max,erms=off,fsrm=off';
/** Kernel features that are switched off because of what an emulator takes for them. */
const fasterKernel = [
  // Retpolines: a third of the time.
  'mitigations=off',
  // The kernel would choose the HPET as its clock, and each read of it traps into the emulator.
  'tsc=reliable clocksource=tsc',
  // The emulator executes `rep stosq` word by word.
  'clearcpuid=rep_good',
  // The kernel would clear each page a second time, and each address would be looked up in five tables instead of four.
  'init_on_alloc=0 no5lvl',
  // Timers at the periodic tick: the kernel would program the APIC for each of them, a fourth of the emulator's time.
  'highres=off nohz=off',
  'numa_balancing=disable',
  // The kernel would count ticks of its timer for a moment, and panic if the emulator had no processor meanwhile.
  'no_timer_check',
];

/** Cards with SR-IOV: Intel 82576, seven VFs each. */
const cards = [
  { node: 0, firstBus: 0x40, address: '52:54:00:00:00:10' },
  { node: 1, firstBus: 0x80, address: '52:54:00:00:00:20' },
];

/**
 * The command line of the machine: two NUMA nodes, an IOMMU, two network cards with SR-IOV that are connected to each
 * other, and one for management. It opens no ports; QEMU connects to the sockets in `runDir`.
 * @returns the program and its arguments
 */
export function machineCommand(options: MachineOptions): [string, ...string[]] {
  const { qemuRoot, runDir } = options;
  const inRun = (name: string) => escapeOption(join(runDir, name));
  return [
    ...packagedProgram(qemuRoot, 'usr/bin/qemu-system-x86_64'),
    '-L',
    join(qemuRoot, 'usr/share/qemu'),
    '-L',
    join(qemuRoot, 'usr/share/seabios'),
    '-nodefaults',
    '-no-user-config',
    '-no-reboot',
    '-display',
    'none',
    '-name',
    'netdra-vm',
    // Emulated processors: KVM does not work on many machines that are themselves virtual.
    '-machine',
    'q35,usb=off',
    '-accel',
    'tcg,thread=multi',
    '-cpu',
    processor,
    '-smp',
    '2,sockets=2',
    '-m',
    `${memoryMib.reduce((sum, each) => sum + each)}M`,
    ...memoryMib.flatMap((size, node) => [
      '-object',
      `memory-backend-ram,id=memory${node},size=${size}M`,
      '-numa',
      `node,nodeid=${node},cpus=${node},memdev=memory${node}`,
    ]),
    '-device',
    'intel-iommu,intremap=on,device-iotlb=on',
    '-kernel',
    options.kernel,
    '-initrd',
    options.firstRoot,
    '-append',
    `console=ttyS0 quiet panic=-1 intel_iommu=on iommu=pt hugepages=${hugepages} ${fasterKernel.join(' ')}`,
    '-chardev',
    `socket,id=${monitor},path=${inRun(monitor)}`,
    '-mon',
    `chardev=${monitor},mode=control`,
    '-serial',
    `file:${inRun('kernel.log')}`,
    '-device',
    'virtio-rng-pci',
    ...diskArguments('root', options.disk),
    ...diskArguments('modules', options.modulesDisk),
    ...(options.dataDisk === undefined ? [] : diskArguments('data', options.dataDisk, 'off')),
    ...shareArguments('run', runDir, ''),
    ...shareArguments('repository', options.repository, ',readonly=on,multidevs=remap'),
    // For a machine in a container of the guest.
    ...shareArguments('qemu', qemuRoot, ',readonly=on'),
    '-device',
    'virtio-serial-pci',
    ...ports.flatMap((port) => [
      '-chardev',
      `socket,id=${port},path=${inRun(port)}`,
      '-device',
      `${port === 'terminal' ? 'virtconsole' : 'virtserialport'},chardev=${port},name=${port}`,
    ]),
    '-netdev',
    managementNetwork(options.tap),
    '-device',
    'virtio-net-pci,netdev=management,romfile=',
    ...networkCardArguments(),
  ];
}

function managementNetwork(tap: string | undefined): string {
  if (tap === undefined) return 'user,id=management,restrict=on';
  return `tap,id=management,ifname=${tap},script=no,downscript=no`;
}

function diskArguments(id: string, path: string, readOnly: 'on' | 'off' = 'on'): string[] {
  const file = `file.driver=file,file.filename=${escapeOption(path)},file.read-only=${readOnly},file.locking=off`;
  return [
    '-blockdev',
    `driver=raw,node-name=${id},read-only=${readOnly},${file}`,
    '-device',
    `virtio-blk-pci,drive=${id},serial=${id}`,
  ];
}

function shareArguments(tag: string, path: string, more: string): string[] {
  return [
    '-fsdev',
    `local,id=${tag},path=${escapeOption(path)},security_model=none${more}`,
    '-device',
    `virtio-9p-pci,fsdev=${tag},mount_tag=${tag}`,
  ];
}

/** Each card is below its own PCIe root complex, which tells the guest the card's NUMA node. */
function networkCardArguments(): string[] {
  return cards.flatMap(({ node, firstBus, address }) => [
    '-netdev',
    `hubport,id=network${node},hubid=0`,
    '-device',
    `pxb-pcie,id=complex${node},bus=pcie.0,bus_nr=${firstBus},numa_node=${node}`,
    '-device',
    `pcie-root-port,id=port${node},bus=complex${node},chassis=${node + 1}`,
    '-device',
    `igb,bus=port${node},netdev=network${node},mac=${address},romfile=`,
  ]);
}

/** A comma in a value is written twice. */
function escapeOption(value: string): string {
  return value.replaceAll(',', ',,');
}

/** What makes QEMU do what the guest asks for on its port `control`: `cable 0 off`, for a card, pulls its cable. */
export function toMonitor(line: string): object | undefined {
  const [, card, state] = /^cable (\d+) (on|off)$/.exec(line) ?? [];
  if (card === undefined) return undefined;
  return { execute: 'set_link', arguments: { name: `network${card}`, up: state === 'on' } };
}
