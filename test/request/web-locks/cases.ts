/**
 * The behaviour of Web Locks for a program. Each case runs on `navigator.locks` and on a manager of
 * holdfast; the results must be the same.
 */

import { setTimeout as sleep } from 'node:timers/promises';

/** The common interface of both, for a program that is written for Web Locks. */
export interface WebLocks {
  request(name: string, ...rest: unknown[]): Promise<unknown>;
  query(): Promise<{ held: Info[]; pending: Info[] }>;
}

interface Info {
  readonly name: string;
  readonly mode: string;
  readonly clientId: string;
}

interface Granted {
  readonly name: string;
  readonly mode: string;
}

type Case = (locks: WebLocks) => unknown;

/** Long enough for whatever is sent to arrive, on a machine with other things to do. */
const A_WHILE = 60;

const later = () => sleep(A_WHILE);
const live = () => new AbortController().signal;
const aborted = (reason?: unknown) => AbortSignal.abort(reason);

/** A promise, and the way to fulfil it. */
function gate(): { opened: Promise<void>; open: () => void } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** The outcome of a call: its result, or the kind of its error. */
async function fate(call: () => unknown): Promise<unknown> {
  try {
    return { result: (await call()) ?? null };
  } catch (error) {
    const { name } = error as Error;
    return { error: name, isDomException: error instanceof DOMException };
  }
}

/** Holds `name` until `open` is called. */
async function hold(
  locks: WebLocks,
  name: string,
  options: object = {},
): Promise<{ open: () => void; ended: Promise<unknown> }> {
  const { opened, open } = gate();
  const granted = gate();
  const ended = fate(() =>
    locks.request(name, options, async () => {
      granted.open();
      await opened;
    }),
  );
  await granted.opened;
  return { open, ended };
}

/** The held and pending locks, without the parts that differ by nature: the client ids and the order. */
async function seen(locks: WebLocks): Promise<unknown> {
  const { held, pending } = await locks.query();
  const plain = ({ name, mode, clientId }: Info) => `${name} ${mode} ${typeof clientId}`;
  return { held: held.map(plain).sort(), pending: pending.map(plain).sort() };
}

const ok = (lock: Granted | null) => lock?.mode ?? null;

/** Calls of which only the outcome counts. */
const CALLS: Record<string, Case> = {
  'no arguments': (locks) => (locks.request as () => unknown)(),
  'no callback': (locks) => locks.request('a'),
  'options and no callback': (locks) => locks.request('a', {}),
  'a callback that is none': (locks) => locks.request('a', {}, 5),
  'a callback of undefined behind the callback': (locks) => locks.request('a', ok, undefined),
  'options of undefined': (locks) => locks.request('a', undefined, ok),
  'options of a text': (locks) => locks.request('a', 'x', ok),
  'options of a number': (locks) => locks.request('a', 5, ok),
  'an option of undefined': (locks) => locks.request('a', { mode: undefined }, ok),
  'a name that is a symbol': (locks) => locks.request(Symbol('a') as never, ok),
  'a name with a hyphen': (locks) => locks.request('-a', ok),
  'a name with a hyphen, no callback': (locks) => locks.request('-a'),
  'a name with a hyphen, and contradictions': (locks) =>
    locks.request('-a', { steal: true, ifAvailable: true }, ok),
  'a hyphen elsewhere': (locks) => locks.request('a-', ok),
  'the mode exclusive': (locks) => locks.request('a', { mode: 'exclusive' }, ok),
  'the mode shared': (locks) => locks.request('a', { mode: 'shared' }, ok),
  'a mode that is none': (locks) => locks.request('a', { mode: 'x' }, ok),
  'a mode of null': (locks) => locks.request('a', { mode: null }, ok),
  'a signal that is none': (locks) => locks.request('a', { signal: 'x' }, ok),
  'a signal of null': (locks) => locks.request('a', { signal: null }, ok),
  'a signal': (locks) => locks.request('a', { signal: live() }, ok),
  'a signal that is aborted': (locks) => locks.request('a', { signal: aborted() }, ok),
  'a signal with a reason': (locks) =>
    locks.request('a', { signal: aborted(new RangeError('mine')) }, ok),
  'a signal that is aborted, a hyphen': (locks) => locks.request('-a', { signal: aborted() }, ok),
  'a signal that is aborted, no callback': (locks) => locks.request('a', { signal: aborted() }),
  'a signal that is aborted, steal': (locks) =>
    locks.request('a', { signal: aborted(), steal: true }, ok),
  'steal and ifAvailable': (locks) => locks.request('a', { steal: true, ifAvailable: true }, ok),
  'steal and shared': (locks) => locks.request('a', { steal: true, mode: 'shared' }, ok),
  'steal and a signal': (locks) => locks.request('a', { steal: true, signal: live() }, ok),
  'steal and a mode that is none': (locks) => locks.request('a', { steal: true, mode: 'x' }, ok),
  'ifAvailable and a signal': (locks) =>
    locks.request('a', { ifAvailable: true, signal: live() }, ok),
  'ifAvailable, shared': (locks) => locks.request('a', { ifAvailable: true, mode: 'shared' }, ok),
  'steal of a free lock': (locks) => locks.request('a', { steal: true }, ok),
  'a callback that returns no promise': (locks) => locks.request('a', () => 5),
  'a callback that returns nothing': (locks) => locks.request('a', () => {}),
  'a callback that rejects': (locks) =>
    locks.request('a', () => Promise.reject(new RangeError('mine'))),
  'a name with a zero': (locks) => locks.request('a\0b', ok),
  'a name that is no character': (locks) => locks.request('\uffff', ok),
  'a lock knows its name and mode': (locks) =>
    locks.request('a b/ä', ({ name, mode }: Granted) => [name, mode]),
};

