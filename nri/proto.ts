import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { type AnyDefinition, loadSync, type MessageTypeDefinition, type PackageDefinition } from '@grpc/proto-loader';
import { NriError } from './errors.ts';

/** Encodes and decodes messages of one type. Absent fields stay absent in both directions. */
export interface MessageCodec<T> {
  encode(message: T): Buffer;
  /** Decodes a message. @throws NriError `undecodable` for bytes that are not a message of this type */
  decode(bytes: Buffer): T;
}

/**
 * Returns the directory of the `.proto` files: `proto` beside a bundle, or beside this folder in a source tree. Bundles with
 * the directory elsewhere set `protoDir`.
 */
export function defaultProtoDir(): string {
  // A bundle of CommonJS modules has no `import.meta.dirname`.
  const here = import.meta.dirname ?? dirname(process.argv[1] ?? '.');
  const beside = join(here, 'proto');
  return existsSync(beside) ? beside : join(here, '../proto');
}

/**
 * Loads the messages of a `.proto` file. Field names become camelCase; 64-bit integers and enums become numbers. Decoding adds
 * no default values, so that a decoded message encodes to the same bytes.
 * @param file name below `protoDir`
 * @throws NriError `proto-not-loaded`
 */
export function loadMessages(file: string, protoDir = defaultProtoDir()): PackageDefinition {
  const path = join(protoDir, file);
  try {
    return loadSync(path, { longs: Number });
  } catch (cause) {
    const message = `cannot load ${path}`;
    const hint = 'pass protoDir, the directory with ttrpc.proto and nri.proto';
    throw new NriError('proto-not-loaded', message, { cause, hint });
  }
}

/**
 * Returns the codec of a message type, whether or not a service uses the type.
 * @param type full name, e.g. `ttrpc.Request`
 * @throws NriError `proto-type-missing` if the loaded file does not have the type
 */
export function messageCodec<T extends object>(messages: PackageDefinition, type: string): MessageCodec<T> {
  const definition = messages[type];
  if (definition === undefined || !isMessageType(definition)) {
    throw new NriError('proto-type-missing', `no message type ${type} in the .proto file that was loaded`, {
      hint: 'protoDir has to hold the files that came with this version of the library',
    });
  }
  return {
    encode: (message) => definition.serialize(message),
    decode(bytes) {
      try {
        return definition.deserialize(bytes) as T;
      } catch (cause) {
        throw new NriError('undecodable', `cannot decode ${type}`, { cause });
      }
    },
  };
}

function isMessageType(definition: AnyDefinition): definition is MessageTypeDefinition<object, object> {
  return 'deserialize' in definition;
}
