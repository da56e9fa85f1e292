import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { parseResourcePath } from './api-server-resources.ts';

export interface ContainerPath {
  namespace: string;
  pod: string;
  container: string;
}

/** What a kubelet does for the API server. */
export interface PodStreams {
  /** What a container has written so far. @throws Error if there is no such container */
  log(path: ContainerPath): string;
  /** Runs a command in a container to its end. @throws Error if that cannot be done */
  exec(path: ContainerPath, command: string[]): Promise<{ stdout: Buffer; stderr: Buffer; exitCode: number }>;
}

/** Channels of the protocol, its name, and what RFC 6455 has every server append to the client's key. */
const channels = { stdout: 1, stderr: 2, status: 3 };
const protocol = 'v5.channel.k8s.io';
const handshakeGuid = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

/** @returns the log that a request asks for; `undefined` for other requests */
export function readPodLog(url: URL, streams: PodStreams | undefined): string | undefined {
  const path = containerPath(url, 'log');
  return path === undefined ? undefined : streams?.log(path);
}

/**
 * Runs a command for a client and sends what it printed, then how it ended. Commands get no input and their output is
 * sent when they are done. Source: Kubernetes' remotecommand over websockets, RFC 6455.
 * @param streams absent: the request is refused
 */
export async function serveExec(
  message: IncomingMessage,
  socket: Duplex,
  streams: PodStreams | undefined,
): Promise<void> {
  // Nothing that the client says matters but that it is gone.
  socket.on('error', () => undefined).on('end', () => socket.destroy());
  socket.resume();
  const url = new URL(message.url ?? '/', 'http://localhost');
  const path = containerPath(url, 'exec');
  const offered = message.headers['sec-websocket-protocol']?.split(/, */) ?? [];
  const key = message.headers['sec-websocket-key'];
  if (streams === undefined || path === undefined || key === undefined || !offered.includes(protocol)) {
    socket.end(`HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n`);
    return;
  }
  const accept = createHash('sha1').update(`${key}${handshakeGuid}`).digest('base64');
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: ${protocol}\r\n\r\n`,
  );
  const send = (channel: number, data: Buffer) => socket.write(encodeFrame(Buffer.concat([Buffer.of(channel), data])));
  const finish = (status: object) => send(channels.status, Buffer.from(JSON.stringify({ metadata: {}, ...status })));
  try {
    const { stdout, stderr, exitCode } = await streams.exec(path, url.searchParams.getAll('command'));
    if (stdout.length > 0) send(channels.stdout, stdout);
    if (stderr.length > 0) send(channels.stderr, stderr);
    finish(exitCode === 0 ? { status: 'Success' } : exitFailure(exitCode));
  } catch (error) {
    finish({ status: 'Failure', reason: 'InternalError', code: 500, message: String(error) });
  }
  socket.end(encodeFrame(Buffer.of(3, 232), 8));
}

function exitFailure(exitCode: number): object {
  const message = `command terminated with non-zero exit code: exit status ${exitCode}`;
  const details = { causes: [{ reason: 'ExitCode', message: String(exitCode) }] };
  return { status: 'Failure', reason: 'NonZeroExitCode', message, details };
}

function containerPath(url: URL, subresource: string): ContainerPath | undefined {
  const path = parseResourcePath(url.pathname);
  const container = url.searchParams.get('container');
  if (path?.plural !== 'pods' || path.subresource !== subresource || container === null) return undefined;
  return { namespace: path.namespace ?? '', pod: path.name ?? '', container };
}

/** One whole message, as servers send it: without a mask. @param opcode 2: binary, 8: close */
function encodeFrame(payload: Buffer, opcode = 2): Buffer {
  const { length } = payload;
  const header = Buffer.alloc(length < 126 ? 2 : length < 65_536 ? 4 : 10);
  header[0] = 0x80 | opcode;
  header[1] = length < 126 ? length : length < 65_536 ? 126 : 127;
  if (length >= 65_536) header.writeBigUInt64BE(BigInt(length), 2);
  else if (length >= 126) header.writeUInt16BE(length, 2);
  return Buffer.concat([header, payload]);
}
