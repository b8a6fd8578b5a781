// The yardstick: as little JavaScript as a lock needs. One connection, one write for all commands of a turn, no
// queue, no fence, no renewal, no reconnect. It knows the three kinds of reply that SET and EVALSHA have.

import { once } from 'node:events';
import { connect } from 'node:net';

export class RawClient {
  #socket;
  /** The callbacks of the commands under way, from `#first` on. */
  #open = [];
  #first = 0;
  #out = '';
  #unread = '';

  static async connect(url) {
    const { hostname, port } = new URL(url);
    const client = new RawClient();
    client.#socket = connect(Number(port || 6379), hostname).setNoDelay();
    client.#socket.setEncoding('latin1').on('data', (text) => client.#read(text));
    await once(client.#socket, 'connect');
    return client;
  }

  /** Sends a command of ASCII texts. */
  call(...parts) {
    return new Promise((resolve, reject) => {
      this.#open.push(resolve, reject);
      if (this.#out === '') process.nextTick(() => this.#flush());
      let command = `*${parts.length}\r\n`;
      for (const part of parts) command += `$${part.length}\r\n${part}\r\n`;
      this.#out += command;
    });
  }

  #flush() {
    const out = this.#out;
    this.#out = '';
    this.#socket.write(out, 'latin1');
  }

  #read(text) {
    const all = this.#unread + text;
    let at = 0;
    for (;;) {
      const end = all.indexOf('\r\n', at);
      if (end === -1) break;
      const head = all.slice(at + 1, end);
      let next = end + 2;
      let value = head;
      if (all[at] === '$') {
        const length = Number(head);
        if (length >= 0) next += length + 2;
        if (all.length < next) break;
        value = length < 0 ? null : all.slice(end + 2, next - 2);
      }
      this.#settle(all[at], value);
      at = next;
    }
    this.#unread = all.slice(at);
  }

  #settle(kind, value) {
    const resolve = this.#open[this.#first];
    const reject = this.#open[this.#first + 1];
    this.#first += 2;
    if (this.#first > 4096) {
      this.#open.splice(0, this.#first);
      this.#first = 0;
    }
    if (kind === '-') reject(new Error(value));
    else resolve(value);
  }
}
