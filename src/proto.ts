import { fileURLToPath } from 'node:url';
import { loadSync, type PackageDefinition } from '@grpc/proto-loader';

const defaultDir = fileURLToPath(new URL('../proto', import.meta.url));

/**
 * Loads one of our wire contracts. Field names become camelCase, 64-bit integers numbers (none of ours passes 2^53),
 * absent fields their proto3 defaults.
 * @param file name below `proto/`, e.g. `dra-v1.proto`
 */
export function loadProto(file: string, dir = defaultDir): PackageDefinition {
  return loadSync(file, { includeDirs: [dir], longs: Number, enums: String, defaults: true, oneofs: false });
}
