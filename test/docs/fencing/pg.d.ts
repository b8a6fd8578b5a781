/** What the tests use of pg, which comes without types. */

declare module 'pg' {
  export interface Result {
    readonly rowCount: number | null;
    readonly rows: readonly Record<string, unknown>[];
  }
  export class Pool {
    constructor(options: { connectionString: string });
    query(text: string, values?: readonly unknown[]): Promise<Result>;
    end(): Promise<void>;
  }
}
