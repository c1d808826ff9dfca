/** Tells from the first bytes of a peer that it doesn't speak frames, and what it speaks. */

/** No greeting is so large; what says so is no frame. */
export const greetingLimit = 1024 * 1024

const shown = 60

const isPrintable = (bytes: Uint8Array): boolean =>
  bytes.every((byte) => (byte >= 0x20 && byte < 0x7f) || byte === 0x0d || byte === 0x0a)

const isTls = (bytes: Uint8Array): boolean =>
  (bytes[0] === 0x16 || bytes[0] === 0x15) && bytes[1] === 0x03 && (bytes[2] ?? 0xff) <= 4

/** What the first bytes, at least four, are instead of a frame, and what to do; `undefined` where they may be one. */
export const strangerIn = (bytes: Uint8Array, peer: string, role: "active" | "passive"): string | undefined => {
  const length = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(0)
  if (length <= greetingLimit) {
    return undefined
  }
  if (isTls(bytes)) {
    return role === "active"
      ? `${peer} answers with TLS: dial it with the scheme stcp (and connection_security mtls)`
      : `${peer} speaks TLS to a port that is in clear: let it dial with the scheme tcp, or let this listener be stcp`
  }
  const start = bytes.subarray(0, shown)
  if (isPrintable(start)) {
    const text = JSON.stringify(new TextDecoder().decode(start))
    return text.startsWith('"HTTP/') || text.startsWith('"GET ') || text.startsWith('"PRI ')
      ? `${peer} speaks HTTP (${text}), not frames over tcp: check the port, or use the scheme http or grpc`
      : `${peer} is another service, it says ${text}: check host and port`
  }
  return `the first frame of ${peer} would have ${length} bytes, a greeting never has more than ${greetingLimit}: it speaks another protocol, check the port`
}
