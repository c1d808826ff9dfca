/** What the system, or TLS, says of a socket, with the next step for a person. */
import { NotReady, TlsFailed, TransportError } from "../../TransportError.ts"
import { closed, ioFailed } from "../errors.ts"

const codeOf = (cause: unknown): string =>
  typeof cause === "object" && cause !== null && "code" in cause && typeof cause.code === "string" ? cause.code : ""

/** Of OpenSSL's own errors Node gives the reason, without its line of hexadecimals and source files. */
const messageOf = (cause: unknown): string => {
  if (!(cause instanceof Error)) return String(cause)
  return "reason" in cause && typeof cause.reason === "string" ? cause.reason : cause.message
}

const notThere: ReadonlyMap<string, string> = new Map([
  ["ECONNREFUSED", "nobody listens there: start the listener, or check host and port"],
  ["ENOTFOUND", "no such host is known: check the host's name"],
  ["EAI_AGAIN", "the host's name can't be resolved now: check the name, and this machine's DNS"],
  ["EHOSTUNREACH", "the host can't be reached: check the address and the network"],
  ["ENETUNREACH", "there is no way to its network: check the address and the network"],
  ["EHOSTDOWN", "the host is down"],
  ["ETIMEDOUT", "no answer: check host and port, and that no firewall drops the packets"]
])

const tlsFailed = (target: string, problem: TlsFailed["problem"], message: string): TransportError =>
  new TransportError({ reason: new TlsFailed({ target, problem, message }) })

interface TlsHint {
  readonly problem: TlsFailed["problem"]
  readonly says: string
}

const foreign: TlsHint = {
  problem: "foreign",
  says: "its certificate was not issued by the CA in ca_cert (rootCA.pem): use the files of one project on both sides"
}

// Codes of OpenSSL's check of the peer's certificate.
const peerCertificate: ReadonlyMap<string, TlsHint> = new Map([
  ["CERT_HAS_EXPIRED", { problem: "expired", says: "its certificate has expired: renew it, and check both clocks" }],
  ["CERT_NOT_YET_VALID", { problem: "expired", says: "its certificate is not valid yet: check both clocks" }],
  ["UNABLE_TO_VERIFY_LEAF_SIGNATURE", foreign],
  ["UNABLE_TO_GET_ISSUER_CERT", foreign],
  ["UNABLE_TO_GET_ISSUER_CERT_LOCALLY", foreign],
  ["SELF_SIGNED_CERT_IN_CHAIN", foreign],
  ["DEPTH_ZERO_SELF_SIGNED_CERT", foreign],
  ["CERT_SIGNATURE_FAILURE", foreign],
  ["CERT_UNTRUSTED", foreign],
  ["CERT_REJECTED", foreign],
  ["INVALID_CA", { problem: "foreign", says: "a certificate in its chain may not issue others: let the CA issue it" }],
  [
    "INVALID_PURPOSE",
    {
      problem: "purpose",
      says: "its certificate, or one above it, is not meant for this side of a connection (extended key usage, no CA): issue one without that limit"
    }
  ],
  ["ERR_TLS_CERT_ALTNAME_INVALID", { problem: "hostName", says: "" }],
  ["ERR_TLS_HANDSHAKE_TIMEOUT", { problem: "ended", says: "it did not end the handshake in time (handshakeTimeout)" }],
  [
    "ERR_SSL_PEER_DID_NOT_RETURN_A_CERTIFICATE",
    { problem: "noCertificate", says: "it showed no certificate: it must have client.crt and client.key" }
  ]
])

const alertHint = (code: string): TlsHint | undefined => {
  if (!code.includes("ALERT")) {
    return undefined
  }
  if (code.includes("CERTIFICATE_REQUIRED")) {
    return {
      problem: "refused",
      says: "it wants a certificate and none was shown: client.crt and client.key are needed"
    }
  }
  if (code.includes("UNKNOWN_CA")) {
    return {
      problem: "refused",
      says: "it does not trust the CA of this side's certificate: use the files of one project on both sides"
    }
  }
  if (code.includes("CERTIFICATE") || code.includes("ACCESS_DENIED") || code.includes("DECRYPT_ERROR")) {
    return { problem: "refused", says: "it refuses this side's certificate (expired, or not meant for this): renew it" }
  }
  if (code.includes("PROTOCOL_VERSION")) {
    return { problem: "version", says: "both sides have no version of TLS in common: 1.2 or newer is needed" }
  }
  return { problem: "refused", says: "it refuses the TLS handshake" }
}

