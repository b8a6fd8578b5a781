/** The faults of a process that uses locks. */

import type { Contender } from '../../support/crew.js';
import type { Dice } from '../../support/dice.js';
import { sleep } from '../../support/wait.js';
import type { ClientOrders } from './client.js';

/** A post that one process after the other takes. */
export interface Post {
  contender: Contender<ClientOrders>;
  /** It has a fault already. */
  suffers: boolean;
}

/** One that a seed may draw; over when its cause is gone. */
export interface ClientFault {
  readonly kind: string;
  cause(post: Post): Promise<unknown>;
}

/** What the faults need of the round. */
interface Ground {
  readonly dice: Dice;
  /** The longest lease. */
  readonly leaseMs: number;
  /** To be told right before a process is killed. */
  died(who: string): void;
  /** Has another process take a post. */
  replace(post: Post): Promise<void>;
}

/** All of them; one that is listed twice is drawn twice as often. */
export function clientFaults({ dice, leaseMs, died, replace }: Ground): ClientFault[] {
  const killed: ClientFault = {
    kind: 'process killed (SIGKILL)',
    async cause(post) {
      died(post.contender.who);
      await post.contender.kill();
      await replace(post);
    },
  };
  const stopped: ClientFault = {
    kind: 'process stopped (SIGSTOP)',
    async cause({ contender }) {
      const ms = leaseMs / 4 + dice.below(2 * leaseMs);
      await contender.pause();
      await sleep(ms);
      contender.resume();
    },
  };
  return [
    killed,
    stopped,
    stopped,
    {
      kind: 'event loop blocked',
      cause: ({ contender }) => contender.order('block', 100 + dice.below(2 * leaseMs)),
    },
    {
      kind: 'worker thread terminated',
      cause: ({ contender }) => contender.order('terminate'),
    },
    {
      kind: 'manager closed',
      cause: ({ contender }) => contender.order('reopen'),
    },
  ];
}
