/**
 * Spans and metrics of managers, with the API of OpenTelemetry.
 *
 * @packageDocumentation
 */

import { tracingChannel } from 'node:diagnostics_channel';
import {
  type Attributes,
  type BatchObservableResult,
  type Meter,
  metrics,
  type Observable,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from '@opentelemetry/api';
import { checkObject, checkText, show } from '../base/checks.js';
import type { LockTrace } from '../lock/diagnostics.js';
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
import { tolerant } from './tolerant.js';

export type { LockKinds } from './kinds.js';

const OPERATIONS = ['acquire', 'extend', 'release'] as const;

/** A message of a tracing channel, with what Node adds in the end. */
interface Ended extends LockTrace {
  readonly result?: { readonly mode?: string; readonly fence?: number } | null;
  /** Any value, if the caller's signal has ended the acquire. */
  readonly error?: unknown;
}

/**
 * Makes a span of every acquire, extend and release of this process, as a child of the span that is active in the
 * calling code.
 *
 * @returns A function that ends this.
 *
 * @example
 * ```ts
 * import { trace } from '@opentelemetry/api'
 * import { traceLocks } from 'holdfast/opentelemetry'
 *
 * const end = traceLocks(trace.getTracer('shop'))
 * await locks.request('item:42', () => {})
 * end()
 * ```
 */
export function traceLocks(tracer: Tracer = trace.getTracer('holdfast')): () => void {
  const ends = OPERATIONS.map((operation) => traceOperation(tracer, operation));
  return () => {
    for (const end of ends) end();
  };
}

function traceOperation(tracer: Tracer, operation: (typeof OPERATIONS)[number]): () => void {
  const channel = tracingChannel<LockTrace, LockTrace>(`holdfast:${operation}`);
  const spans = new WeakMap<object, Span>();
  const attempt = tolerant('traceLocks');
  // Node gives all of them the same message for one operation, with its result or error in the end.
  const subscribers = {
    start(message: LockTrace) {
      attempt(() => {
        const attributes = { 'lock.name': message.lock, ...serverOf(message.server) };
        const span = tracer.startSpan(`lock ${operation}`, { kind: SpanKind.CLIENT, attributes });
        spans.set(message, span);
      });
    },
    asyncEnd(message: LockTrace) {
      const span = spans.get(message);
      // A subscriber that came in the middle of an operation has not seen its start.
      if (span !== undefined) attempt(() => finish(span, message));
    },
    end() {},
    asyncStart() {},
    error() {},
  };
  channel.subscribe(subscribers);
  return () => channel.unsubscribe(subscribers);
}

function finish(span: Span, message: Ended): void {
  const { error, outcome, result = null } = message;
  if (outcome !== undefined) describe(span, outcome, result);
  if ('error' in message) fail(span, error, outcome);
  span.end();
}

/** The attributes of the semantic conventions, where the target is one server. */
function serverOf(server: string): Attributes {
  const [, host, port] = /^[a-z]+:\/\/(.+):(\d+)(?:\/\d*)?$/.exec(server) ?? [];
  if (host === undefined || port === undefined) return { 'server.address': server };
  return { 'server.address': host, 'server.port': Number(port) };
}

/** `null` is the answer of a `tryAcquire` whose lock was taken: no error. */
function describe(
  span: Span,
  outcome: string,
  lock: { mode?: string; fence?: number } | null,
): void {
  span.setAttribute('lock.outcome', outcome);
  span.setAttribute('lock.acquired', lock !== null);
  if (lock?.mode !== undefined) span.setAttribute('lock.mode', lock.mode);
  // Several locks that were acquired together have one each.
  if (lock?.fence !== undefined) span.setAttribute('lock.fence', lock.fence);
}

function fail(span: Span, given: unknown, outcome: string | undefined): void {
  const error: Error & { readonly code?: string } =
    given instanceof Error ? given : new Error(show(given));
  span.recordException(error);
  span.setAttribute('error.type', outcome ?? error.code ?? error.name);
  span.setStatus({ code: SpanStatusCode.ERROR, message: error.message });
}

/**
 * Options of `measureLocks`.
 *
 * @example
 * ```ts
 * import { metrics } from '@opentelemetry/api'
 * import { measureLocks } from 'holdfast/opentelemetry'
 *
 * measureLocks(locks, { meter: metrics.getMeter('shop'), manager: 'orders' })
 * ```
 */
export interface MeasureOptions {
  /**
   * Makes the instruments.
   *
   * @default the meter `holdfast` of the global provider
   */
  readonly meter?: Meter;
  /**
   * The attribute `lock.manager` of all measurements, which tells several managers of one meter apart.
   *
   * @default 'default'
   */
  readonly manager?: string;
  /**
   * The kinds of locks, the attribute `lock.kind`: a list of kinds, or a function from a name to its kind.
   *
   * @default what stands in front of the first separator of the name; 100 kinds at most, the rest is `other`
   */
  readonly kinds?: LockKinds;
}

/**
 * Makes metrics of a manager, until it is closed: `holdfast.acquire.duration` and `holdfast.hold.duration` in
 * seconds, and what `stats()` counts.
 *
 * @returns A function that ends this earlier.
 * @throws TypeError for what is no manager, or for a wrong option.
 *
 * @example
 * ```ts
 * import { measureLocks } from 'holdfast/opentelemetry'
 *
 * const end = measureLocks(locks)
 * await locks.request('item:42', () => {})
 * end()
 * ```
 */
export function measureLocks(locks: LockManager, options: MeasureOptions = {}): () => void {
  checkManager(locks);
  const known = ['meter', 'manager', 'kinds'];
  const given = checkObject<MeasureOptions>(options, known, 'measureLocks');
  const { meter = metrics.getMeter('holdfast'), manager = 'default', kinds } = given;
  checkText(manager, 'manager');
  const ours = { 'lock.manager': manager };
  const waits = meter.createHistogram('holdfast.acquire.duration', {
    unit: 's',
    description: 'How long acquiring took, waiting included',
  });
  const holds = meter.createHistogram('holdfast.hold.duration', {
    unit: 's',
    description: 'How long locks were held, until they were released or lost',
  });
  const losses = meter.createCounter('holdfast.lost', { description: 'Locks lost' });
  const measures = new Measures(locks, kinds, {
    acquired: (seconds, kind, outcome) =>
      waits.record(seconds, { ...ours, 'lock.kind': kind, 'lock.outcome': outcome }),
    ended: (seconds, kind, end) =>
      holds.record(seconds, { ...ours, 'lock.kind': kind, 'lock.end': end }),
    lost: (reason) => losses.add(1, { ...ours, 'lock.lost.reason': reason }),
  });
  // From 0 on, so that an alert sees the first loss rise.
  for (const reason of LOST_REASONS) losses.add(0, { ...ours, 'lock.lost.reason': reason });
  const unobserve = observe(meter, locks, measures, ours);
  const end = () => {
    measures.end();
    unobserve();
    locks.off('close', end);
  };
  locks.on('close', end);
  return end;
}

/** Has the meter read the manager's counters and levels. Returns a function that ends this. */
function observe(
  meter: Meter,
  locks: LockManager,
  measures: Measures,
  attributes: Attributes,
): () => void {
  const reads = new Map<Observable, () => number>();
  for (const { opentelemetry: name, help: description, read } of COUNTS) {
    const counter = meter.createObservableCounter(name, { description });
    reads.set(counter, () => read(locks, measures));
  }
  for (const { opentelemetry: name, help: description, read } of LEVELS) {
    const unit = name.endsWith('.duration') ? { unit: 's' } : {};
    const gauge = meter.createObservableGauge(name, { description, ...unit });
    reads.set(gauge, () => read(locks, measures));
  }
  const leading = meter.createObservableGauge(LEADING.opentelemetry, { description: LEADING.help });
  const warnings = meter.createObservableGauge('holdfast.warnings', {
    description:
      'Warnings since the manager was connected; of a cause on servers, how many have it',
  });
  const permits = PERMITS.map(({ of, opentelemetry, help: description }) => {
    return { of, gauge: meter.createObservableGauge(opentelemetry, { description }) };
  });
  const gauges = permits.map(({ gauge }) => gauge);
  const observables = [...reads.keys(), leading, warnings, ...gauges];
  const callback = (result: BatchObservableResult) => {
    for (const [observable, read] of reads) result.observe(observable, read(), attributes);
    for (const { name, leading: leads } of locks.stats().leads) {
      result.observe(leading, Number(leads), { ...attributes, 'lock.lead': name });
    }
    for (const [kind, counts] of measures.permits) {
      const labels = { ...attributes, 'lock.kind': kind };
      for (const { of, gauge } of permits) result.observe(gauge, counts[of], labels);
    }
    for (const code of WARNING_CODES) {
      const labels = { ...attributes, 'lock.warning.code': code };
      result.observe(warnings, locks.warnings.get(code) ?? 0, labels);
    }
  };
  meter.addBatchObservableCallback(callback, observables);
  return () => meter.removeBatchObservableCallback(callback, observables);
}
