/** An archive known to apt: its address and, if the entry has them, the keys that sign it. */
export interface AptSource {
  /** As in the entry: `http://…`, `file:/…`, `mirror+file:/…`. */
  uri: string;
  suite: string;
  components: string[];
  /** Path of a keyring; absent if the entry has none or contains the key itself. */
  signedBy?: string;
}

/**
 * Reads a `.sources` file (deb822 stanzas), one source per URI and suite. Disabled stanzas and source packages are
 * left out. Source: sources.list(5), "DEB822-STYLE FORMAT".
 */
export function parseDeb822Sources(text: string): AptSource[] {
  const stanzas = text.split(/\n[ \t]*\n/);
  return stanzas.map(parseStanza).flatMap((fields) => {
    if (fields.get('enabled') === 'no' || !words(fields.get('types')).includes('deb')) return [];
    const signedBy = fields.get('signed-by');
    return words(fields.get('uris')).flatMap((uri) =>
      words(fields.get('suites')).map((suite) => ({
        uri,
        suite,
        components: words(fields.get('components')),
        ...(signedBy?.startsWith('/') ? { signedBy } : {}),
      })),
    );
  });
}

/** Parses `.list` lines: `deb [options] uri suite component…`. Source: sources.list(5), "ONE-LINE-STYLE FORMAT". */
export function parseOneLineSources(text: string): AptSource[] {
  return text.split('\n').flatMap((line) => {
    const match = /^\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)\s*([^#]*)/.exec(line);
    if (!match) return [];
    const [, options = '', uri = '', suite = '', components = ''] = match;
    const signedBy = /(?:^|\s)signed-by=(\/\S+)/i.exec(options)?.[1];
    return [{ uri, suite, components: words(components), ...(signedBy === undefined ? {} : { signedBy }) }];
  });
}

/**
 * The entry for fetching other suites of Debian: one with the whole archive (its suite is the bare name of a release,
 * not `…-security`, `…-updates` or a flat repository) and with the component `main`.
 */
export function findDebianMirror(sources: AptSource[]): AptSource | undefined {
  const whole = sources.filter(({ suite, components }) => /^[a-z]+$/.test(suite) && components.includes('main'));
  // Third parties also have suites of such names. Mirrors of Debian's own archive usually keep the end of its path;
  // the second guess is for mirrors that renamed it.
  return (
    whole.find(({ uri }) => /\/debian\/?$/.test(uri)) ?? whole.find(({ signedBy }) => signedBy?.includes('debian'))
  );
}

/** Fields of a stanza, names in lower case. A line that begins with a blank continues the previous field. */
function parseStanza(stanza: string): Map<string, string> {
  const fields = new Map<string, string>();
  let current: string | undefined;
  for (const line of stanza.split('\n')) {
    if (line.startsWith('#')) continue;
    const match = /^([A-Za-z0-9-]+):\s*(.*)$/.exec(line);
    if (match) {
      current = match[1]!.toLowerCase();
      fields.set(current, match[2]!.trim());
    } else if (current !== undefined && /^[ \t]/.test(line)) {
      fields.set(current, `${fields.get(current)} ${line.trim()}`.trim());
    }
  }
  return fields;
}

function words(text: string | undefined): string[] {
  return (text ?? '').split(/\s+/).filter((word) => word !== '');
}
