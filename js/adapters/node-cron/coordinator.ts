/** The coordinator of tasks with `distributed: true`. */

import { checkObject, checkWhole } from '../../base/checks.js';
import type { Duration } from '../../base/time.js';
import type { LockManager } from '../../manager/manager.js';

/**
 * Options of `runCoordinator`.
 *
 * @example
 * ```ts
 * import type { CoordinatorOptions } from 'holdfast/node-cron'
 *
 * const options: CoordinatorOptions = { keep: 3_600_000 }
 * ```
 */
export interface CoordinatorOptions {
  /**
   * How long a planned time stays taken at least, in whole ms, at most 366 days: longer than any process can be late. A
   * task's `distributedLease`, 30 s by default, counts if it is longer.
   *
   * @default 60000
   */
  readonly keep?: Duration | undefined;
}

/**
 * The `RunCoordinator` that node-cron 4.5 and later ask before each run of a task with `distributed: true`.
 *
 * @example
 * ```ts
 * import { runCoordinator, type TaskCoordinator } from 'holdfast/node-cron'
 *
 * const coordinator: TaskCoordinator = runCoordinator(locks)
 * ```
 */
export interface TaskCoordinator {
  /** Whether this process runs the task at the planned time that `key` names. */
  shouldRun(key: string, ttlMs: number): Promise<boolean>;
}

const OPTIONS = ['keep'];
const TIMES: ReadonlySet<string> = new Set(OPTIONS);
const KEEP_MS = 60_000;
const KEEP_MS_LEAST = 1_000;
const KEEP_MS_MAX = 366 * 86_400_000;

/**
 * Makes the coordinator of node-cron's tasks, for `cron.setRunCoordinator` or for the option `runCoordinator` of one task.
 * Among the processes whose task has the same `name`, the first to ask runs it at a planned time: it takes the lock
 * `name:time`, such as `report:2026-11-26T09:00:00.000Z`, which nobody releases. A task needs `distributed: true`, and a
 * name, since node-cron gives one without a name another in each process.
 *
 * It chooses who runs, and holds no lock while the task does: if two runs must not overlap, the task takes one.
 *
 * @throws RangeError or TypeError for wrong options.
 * @throws From `shouldRun`, what `tryAcquire` throws: node-cron then skips the run, and tells its logger.
 *
 * @example
 * ```ts
 * import cron from 'node-cron'
 * import { runCoordinator } from 'holdfast/node-cron'
 *
 * cron.setRunCoordinator(runCoordinator(locks))
 * const task = cron.schedule('0 9 * * 1-5', () => settle(), { name: 'report', distributed: true, timezone: 'Europe/Berlin' })
 *
 * // When the service ends:
 * await task.destroy()
 * ```
 */
export function runCoordinator(locks: LockManager, options?: CoordinatorOptions): TaskCoordinator {
  const { keep = KEEP_MS } = checkObject<CoordinatorOptions>(
    options,
    OPTIONS,
    'runCoordinator',
    TIMES,
  );
  checkWhole(keep, 'keep', KEEP_MS_LEAST, KEEP_MS_MAX);
  return {
    async shouldRun(key, ttlMs) {
      const ttl = Math.max(keep, ttlMs);
      return (await locks.tryAcquire(key, { ttl, renew: false, leaveToExpire: true })) !== null;
    },
  };
}
