import { MetadataError } from '../errors.ts';
import type { ContainerEdits } from './cdi.ts';

const hookNames = ['prestart', 'createRuntime', 'createContainer', 'startContainer', 'poststart', 'poststop'];

/**
 * Checks what runtimes refuse, together with every container that uses the device. Source: Container Device Interface
 * specification, `containerEdits`.
 * @throws MetadataError `metadata-invalid`
 */
export function checkEdits(deviceId: string, edits: ContainerEdits): void {
  const { mounts = [], deviceNodes = [], env = [], hooks = [] } = edits;
  const refuse = (problem: string) =>
    new MetadataError('metadata-invalid', `edits of CDI device ${JSON.stringify(deviceId)}: ${problem}`);
  if (mounts.length + deviceNodes.length + env.length + hooks.length === 0) throw refuse('there are none');
  const variable = env.find((each) => !/^[^=\0]+=[^\0]*$/.test(each));
  if (variable !== undefined) throw refuse(`variable ${JSON.stringify(variable)} is not NAME=value`);
  const paths = [
    ...mounts.flatMap(({ hostPath, containerPath }) => [hostPath, containerPath]),
    ...deviceNodes.flatMap(({ path, hostPath = path }) => [path, hostPath]),
    ...hooks.map(({ path }) => path),
  ];
  for (const path of paths) if (!path?.startsWith('/')) throw refuse(`path ${JSON.stringify(path)} is not absolute`);
  const hook = hooks.find(({ hookName }) => !hookNames.includes(hookName));
  if (hook !== undefined) throw refuse(`${JSON.stringify(hook.hookName)} is not the name of an OCI hook`);
}
