/** Locks of several steps: adopt, downgrade, several names, a place in the wait queue. */

import type { AcquireOptions } from 'holdfast';
import { connect, type Lock, type LockManager } from '../support/holdfast.js';
import { until } from '../support/wait.js';
import type { Feature, Preparation, Promised, Scene } from './feature.js';
import { check, OF_LOCKS, openManager, use } from './holding.js';

const managed = {
  memory: true,
  open: openManager,
  close: (locks: LockManager) => locks.close(),
};

function beliefOf(lock: Lock) {
  return { key: `lock:${lock.name}`, token: lock.toJSON().token, held: () => lock.held };
}

/** Writes the fences down, and uses a lock. In a store of this process nobody else can look. */
async function useLock(scene: Scene, lock: Lock): Promise<void> {
  if (lock.held) scene.note(`fence ${lock.fence}`);
  if (!scene.url.startsWith('memory:')) return use(scene, beliefOf(lock));
  if (!lock.held) return;
  scene.note(`has ${scene.who}`);
  await new Promise((resolve) => setImmediate(resolve));
  scene.note(`had ${scene.who}`);
}

/** Takes the whole lock, uses it, and gives it back. */
async function takeWhole(locks: LockManager, scene: Scene): Promise<string> {
  const lock = await locks.acquire(scene.name, { ttl: scene.ttl, wait: scene.wait });
  await useLock(scene, lock);
  await lock.release();
  return 'had it';
}

interface Noted {
  readonly effects: readonly string[];
  readonly fault: string;
}

const promises = {
  ...OF_LOCKS,
  'every later owner has a greater fence': ({ effects, fault }: Noted) => {
    const fences = effects.filter((each) => each.startsWith('fence ')).map((each) => each.slice(6));
    // A process that is stopped between its look at the lock and its note writes late.
    if (fault.startsWith('process')) return new Set(fences).size === fences.length;
    return fences.every((fence, at) => at === 0 || Number(fence) > Number(fences[at - 1]));
  },
};

/** A holder in this process, which no fault meets. */
interface Holder extends Preparation {
  readonly manager: LockManager;
  readonly lock: Lock;
  /** Why it lost the lock. */
  lost(): string | undefined;
}

async function holderOf(scene: Scene, name: string, terms: AcquireOptions = {}): Promise<Holder> {
  const locks = await connect(scene.url.startsWith('memory:') ? scene.url : scene.servers['redis']);
  let reason: string | undefined;
  locks.on('lost', (_, error) => {
    reason = error.reason;
  });
  const lock = await locks.acquire(name, { ttl: scene.ttl, ...terms });
  return {
    given: lock.toJSON(),
    manager: locks,
    lock,
    lost: () => reason,
    close: () => locks.close(),
  };
}

const adopt: Feature<LockManager, Holder> = {
  ...managed,
  name: 'adopt',
  page: 'docs/guide.md, To another process',
  prepare: (scene) => holderOf(scene, scene.name),
  async first(locks, scene) {
    const { token, name, fence } = scene.given as { token: string; name: string; fence: number };
    const lock = await locks.adopt({ token, name, fence }, { ttl: scene.ttl });
    await useLock(scene, lock);
    await lock.release();
    return { fence: lock.fence };
  },
  async second(locks, scene, { lock: held }) {
    const memory = scene.url.startsWith('memory:');
    // While the holder has the lock, nobody else gets it.
    const taken = await locks.tryAcquire(scene.name, { ttl: scene.ttl });
    if (taken !== null && !memory) await check(scene, beliefOf(held));
    await taken?.release();
    if (held.held) await held.release();
    return takeWhole(locks, scene);
  },
  promises: {
    ...promises,
    'the holder loses the lock to the one who adopts it alone': ({ prepared }) =>
      [undefined, 'adopted'].includes(prepared.lost()),
    'a new owner has a greater fence': ({ first, prepared }) => {
      const { fence } = (first.value ?? {}) as { fence?: number };
      return fence === undefined || fence > prepared.lock.fence;
    },
  },
};

