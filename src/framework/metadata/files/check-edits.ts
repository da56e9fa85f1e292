import { isObject } from '../../../lib/is-object.ts';
import { MetadataError } from '../errors.ts';
import type { ContainerEdits } from './cdi.ts';

const hookNames = ['prestart', 'createRuntime', 'createContainer', 'startContainer', 'poststart', 'poststop'];

/**
 * Checks edits for faults with which runtimes refuse every container that uses the device, and for relative paths, which
 * runtimes look up in the container's bundle. Source: Container Device Interface specification, `containerEdits`.
 * @throws MetadataError `metadata-invalid`
 */
export function checkEdits(deviceId: string, edits: ContainerEdits): void {
  const { mounts = [], deviceNodes = [], env = [], hooks = [] } = edits;
  const refuse = (problem: string) =>
    new MetadataError('metadata-invalid', `edits of CDI device ${JSON.stringify(deviceId)}: ${problem}`);
  const lists = Object.entries({ mounts, deviceNodes, env, hooks });
  const wrong = lists.find(([name, list]) => !Array.isArray(list) || (name !== 'env' && !list.every(isObject)));
  if (wrong !== undefined) throw refuse(`${wrong[0]} is not a list of ${wrong[0] === 'env' ? 'texts' : 'objects'}`);
  if (mounts.length + deviceNodes.length + env.length + hooks.length === 0) throw refuse('there are none');
  const variable = env.find((each) => !/^[^=\0]+=[^\0]*$/.test(each));
  if (variable !== undefined) throw refuse(`variable ${JSON.stringify(variable)} is not NAME=value`);
  const sourceless = mounts.find(({ hostPath }) => !hostPath);
  if (sourceless !== undefined)
    throw refuse(`the mount at ${JSON.stringify(sourceless.containerPath)} has no hostPath`);
  const paths = [
    // Other file systems have a name as their source, such as `tmpfs`.
    ...mounts.flatMap(({ type = 'bind', hostPath }) => (type === 'bind' ? [hostPath] : [])),
    ...mounts.map(({ containerPath }) => containerPath),
    ...deviceNodes.flatMap(({ path, hostPath = path }) => [path, hostPath]),
    ...hooks.map(({ path }) => path),
  ];
  for (const path of paths) if (!path?.startsWith('/')) throw refuse(`path ${JSON.stringify(path)} is not absolute`);
  const hook = hooks.find(({ hookName }) => !hookNames.includes(hookName));
  if (hook !== undefined) throw refuse(`${JSON.stringify(hook.hookName)} is not the name of an OCI hook`);
}
