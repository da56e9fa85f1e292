import { isDeepStrictEqual } from 'node:util';
import { cutPool } from './chunks.ts';
import { copyTaintTimes, isSameSpec } from './compare.ts';
import type { Pool, ResourceSlice, SliceContent, SliceSpec } from './model.ts';
import { sliceName } from './slice-name.ts';

/** A slice that the API server stored in another form than it was sent. */
interface KeptSlice {
  sent: SliceSpec;
  stored: SliceSpec;
}

export interface PublishedPool {
  generation: number;
  contents: SliceContent[];
  /** Slices that the server stored differently, by name. */
  kept: ReadonlyMap<string, KeptSlice>;
}

export interface PoolPlanInput {
  driver: string;
  nodeName: string;
  poolName: string;
  pool: Pool;
  actual: ResourceSlice[];
  published: PublishedPool | undefined;
}

/** Writes and deletions for a pool. Without any, the pool is up to date. */
export interface PoolPlan {
  generation: number;
  contents: SliceContent[];
  obsolete: ResourceSlice[];
  writes: { name: string; spec: SliceSpec; existing?: ResourceSlice }[];
  /** Names of slices that the server has exactly as wanted. */
  exact: string[];
  /** Whether the plan reverts changes by other clients to slices that this process published. */
  isRepair: boolean;
}

interface Place {
  name: string;
  /** Wanted spec, in the generation of the existing slice. */
  spec: SliceSpec;
  existing: ResourceSlice | undefined;
  isSame: boolean;
  /** Whether the existing slice differs from the wanted one at most in the taints of its devices. */
  hasSameDevices: boolean;
}

export function planPool(input: PoolPlanInput): PoolPlan {
  const { pool, actual, published, poolName, driver, nodeName } = input;
  const newest = Math.max(0, ...actual.map(({ spec }) => spec.pool.generation));
  const byName = new Map(actual.map((slice) => [slice.metadata.name, slice]));
  const name = (index: number) => sliceName({ driver, nodeName, pool: poolName }, index);
  const contents = cutPool(
    pool,
    actual.map((_, index) => byName.get(name(index))?.spec ?? {}),
  );
  const places = contents.map((content, index): Place => {
    const existing = byName.get(name(index));
    const generation = existing?.spec.pool.generation ?? newest;
    const spec = {
      driver,
      nodeName,
      pool: { name: poolName, generation, resourceSliceCount: contents.length },
      ...withTaintTimes(content, actual),
    };
    const kept = published?.kept.get(name(index));
    const isSame = existing !== undefined && isInPlace(existing.spec, spec, kept);
    const keptDevices = kept && { sent: untainted(kept.sent), stored: untainted(kept.stored) };
    const hasSameDevices =
      isSame || (existing !== undefined && isInPlace(untainted(existing.spec), untainted(spec), keptDevices));
    return { name: name(index), spec, existing, isSame, hasSameDevices };
  });
  const isRepair = published !== undefined && isDeepStrictEqual(published.contents, contents);
  const generation = Math.max(pool.generation ?? 1, nextGeneration(places, newest, published, isRepair));
  const names = new Set(places.map((place) => place.name));
  return {
    generation,
    contents,
    obsolete: actual.filter(({ metadata }) => !names.has(metadata.name)),
    writes: places
      .filter(({ isSame, spec }) => !isSame || spec.pool.generation !== generation)
      .map(({ name, spec, existing }) => ({
        name,
        spec: { ...spec, pool: { ...spec.pool, generation } },
        ...(existing === undefined ? {} : { existing }),
      })),
    exact: places.filter(({ existing, spec }) => existing && isSameSpec(existing.spec, spec)).map(({ name }) => name),
    isRepair,
  };
}

/**
 * Returns the generation to publish. Readers combine slices of the same generation. The generation therefore stays only if each
 * order of the writes gives valid combinations: when at most one slice changes more than the taints of its devices, or when
 * slices are restored. The Go helper's controller, in contrast, also increments it for restored slices.
 */
function nextGeneration(
  places: Place[],
  newest: number,
  published: PublishedPool | undefined,
  isRepair: boolean,
): number {
  if (isRepair && published !== undefined && newest <= published.generation) return published.generation;
  const isMissing = places.some(({ existing }) => existing === undefined);
  const isOld = places.some(({ spec }) => spec.pool.generation !== newest);
  const changed = places.filter(({ hasSameDevices }) => !hasSameDevices).length;
  if (newest > 0 && !isMissing && !isOld && changed <= 1) return newest;
  return Math.max(newest, published?.generation ?? 0) + 1;
}

function untainted({ devices = [], ...spec }: SliceSpec): SliceSpec {
  return { ...spec, devices: devices.map(({ taints: _taints, ...device }) => device) };
}

function withTaintTimes({ devices, sharedCounters }: SliceContent, actual: ResourceSlice[]): SliceContent {
  if (devices === undefined) return sharedCounters === undefined ? {} : { sharedCounters };
  return {
    devices: copyTaintTimes(
      devices,
      actual.flatMap(({ spec }) => spec.devices ?? []),
    ),
  };
}

function isInPlace(existing: SliceSpec, spec: SliceSpec, kept: KeptSlice | undefined): boolean {
  if (isSameSpec(existing, spec)) return true;
  if (kept === undefined) return false;
  // Another instance that publishes the same devices may have raised the generation.
  const now = (each: SliceSpec) => ({ ...each, pool: { ...each.pool, generation: spec.pool.generation } });
  return isSameSpec(now(kept.sent), spec) && isSameSpec(existing, now(kept.stored));
}
