import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';

const types: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
};

export interface SiteServer extends AsyncDisposable {
  /** Without a slash at the end. */
  origin: string;
}

/** Serves the files of a folder on loopback, as a host of static sites does: of a folder its `index.html`. */
export async function serve(folder: string): Promise<SiteServer> {
  const server = createServer(async ({ url = '/' }, response) => {
    const path = normalize(decodeURIComponent(new URL(url, 'http://site').pathname));
    const names = path.endsWith('/') ? [`${path}index.html`] : [path, `${path}/index.html`];
    for (const name of names) {
      const content = await readFile(join(folder, name)).catch(() => undefined);
      if (content === undefined) continue;
      // Relative links of an index.html need the slash.
      if (name !== path && !path.endsWith('/')) response.writeHead(301, { location: `${path}/` }).end();
      else response.writeHead(200, { 'content-type': types[extname(name)] ?? 'text/plain' }).end(content);
      return;
    }
    response.writeHead(404).end('not found');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
