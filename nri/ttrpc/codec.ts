import { loadMessages, type MessageCodec, messageCodec } from '../proto.ts';

/** What the data of a request frame says; see `proto/ttrpc.proto`. */
export interface TtrpcRequest {
  service?: string;
  method?: string;
  payload?: Uint8Array;
  timeoutNano?: number;
  metadata?: { key?: string; value?: string }[];
}

/** What the data of a response frame says. */
export interface TtrpcResponse {
  status?: { code?: number; message?: string };
  payload?: Uint8Array;
}

export interface TtrpcCodec {
  request: MessageCodec<TtrpcRequest>;
  response: MessageCodec<TtrpcResponse>;
}

/**
 * Reads `ttrpc.proto` and makes the codec of the two messages in it.
 * @param protoDir the directory of the file; in a source tree it is found without
 * @throws NriError `proto-not-loaded`
 */
export function createTtrpcCodec(protoDir?: string): TtrpcCodec {
  const messages = loadMessages('ttrpc.proto', protoDir);
  return {
    request: messageCodec<TtrpcRequest>(messages, 'ttrpc.Request'),
    response: messageCodec<TtrpcResponse>(messages, 'ttrpc.Response'),
  };
}

/** A field for a payload, left out when there is nothing in it, as Go does. */
export function payloadField(payload: Uint8Array | undefined): { payload?: Uint8Array } {
  return payload === undefined || payload.length === 0 ? {} : { payload };
}