const notTlsCodes = new Set([
  "ERR_SSL_WRONG_VERSION_NUMBER",
  "ERR_SSL_PACKET_LENGTH_TOO_LONG",
  "ERR_SSL_HTTP_REQUEST",
  "ERR_SSL_UNKNOWN_PROTOCOL",
  "ERR_SSL_RECORD_LAYER_FAILURE",
  "ERR_SSL_BAD_RECORD_TYPE",
  "ERR_SSL_UNEXPECTED_MESSAGE",
  "EPROTO"
])

const notTls = (target: string, role: "active" | "passive", code: string): TransportError => {
  const says =
    role === "active"
      ? "the port is in clear or belongs to another service: check the port, or dial with the scheme without TLS"
      : "it dials in clear: let it use the scheme with TLS (stcp, https, grpcs)"
  return tlsFailed(target, "notTls", `${target} does not speak TLS (${code}): ${says}`)
}

/** What TLS says; `undefined` where it is nothing of TLS. */
const tlsError = (target: string, role: "active" | "passive", cause: unknown): TransportError | undefined => {
  const code = codeOf(cause)
  const hint = peerCertificate.get(code) ?? alertHint(code)
  if (hint !== undefined) {
    const says =
      hint.says === "" ? `${messageOf(cause)}: issue a certificate with this host, or dial its name` : hint.says
    return tlsFailed(target, hint.problem, `no TLS connection with ${target} (${code}): ${says}`)
  }
  if (notTlsCodes.has(code)) {
    return notTls(target, role, code)
  }
  return code.startsWith("ERR_SSL") || code.startsWith("ERR_TLS")
    ? tlsFailed(target, "other", `no TLS connection with ${target} (${code}): ${messageOf(cause)}`)
    : undefined
}

/** Why a TLS handshake did not come to an end. */
export const handshakeError = (target: string, role: "active" | "passive", cause: unknown): TransportError => {
  const known = tlsError(target, role, cause)
  if (known !== undefined) {
    return known
  }
  const code = codeOf(cause)
  return code === "ECONNRESET" || code === "EPIPE"
    ? tlsFailed(
        target,
        "ended",
        `${target} ended the connection during the TLS handshake: it may not speak TLS (check the port and the scheme), or refuses this side's certificate`
      )
    : dialError(target, cause)
}

export const handshakeTimeout = (target: string, waited: string): TransportError =>
  tlsFailed(
    target,
    "notTls",
    `${target} did not end the TLS handshake within ${waited} (handshakeTimeout): the port may be in clear or belong to another service; check port and scheme`
  )

/** Why no connection came about. */
export const dialError = (target: string, cause: unknown): TransportError => {
  const code = codeOf(cause)
  const says = notThere.get(code)
  return says === undefined
    ? ioFailed("connecting to", target, cause)
    : new TransportError({ reason: new NotReady({ target, message: `no connection to ${target} (${code}): ${says}` }) })
}

const resets = new Set(["ECONNRESET", "EPIPE", "ECONNABORTED"])

/** Why a connection that was there has ended. */
export const brokenError = (target: string, role: "active" | "passive", cause: unknown): TransportError => {
  const code = codeOf(cause)
  return resets.has(code)
    ? closed(target, "peer", `${target} reset the connection (${code})`)
    : (tlsError(target, role, cause) ??
        closed(target, "io", `the connection with ${target} broke (${code || messageOf(cause)})`))
}

/** Why a listener could not be opened. */
export const listenError = (url: string, cause: unknown): TransportError => {
  switch (codeOf(cause)) {
    case "EADDRINUSE":
      return ioFailed("listening at", url, cause, "another program has this port: end it, or take another port")
    case "EACCES":
      return ioFailed("listening at", url, cause, "this user may not use this port: take one above 1024")
    case "EADDRNOTAVAIL":
    case "ENOTFOUND":
      return ioFailed("listening at", url, cause, "this machine does not have this address: use 0 for all it has")
    default:
      return ioFailed("listening at", url, cause)
  }
}
