/**
 * Metrics of managers for Prometheus, with prom-client.
 *
 * @packageDocumentation
 */

import { Counter, Gauge, Histogram, type Registry, register } from 'prom-client';
import { checkObject, checkText } from '../base/checks.js';
import { argumentError } from '../base/errors.js';
import type { LockManager } from '../manager/manager.js';
import type { LockKinds } from './kinds.js';
import {
  COUNTS,
  checkManager,
  LEADING,
  LEVELS,
  LOST_REASONS,
  Measures,
  PERMITS,
  WARNING_CODES,
} from './measures.js';

export type { LockKinds } from './kinds.js';

/**
 * Options of `measureLocks`.
 *
 * @example
 * ```ts
 * import { Registry } from 'prom-client'
 * import { measureLocks } from 'holdfast/prometheus'
 *
 * measureLocks(locks, { registry: new Registry(), manager: 'orders' })
 * ```
 */
export interface MeasureOptions {
  /**
   * Where the metrics are registered.
   *
   * @default the global registry of prom-client
   */
  readonly registry?: Registry;
  /**
   * The label `manager` of all series, which tells several managers of one registry apart.
   *
   * @default 'default'
   */
  readonly manager?: string;
  /**
   * The kinds of locks, the label `kind`: a list of kinds, or a function from a name to its kind.
   *
   * @default what stands in front of the first separator of the name; 100 kinds at most, the rest is `other`
   */
  readonly kinds?: LockKinds;
}

// With these, 100 kinds of locks that are acquired and released have less than 2 000 series.
const WAITS = [0.001, 0.01, 0.1, 1, 10, 60];
const HOLDS = [0.01, 0.1, 1, 10, 60, 600];

/**
 * Registers the metrics of a manager. Several managers share the metrics of a registry; each has its own label. When
 * the manager is closed its series are removed.
 *
 * @returns A function that removes them earlier.
 * @throws TypeError for what is no manager, if the registry has a manager of this label, or for a wrong option.
 *
 * @example
 * ```ts
 * import { register } from 'prom-client'
 * import { measureLocks } from 'holdfast/prometheus'
 *
 * measureLocks(locks)
 * await locks.request('item:42', () => {})
 * console.log((await register.metrics()).includes('holdfast_acquired_total{manager="default"} 1')) // true
 * ```
 */
export function measureLocks(locks: LockManager, options: MeasureOptions = {}): () => void {
  checkManager(locks);
  const known = ['registry', 'manager', 'kinds'];
  const given = checkObject<MeasureOptions>(options, known, 'measureLocks');
  const { registry = register, manager = 'default', kinds } = given;
  checkText(manager, 'manager');
  const metrics = sharedMetrics(registry);
  if (metrics.measured.has(manager)) {
    const message = `the registry already has the metrics of a manager "${manager}": give each manager its own label by the option manager`;
    throw argumentError('ERR_INVALID_ARG_VALUE', message);
  }
  /** Removes one series each, by its labels. */
  const series = new Map<string, () => void>();
  const measures = new Measures(locks, kinds, {
    acquired: (seconds, kind, outcome) => {
      const labels = { manager, kind, outcome };
      metrics.waits.observe(labels, seconds);
      series.set(`wait ${kind} ${outcome}`, () => metrics.waits.remove(labels));
    },
    ended: (seconds, kind, end) => {
      const labels = { manager, kind, end };
      metrics.holds.observe(labels, seconds);
      series.set(`hold ${kind} ${end}`, () => metrics.holds.remove(labels));
    },
    lost: (reason) => metrics.losses.inc({ manager, reason }),
  });
  // From 0 on, so that an alert sees the first loss rise.
  for (const reason of LOST_REASONS) metrics.losses.inc({ manager, reason }, 0);
  metrics.measured.set(manager, { locks, measures });
  const end = () => {
    measures.end();
    locks.off('close', end);
    if (metrics.measured.get(manager)?.measures !== measures) return;
    metrics.measured.delete(manager);
    for (const reason of LOST_REASONS) metrics.losses.remove({ manager, reason });
    for (const remove of series.values()) remove();
  };
  locks.on('close', end);
  return end;
}

/** The metrics of one registry. */
interface Metrics {
  readonly measured: Map<string, { readonly locks: LockManager; readonly measures: Measures }>;
  readonly waits: Histogram<'manager' | 'kind' | 'outcome'>;
  readonly holds: Histogram<'manager' | 'kind' | 'end'>;
  readonly losses: Counter<'manager' | 'reason'>;
}

