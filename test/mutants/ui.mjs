/** Mistakes in `js/operators/page`. */

export default {
  tests: ['page/access'],
  mistakes: [
    // A client that has gone keeps its stream.
    {
      file: 'js/operators/page/handler.ts',
      was: 'onAbort(left, () => stream.close());',
      becomes: '{}',
      tests: ['page/fetch'],
    },
    {
      file: 'js/operators/page/handler.ts',
      was: 'if (!(await asked.mayRelease())) {\n',
      becomes: 'if (false) {\n',
    },
    { file: 'js/operators/page/handler.ts', was: 'refusalOf(asked) ?? (await', becomes: '(await' },
    { file: 'js/operators/page/handler.ts', was: 'problem(503,', becomes: 'problem(500,' },
    {
      file: 'js/operators/page/handler.ts',
      was: "'the log of this server has the error'",
      becomes: 'String(error)',
    },
    {
      file: 'js/operators/page/access.ts',
      was: 'if (equal(this.#sessionIn(request), this.#session)) return true;',
      becomes: 'if (this.#sessionIn(request)) return true;',
    },
    {
      file: 'js/operators/page/access.ts',
      was: '; HttpOnly; SameSite=Strict`',
      becomes: '; SameSite=Strict`',
    },
    {
      file: 'js/operators/page/access.ts',
      was: 'this.#hosts.has(hostname) ||',
      becomes: "this.#hosts.has(hostname) || hostname.includes('.') ||",
    },
    {
      file: 'js/operators/page/release.ts',
      was: "return site === 'same-origin';",
      becomes: "return site !== 'cross-site';",
    },
    { file: 'js/operators/page/release.ts', was: ', { token: tokensOf(view) }', becomes: '' },
    {
      file: 'js/operators/page/options.ts',
      was: 'allowRelease: false,',
      becomes: 'allowRelease: true,',
    },
    {
      file: 'js/operators/page/feed.ts',
      was: 'const STREAMS_MAX = 100;',
      becomes: 'const STREAMS_MAX = 1_000;',
    },
  ],
};
