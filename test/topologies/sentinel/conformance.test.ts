/** With Sentinels all behaviours are as on the server alone. */

import type { Host, Where } from '../../behaviour/conformance/place.js';
import { tryAllOn } from '../../behaviour/conformance/suite.js';
import { Sentinels } from '../../support/sentinels.js';

class SentinelHost implements Host {
  readonly name = 'a Sentinel deployment';
  #deployment: Sentinels | undefined;

  async start(): Promise<void> {
    // Nobody is taken for gone: leases may be lost by a failover.
    this.#deployment = await Sentinels.start({ downAfter: 60_000 });
  }

  next(): Where {
    const { target } = this.#running;
    return { target, label: `the master "mymaster" of the Sentinel ${target.sentinels[0]}` };
  }

  async quiet(): Promise<void> {
    await this.#running.quiet();
    await (await this.#running.master()).admin.flushall();
  }

  async stop(): Promise<void> {
    await this.#deployment?.stop();
  }

  get #running(): Sentinels {
    if (this.#deployment === undefined) throw new Error('it does not run');
    return this.#deployment;
  }
}

tryAllOn(new SentinelHost());
