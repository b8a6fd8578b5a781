// The stand-ins for a server and for the processes of the buyers where there is no server: the locks
// are on memory:, the shop's data is here, and the buyers are tasks of this process.

import { setImmediate as turn } from 'node:timers/promises';
import { connect } from 'holdfast';
import { shareOut } from './crowd.mjs';
import { serve } from './shop.mjs';

/**
 * The few commands that the demo sends to Redis. Each takes a turn of the event loop, in which others
 * come between, as they do at a server.
 */
export class Tables {
  #values = new Map();
  #ends = new Map();

  async sendCommand([command, key, ...words]) {
    await turn();
    if (this.#ends.get(key) <= performance.now()) this.#delete(key);
    return this.#commands[command](key, ...words);
  }

  close() {}

  #commands = {
    GET: (key) => this.#values.get(key) ?? null,
    HGET: (key, field) => this.#values.get(key)?.get(field) ?? null,
    HSET: (key, field, value) => this.#make(key, new Map()).set(field, value),
    LRANGE: (key) => this.#values.get(key) ?? [],
    PEXPIRE: (key, ms) => this.#values.has(key) && this.#end(key, ms),
    RPUSH: (key, value) => this.#make(key, []).push(value),
    SET: (key, value, _nx, _px, ms) => {
      if (this.#values.has(key)) return null;
      this.#values.set(key, value);
      return this.#end(key, ms);
    },
  };

  #make(key, empty) {
    if (!this.#values.has(key)) this.#values.set(key, empty);
    return this.#values.get(key);
  }

  #end(key, ms) {
    this.#ends.set(key, performance.now() + ms);
    return true;
  }

  #delete(key) {
    this.#values.delete(key);
    this.#ends.delete(key);
  }
}

/** The buyers as tasks. Each of several managers serves a share, as if it were a process. */
export class Tasks {
  #count;
  #tables;
  #managers = [];

  constructor(count, tables) {
    this.#count = count;
    this.#tables = tables;
  }

  get description() {
    return `tasks of this process, through ${this.#count} managers`;
  }

  async connect({ url, lockPrefix }) {
    const open = () => connect(url, { prefix: lockPrefix });
    this.#managers = await Promise.all(Array.from({ length: this.#count }, open));
  }

  async shop({ buyers, rushMs, prefix, withLock }, onAnswer) {
    const shares = shareOut(buyers, rushMs, this.#count);
    await Promise.all(
      this.#managers.map((locks, k) =>
        serve(this.#tables, locks, { visits: shares[k], prefix, withLock }, onAnswer),
      ),
    );
  }

  async leave() {
    await Promise.all(this.#managers.map((locks) => locks.close()));
  }
}