const downgrade: Feature<LockManager> = {
  ...managed,
  name: 'downgrade',
  page: 'docs/guide.md, Readers and writers',
  async first(locks, scene) {
    const lock = await locks.acquire(scene.name, { ttl: scene.ttl, wait: 1_000 });
    try {
      await useLock(scene, lock);
      await lock.downgrade();
      if (lock.held) scene.note(`shares ${lock.mode}`);
    } finally {
      scene.note('shared');
      await lock.release();
    }
    return lock.mode;
  },
  second: takeWhole,
  promises: {
    ...promises,
    'a lock that was downgraded is shared': ({ effects }) => !effects.includes('shares exclusive'),
    'who has the whole lock has it alone, of readers too': ({ effects, fault }) => {
      const [shares, shared, has] = ['shares shared', 'shared', 'has second'].map((each) =>
        effects.indexOf(each),
      ) as [number, number, number];
      return shares < 0 || has < shares || has > shared || fault.startsWith('process');
    },
  },
};

/** Takes two of three permits: so one at a time has them. */
async function takeTwo(locks: LockManager, scene: Scene, wait: number): Promise<string> {
  const terms = { mode: 'shared', limit: 3, permits: 2 } as const;
  const lock = await locks.acquire(scene.name, { ...terms, ttl: scene.ttl, wait });
  if (lock.held) {
    scene.note(`fence ${lock.fence}`);
    scene.note(`has ${scene.who}`);
    await new Promise((resolve) => setImmediate(resolve));
    if (lock.held) scene.note(`had ${scene.who}`);
  }
  await lock.release();
  return 'had it';
}

/** Has one of the three meanwhile, so that the permits are counted beside others. */
async function onePermit(scene: Scene): Promise<Preparation> {
  const target = scene.url.startsWith('memory:') ? scene.url : scene.servers['redis'];
  const locks = await connect(target);
  await locks.acquire(scene.name, { mode: 'shared', limit: 3 });
  return { given: undefined, close: () => locks.close() };
}

const severalPermits: Feature<LockManager, Preparation> = {
  ...managed,
  name: 'several permits of a limit',
  page: 'docs/guide.md, Readers and writers',
  prepare: onePermit,
  first: (locks, scene) => takeTwo(locks, scene, 1_000),
  second: (locks, scene) => takeTwo(locks, scene, scene.wait),
  promises: {
    ...promises,
    // One permit is held until the end of the test.
    'a released lock leaves nothing behind': () => true,
  },
};

const names = ({ name }: Scene): [string, string] => [`${name}a`, `${name}b`];

async function takeBoth(locks: LockManager, scene: Scene, wait: number): Promise<string> {
  const set = await locks.acquire(names(scene), { ttl: scene.ttl, wait });
  const memory = scene.url.startsWith('memory:');
  for (const { name, token } of memory ? [] : set.toJSON()) {
    await use(scene, { key: `lock:${name}`, token, held: () => set.held });
  }
  await set.release();
  return 'had both';
}

const list: Feature<LockManager> = {
  ...managed,
  name: 'a list of names',
  page: 'docs/guide.md, Several things at once',
  first: (locks, scene) => takeBoth(locks, scene, 1_000),
  second: (locks, scene) => takeBoth(locks, scene, scene.wait),
  promises: OF_LOCKS,
};

/** A holder that goes when somebody waits for its lock. */
async function leavingHolder(scene: Scene, name: string): Promise<Holder> {
  const holder = await holderOf(scene, name);
  const { lock } = holder;
  const { close = async () => {} } = holder;
  const target = scene.url.startsWith('memory:') ? scene.url : scene.servers['redis'];
  const watcher = await connect(target);
  const waits = async () => (await watcher.query({ name })).pending.length > 0;
  let over = false;
  const leaving = until(async () => over || (await waits()), `a waiter for ${name}`, 60_000)
    .then(() => lock.release())
    .catch(() => {});
  return {
    ...holder,
    lock,
    close: async () => {
      over = true;
      await leaving;
      await Promise.all([watcher.close(), close()]);
    },
  };
}

