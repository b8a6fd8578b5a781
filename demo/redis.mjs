// A Redis client of the demo's own, so that the demo needs no other package: commands go out one
// after another on one connection, replies come back in the same order (RESP2).
//
// Source of the format: <https://redis.io/docs/latest/develop/reference/protocol-spec/>

import { connect } from 'node:net';

/** Opens a connection to `redis://`, `valkey://` or `unix://`, logged in and on its database. */
export async function openRedis(url) {
  const { socket, user, password, db } = addressOf(new URL(url));
  const redis = new Redis(connect(socket));
  try {
    if (password) await redis.sendCommand(user ? ['AUTH', user, password] : ['AUTH', password]);
    if (db) await redis.sendCommand(['SELECT', db]);
    await redis.sendCommand(['PING']);
    return redis;
  } catch (error) {
    redis.close();
    throw error;
  }
}

function addressOf(url) {
  if (url.protocol === 'unix:') {
    const { db, user, pass } = Object.fromEntries(url.searchParams);
    return { socket: { path: decodeURIComponent(url.pathname) }, user, password: pass, db };
  }
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1') || '127.0.0.1';
  return {
    socket: { host, port: Number(url.port) || 6379 },
    user: decodeURIComponent(url.username),
    password: decodeURIComponent(url.password),
    db: url.pathname.slice(1),
  };
}

class Redis {
  #socket;
  /** The callers that wait for a reply, oldest first. */
  #waiting = [];
  #received = Buffer.alloc(0);
  #broken;

  constructor(socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on('data', (chunk) => this.#read(chunk));
    socket.on('error', (error) => this.#fail(error));
    socket.on('close', () => this.#fail(new Error('the connection to the server was closed')));
  }

  /** Sends one command, such as `['HGET', 'stock', 'left']`, and resolves with its reply. */
  sendCommand(words) {
    if (this.#broken) return Promise.reject(this.#broken);
    const parts = words.map(String).map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
    this.#socket.write(`*${parts.length}\r\n${parts.join('')}`);
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  close() {
    this.#socket.destroy();
  }

  #read(chunk) {
    const bytes = Buffer.concat([this.#received, chunk]);
    let at = 0;
    try {
      for (let reply = parse(bytes, at); reply !== null; reply = parse(bytes, at)) {
        at = reply.end;
        const { resolve, reject } = this.#waiting.shift();
        if (reply.value instanceof Error) reject(reply.value);
        else resolve(reply.value);
      }
    } catch (error) {
      this.#socket.destroy(error);
    }
    this.#received = bytes.subarray(at);
  }

  #fail(error) {
    this.#broken ??= error;
    for (const { reject } of this.#waiting.splice(0)) reject(this.#broken);
  }
}

/** The reply that begins at `start` and where it ends, or `null` if not all of it is here yet. */
function parse(bytes, start) {
  const lineEnd = bytes.indexOf('\r\n', start);
  if (lineEnd < 0) return null;
  const line = bytes.toString('utf8', start + 1, lineEnd);
  const end = lineEnd + 2;
  switch (String.fromCharCode(bytes[start])) {
    case '+':
      return { value: line, end };
    case '-':
      return { value: new Error(`the server says ${line}`), end };
    case ':':
      return { value: Number(line), end };
    case '$':
      return parseText(bytes, end, Number(line));
    case '*':
      return parseList(bytes, end, Number(line));
    default:
      throw new Error('this server does not speak the protocol of Redis');
  }
}

function parseText(bytes, start, length) {
  if (length < 0) return { value: null, end: start };
  const end = start + length + 2;
  return bytes.length < end ? null : { value: bytes.toString('utf8', start, end - 2), end };
}

function parseList(bytes, start, length) {
  if (length < 0) return { value: null, end: start };
  const value = [];
  let end = start;
  for (let i = 0; i < length; i++) {
    const item = parse(bytes, end);
    if (item === null) return null;
    value.push(item.value);
    end = item.end;
  }
  return { value, end };
}
