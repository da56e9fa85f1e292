import { isDeepStrictEqual } from 'node:util';
import type { ClaimIdentity } from '../document/document.ts';
import { closeGate, type Gate, openFor, writeGate } from '../gate/gate.ts';
import { isAwaited } from '../gate/waiting-sandbox.ts';
import { claimDirectory } from '../layouts/layout-v1.ts';
import type { ClaimFiles } from './claim-files.ts';
import { type ClaimState, hasGate, type RequestState } from './claim-state.ts';
import type { ClaimStates } from './claim-states.ts';
import { makeDirectory } from './host-file.ts';
import { findUnwritten } from './ownership.ts';

/**
 * Decides which sandbox a claim is served for: the only writer of `servedBy` in the claim's record and of the gate file,
 * which follows from it. The gate is never open longer than the record says: it opens after the record is written, and
 * closes before.
 */
export class ClaimGate {
  readonly #dataDir: string;
  readonly #states: ClaimStates;
  readonly #files: Pick<ClaimFiles, 'writeRequest'>;

  constructor(states: ClaimStates, files: Pick<ClaimFiles, 'writeRequest'>) {
    this.#dataDir = states.dataDir;
    this.#states = states;
    this.#files = files;
  }

  /**
   * Returns the state of a claim that is being prepared. It stays served only if its gate is open and all requests have
   * content; otherwise its sandbox must be checked first.
   */
  prepared(state: ClaimState): ClaimState {
    const isOpen = !hasGate(state) || openFor(this.#dataDir, state.claim) === state.servedBy;
    // The claim may have been served while metadata was off, or for fewer requests.
    return isOpen && findUnwritten(state) === undefined ? state : { ...state, servedBy: null };
  }

  /** Closes a gate that is open for another sandbox than the served one. Call it before a file can be blank. */
  writeRequest(state: ClaimState): void {
    const isGated = hasGate(state);
    // Containers wait only in an existing directory, whether it has files or not.
    if (isGated) makeDirectory(claimDirectory(this.#dataDir, state.claim));
    // Keeps the gate's text for containers that wait or have ended. It is opened only by an update or `open`, for a sandbox
    // that was looked at.
    const open = isGated ? openFor(this.#dataDir, state.claim) : undefined;
    if (open !== null && open !== state.servedBy) closeGate(this.#dataDir, state.claim);
  }

  /**
   * Writes new content of a request. The gate opens once all requests that containers wait for were updated for the
   * sandbox.
   * @param sandboxId absent: the gate stays as it is
   * @returns whether a file was written
   */
  update(state: ClaimState, base: string, content: RequestState, sandboxId?: string): boolean {
    const written = { ...state, requests: { ...state.requests, [base]: content } };
    const next = sandboxId === undefined ? written : updatedFor(written, base, sandboxId);
    // The state is written first, so that no generation is used twice.
    this.#write(state, next);
    const isWritten = this.#files.writeRequest(next, base);
    if (sandboxId !== undefined && next.servedBy === sandboxId) this.#letIn(next, sandboxId, base);
    return isWritten;
  }

  /** Opens the gate without an update. */
  open(state: ClaimState, sandboxId: string): void {
    const next = servedFor(state, sandboxId);
    this.#write(state, next);
    this.#letIn(next, sandboxId);
  }

  /**
   * Closes the gate, and blanks or removes the files of requests.
   * @param bases default: all
   * @param endedId the sandbox whose end is the reason: its containers fail at once
   */
  withdraw(claim: ClaimIdentity, bases: readonly string[] | undefined, endedId?: string): void {
    const state = this.#readOrClose(claim);
    if (state?.claim.uid !== claim.uid) return;
    closeGate(this.#dataDir, claim);
    const over = Object.entries(state.requests).filter(([base]) => bases?.includes(base) ?? true);
    const withdrawn = over.map(([base, { content: _over, ...request }]) => [base, request]);
    const { opening: _ended, ...kept } = state;
    const requests = { ...state.requests, ...Object.fromEntries(withdrawn) };
    const next: ClaimState = { ...kept, requests, servedBy: null };
    // The state is written first: after a crash the next call still knows that the content is withdrawn.
    this.#write(state, next);
    for (const [base] of over) this.#files.writeRequest(next, base);
    if (endedId === undefined || !hasGate(next)) return;
    writeGate(this.#dataDir, claim, { state: 'ended', sandboxId: endedId }, { isClosed: true });
  }

  /**
   * Tells the containers of a sandbox that they must wait, or that the sandbox has ended. A gate that is open for another
   * sandbox stays open.
   */
  keepOut(claim: ClaimIdentity, gate: Gate): void {
    const state = this.#states.read(claim);
    if (state?.claim.uid !== claim.uid || !hasGate(state)) return;
    if (state.servedBy && state.servedBy !== gate.sandboxId) return;
    writeGate(this.#dataDir, claim, gate);
    if (closedFor(state, gate.sandboxId) === state) return;
    // Read again: the end of a sandbox does not wait for the lock of its claims, which another instance may hold.
    this.#states.together(() => {
      const current = this.#states.read(claim);
      if (current?.claim.uid === claim.uid) this.#write(current, closedFor(current, gate.sandboxId));
    });
  }

  #write(before: ClaimState, next: ClaimState): void {
    if (next !== before && !isDeepStrictEqual(next, before)) this.#states.write(next);
  }

  /** Opens the gate. Call it after the state is recorded. @param written a request whose files were just written */
  #letIn(state: ClaimState, sandboxId: string, written?: string): void {
    const others = Object.entries(state.requests).filter(([base]) => base !== written);
    const isOpen = others.length > 0 && openFor(this.#dataDir, state.claim) === sandboxId;
    // No update writes files whose content is known since prepare: they may have been removed or damaged since. Other files lack
    // what is recorded if the write of an earlier update failed.
    for (const [base, { isGated }] of others) {
      if (!isOpen || isGated !== true) this.#files.writeRequest(state, base);
    }
    // Containers of before the driver was started without the gate may still wait.
    if (hasGate(state) || isAwaited(this.#dataDir, state.claim, sandboxId))
      writeGate(this.#dataDir, state.claim, { state: 'served', sandboxId });
  }

  /**
   * Reads the state, or closes the gate: while a claim's record is unreadable, its files stay and no container may start
   * with them.
   */
  #readOrClose(claim: ClaimIdentity): ClaimState | undefined {
    try {
      return this.#states.read(claim);
    } catch (error) {
      closeGate(this.#dataDir, claim);
      throw error;
    }
  }
}

/** Returns the state in which containers of this sandbox, and of no other, may start. */
function servedFor({ opening: _over, ...state }: ClaimState, sandboxId: string): ClaimState {
  return { ...state, servedBy: sandboxId };
}

/**
 * Returns the state after an update of a request for a sandbox: served once all requests that containers wait for are
 * updated.
 */
function updatedFor(state: ClaimState, base: string, sandboxId: string): ClaimState {
  if (state.servedBy === sandboxId) return state;
  const before = state.opening?.sandboxId === sandboxId ? state.opening.requests : [];
  const requests = [...new Set([...before, base])];
  const isComplete = Object.entries(state.requests).every(([name, { isGated }]) => !isGated || requests.includes(name));
  return isComplete ? servedFor(state, sandboxId) : { ...state, opening: { sandboxId, requests } };
}

/** Returns the state with which containers of the sandbox may not start; `state` itself if that is so already. */
function closedFor(state: ClaimState, sandboxId: string): ClaimState {
  const { opening, ...rest } = state;
  const isOpening = opening?.sandboxId === sandboxId;
  if (state.servedBy !== sandboxId && !isOpening) return state;
  const servedBy = state.servedBy === sandboxId ? null : state.servedBy;
  return { ...rest, servedBy, ...(opening !== undefined && !isOpening && { opening }) };
}