const listBehind: Feature<LockManager, Holder> = {
  ...list,
  name: 'a list of names, of which one is held',
  prepare: (scene) => leavingHolder(scene, names(scene)[1]),
};

const behind: Feature<LockManager, Holder> = {
  ...managed,
  name: 'acquire behind a holder',
  page: 'docs/guide.md, One at a time',
  prepare: (scene) => leavingHolder(scene, scene.name),
  async first(locks, scene) {
    const lock = await locks.acquire(scene.name, { ttl: scene.ttl, wait: 2_000 });
    await useLock(scene, lock);
    await lock.release();
  },
  second: takeWhole,
  promises,
};

/** A close leaves its lease, which ends by itself: in `memory:`, where leases are long, it would be in the way. */
const stopped: Feature<LockManager> = {
  ...managed,
  memory: false,
  name: 'a lock whose renewal is stopped',
  page: 'docs/guide.md, Work that takes long',
  leavesLocks: ['closes', 'away'],
  async first(locks, scene) {
    const lock = await locks.acquire(scene.name, { ttl: scene.ttl, wait: 1_000 });
    await useLock(scene, lock);
    const isLeft = await lock.stopRenewing();
    try {
      // One request more, so that there is a step behind it.
      if (isLeft) await lock.extend(scene.ttl);
    } finally {
      await lock.release();
    }
    return { isLeft };
  },
  second: takeWhole,
  promises,
};

/** The owner that the first caller names; later callers name none, so they wait for its release. */
const OWNER = { owner: 'the owner of a case' };

/** Where the owner has released the lock elsewhere, one that was stopped does not know it before its next renewal. */
const ofOwner = Object.fromEntries(
  Object.entries(promises).map(([promise, isKept]): [string, Promised<unknown>] => {
    const isOfOne = /^(who believes|every later owner)/.test(promise);
    return [promise, (seen) => (isOfOne && seen.fault.includes('stopped')) || isKept(seen)];
  }),
);

/**
 * A lock of an owner outlives its caller: without an answer it may stay, until the owner asks again or its lease ends. So
 * the second caller is another process of the owner, which gets the lock in any case, and then releases it.
 */
const owned: Feature<LockManager> = {
  ...managed,
  name: 'a lock of an owner',
  page: 'docs/guide.md, Owners',
  async first(locks, scene) {
    const lock = await locks.acquire(scene.name, { ...OWNER, ttl: scene.ttl, wait: 1_000 });
    await useLock(scene, lock);
    await lock.release();
  },
  second: takeForOwner,
  promises: {
    ...ofOwner,
    'a release frees nothing of a later hold of its owner': ({ effects }) => {
      const told = (what: string) => effects.find((each) => each.startsWith(what))?.split(' ')[2];
      const later = told('leaves second');
      // The first caller may take it over in its turn.
      const isTaken = effects.lastIndexOf('has first') > effects.indexOf(`leaves second ${later}`);
      return later === undefined || isTaken || told('finds again') === later;
    },
  },
};

/** The lease of what the second caller leaves to the third: longer than any case. */
const LEFT_MS = 60_000;

/**
 * The second caller takes the lock once more and leaves it. So the third sees whether a release of the first, which may be
 * sent again until that has ended, has freed it.
 */
async function takeForOwner(locks: LockManager, scene: Scene): Promise<string> {
  const { name, who, wait } = scene;
  const { held } = await locks.query({ name });
  scene.note(`finds ${who} ${held[0]?.token}`);
  const lock = await locks.acquire(name, { ...OWNER, ttl: scene.ttl, wait });
  await useLock(scene, lock);
  await locks.release(name, OWNER);
  if (who === 'second') {
    const later = await locks.acquire(name, { ...OWNER, ttl: LEFT_MS, wait });
    scene.note(`leaves ${who} ${later.toJSON().token}`);
  }
  return 'had it';
}

