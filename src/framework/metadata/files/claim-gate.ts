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
 * Decides for which sandbox a claim is served. Only this class writes `servedBy` in the claim's record, and the gate file,
 * which follows from it. The gate is never open longer than the record says: it opens after the record is written, and closes
 * before.
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
   * Returns the state of a claim that is being prepared. The claim remains served only if its gate is open and all requests
   * have content; otherwise its sandbox must be checked first.
   */
  prepared(state: ClaimState): ClaimState {
    const isOpen = !hasGate(state) || openFor(this.#dataDir, state.claim) === state.servedBy;
    // The claim may have been served while metadata was off, or for fewer requests.
    return isOpen && findUnwritten(state) === undefined ? state : { ...state, servedBy: null };
  }

  /**
   * Closes a gate that is open for another sandbox than the served one. Creates the claim's directory if it has a gate. Must be
   * called before `ClaimFiles.writeRequest`: with an open gate, containers would start with blank files.
   */
  writeRequest(state: ClaimState): void {
    const isGated = hasGate(state);
    // Containers wait only in an existing directory, whether or not the directory has files.
    if (isGated) makeDirectory(claimDirectory(this.#dataDir, state.claim));
    // Other content of the gate stays, for containers that wait or have ended. Only an update and `open` open a gate, for a
    // sandbox that was checked.
    const open = isGated ? openFor(this.#dataDir, state.claim) : undefined;
    if (open !== null && open !== state.servedBy) closeGate(this.#dataDir, state.claim);
  }

  /**
   * Writes new content of a request. The gate opens when all requests for which containers wait were updated for the sandbox.
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
   * Closes the gate, and blanks the files of requests, or hides them if there is no gate.
   * @param bases base names of the requests; default: all
   * @param endedId ID of the sandbox whose end is the reason: its containers fail at once
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
   * Tells the containers of a sandbox to wait, or that the sandbox has ended. A gate that is open for another sandbox stays
   * open.
   */
  keepOut(claim: ClaimIdentity, gate: Gate): void {
    const state = this.#states.read(claim);
    if (state?.claim.uid !== claim.uid || !hasGate(state)) return;
    if (state.servedBy && state.servedBy !== gate.sandboxId) return;
    writeGate(this.#dataDir, claim, gate);
    if (closedFor(state, gate.sandboxId) === state) return;
    // Read again within the step: the call for the end of a sandbox holds no lock of the claim, and another instance may be
    // working on it.
    this.#states.together(() => {
      const current = this.#states.read(claim);
      if (current?.claim.uid === claim.uid) this.#write(current, closedFor(current, gate.sandboxId));
    });
  }

  #write(before: ClaimState, next: ClaimState): void {
    if (next !== before && !isDeepStrictEqual(next, before)) this.#states.write(next);
  }

  /**
   * Opens the gate. Call it after the state is recorded. @param written base name of a request whose files were just written
   */
  #letIn(state: ClaimState, sandboxId: string, written?: string): void {
    const others = Object.entries(state.requests).filter(([base]) => base !== written);
    const isOpen = others.length > 0 && openFor(this.#dataDir, state.claim) === sandboxId;
    // Writes the files of the other requests. Files with content from prepare get no update and may have been removed or
    // damaged since; other files are out of date if an earlier update failed to write them.
    for (const [base, { isGated }] of others) {
      if (!isOpen || isGated !== true) this.#files.writeRequest(state, base);
    }
    // Containers that started while the driver still had a gate may be waiting.
    if (hasGate(state) || isAwaited(this.#dataDir, state.claim, sandboxId))
      writeGate(this.#dataDir, state.claim, { state: 'served', sandboxId });
  }

  /**
   * Reads the state of a claim. Closes the gate if the record is unreadable: the claim's files stay, and no container may start
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

/** Returns the state in which only containers of this sandbox may start. */
function servedFor({ opening: _over, ...state }: ClaimState, sandboxId: string): ClaimState {
  return { ...state, servedBy: sandboxId };
}

/**
 * Returns the state after an update of a request for a sandbox. The claim is served once all requests for which containers wait
 * are updated.
 */
function updatedFor(state: ClaimState, base: string, sandboxId: string): ClaimState {
  if (state.servedBy === sandboxId) return state;
  const before = state.opening?.sandboxId === sandboxId ? state.opening.requests : [];
  const requests = [...new Set([...before, base])];
  const isComplete = Object.entries(state.requests).every(([name, { isGated }]) => !isGated || requests.includes(name));
  return isComplete ? servedFor(state, sandboxId) : { ...state, opening: { sandboxId, requests } };
}

/** Returns the state in which containers of the sandbox may not start; `state` itself if they may not already. */
function closedFor(state: ClaimState, sandboxId: string): ClaimState {
  const { opening, ...rest } = state;
  const isOpening = opening?.sandboxId === sandboxId;
  if (state.servedBy !== sandboxId && !isOpening) return state;
  const servedBy = state.servedBy === sandboxId ? null : state.servedBy;
  return { ...rest, servedBy, ...(opening !== undefined && !isOpening && { opening }) };
}