/** Stories of several calls. */
const STORIES: Record<string, Case> = {
  'the callback is called later, the lock is free when the promise settles': async (locks) => {
    const order: string[] = [];
    const first = locks.request('a', async () => {
      await later();
      order.push('first');
    });
    await first;
    await locks.request('a', { ifAvailable: true }, (lock: Granted | null) => {
      order.push(lock === null ? 'held' : 'free');
    });
    return order;
  },

  'ifAvailable: null while somebody holds it, or waits for it': async (locks) => {
    const results: unknown[] = [];
    const attempt = (options: object) =>
      locks.request('a', { ifAvailable: true, ...options }, async (lock: Granted | null) =>
        results.push(ok(lock)),
      );
    const reader = await hold(locks, 'a', { mode: 'shared' });
    await attempt({ mode: 'shared' });
    await attempt({});
    const writer = locks.request('a', later);
    await later();
    await attempt({ mode: 'shared' });
    reader.open();
    await Promise.all([reader.ended, writer]);
    await attempt({});
    return results;
  },

  "ifAvailable: the callback's result and error count, also without the lock": async (locks) => {
    const holder = await hold(locks, 'a');
    const results = [
      await fate(() => locks.request('a', { ifAvailable: true }, async () => 7)),
      await fate(() =>
        locks.request('a', { ifAvailable: true }, async () => {
          throw new RangeError('mine');
        }),
      ),
    ];
    holder.open();
    return results;
  },

  'order: first come, first served, those in a row that share are let in together': async (
    locks,
  ) => {
    const log: string[] = [];
    const holder = await hold(locks, 'a');
    const all = [];
    for (const [i, mode] of ['shared', 'shared', 'exclusive', 'shared', 'exclusive'].entries()) {
      all.push(
        locks.request('a', { mode }, async () => {
          log.push(`in ${mode === 'shared' && i < 2 ? mode : i}`);
          await later();
          log.push(`out ${mode === 'shared' && i < 2 ? mode : i}`);
        }),
      );
      await later();
    }
    holder.open();
    await Promise.all(all);
    return log;
  },

  'signal: ends the wait with its reason, later waiters go on': async (locks) => {
    const holder = await hold(locks, 'a');
    const controller = new AbortController();
    const { signal } = controller;
    const waiting = fate(() => locks.request('a', { signal }, () => 'never'));
    const behind = fate(() => locks.request('a', () => 'behind'));
    await later();
    controller.abort(new RangeError('mine'));
    const results = [await waiting];
    holder.open();
    return [...results, await behind];
  },

  'signal: without effect once the lock is granted': async (locks) => {
    const controller = new AbortController();
    const { signal } = controller;
    return fate(() =>
      locks.request('a', { signal }, async () => {
        controller.abort();
        await later();
        return 'done';
      }),
    );
  },

  'steal: comes before all who wait, and they keep their places': async (locks) => {
    const log: string[] = [];
    const holder = await hold(locks, 'a');
    const waiting = locks.request('a', () => log.push('waiter'));
    await later();
    await locks.request('a', { steal: true }, async () => {
      log.push('thief');
      await later();
    });
    await waiting;
    holder.open();
    return log;
  },

  'steal: who held the lock learns of it by an error': async (locks) => {
    const holder = await hold(locks, 'a');
    await locks.request('a', { steal: true }, later);
    holder.open();
    const { result } = (await holder.ended) as { result?: unknown };
    return result === undefined ? 'rejected' : 'fulfilled';
  },

  'steal: a request that waits gets the lock behind the thief': async (locks) => {
    const log: string[] = [];
    locks.request('behind', () => new Promise(() => {})).catch(() => {});
    const waiting = locks.request('behind', () => log.push('waiter'));
    await locks.request('behind', { steal: true }, () => log.push('thief'));
    await waiting;
    return log;
  },

  'query: each request that waits to share': async (locks) => {
    const holder = await hold(locks, 'a');
    const waiting = [1, 2, 3].map(() => locks.request('a', { mode: 'shared' }, later));
    await locks.request('a', { ifAvailable: true }, () => {});
    const during = await seen(locks);
    holder.open();
    await holder.ended;
    const after = await seen(locks);
    await Promise.all(waiting);
    return [during, after];
  },

  'query: who holds, with an exclusive request between shared ones': async (locks) => {
    const modes = async () => (await locks.query()).held.map(({ mode }) => mode);
    const [first, second, third] = [gate(), gate(), gate()];
    const before = [1, 2].map(() => locks.request('a', { mode: 'shared' }, () => first.opened));
    const between = locks.request('a', () => second.opened);
    const behind = [1, 2].map(() => locks.request('a', { mode: 'shared' }, () => third.opened));
    const states = [await modes()];
    first.open();
    await Promise.all(before);
    states.push(await modes());
    second.open();
    await between;
    states.push(await modes());
    third.open();
    await Promise.all(behind);
    return states;
  },

  'order: of requests for two names, of which those for one share it': async (locks) => {
    const log: string[] = [];
    const { opened, open } = gate();
    const sharing = [1, 2, 3].map((i) =>
      locks.request('a', { mode: 'shared' }, async () => {
        log.push(`a ${i}`);
        await opened;
      }),
    );
    const whole = locks.request('a', () => log.push('a whole'));
    await locks.request('b', () => log.push('b'));
    open();
    await Promise.all([...sharing, whole]);
    return log;
  },

  'order: that of the calls, whatever the names': async (locks) => {
    const rounds = async () => {
      const log: string[] = [];
      const all = Array.from({ length: 20 }, (_, round) =>
        ['a', 'a', 'a', 'b', 'c', 'c', 'd'].map((name) => {
          const mode = 'bd'.includes(name) ? 'exclusive' : 'shared';
          return locks.request(`${name}${round}`, { mode }, async () => log.push(name));
        }),
      );
      await Promise.all(all.flat());
      return log;
    };
    // The first fence and the first run of a script take a server a round trip more.
    await rounds();
    return rounds();
  },

  'signal: aborted in the same turn, and the lock is free afterwards': async (locks) => {
    const controller = new AbortController();
    const first = fate(() => locks.request('a', { signal: controller.signal }, () => 'got it'));
    const next = fate(() => locks.request('a', () => 'next'));
    controller.abort();
    return [await first, await next];
  },

  'a callback that throws what has a then, which nobody calls': async (locks) => {
    let calls = 0;
    const value = () => {
      calls += 1;
    };
    const thrown = Object.defineProperty({}, 'then', { value });
    const failure = await locks
      .request('a', async () => {
        throw thrown;
      })
      .catch((error) => error === thrown || 'another');
    return [failure, calls];
  },

  'query: nothing': seen,

  'query: who holds, and who waits': async (locks) => {
    const holders = [
      await hold(locks, 'a'),
      await hold(locks, 'b', { mode: 'shared' }),
      await hold(locks, 'b', { mode: 'shared' }),
    ];
    const waiting = [
      locks.request('a', { mode: 'shared' }, () => {}),
      locks.request('b', () => {}),
    ];
    await later();
    const during = await seen(locks);
    for (const { open } of holders) open();
    await Promise.all(waiting);
    return [during, await seen(locks)];
  },
};

