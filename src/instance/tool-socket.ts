import { once } from 'node:events';
import { chmodSync, lstatSync, mkdirSync, renameSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { join } from 'node:path';
import { type Clock, repeat } from '../lib/clock.ts';
import { errnoCode, explain, NetdraError } from '../lib/errors.ts';
import type { Logger } from '../lib/logger.ts';

/** Functions by path. Each returns the text with which the running driver answers a tool of its node. */
export type ToolAnswers = Readonly<Record<string, () => string>>;

const socketName = 'tools.sock';
const answerTimeoutMs = 10_000;
/** Limit of an answer, in bytes: the log has 1 MB, the largest inventory 2 MB. */
const maxAnswerBytes = 16_000_000;
/** Pause between checks that this instance still serves the socket, ms. */
const checkMs = 60_000;

interface ServeToolsOptions {
  /** Name of this instance, which is part of the name of its temporary socket. */
  instance: string;
  clock: Clock;
  logger: Logger;
  /** Called when this instance serves the tools again, after a newer instance has ended. */
  onRegained?: () => void;
}

/**
 * Serves the tools on this node through a socket in the driver's directory that only root can use. A newer instance
 * replaces the socket; if that instance ends first, this one serves the tools again. A failure is only logged, since the
 * driver works without the socket.
 * @param dataDir the driver's directory below the kubelet's `plugins`
 */
export async function serveTools(
  dataDir: string,
  answers: ToolAnswers,
  { instance, clock, logger, onRegained }: ServeToolsOptions,
): Promise<AsyncDisposable> {
  const server = createServer((incoming, response) => {
    const answer = answers[incoming.url?.slice(1) ?? ''];
    try {
      if (answer === undefined) response.writeHead(404).end();
      else response.end(answer());
    } catch (error) {
      response.writeHead(500).end(explain(error));
    }
  });
  const path = join(dataDir, socketName);
  let inode: number | undefined;
  let reported = '';
  const listen = async () => {
    try {
      mkdirSync(dataDir, { recursive: true, mode: 0o750 });
      // Listens under a temporary name first, so that the earlier instance answers until this one can.
      const own = join(dataDir, `tools-${instance}.sock`);
      server.listen(own);
      await once(server, 'listening');
      chmodSync(own, 0o600);
      inode = inodeOf(own);
      renameSync(own, path);
      reported = '';
      return true;
    } catch (err) {
      if (explain(err) !== reported) logger.warn({ err, path }, 'cannot listen for the tools of this node');
      reported = explain(err);
      return false;
    }
  };
  const close = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  await listen();
  const ended = new AbortController();
  const following = repeat(clock, checkMs, ended.signal, async () => {
    if ((server.listening && inodeOf(path) === inode) || (await isServed(dataDir))) return;
    await close();
    if (await listen()) onRegained?.();
  });
  return {
    async [Symbol.asyncDispose]() {
      ended.abort();
      await following;
      await close();
    },
  };
}

function inodeOf(path: string): number | undefined {
  try {
    return lstatSync(path).ino;
  } catch {
    return undefined;
  }
}

/** Returns whether an instance listens on the socket, even if it does not answer. */
async function isServed(dataDir: string): Promise<boolean> {
  return await askDriver(dataDir, '').then(
    (answer) => answer !== undefined,
    () => true,
  );
}

/**
 * Asks the running driver.
 * @param timeoutMs time limit for the whole answer
 * @returns `undefined` if no driver runs
 * @throws NetdraError `driver-unanswering` if the driver does not answer
 */
export async function askDriver(
  dataDir: string,
  what: string,
  timeoutMs = answerTimeoutMs,
): Promise<string | undefined> {
  const path = join(dataDir, socketName);
  try {
    // The signal also closes the connection: an open connection would keep the tool from ending.
    const signal = AbortSignal.timeout(timeoutMs);
    const sent = request({ socketPath: path, path: `/${what}`, agent: false, signal });
    // Errors after the beginning of the answer are reported by the read of the answer.
    sent.on('error', () => undefined).end();
    const [response] = await once(sent, 'response');
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of response) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > maxAnswerBytes) throw new Error(`its answer is over ${maxAnswerBytes} bytes`);
    }
    const text = Buffer.concat(chunks).toString();
    if (response.statusCode === 200) return text;
    throw new Error(`it answers with status ${response.statusCode}: ${text}`);
  } catch (cause) {
    if (['ENOENT', 'ECONNREFUSED', 'ENOTDIR'].includes(errnoCode(cause) ?? '')) return undefined;
    const hint = 'run this as root; netdra doctor diagnoses the driver';
    throw new NetdraError('driver-unanswering', `the driver does not answer at ${path}`, { cause, path, hint });
  }
}
