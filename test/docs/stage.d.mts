/** What `stage.mjs` gives the blocks, for the compiler. */

import type * as holdfast from 'holdfast';

/** What the pages use of a pool of pg. */
interface Database {
  query(text: string, values?: readonly unknown[]): Promise<Result>;
}

interface Result {
  readonly rowCount: number | null;
  readonly rows: readonly { readonly n: number }[];
}

declare global {
  const locks: holdfast.LockManager;
  const others: holdfast.LockManager;
  const db: Database;
  const shop: string;
  const connect: typeof holdfast.connect;
  const LockError: typeof holdfast.LockError;
  const LockClosedError: typeof holdfast.LockClosedError;
  const LockConnectionError: typeof holdfast.LockConnectionError;
  const LockQuorumError: typeof holdfast.LockQuorumError;
  const LockServerError: typeof holdfast.LockServerError;
  const LockTimeoutError: typeof holdfast.LockTimeoutError;
  const LockUnmarkedError: typeof holdfast.LockUnmarkedError;
  const StaleFenceError: typeof holdfast.StaleFenceError;
  function somebodyWaits(name: string): Promise<void>;
  function finish(...work: unknown[]): Promise<void>;
  function rebuild(...work: unknown[]): Promise<void>;
  function report(...work: unknown[]): Promise<void>;
  function settle(...work: unknown[]): Promise<void>;
  function transfer(...work: unknown[]): Promise<void>;
}