const calls = Object.entries(CALLS).map(([title, call]): [string, Case] => [
  title,
  (locks) => fate(() => call(locks)),
]);

const REFUSED = { error: 'TypeError', isDomException: false };

function different(title: string, call: Case, ours: unknown): [string, readonly [Case, unknown]] {
  return [title, [(locks) => fate(() => call(locks)), ours]];
}

/** Node 24 never releases the lock of this one, so it comes last, with a name of its own. */
const THROWN: [string, Case] = [
  'a callback that throws',
  (locks) =>
    fate(() =>
      locks.request('thrown', () => {
        throw new RangeError('mine');
      }),
    ),
];

/**
 * Cases in which holdfast differs, see docs/web-locks.md: a lock that a thief has taken ends its request when the callback has
 * ended, and names are texts of Unicode. Each with what holdfast does.
 */
export const DIFFERENT: ReadonlyMap<string, readonly [Case, unknown]> = new Map([
  different('an empty name', (locks) => locks.request('', ok), REFUSED),
  different('a name of half a pair', (locks) => locks.request('\ud800', ok), REFUSED),
  different(
    'a name of two halves in the wrong order',
    (locks) => locks.request('\udc00\ud800', ok),
    REFUSED,
  ),
  different(
    'query: exclusive requests of one manager that wait',
    async (locks) => {
      const holder = await hold(locks, 'several');
      const waiting = [1, 2].map(() => locks.request('several', () => {}));
      await locks.request('several', { ifAvailable: true }, () => {});
      const { pending } = await locks.query();
      holder.open();
      await Promise.all(waiting);
      return pending.length;
    },
    { result: 1 },
  ),
  different(
    'steal: who held the lock learns of it by its promise while its callback runs',
    async (locks) => {
      const { opened, open } = gate();
      let isOver = false;
      const robbed = fate(() => locks.request('robbed', () => opened)).finally(() => {
        isOver = true;
      });
      await locks.request('robbed', { steal: true }, later);
      const before = isOver;
      open();
      return [before, ((await robbed) as { error?: string }).error];
    },
    { result: [false, 'LockLostError'] },
  ),
]);

/** All of them. */
export const CASES: ReadonlyMap<string, Case> = new Map([
  ...calls,
  ...Object.entries(STORIES),
  THROWN,
]);
