import { expect, it } from 'vitest';
import { listTargets, runCampaign } from '../fuzz/campaign.ts';
import { findingsDir, saveFinding } from '../fuzz/finding.ts';

/** Other inputs each time; a finding names the command that runs its input again, whatever the seed was. */
it('20 seconds of fuzzing over all targets find nothing', { timeout: 180_000 }, async () => {
  const reports = await runCampaign({ durationMs: 20_000, seed: Math.floor(Math.random() * 2 ** 32) });
  const findings = reports.flatMap((report) => report.findings);
  const described = findings.map((finding) => {
    const { target, kind, message } = finding;
    return `${target}, ${kind}: ${message}\nagain: ${saveFinding(finding, findingsDir)}`;
  });
  expect(described.join('\n\n')).toBe('');
  expect(reports.map(({ target }) => target)).toEqual(listTargets());
  // A target that refuses all that it starts from, since what it is about has changed, would find nothing any more.
  expect(reports.filter(({ acceptedSeeds }) => acceptedSeeds === 0)).toEqual([]);
});
