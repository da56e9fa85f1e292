import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type AptSource,
  findDebianMirror,
  parseDeb822Sources,
  parseOneLineSources,
} from '../../../scripts/packages/apt-sources.ts';

describe('parseDeb822Sources', () => {
  it('gives a source for each URI and suite', () => {
    const text = `# made by hand
Types: deb deb-src
URIs: http://mirror.example/debian http://other.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/archive.gpg
`;
    const more = { components: ['main', 'contrib'], signedBy: '/usr/share/keyrings/archive.gpg' };
    expect(parseDeb822Sources(text)).toEqual([
      { uri: 'http://mirror.example/debian', suite: 'bookworm', ...more },
      { uri: 'http://mirror.example/debian', suite: 'bookworm-updates', ...more },
      { uri: 'http://other.example/debian', suite: 'bookworm', ...more },
      { uri: 'http://other.example/debian', suite: 'bookworm-updates', ...more },
    ]);
  });

  it('leaves out stanzas that are disabled or of source packages', () => {
    const stanza = (first: string) => `${first}\nURIs: http://m.example/debian\nSuites: trixie\nComponents: main\n`;
    const text = [stanza('Types: deb-src'), stanza('Enabled: no\nTypes: deb'), stanza('types: deb')].join('\n');
    expect(parseDeb822Sources(text)).toHaveLength(1);
  });

  it('follows a field over several lines, and takes no key that is written in the file for a path', () => {
    const text = `Types: deb
URIs: http://m.example/debian
Suites:
 trixie
 # a remark
 forky
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
`;
    const sources = parseDeb822Sources(text);
    expect(sources.map(({ suite }) => suite)).toContain('forky');
    expect(sources.every(({ signedBy }) => signedBy === undefined)).toBe(true);
  });

  it('answers any text with a list', () => {
    fc.assert(fc.property(fc.string(), (text) => Array.isArray(parseDeb822Sources(text))));
  });
});

describe('parseOneLineSources', () => {
  it('reads URI, suite, components and key', () => {
    const text = `
# deb http://off.example/debian trixie main
deb http://m.example/debian bookworm main contrib # the usual
deb [ arch=amd64 signed-by=/etc/apt/keyrings/x.gpg ] https://x.example/linux trixie stable
deb-src http://m.example/debian bookworm main
deb file:/srv/flat ./
`;
    expect(parseOneLineSources(text)).toEqual([
      { uri: 'http://m.example/debian', suite: 'bookworm', components: ['main', 'contrib'] },
      { uri: 'https://x.example/linux', suite: 'trixie', components: ['stable'], signedBy: '/etc/apt/keyrings/x.gpg' },
      { uri: 'file:/srv/flat', suite: './', components: [] },
    ]);
  });

  it('answers any text with a list', () => {
    fc.assert(fc.property(fc.string(), (text) => Array.isArray(parseOneLineSources(text))));
  });
});

describe('findDebianMirror', () => {
  const source = (uri: string, suite: string, more: Partial<AptSource> = {}): AptSource => ({
    uri,
    suite,
    components: ['main'],
    ...more,
  });

  it('takes the archive, not its security suite nor those of others', () => {
    const archive = source('http://m.example/debian/', 'bookworm');
    expect(
      findDebianMirror([
        source('http://m.example/debian-security', 'bookworm-security'),
        source('http://m.example/debian', 'bookworm-updates'),
        source('https://cloud.example/apt', 'sdk', { signedBy: '/usr/share/keyrings/cloud.gpg' }),
        source('https://node.example/debian', 'nodistro', { components: ['other'] }),
        archive,
      ]),
    ).toBe(archive);
  });

  it('takes a mirror at another path when Debian’s keys sign it', () => {
    const renamed = source('http://m.example/apt', 'trixie', {
      signedBy: '/usr/share/keyrings/debian-archive-keyring.gpg',
    });
    expect(findDebianMirror([source('https://x.example/apt', 'stable'), renamed])).toBe(renamed);
  });

  it('finds none where there is none', () => {
    expect(findDebianMirror([source('http://archive.example/ubuntu', 'noble')])).toBeUndefined();
    expect(findDebianMirror([])).toBeUndefined();
  });
});
