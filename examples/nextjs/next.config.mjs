// The addon of holdfast is loaded where it is installed.
export default { serverExternalPackages: ['holdfast'] }
