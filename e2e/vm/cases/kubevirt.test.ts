import { expect } from 'vitest';
import { decodeForLauncher, pciAddressForLibvirt } from '../../../test/doubles/kubevirt.ts';
import { buildPod, generateClaim, testDriver } from '../../../test/doubles/objects.ts';
import { launcherFiles } from '../../node/launcher-files.ts';
import { exec, runContainer } from '../../node/pod.ts';
import { packagedProgram } from '../image/package-programs.ts';
import { classConfig, vfConfig } from '../vf-config.ts';
import { pfInfoOf, vfAt } from '../vfs.ts';
import { deviceName } from '../vm-node.ts';
import { it } from '../vm-test.ts';

/** User and group of virt-launcher's processes. */
const launcherUser = 107;
const hardwareAddress = '02:4e:45:54:00:46';
const qemuFolder = '/qemu';
const metadataPath = `/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/nic/vf/${testDriver}-metadata.json`;

/** What libvirt makes of a host device: QEMU opens it before the machine's processors run. The answers are JSON lines. */
const qemuOptions = `-L ${qemuFolder}/usr/share/qemu -L ${qemuFolder}/usr/share/seabios
-nodefaults -no-user-config -display none -machine q35 -accel tcg -m 64 -S -qmp stdio -device`.split(/\s/);
const qemuCommand = (pciAddress: string) => [
  ...packagedProgram(qemuFolder, 'usr/bin/qemu-system-x86_64'),
  ...qemuOptions,
  `vfio-pci,host=${pciAddress},id=ua-sriov-fast,romfile=`,
];
const monitorCommands = ['qmp_capabilities', 'query-pci', 'quit'].map((execute) => JSON.stringify({ execute }));

interface PciBus {
  bus: number;
  devices: { qdev_id: string; id: { vendor: number; device: number } }[];
}

/** QEMU loads its libraries in a processor that is emulated itself. */
const slow = { timeout: 600_000 };

it(
  'QEMU, running as user 107, opens the VF that KubeVirt finds in the metadata file',
  slow,
  async ({ node: { bench }, vfs }) => {
    const vf = vfAt(vfs, 'pf0', 3);
    const pod = buildPod('virt-launcher', { resourceClaims: [{ name: 'nic', resourceClaimTemplateName: 'vm-nic' }] });
    const config = [
      classConfig({ driver: 'vfio-pci', overridable: ['macAddress'] }),
      vfConfig({ macAddress: hardwareAddress }),
    ];
    const requests = [{ name: 'vf', devices: [deviceName(vf)] }];
    bench.api.create(generateClaim(pod, 'nic', { requests, config }));
    const sandbox = await bench.startPod(pod);
    expect(pfInfoOf(vf)?.address).toBe(hardwareAddress);

    const { cri } = bench.containerd;
    const cdiDevices = bench.kubelet.cdiDevicesForContainer(pod, 'main');
    const mounts = [{ hostPath: process.env.NETDRA_QEMU ?? '', containerPath: qemuFolder, readonly: true }];
    const id = await runContainer(cri, sandbox, { name: 'main', cdiDevices, mounts, user: launcherUser });
    const run = async (...command: string[]) => {
      const { stdout, stderr, exitCode } = await exec(cri, id, command, 400);
      expect(exitCode, `${stdout}\n${stderr}`).toBe(0);
      return stdout;
    };
    const files = launcherFiles({ id, exec: (...command) => exec(cri, id, command, 400) });
    const request = { claimName: 'nic', requestName: 'vf' };
    const pciAddress = await pciAddressForLibvirt(files, [{ name: 'nic' }], request);
    expect(pciAddress).toBe(vf.pciAddress);
    const { requests: described } = decodeForLauncher(await files.read(metadataPath));
    expect(described[0]?.devices?.[0]?.networkData).toEqual({ hardwareAddress });

    const script = `id -u; printf '%s\\n' '${monitorCommands.join("' '")}' | "$@"`;
    const [user, ...answers] = (await run('sh', '-ec', script, 'sh', ...qemuCommand(pciAddress))).trim().split('\n');
    expect(user).toBe(`${launcherUser}`);
    const returned: unknown[] = answers.map((line) => JSON.parse(line).return);
    const buses = returned.find((each): each is PciBus[] => Array.isArray(each)) ?? [];
    const device = buses.flatMap(({ devices }) => devices).find(({ qdev_id }) => qdev_id === 'ua-sriov-fast');
    // An 82576's VF.
    expect(device?.id, answers.join('\n')).toMatchObject({ vendor: 0x8086, device: 0x10ca });
  },
);
