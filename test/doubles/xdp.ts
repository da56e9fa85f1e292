import { closeSync } from 'node:fs';
import koffi from 'koffi';
import { type NetnsHandle, openInNetns, type XdpMode } from '../../src/node/netlink/index.ts';
import { KernelSocket } from '../../src/node/netlink/kernel-socket.ts';
import { encodeLink, encodeXdp, LinkAttribute } from '../../src/node/netlink/link.ts';
import { RequestSocket } from '../../src/node/netlink/socket.ts';

/** `NETLINK_ROUTE`. */
const routeProtocol = 0;
/** `bpf` of `asm/unistd_64.h`, `BPF_PROG_LOAD` and `BPF_PROG_TYPE_XDP` of Linux `bpf.h`, `RTM_SETLINK`. */
const [bpfCall, loadProgram, xdpProgram, setLink] = [321, 5, 6, 19];
/** `r0 = XDP_PASS; exit`. */
const instructions = Buffer.from('b700000002000000' + '9500000000000000', 'hex');

const loadAttempts = 10;

/** Attaches a program to a link that passes all packets. x86-64 only. */
export async function attachXdp(netns: NetnsHandle, index: number, mode: XdpMode = 'generic'): Promise<void> {
  const fd = load();
  using socket = new RequestSocket(openInNetns(netns, () => new KernelSocket(routeProtocol)));
  const payload = encodeLink(index, [{ type: LinkAttribute.xdp, value: encodeXdp(fd, mode) }]);
  await socket.request({ type: setLink, payload }, { operation: 'attach XDP to link', interfaceName: `#${index}` });
  closeSync(fd);
}

function load(): number {
  const syscall = koffi.load(null).func('long syscall(long number, int command, void *attributes, uint size)');
  const license = Buffer.from('GPL\0');
  // union bpf_attr: type, number of instructions, their address, address of the licence.
  const attributes = Buffer.alloc(48);
  attributes.writeUInt32LE(xdpProgram, 0);
  attributes.writeUInt32LE(instructions.length / 8, 4);
  attributes.writeBigUInt64LE(BigInt(koffi.address(instructions)), 8);
  attributes.writeBigUInt64LE(BigInt(koffi.address(license)), 16);
  for (let attempt = 1; ; attempt++) {
    const fd = Number(syscall(bpfCall, loadProgram, attributes, attributes.length));
    if (fd >= 0) return fd;
    // The verifier aborts like this when a signal is pending, such as that of an ended child process.
    const isInterrupted = koffi.errno() === koffi.os.errno.EAGAIN;
    if (!isInterrupted || attempt === loadAttempts) throw new Error(`bpf(BPF_PROG_LOAD): errno ${koffi.errno()}`);
  }
}
