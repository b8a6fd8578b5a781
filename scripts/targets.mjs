// The platforms for which this Linux can build the addon, and the name under which each is packed.

/** What a target of Rust is called by Node-API's loader. */
export const ADDONS = {
  'x86_64-unknown-linux-gnu': 'linux-x64-gnu',
  'aarch64-unknown-linux-gnu': 'linux-arm64-gnu',
  'x86_64-unknown-linux-musl': 'linux-x64-musl',
  'aarch64-unknown-linux-musl': 'linux-arm64-musl',
  // Node-API is an interface of C: Node loads this as it loads the one of msvc, which a release has.
  'x86_64-pc-windows-gnu': 'win32-x64-msvc',
  'x86_64-apple-darwin': 'darwin-x64',
  'aarch64-apple-darwin': 'darwin-arm64',
};

/** The file of the addon for a target. */
export function addonFile(target) {
  const name = ADDONS[target];
  if (name === undefined) throw new Error(`no target ${target}: ${Object.keys(ADDONS).join(', ')}`);
  return `holdfast.${name}.node`;
}

/** What cargo calls the library that becomes the addon. */
export function libraryFile(target) {
  if (target.includes('windows')) return 'holdfast.dll';
  return target.includes('apple') ? 'libholdfast.dylib' : 'libholdfast.so';
}

/** The libraries that every system of a target has; an addon may need no others. */
export function isOfSystem(target, library) {
  if (target.includes('apple')) return /^\/(usr\/lib|System\/Library)\//.test(library);
  if (target.includes('windows')) return WINDOWS.test(library);
  if (target.endsWith('-musl')) return library === 'libc.so';
  return GLIBC.test(library);
}

const GLIBC = /^(lib(c|m)\.so\.6|libpthread\.so\.0|libdl\.so\.2|ld-linux-[\w-]+\.so\.\d)$/;
const WINDOWS =
  /^(kernel32|ntdll|ws2_32|advapi32|bcrypt|bcryptprimitives|crypt32|ncrypt|secur32|userenv|api-ms-win-[\w-]+)\.dll$/i;
