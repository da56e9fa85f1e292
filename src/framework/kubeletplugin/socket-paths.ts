import { createHash } from 'node:crypto';
import { isAbsolute, join } from 'node:path';
import { KubeletPluginError } from './errors.ts';

/** `sizeof(sockaddr_un.sun_path)` minus the terminating zero byte: linux/un.h. */
const maxSocketPathBytes = 107;

/**
 * Characters that change when a path is parsed as a URL. The kubelet parses `unix:` and the path as a URL, and from 1.38 on
 * refuses plugins whose path has such characters.
 */
const changedByUrls = /[%?#\p{Cc}]/u;

/** Options that determine the sockets' paths; see `KubeletPluginOptions`. */
interface SocketPlace {
  driver: string;
  dataDir: string;
  registryDir: string;
  podUid?: string | undefined;
}

export interface SocketPaths {
  dra: string;
  registration: string;
}

/**
 * Chooses a driver's socket paths: the first names that fit into a socket address. With a pod UID these are the names that the
 * Go helper uses for rolling updates, so that a driver may switch between the Go helper and this one.
 * @throws KubeletPluginError `invalid-options`, `socket-unavailable`
 */
export function chooseSocketPaths(place: SocketPlace): SocketPaths {
  checkPlace(place);
  const { driver, dataDir, registryDir, podUid } = place;
  if (podUid === undefined) {
    return {
      dra: firstFitting(dataDir, ['dra.sock']),
      registration: firstFitting(registryDir, [`${driver}-reg.sock`]),
    };
  }
  return {
    dra: firstFitting(dataDir, [`dra-${podUid}.sock`, `dra-${shortHash(podUid, 8)}`]),
    registration: firstFitting(registryDir, [
      `${driver}-${podUid}-reg.sock`,
      `${driver}-${shortHash(podUid, 8)}-reg.sock`,
      `dra-${shortHash(`${driver}\0${podUid}`, 16)}-reg.sock`,
    ]),
  };
}

/** Returns whether a file in the data directory is the DRA socket of an instance with a pod UID. */
export function isInstanceDraSocket(name: string): boolean {
  return name.startsWith('dra-');
}

/**
 * Returns whether a file in the registry is the registration socket of an instance of this driver, by its pod's UID or a hash
 * of the UID in the name. Strict, since the names of other drivers' sockets are similar. The shortest names do not show their
 * driver and do not match.
 */
export function isInstanceRegistrationSocket(driver: string, name: string): boolean {
  const ofPod = /^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[\w-]{11})$/;
  return name.startsWith(`${driver}-`) && name.endsWith('-reg.sock') && ofPod.test(name.slice(driver.length + 1, -9));
}

function checkPlace({ driver, dataDir, registryDir, podUid }: SocketPlace): void {
  const label = '[a-z0-9]([-a-z0-9]*[a-z0-9])?';
  if (driver.length > 63 || !new RegExp(`^${label}(\\.${label})*$`).test(driver)) {
    throw new KubeletPluginError('invalid-options', `${JSON.stringify(driver)} cannot be the name of a driver`, {
      hint: 'a lower-case DNS name of at most 63 characters is needed, such as sriov.netdra.dev',
    });
  }
  for (const path of [dataDir, registryDir]) {
    if (isAbsolute(path)) continue;
    const hint = 'give the path under which the kubelet sees it';
    throw new KubeletPluginError('invalid-options', `the path of directory ${path} is not absolute`, { path, hint });
  }
  if (changedByUrls.test(dataDir)) {
    throw new KubeletPluginError(
      'invalid-options',
      `directory ${JSON.stringify(dataDir)} has a character that the kubelet cannot dial as a URL`,
      { path: dataDir, hint: 'choose one without "%", "?", "#" and control characters' },
    );
  }
  if (podUid !== undefined && !/^[0-9A-Za-z][-0-9A-Za-z]*$/.test(podUid)) {
    const hint = 'give metadata.uid of the pod that the driver runs in';
    throw new KubeletPluginError('invalid-options', `${JSON.stringify(podUid)} is not the UID of a pod`, { hint });
  }
}

function firstFitting(dir: string, names: string[]): string {
  const paths = names.map((name) => join(dir, name));
  const fitting = paths.find((path) => Buffer.byteLength(path) <= maxSocketPathBytes);
  if (fitting !== undefined) return fitting;
  const shortest = paths.at(-1) ?? dir;
  throw new KubeletPluginError(
    'socket-unavailable',
    `socket path ${shortest} is longer than ${maxSocketPathBytes} bytes (it has ${Buffer.byteLength(shortest)})`,
    { path: shortest, hint: 'choose a shorter directory or driver name' },
  );
}

function shortHash(text: string, bytes: number): string {
  return createHash('sha256').update(text).digest().subarray(0, bytes).toString('base64url');
}