const known = new WeakMap<Registry, Metrics>();

function sharedMetrics(registry: Registry): Metrics {
  const before = known.get(registry);
  // A registry that was cleared, as tests do it, gets the metrics anew.
  if (before !== undefined && registry.getSingleMetric('holdfast_held') !== undefined)
    return before;
  const metrics = makeMetrics(registry);
  known.set(registry, metrics);
  return metrics;
}

function makeMetrics(registry: Registry): Metrics {
  const registers = [registry];
  const measured: Metrics['measured'] = new Map();
  const labelNames = ['manager'] as const;
  for (const { prometheus: name, help, read } of COUNTS) {
    new Counter({
      name,
      help,
      labelNames,
      registers,
      collect() {
        this.reset();
        for (const [manager, { locks, measures }] of measured) {
          this.inc({ manager }, read(locks, measures));
        }
      },
    });
  }
  for (const { prometheus: name, help, read } of LEVELS) {
    new Gauge({
      name,
      help,
      labelNames,
      registers,
      collect() {
        this.reset();
        for (const [manager, { locks, measures }] of measured) {
          this.set({ manager }, read(locks, measures));
        }
      },
    });
  }
  registerHandOffs(registers, measured);
  registerLeads(registers, measured);
  registerPermits(registers, measured);
  registerWarnings(registers, measured);
  return {
    measured,
    waits: new Histogram({
      name: 'holdfast_acquire_seconds',
      help: 'How long acquiring took, waiting included',
      labelNames: ['manager', 'kind', 'outcome'],
      buckets: WAITS,
      registers,
    }),
    holds: new Histogram({
      name: 'holdfast_hold_seconds',
      help: 'How long locks were held, until they were released or lost',
      labelNames: ['manager', 'kind', 'end'],
      buckets: HOLDS,
      registers,
    }),
    losses: new Counter({
      name: 'holdfast_lost_total',
      help: 'Locks lost',
      labelNames: ['manager', 'reason'],
      registers,
    }),
  };
}

/** A series for each name for which a manager campaigns. */
function registerLeads(registers: Registry[], measured: Metrics['measured']): void {
  new Gauge({
    name: LEADING.prometheus,
    help: LEADING.help,
    labelNames: ['manager', 'lead'],
    registers,
    collect() {
      this.reset();
      for (const [manager, { locks }] of measured) {
        for (const { name, leading } of locks.stats().leads) {
          this.set({ manager, lead: name }, Number(leading));
        }
      }
    },
  });
}

/** A series for each kind of semaphores. */
function registerPermits(registers: Registry[], measured: Metrics['measured']): void {
  for (const { of, prometheus: name, help } of PERMITS) {
    new Gauge({
      name,
      help,
      labelNames: ['manager', 'kind'],
      registers,
      collect() {
        this.reset();
        for (const [manager, { measures }] of measured) {
          for (const [kind, permits] of measures.permits) this.set({ manager, kind }, permits[of]);
        }
      },
    });
  }
}

/** The manager has a histogram already: its buckets, added up as `histogram_quantile` wants them. */
function registerHandOffs(registers: Registry[], measured: Metrics['measured']): void {
  new Counter({
    name: 'holdfast_hand_off_seconds_bucket',
    help: 'How long handoffs from other processes took',
    labelNames: ['manager', 'le'],
    registers,
    collect() {
      this.reset();
      for (const [manager, { locks }] of measured) {
        let sum = 0;
        for (const { upTo, count } of locks.stats().handOffs) {
          sum += count;
          const le = upTo === Number.POSITIVE_INFINITY ? '+Inf' : String(upTo / 1000);
          this.inc({ manager, le }, sum);
        }
      }
    },
  });
}

/** A gauge: what a warning says about a server is true until somebody sees to it. */
function registerWarnings(registers: Registry[], measured: Metrics['measured']): void {
  new Gauge({
    name: 'holdfast_warnings',
    help: 'Warnings since the manager was connected; of a cause on servers, how many have it',
    labelNames: ['manager', 'code'],
    registers,
    collect() {
      this.reset();
      for (const [manager, { locks }] of measured) {
        for (const code of WARNING_CODES) {
          this.set({ manager, code }, locks.warnings.get(code) ?? 0);
        }
      }
    },
  });
}
