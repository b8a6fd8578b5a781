/** What the tests use of Express, which comes without types. */

declare module 'express' {
  import type { IncomingMessage, Server, ServerResponse } from 'node:http';

  export interface Request extends IncomingMessage {
    readonly body: unknown;
    readonly params: Readonly<Record<string, string>>;
  }
  export interface Response extends ServerResponse {
    json(body: unknown): this;
    send(body: unknown): this;
    status(code: number): this;
  }
  type Next = (error?: unknown) => void;
  type Handler = (request: Request, response: Response, next: Next) => unknown;
  type ErrorHandler = (error: Error, request: Request, response: Response, next: Next) => unknown;

  export interface Express {
    (request: IncomingMessage, response: ServerResponse, next?: Next): void;
    get(path: string, ...handlers: Handler[]): this;
    post(path: string, ...handlers: Handler[]): this;
    put(path: string, ...handlers: Handler[]): this;
    use(...handlers: (ErrorHandler | Handler)[]): this;
    use(path: string, ...handlers: Handler[]): this;
    listen(port: number, host: string, ready?: () => void): Server;
  }
  function express(): Express;
  namespace express {
    export function json(): Handler;
    export function raw(options: { type: string }): Handler;
  }
  export default express;
}
