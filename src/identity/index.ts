/**
 * Who a peer is.
 *
 * @since 0.1.0
 */
export * as CertificateChain from "./CertificateChain.ts"
export * from "./CertificateError.ts"
export * as CertificateIdentity from "./CertificateIdentity.ts"
export * as Credentials from "./Credentials.ts"
export * from "./CredentialsError.ts"
export * as Fqcn from "./Fqcn.ts"
export * from "./FqcnError.ts"
export * as TlsContext from "./TlsContext.ts"
