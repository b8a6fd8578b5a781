/** The answers of the middleware, by either kind of response. */

import assert from 'node:assert/strict';
import { test } from 'node:test';

interface Internals {
  refuse(response: unknown, problem: object, headers?: Readonly<Record<string, string>>): void;
}

// It is internal: it is reached by path, past the package's exports.
const { refuse } = require('../../../dist/internals.js') as Internals;

const PROBLEM = { status: 409, title: 'Busy', detail: 'Another request is under way.' };
const HEADERS = {
  'Content-Type': 'application/problem+json',
  'Cache-Control': 'no-store',
  'Retry-After': '1',
};

test('a problem has its status, its document and its headers, and no cache keeps it', () => {
  const given = { 'Retry-After': '1' };
  const seen: Record<string, string> = {};
  const plain = {
    statusCode: 200,
    body: '',
    setHeader: (name: string, value: string) => {
      seen[name] = value;
    },
    end: (body: string) => {
      plain.body = body;
    },
  };
  refuse(plain, PROBLEM, given);
  assert.deepEqual([plain.statusCode, seen, JSON.parse(plain.body)], [409, HEADERS, PROBLEM]);

  const ofReply: Record<string, string> = {};
  const reply = {
    status: 200,
    body: '',
    code: (status: number) => {
      reply.status = status;
      return reply;
    },
    header: (name: string, value: string) => {
      ofReply[name] = value;
      return reply;
    },
    send: (body: string) => {
      reply.body = body;
    },
  };
  refuse(reply, PROBLEM, given);
  assert.deepEqual([reply.status, ofReply, JSON.parse(reply.body)], [409, HEADERS, PROBLEM]);
});
