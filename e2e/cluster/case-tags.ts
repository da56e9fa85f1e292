/**
 * Tags of cases that do not depend on the versions of Kubernetes and the runtime: `npm run test:all` runs each of them on one of its
 * pairs, chosen so that both take about as long. All other commands run them on every pair.
 */
export const caseTags = [
  { name: 'newest', description: 'npm run test:all runs it on the newest Kubernetes only' },
  { name: 'oldest', description: 'npm run test:all runs it on the oldest Kubernetes only' },
];
