import { loadMessages, type MessageCodec, messageCodec } from '../proto.ts';

/** Content of a request frame; see `proto/ttrpc.proto`. */
export interface TtrpcRequest {
  service?: string;
  method?: string;
  payload?: Uint8Array;
  timeoutNano?: number;
  metadata?: { key?: string; value?: string }[];
}

export interface TtrpcResponse {
  status?: { code?: number; message?: string };
  payload?: Uint8Array;
}

export interface TtrpcCodec {
  request: MessageCodec<TtrpcRequest>;
  response: MessageCodec<TtrpcResponse>;
}

/**
 * Reads `ttrpc.proto` and creates the codec of the two messages in it.
 * @param protoDir the directory of the file; not needed in a source tree
 * @throws NriError `proto-not-loaded`
 */
export function createTtrpcCodec(protoDir?: string): TtrpcCodec {
  const messages = loadMessages('ttrpc.proto', protoDir);
  return {
    request: messageCodec<TtrpcRequest>(messages, 'ttrpc.Request'),
    response: messageCodec<TtrpcResponse>(messages, 'ttrpc.Response'),
  };
}

/** Returns a field for a payload, or none if the payload is empty, as in Go. */
export function payloadField(payload: Uint8Array | undefined): { payload?: Uint8Array } {
  return payload === undefined || payload.length === 0 ? {} : { payload };
}
