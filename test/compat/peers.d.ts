/** The types of clients that have none, or whose types cannot be imported. */

declare module 'redlock4' {
  import type { Redis } from 'ioredis';

  namespace Redlock {
    interface Options {
      readonly retryCount?: number;
      readonly retryDelay?: number;
      readonly retryJitter?: number;
    }
    class Lock {
      unlock(): Promise<void>;
      extend(ttl: number): Promise<Lock>;
    }
    class LockError extends Error {}
  }

  class Redlock {
    constructor(clients: readonly Redis[], options?: Redlock.Options);
    acquire(resource: string | string[], ttl: number): Promise<Redlock.Lock>;
  }

  export = Redlock;
}

declare module 'redlock5' {
  import type { Redis } from 'ioredis';

  export interface Settings {
    readonly retryCount?: number;
    readonly retryDelay?: number;
    readonly retryJitter?: number;
  }
  export class Lock {
    release(): Promise<unknown>;
    extend(duration: number): Promise<Lock>;
  }
  export class ExecutionError extends Error {}

  export default class Redlock {
    constructor(clients: Iterable<Redis>, settings?: Settings);
    acquire(resources: string[], duration: number, settings?: Settings): Promise<Lock>;
  }
}
