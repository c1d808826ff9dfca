/**
 * Why a certificate is not taken for a peer's.
 *
 * @since 0.1.0
 */
import { Schema } from "effect"

/**
 * `kind`: `pem` = no certificate can be read; `chain` = it does not lead to the own root by rules of a chain;
 * `validity` = it, or an issuer, is expired or not valid yet; `key` = its key can't protect messages; `name` = it is of
 * another participant. Source: docs/wire/security.md, sections 3.2 and 5.
 *
 * @category errors
 * @since 0.1.0
 */
export class CertificateError extends Schema.TaggedError<CertificateError>()("CertificateError", {
  kind: Schema.Literals(["pem", "chain", "validity", "key", "name"]),
  message: Schema.String
}) {}
