/** In which sandboxes claims are, and which sandboxes live as far as the runtime has said. */
export class LivePods {
  readonly #places = new Map<string, string>();
  #living = new Set<string>();

  add(sandboxId: string): void {
    this.#living.add(sandboxId);
  }

  end(sandboxId: string): void {
    this.#living.delete(sandboxId);
  }

  /** @param sandboxIds of all that live */
  list(sandboxIds: readonly string[]): void {
    this.#living = new Set(sandboxIds);
  }

  /** @returns where the claim was, if that lives */
  move(claimUid: string, sandboxId: string | undefined): string | undefined {
    const before = this.of(claimUid);
    if (sandboxId === undefined) this.#places.delete(claimUid);
    else this.#places.set(claimUid, sandboxId);
    return before;
  }

  forget(claimUid: string): void {
    this.#places.delete(claimUid);
  }

  /** The sandbox that a claim is in, if it lives. */
  of(claimUid: string): string | undefined {
    const sandboxId = this.#places.get(claimUid);
    return sandboxId !== undefined && this.#living.has(sandboxId) ? sandboxId : undefined;
  }
}
