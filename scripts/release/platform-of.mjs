// For which platform an addon is, by its own header.

const ELF_MACHINES = { 62: 'x64', 183: 'arm64' };
const PE_MACHINES = { 34404: 'x64', 43620: 'arm64' };
const MACH_MACHINES = { 16777223: 'x64', 16777228: 'arm64' };
const MACH_64 = 0xfeedfacf;

/** As in the names of the packages: `linux-x64-musl`, `win32-x64-msvc`, `darwin-arm64`; `nothing known` otherwise. */
export function platformOf(addon) {
  if (addon.subarray(0, 4).toString('latin1') === '\x7fELF') {
    // The names of the libraries that it needs: glibc's has a version.
    const libc = addon.includes('\0libc.so.6\0') ? 'gnu' : 'musl';
    return `linux-${ELF_MACHINES[addon.readUInt16LE(18)]}-${libc}`;
  }
  if (addon.subarray(0, 2).toString('latin1') === 'MZ') {
    const header = addon.readUInt32LE(0x3c);
    return `win32-${PE_MACHINES[addon.readUInt16LE(header + 4)]}-msvc`;
  }
  if (addon.length > 8 && addon.readUInt32LE(0) === MACH_64) {
    return `darwin-${MACH_MACHINES[addon.readUInt32LE(4)]}`;
  }
  return 'nothing known';
}
