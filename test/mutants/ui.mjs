/** Mistakes in `js/ui`. */

export default {
  tests: ['ui/access'],
  mistakes: [
    // A client that has gone keeps its stream.
    {
      file: 'js/ui/handler.ts',
      was: 'onAbort(left, () => stream.close());',
      becomes: '{}',
      tests: ['ui/fetch'],
    },
    {
      file: 'js/ui/handler.ts',
      was: 'if (!(await asked.mayRelease())) {\n',
      becomes: 'if (false) {\n',
    },
    { file: 'js/ui/handler.ts', was: 'refusalOf(asked) ?? (await', becomes: '(await' },
    { file: 'js/ui/handler.ts', was: 'problem(503,', becomes: 'problem(500,' },
    {
      file: 'js/ui/handler.ts',
      was: "'the log of this server has the error'",
      becomes: 'String(error)',
    },
    {
      file: 'js/ui/access.ts',
      was: 'if (equal(this.#sessionIn(request), this.#session)) return true;',
      becomes: 'if (this.#sessionIn(request)) return true;',
    },
    { file: 'js/ui/access.ts', was: '; HttpOnly; SameSite=Strict`', becomes: '; SameSite=Strict`' },
    {
      file: 'js/ui/access.ts',
      was: 'this.#hosts.has(hostname) ||',
      becomes: "this.#hosts.has(hostname) || hostname.includes('.') ||",
    },
    {
      file: 'js/ui/release.ts',
      was: "return site === 'same-origin';",
      becomes: "return site !== 'cross-site';",
    },
    { file: 'js/ui/release.ts', was: ', { owner: tokensOf(view) }', becomes: '' },
    { file: 'js/ui/options.ts', was: 'allowRelease: false,', becomes: 'allowRelease: true,' },
    {
      file: 'js/ui/feed.ts',
      was: 'const STREAMS_MAX = 100;',
      becomes: 'const STREAMS_MAX = 1_000;',
    },
  ],
};
