/** What the tests use of pg, which comes without types. */

declare module 'pg' {
  export interface Result {
    readonly rowCount: number | null;
    readonly rows: readonly Record<string, unknown>[];
  }
  export class Client {
    constructor(options: { connectionString: string });
    connect(): Promise<void>;
    query(text: string, values?: readonly unknown[]): Promise<Result>;
    end(): Promise<void>;
  }
  export interface PoolClient {
    query(text: string, values?: readonly unknown[]): Promise<Result>;
    release(error?: Error | boolean): void;
  }
  export class Pool {
    constructor(options: { connectionString: string; max?: number; query_timeout?: number });
    on(event: 'error', listener: (error: Error) => void): void;
    connect(): Promise<PoolClient>;
    connect(callback: (error: Error | undefined, client: PoolClient | undefined) => void): void;
    query(text: string, values?: readonly unknown[]): Promise<Result>;
    end(): Promise<void>;
  }
}