/** A holder elsewhere that has the lock for its owner. */
async function ownedHolder(scene: Scene): Promise<Preparation> {
  const memory = scene.url.startsWith('memory:');
  const locks = await connect(memory ? scene.url : scene.servers['redis']);
  await locks.acquire(scene.name, { ...OWNER, ttl: scene.ttl });
  return { close: () => locks.close() };
}

const ownedAgain: Feature<LockManager> = {
  ...owned,
  name: 'a lock of an owner that has it elsewhere',
  prepare: ownedHolder,
};

const releasedByOwner: Feature<LockManager> = {
  ...owned,
  name: 'a release by name and owner',
  prepare: ownedHolder,
  async first(locks, scene) {
    return { isFreed: await locks.release(scene.name, OWNER) };
  },
  promises: {
    ...ofOwner,
    'a release that is answered has freed the lock': ({ first, fault }) => {
      const { isFreed } = (first.value ?? {}) as { isFreed?: boolean };
      return isFreed !== false || fault.startsWith('process');
    },
  },
};

/** Takes the lock in a request on these terms, and uses it without a look at its token, which would not linger then. */
async function request(locks: LockManager, scene: Scene, terms: AcquireOptions): Promise<void> {
  const { name, ttl } = scene;
  await locks.request(name, { ttl, wait: 1_000, ...terms }, async (lock) => {
    if (!lock.held) return;
    scene.note(`fence ${lock.fence}`);
    scene.note(`has ${scene.who}`);
    await new Promise((resolve) => setImmediate(resolve));
    scene.note(`had ${scene.who}`);
  });
}

const unawaited: Feature<LockManager> = {
  ...managed,
  name: 'a request that awaits no release',
  page: 'docs/guide.md, A server far away',
  first: (locks, scene) => request(locks, scene, { awaitRelease: false }),
  second: takeWhole,
  promises,
};

const lingering: Feature<LockManager> = {
  ...managed,
  name: 'a lock that lingers between requests',
  page: 'docs/guide.md, A server far away',
  async first(locks, scene) {
    for (let times = 0; times < 3; times += 1) await request(locks, scene, { linger: 200 });
  },
  second: takeWhole,
  promises,
};

/** Two shares of another process, so that more are taken as more shares of a shared lock, and not as its first. */
async function readersOf(scene: Scene): Promise<Holder> {
  const holder = await holderOf(scene, scene.name, { mode: 'shared' });
  const { manager, lock } = holder;
  const beside = await manager.acquire(scene.name, { mode: 'shared', ttl: scene.ttl });
  await lock.release();
  return { ...holder, lock: beside };
}

/** How many callers of one process ask for a share at once: together they are one request, and so are their releases. */
const SHARES = 3;

const shares: Feature<LockManager, Holder> = {
  ...managed,
  name: 'several shares of one lock at once',
  page: 'docs/guide.md, Readers and writers',
  prepare: readersOf,
  async first(locks, scene) {
    const terms = { mode: 'shared', ttl: scene.ttl, wait: 1_000 } as const;
    const asked = Array.from({ length: SHARES }, () => locks.acquire(scene.name, terms));
    const held = (await Promise.allSettled(asked)).flatMap((each) =>
      each.status === 'fulfilled' ? [each.value] : [],
    );
    const fences = held.filter((lock) => lock.held).map((lock) => lock.fence);
    for (const fence of fences.sort((a, b) => a - b)) scene.note(`fence ${fence}`);
    await Promise.all(held.map((lock) => lock.release()));
    return held.length;
  },
  async second(locks, scene, { lock: held }) {
    if (held.held) await held.release();
    return takeWhole(locks, scene);
  },
  // Of the fences that were written down each is greater than the one before, so no two shares have the same.
  promises,
};

export const features: readonly Feature[] = [
  ...[adopt, downgrade, shares, severalPermits, list, listBehind, behind],
  ...[owned, ownedAgain, releasedByOwner],
  ...[stopped, unawaited, lingering],
];
