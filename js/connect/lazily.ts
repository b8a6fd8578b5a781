import { EventEmitter } from 'node:events';
import { LockClosedError, LockConnectionError } from '../base/errors.js';
import { LockManager } from '../manager/manager.js';
import type { LockStats } from '../manager/stats.js';
import { connect } from './connect.js';
import type { ConnectOptions } from './options.js';
import type { ConnectTarget } from './target.js';

/**
 * Makes a manager without waiting for its connection, for a module that exports one, also in CommonJS: the first call that
 * needs the server connects. A server that is down, or an argument that `connect` refuses, rejects that call, and the next
 * tries again. Until then `clientId` is empty, and `stats()` counts nothing.
 *
 * @param target - As of `connect`.
 * @returns A manager like that of `connect`. After a `close` before the first call nothing connects.
 *
 * @example
 * ```ts
 * import { connectLazily } from 'holdfast'
 *
 * const locks = connectLazily('redis://127.0.0.1:6379')
 * await locks.request('item:42', async (lock) => console.log(lock.held)) // true
 * await locks.close()
 * ```
 */
export function connectLazily(target?: ConnectTarget, options?: ConnectOptions): LockManager {
  const manager = Object.create(LAZY) as LockManager;
  EventEmitter.call(manager as never);
  states.set(manager, {
    connect: () => connect(target, options),
    opening: undefined,
    opened: undefined,
    closing: undefined,
  });
  return manager;
}

interface State {
  readonly connect: () => Promise<LockManager>;
  /** The first call's connection; none after it has failed. */
  opening: Promise<LockManager> | undefined;
  opened: LockManager | undefined;
  closing: Promise<void> | undefined;
}

const states = new WeakMap<object, State>();
const stateOf = (manager: object) => states.get(manager) as State;

/** The manager behind `lazy`, connected on first use. */
async function open(lazy: LockManager): Promise<LockManager> {
  const state = stateOf(lazy);
  if (state.opened !== undefined) return state.opened;
  if (state.closing !== undefined) {
    throw new LockClosedError('the manager was closed before its first use; make a new one');
  }
  state.opening ??= begin(lazy, state);
  return state.opening;
}

async function begin(lazy: LockManager, state: State): Promise<LockManager> {
  try {
    const opened = await state.connect();
    moveListeners(lazy, opened);
    state.opened = opened;
    return opened;
  } catch (error) {
    state.opening = undefined;
    throw error;
  }
}

/** What listens from now on listens to the manager itself, so that it knows who listens to what. */
function moveListeners(lazy: LockManager, opened: LockManager): void {
  const from = lazy as unknown as EventEmitter;
  const to = opened as unknown as EventEmitter;
  for (const event of emitter.eventNames.call(from)) {
    for (const each of emitter.rawListeners.call(from, event)) {
      const { listener } = each as { listener?: () => void };
      if (listener === undefined) to.on(event, each as () => void);
      else to.once(event, listener);
    }
  }
  emitter.removeAllListeners.call(from);
}

async function close(lazy: LockManager, state: State): Promise<void> {
  const opened = await state.opening?.catch(() => undefined);
  if (opened !== undefined) return opened.close();
  emitter.emit.call(lazy as unknown as EventEmitter, 'close');
}

const emitter = EventEmitter.prototype;

type Method = (this: LockManager, ...args: unknown[]) => unknown;
type Named = Record<string, (...args: unknown[]) => unknown>;

/** The methods that need the server. */
const ASKING = [
  'acquire',
  'acquirePrepared',
  'adopt',
  'adoptAs',
  'advance',
  'forceRelease',
  'keepForeign',
  'lead',
  'leader',
  'query',
  'release',
  'request',
  'runOnce',
  'tryAcquire',
];

/** What the others answer before there is a connection. */
const UNCONNECTED: Readonly<Record<string, () => unknown>> = {
  cancelPrepared: () => undefined,
  heldSemaphores: () => [],
  now: () => performance.now(),
  prepare: () => {
    const message =
      'prepare() was called before this manager has connected: the first call that asks the server connects it';
    throw new LockConnectionError(message);
  },
  stats: () => NO_STATS,
  warn: () => undefined,
};

const NO_STATS: LockStats = {
  held: 0,
  leads: [],
  idle: 0,
  waiting: 0,
  acquired: 0,
  handedOff: 0,
  timedOut: 0,
  lost: 0,
  abandoned: 0,
  oldestHold: 0,
  renewals: 0,
  requests: 0,
  handOffs: [],
  servers: [],
};

/** Of the class of all managers, for `instanceof`, with each method replaced. */
const LAZY: object = Object.create(LockManager.prototype, {
  ...methods(
    ASKING,
    (name) =>
      async function (this: LockManager, ...args) {
        const opened = (await open(this)) as unknown as Named;
        return opened[name]?.(...args);
      },
  ),
  ...methods(
    Object.keys(UNCONNECTED),
    (name) =>
      function (this: LockManager, ...args) {
        const { opened } = stateOf(this);
        if (opened === undefined) return UNCONNECTED[name]?.();
        return (opened as unknown as Named)[name]?.(...args);
      },
  ),
  ...methods(
    Object.keys(emitter).filter((name) => typeof (emitter as never)[name] === 'function'),
    (name) =>
      function (this: LockManager, ...args) {
        const { opened } = stateOf(this);
        const own = (emitter as unknown as Named)[name];
        const result =
          opened === undefined
            ? own?.apply(this, args)
            : (opened as unknown as Named)[name]?.(...args);
        return result === opened && opened !== undefined ? this : result;
      },
  ),
  ...methods(
    ['close'],
    () =>
      function (this: LockManager) {
        const state = stateOf(this);
        state.closing ??= close(this, state);
        return state.closing;
      },
  ),
  ...methods(
    ['queryPages'],
    () =>
      async function* (this: LockManager, ...args) {
        const opened = await open(this);
        yield* opened.queryPages(...(args as Parameters<LockManager['queryPages']>));
      },
  ),
  clientId: getter((opened) => opened?.clientId ?? ''),
  connected: getter((opened) => opened?.connected ?? false),
  warnings: getter((opened) => opened?.warnings ?? new Map()),
});

function methods(names: readonly string[], make: (name: string) => Method): PropertyDescriptorMap {
  const described = names.map((name) => [name, { value: make(name), configurable: true }]);
  return Object.fromEntries(described) as PropertyDescriptorMap;
}

function getter(read: (opened: LockManager | undefined) => unknown): PropertyDescriptor {
  return {
    configurable: true,
    get(this: LockManager) {
      return read(stateOf(this).opened);
    },
  };
}
