/** What can happen to a server, and on the way to it. */

import type { SteppedServer } from '../../support/clock.js';
import type { Dice } from '../../support/dice.js';
import type { Rift } from '../../support/kinds.js';
import type { FaultProxy } from '../../support/proxy.js';
import type { RedisServer } from '../../support/server.js';
import { sleep } from '../../support/wait.js';

/** Where faults are caused. */
export interface Scene {
  readonly dice: Dice;
  /** The server may forget what it knew: exclusion is not promised from before until after `during`. */
  rift(during: () => Promise<unknown>, more?: RiftOptions): Promise<void>;
}

export interface RiftOptions extends Pick<Rift, 'fork'> {
  /** How long its consequences outlast it, in ms. */
  readonly lastsMs?: number;
}

/** One that a seed may draw; over when its cause is gone. */
export interface ServerFault {
  readonly kind: string;
  cause(scene: Scene): Promise<void>;
}

/** What can happen to servers that stay what they are; each for itself, or to all at once. */
export function serverFaults(servers: readonly RedisServer[]): ServerFault[] {
  return [
    {
      kind: 'server stopped (SIGSTOP)',
      async cause({ dice }) {
        const server = dice.oneOf(servers);
        server.pause();
        await sleep(200 + dice.below(3_000));
        server.resume();
      },
    },
    {
      kind: 'FLUSHALL',
      cause: ({ rift }) => rift(() => Promise.all(servers.map(({ admin }) => admin.flushall()))),
    },
    {
      kind: 'SCRIPT FLUSH',
      async cause() {
        await Promise.all(servers.map(({ admin }) => admin.script('FLUSH')));
      },
    },
    {
      kind: 'CLIENT KILL',
      cause: ({ dice }) => dice.oneOf(servers).killClients(),
    },
  ];
}

/** Kills a server and starts it again a moment later. */
export async function restart({ dice }: Scene, server: RedisServer): Promise<void> {
  await server.kill();
  await sleep(dice.below(1_000));
  await server.start();
}

/** What can happen on the ways that there are at that moment: to all at once, or to one of them. */
export function networkFaults(ways: () => Promise<readonly FaultProxy[]>): ServerFault[] {
  const some = async ({ dice }: Scene) => {
    const proxies = await ways();
    return proxies.length === 1 || dice.chance(0.2) ? proxies : [dice.oneOf(proxies)];
  };
  const fault = (kind: string, set: (proxy: FaultProxy, dice: Dice) => void): ServerFault => ({
    kind,
    async cause(scene) {
      const { dice } = scene;
      const disturbed = await some(scene);
      for (const proxy of disturbed) set(proxy, dice);
      await sleep(100 + dice.below(2_500));
      for (const proxy of disturbed) undisturbed(proxy);
    },
  });
  return [
    fault('partition', (proxy) => {
      proxy.blackhole = true;
    }),
    fault('lost replies', (proxy) => {
      proxy.loseReplies = true;
    }),
    fault('delay', (proxy, dice) => {
      proxy.delayMs = 1 + dice.below(300);
    }),
    fault('connections refused', (proxy) => {
      proxy.refuse = true;
      proxy.cut();
    }),
    {
      kind: 'connections cut',
      async cause(scene) {
        for (const proxy of await some(scene)) proxy.cut();
      },
    },
  ];
}

/** Ends what disturbs. A stream that lost bytes, or whose bytes wait, cannot be gone on with. */
export function undisturbed(proxy: FaultProxy): void {
  proxy.cut();
  proxy.blackhole = false;
  proxy.loseReplies = false;
  proxy.refuse = false;
  proxy.delayMs = 0;
  proxy.sparesClients = false;
}

/**
 * Sets the clock of a server ahead, again and again: back, a lease would last for as long. That lets somebody else in;
 * on a quorum too, where the lock is held by a bare majority and this server is one of it.
 */
export class ClockFault implements ServerFault {
  readonly kind = 'clock set ahead';
  #ahead = 0;

  constructor(
    readonly stepped: SteppedServer,
    readonly seconds: number,
  ) {}

  async cause({ rift }: Scene): Promise<void> {
    this.#ahead += this.seconds;
    const step = () => this.stepped.step(this.#ahead);
    // A grant is dated by a reading of the clock that is 10 s old at most.
    await rift(step, { lastsMs: 10_000 });
  }
}
