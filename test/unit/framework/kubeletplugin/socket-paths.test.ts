import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  chooseSocketPaths,
  isInstanceDraSocket,
  isInstanceRegistrationSocket,
} from '../../../../src/framework/kubeletplugin/socket-paths.ts';

const driver = 'sriov.netdra.dev';
const podUid = '0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c0001';
const kubelet = { dataDir: `/var/lib/kubelet/plugins/${driver}`, registryDir: '/var/lib/kubelet/plugins_registry' };
/** A directory of that many bytes. */
const dirOf = (bytes: number) => `/${'d'.repeat(bytes - 1)}`;
const hash = (text: string, bytes: number) =>
  createHash('sha256').update(text).digest().subarray(0, bytes).toString('base64url');

describe('chooseSocketPaths', () => {
  it('uses {driver}-reg.sock and dra.sock (requirement 2.6)', () => {
    expect(chooseSocketPaths({ driver, ...kubelet })).toEqual({
      dra: '/var/lib/kubelet/plugins/sriov.netdra.dev/dra.sock',
      registration: '/var/lib/kubelet/plugins_registry/sriov.netdra.dev-reg.sock',
    });
  });

  it("includes the pod's UID in both names during a rolling update (requirement 2.6)", () => {
    expect(chooseSocketPaths({ driver, ...kubelet, podUid })).toEqual({
      dra: join(kubelet.dataDir, `dra-${podUid}.sock`),
      registration: join(kubelet.registryDir, `${driver}-${podUid}-reg.sock`),
    });
  });

  it.each([
    ['the whole UID', 107 - `/${driver}-${podUid}-reg.sock`.length, `${driver}-${podUid}-reg.sock`],
    ['a hash of the UID', 108 - `/${driver}-${podUid}-reg.sock`.length, `${driver}-${hash(podUid, 8)}-reg.sock`],
    [
      'a hash of driver and UID',
      108 - `/${driver}-${hash(podUid, 8)}-reg.sock`.length,
      `dra-${hash(`${driver}\0${podUid}`, 16)}-reg.sock`,
    ],
  ])("shortens the registration socket's name to %s within 107 bytes (requirement 2.6)", (_what, bytes, name) => {
    const registryDir = dirOf(bytes);
    const { registration } = chooseSocketPaths({ driver, ...kubelet, registryDir, podUid });
    expect(registration).toBe(join(registryDir, name));
    expect(Buffer.byteLength(registration)).toBeLessThan(108);
  });

  it.each([
    ['the whole UID', 107 - `/dra-${podUid}.sock`.length, `dra-${podUid}.sock`],
    ['a hash of the UID without an ending', 108 - `/dra-${podUid}.sock`.length, `dra-${hash(podUid, 8)}`],
  ])("shortens the DRA socket's name to %s within 107 bytes (requirement 2.6)", (_what, bytes, name) => {
    const dataDir = dirOf(bytes);
    expect(chooseSocketPaths({ driver, ...kubelet, dataDir, podUid }).dra).toBe(join(dataDir, name));
  });

  it('fits the longest driver name into paths below the default directories (requirement 2.6)', () => {
    const long = `${'d'.repeat(63)}`;
    const dataDir = `/var/lib/kubelet/plugins/${long}`;
    for (const uid of [undefined, podUid]) {
      const paths = chooseSocketPaths({ ...kubelet, driver: long, dataDir, podUid: uid });
      for (const path of Object.values(paths)) expect(Buffer.byteLength(path)).toBeLessThan(108);
    }
  });

  it('measures paths in bytes, not in characters', () => {
    const dataDir = `/${'ä'.repeat(48)}`;
    expect(chooseSocketPaths({ driver, ...kubelet, dataDir }).dra).toHaveLength(dataDir.length + 9);
    expect(() => chooseSocketPaths({ driver, ...kubelet, dataDir: `${dataDir}ä` })).toThrow(/it has 108/);
  });

  it('rejects a directory whose path leaves no room for a socket name', () => {
    const dataDir = dirOf(100);
    expect(() => chooseSocketPaths({ driver, ...kubelet, dataDir })).toThrow(
      `socket path ${dataDir}/dra.sock is longer than 107 bytes (it has 109)`,
    );
    expect(() => chooseSocketPaths({ driver, ...kubelet, dataDir, podUid })).toThrow(/is longer than 107 bytes/);
  });

  it.each(['', 'A.b', 'a..b', '-a', 'a'.repeat(64), 'a/b', '.hidden'])('rejects the driver name %j', (name) => {
    expect(() => chooseSocketPaths({ ...kubelet, driver: name })).toThrow(/cannot be the name of a driver/);
  });

  it('rejects relative directories, which the kubelet cannot resolve (requirement 2.6)', () => {
    expect(() => chooseSocketPaths({ driver, ...kubelet, dataDir: 'plugins' })).toThrow(/directory plugins is not/);
  });

  it.each(['%41', '%', '?', '#', '\n'])(
    'rejects a directory with %j in its name, since the kubelet dials a URL',
    (part) => {
      const dataDir = `/var/lib/plugins/a${part}b`;
      expect(() => chooseSocketPaths({ driver, ...kubelet, dataDir })).toThrow(
        /has a character that the kubelet cannot dial/,
      );
    },
  );

  it.each(['', '../x', 'a/b', '.x', '-'])('rejects the pod UID %j', (uid) => {
    expect(() => chooseSocketPaths({ driver, ...kubelet, podUid: uid })).toThrow(/is not the UID of a pod/);
  });
});

it('sockets of an instance are not confused with sockets of drivers whose names start alike', () => {
  for (const part of [podUid, hash(podUid, 8)]) {
    expect(isInstanceRegistrationSocket(driver, `${driver}-${part}-reg.sock`)).toBe(true);
  }
  for (const name of [
    `${driver}-reg.sock`,
    `${driver}-other-reg.sock`,
    `${driver}-two-${podUid}-reg.sock`,
    `${driver}-two-${hash(podUid, 8)}-reg.sock`,
    `${driver}-${podUid}.sock`,
  ]) {
    expect(isInstanceRegistrationSocket(driver, name)).toBe(false);
  }
  expect(isInstanceDraSocket(`dra-${podUid}.sock`)).toBe(true);
  expect(isInstanceDraSocket('dra.sock')).toBe(false);
});
