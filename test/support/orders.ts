/** The orders of a parent to its process, and the answers; the parent's side is in `crew.ts`. */

/** What a process can be ordered to do. Arguments and answers travel in messages. */
export interface Serving {
  /** Ends everything; answers how many operations are still open. */
  close(): Promise<number>;
}

interface Order {
  readonly id: number;
  readonly kind: string;
  readonly args: readonly unknown[];
}

/** Carries out what the parent orders. */
export function serve(orders: Serving): void {
  const byKind = orders as unknown as Record<string, (...args: readonly unknown[]) => unknown>;
  process.on('message', ({ id, kind, args }: Order) => {
    // An order may block the event loop: its arrival is confirmed first.
    process.send?.({ id, begun: true }, () => {
      Promise.resolve()
        .then(() => byKind[kind]?.(...args))
        .then(
          (value) => process.send?.({ id, value }),
          (error: Error) => process.send?.({ id, error: String(error.stack) }),
        );
    });
  });
}
